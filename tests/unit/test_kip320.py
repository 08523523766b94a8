"""The invariants of the TLA+ specification of KIP-320 (hachikuji/kafka-specification), after every event.

`LeaderInIsr`: the leader is in its ISR. `WeakIsr`: whoever thinks that it leads has, below its HW, what every member of
its own ISR has. `StrongIsr`: it has what every member of the true ISR has, from which the next leader comes. Epochs and
where they begin stand for records: in one epoch one leader wrote at each offset. Stories show which version breaks
which, and histories of a 4.1 cluster that elects nobody uncleanly, and that loses no files, break none.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import golden_story
import pytest
from cluster_state import LAG_MS
from hypothesis import assume, given, settings
from test_properties import OPERATIONS, clusters_after, epochs_below, events_of

from replay.engine.apply import apply
from replay.engine.encode import brokers_of, encode
from replay.engine.events import EventBatch
from replay.engine.moves import new_moves
from replay.protocol.profile import profile_named
from replay.protocol.state import ROLE_LEADER, State, new_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster_model import Cluster

STORIES = Path(__file__).parent.parent / "testdata"
LEADER_IN_ISR, WEAK_ISR, STRONG_ISR = "LeaderInIsr", "WeakIsr", "StrongIsr"


def members(mask: int, count: int) -> list[int]:
    return [b for b in range(count) if mask & (1 << b)]


def agrees_below(s: State, leader: int, other: int, hw: int) -> bool:
    """Whether two replicas have the same records below an offset (HasEntry in both logs)."""
    begin = max(int(s.log_start[leader]), int(s.log_start[other]))  # before it one of them may have deleted
    mine, theirs = ({max(start, begin): epoch for epoch, start in epochs_below(s, b, hw)} for b in (leader, other))
    return int(s.leo[other]) >= hw and mine == theirs


def broken(s: State) -> Iterator[str]:
    """Which invariants a state breaks."""
    leaders = [b for b in range(len(s.leo)) if s.role[b] == ROLE_LEADER]
    if not leaders:
        return
    newest = max(leaders, key=lambda b: int(s.epoch[b]))
    if not s.isr[newest] & (1 << newest):
        yield LEADER_IN_ISR
    for name, of in ((WEAK_ISR, None), (STRONG_ISR, newest)):
        for b in leaders:
            isr = members(int(s.isr[b if of is None else of]), len(s.leo))
            if not all(agrees_below(s, b, r, int(s.hw[b])) for r in isr):
                yield name


def broken_in_story(text: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """By the version that each part of a story begins with, the invariants that its events break."""
    found: dict[str, set[str]] = {}
    parts = ["version " + part for part in text.split("\nversion ")[1:]]
    apply_ = golden_story.Story.apply
    for part in parts:
        version = part.split()[1]

        def watched(self: golden_story.Story, kind: int, *, _version: str = version, **fields: int) -> None:
            apply_(self, kind, **fields)
            found[_version] |= set(broken(self.state))

        found.setdefault(version, set())
        monkeypatch.setattr(golden_story.Story, "apply", watched)
        golden_story.render(part)
    return found


UNCLEAN = {STRONG_ISR}  # the old leader still thinks that it leads: what it had committed, the new ISR never had
BREAKING = {  # story -> version -> what its events break; every other story breaks nothing
    "diverging-fetch": {"4.1.0": UNCLEAN},
    "kip-279-asks-again": {"2.3.1": UNCLEAN},
    "truncation-and-the-hw": {"2.4.1": UNCLEAN, "2.3.1": UNCLEAN},
    "unclean-election": {"4.1.0": UNCLEAN},
    # files that were not flushed: the specification has no such step
    "kip-101-divergence": {"0.10.2.2": {WEAK_ISR, STRONG_ISR}, "0.11.0.2": {WEAK_ISR, STRONG_ISR}},
    "remote-leo-falls": {"4.1.0": {WEAK_ISR, STRONG_ISR}},
    # mended by a later version: truncation to the own HW (KIP-101), joining below the epoch's start (KAFKA-7128)
    "kip-101-loss": {"0.10.2.2": {WEAK_ISR, STRONG_ISR}, "0.11.0.2": set()},
    "epoch-start": {"2.0.0": {STRONG_ISR}, "2.0.1": set()},
}


@pytest.mark.parametrize("path", sorted(STORIES.glob("*.txt")), ids=lambda path: path.stem)
def test_each_version_of_a_story_breaks_what_it_is_known_to_break(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = broken_in_story(path.read_text(encoding="utf-8"), monkeypatch)
    assert found
    assert found == BREAKING.get(path.stem, {key: set() for key in found})


CLEAN = tuple(name for name in OPERATIONS if name != "unclean")


@given(clusters_after(CLEAN, 60))
@settings(max_examples=30)
def test_no_event_of_a_history_without_unclean_elections_breaks_an_invariant(cluster: Cluster) -> None:
    assume(not cluster.single)  # otherwise brokers may come back without the end of their files
    assume(not any(row.get("leader_recovery_state") == 1 for row in cluster.rows))
    events = events_of(cluster.rows, cluster.min_isr)
    brokers = brokers_of(EventBatch(events).events)
    state = new_state(len(brokers), min_isr=cluster.min_isr, lag_us=LAG_MS * 1000)
    moves = new_moves()
    for event in encode(EventBatch(events).events, brokers):
        apply(state, profile_named("4.1.0", None), event, moves)
        assert not set(broken(state)), (int(event.seq), int(event.kind))
