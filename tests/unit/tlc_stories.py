"""The stories of `tests/testdata` as TLC reads them (`tlc`): with a controller that decided what leaders are told."""

from __future__ import annotations

import re
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import golden_story
from tlc import ToldStory

from replay.engine import codes as c
from replay.protocol.state import NONE

if TYPE_CHECKING:
    import pytest
    from tlc import Event

STORIES = Path(__file__).parent.parent / "testdata"
IN_WORDS = golden_story.Story.told


@dataclass
class Told(ToldStory):
    """A story whose events are written down."""

    leader: int = NONE
    epoch: int = NONE
    numbers: dict[int, int] = field(default_factory=lambda: {NONE: -1})

    def __post_init__(self) -> None:
        self.told = types.MethodType(IN_WORDS, self)  # the random stories have a field of this name

    def apply(self, kind: int, **fields: int) -> None:
        """Whoever is told of a new epoch, the controller has decided it; and it grants what a leader commits in it."""
        if kind == c.ROLE_CHANGE and fields["leader_epoch"] > self.epoch:
            isr = fields.get("isr", self.members | 1 << fields["leader"])
            number = self.numbers[self.epoch] + (self.members & ~isr).bit_count() + 1
            self.leader, self.epoch, self.members = fields["leader"], fields["leader_epoch"], isr
            self.numbers[self.epoch] = number
        elif (
            kind == c.ISR_REQUEST and fields["isr_request"] == c.ISR_COMMITTED and fields["leader_epoch"] == self.epoch
        ):
            self.members = fields["isr"]
        super().apply(kind, **fields)


def told_stories(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], list[Event]]:
    """By story and version, the events of each part. Every cluster has a broker C, who may have nothing to do."""
    found: dict[tuple[str, str], list[Event]] = {}
    for path in sorted(STORIES.glob("*.txt")):
        for part in ["version " + part for part in path.read_text(encoding="utf-8").split("\nversion ")[1:]]:
            made: list[Told] = []

            def making(*profile: object, _made: list[Told] = made) -> Told:
                _made.append(Told(*profile))  # type: ignore[arg-type]
                return _made[-1]

            monkeypatch.setattr(golden_story, "Story", making)
            golden_story.render(re.sub(r"^brokers A B$", "brokers A B C", part, flags=re.MULTILINE))
            monkeypatch.undo()
            found[path.stem, part.split()[1]] = made[0].events
    return found
