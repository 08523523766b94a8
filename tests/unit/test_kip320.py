"""The invariants of the TLA+ specification of KIP-320 after every event: `kip320` says which they are.

Stories show which version breaks which, and histories of a 4.1 cluster that elects nobody uncleanly, and that loses no
files, break none. No acks=1 breaks any of them: they are about what is below a high watermark, and what acks=1
loses is above it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import golden_story
import pytest
from cluster_state import LAG_MS
from hypothesis import assume, given, settings
from kip320 import LEADER_IN_ISR, STRONG_ISR, TYPE_OK, WEAK_ISR, Quorum, broken
from test_properties import OPERATIONS, clusters_after, events_of

from replay.engine import codes as c
from replay.engine.apply import apply
from replay.engine.encode import brokers_of, encode
from replay.engine.events import EventBatch
from replay.engine.moves import new_moves
from replay.protocol.profile import profile_named
from replay.protocol.state import NONE, ROLE_FOLLOWER, ROLE_LEADER, State, new_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster_model import Cluster

STORIES = Path(__file__).parent.parent / "testdata"


@dataclass
class Controller:
    """The controller behind a story, which has none: it decided what leaders are told, as soon as the first one is.

    An ISR that a leader commits it had granted, and before AlterIsr leaders wrote it themselves; in both cases only to
    the leader of the newest epoch.
    """

    quorum: Quorum = field(default_factory=Quorum)

    def hear(self, story: golden_story.Story, kind: int, fields: dict[str, int]) -> None:
        """Take an event of the story, which has been applied."""
        leader, epoch, _ = self.quorum
        if kind == c.ROLE_CHANGE and fields["role"] == ROLE_LEADER and fields["leader_epoch"] >= epoch:
            self.quorum = Quorum(fields["broker"], fields["leader_epoch"], fields["isr"])
        elif kind == c.ISR_REQUEST and fields["isr_request"] == c.ISR_COMMITTED and fields["leader_epoch"] == epoch:
            self.quorum = Quorum(leader, epoch, fields["isr"])
        elif kind == c.ROLE_CHANGE and fields["leader_epoch"] > epoch:  # followers may be told first, and of no ISR
            self.quorum = Quorum(fields["leader"], fields["leader_epoch"], self.quorum.isr | 1 << fields["leader"])
        elif leader >= 0 and not story.profile.isr_change_pending and story.state.epoch[leader] == epoch:
            self.quorum = Quorum(leader, epoch, int(story.state.isr[leader]))


def broken_in_story(text: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """By the version that each part of a story begins with, the invariants that its events break."""
    found: dict[str, set[str]] = {}
    parts = ["version " + part for part in text.split("\nversion ")[1:]]
    apply_ = golden_story.Story.apply
    for part in parts:
        version, controller = part.split()[1], Controller()

        def watched(
            self: golden_story.Story,
            kind: int,
            *,
            _version: str = version,
            _controller: Controller = controller,
            **fields: int,
        ) -> None:
            apply_(self, kind, **fields)
            _controller.hear(self, kind, fields)
            found[_version] |= broken(self.state, _controller.quorum)

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


A, B, C = range(3)


def committed_everywhere() -> State:
    """A leads epoch 0, and B and C have what it committed."""
    state = new_state(3, min_isr=1, lag_us=LAG_MS * 1000)
    state.role[:], state.role[A], state.follows[:], state.epoch[:] = ROLE_FOLLOWER, ROLE_LEADER, A, 0
    state.isr[A] = state.maximal_isr[A] = 0b111
    state.leo[:], state.hw[:], state.cache_len[:], state.cache_epoch[:, 0] = 5, 3, 1, 0
    return state


def two_epochs(s: State, b: int, *epochs: int) -> None:
    """Give a log of five records two epochs, the second from offset 1 on."""
    s.cache_len[b], s.cache_epoch[b, :2], s.cache_start[b, :2] = 2, epochs, (0, 1)


DECIDED = Quorum(A, 1, 0b111)  # epoch 1, which nobody has heard of
PLANTED: dict[str, tuple[Callable[[State], object], Quorum, set[str]]] = {
    "nothing": (lambda _: None, DECIDED, set()),
    "a high watermark below 0": (lambda s: s.hw.fill(-1), DECIDED, {TYPE_OK}),
    "an ISR of a broker that there is not": (lambda s: s.isr.fill(0b1000), DECIDED, {TYPE_OK}),
    "a leader that follows another": (lambda s: s.follows.fill(B), DECIDED, {TYPE_OK}),
    "two leaders of one epoch": (lambda s: (s.role.fill(ROLE_LEADER), s.follows.put([A, B, C], [A, B, C])), DECIDED,
                                 {TYPE_OK}),
    "an epoch that was never given out": (lambda s: s.epoch.put(C, 2), DECIDED, {TYPE_OK}),
    "records of such an epoch": (lambda s: two_epochs(s, C, 0, 2), DECIDED, {TYPE_OK, WEAK_ISR, STRONG_ISR}),
    "epochs that go back": (lambda s: two_epochs(s, C, 0, 0), DECIDED, {TYPE_OK}),
    "a log that starts beyond its end": (lambda s: s.log_start.put(C, 6), DECIDED, {TYPE_OK}),
    "a leader outside of the controller's ISR": (lambda _: None, Quorum(A, 1, 0b110), {LEADER_IN_ISR}),
    "no leader": (lambda _: None, Quorum(NONE, 1, 0b110), set()),
    "a member that lacks what is committed": (lambda s: s.leo.put(C, 2), DECIDED, {WEAK_ISR, STRONG_ISR}),
    "one that only the leader counts": (lambda s: s.leo.put(C, 2), Quorum(A, 1, 0b011), {WEAK_ISR}),
    "one that only the controller counts": (lambda s: (s.leo.put(C, 2), s.isr.put(A, 0b011)), DECIDED, {STRONG_ISR}),
    "one with other records": (lambda s: two_epochs(s, C, 0, 1), DECIDED, {WEAK_ISR, STRONG_ISR}),
    "other records above the high watermark": (
        lambda s: (two_epochs(s, C, 0, 1), s.cache_start.put(s.cache_start.shape[1] * C + 1, 3)), DECIDED, set()),
    "other records of which no line tells": (
        lambda s: (two_epochs(s, C, 0, 1), s.unsure_until.put(C, 5)), DECIDED, set()),
    "other records where records were deleted": (
        lambda s: (two_epochs(s, C, 0, 1), s.log_start.put(A, 3)), DECIDED, set()),
}  # fmt: skip


@pytest.mark.parametrize("fault", PLANTED)
def test_a_state_breaks_what_its_fault_is_about(fault: str) -> None:
    plant, quorum, breaks = PLANTED[fault]
    state = committed_everywhere()
    plant(state)
    assert broken(state, quorum) == breaks


CLEAN = tuple(name for name in OPERATIONS if name != "unclean")


@given(clusters_after(CLEAN, 60))
@settings(max_examples=30)
def test_no_event_of_a_history_without_unclean_elections_breaks_an_invariant(cluster: Cluster) -> None:
    assume(not cluster.single)  # otherwise brokers may come back without the end of their files
    assume(not any(row.get("leader_recovery_state") == 1 for row in cluster.rows))
    events = events_of(cluster.rows, cluster.min_isr)
    brokers = brokers_of(EventBatch(events).events)
    state = new_state(len(brokers), min_isr=cluster.min_isr, lag_us=LAG_MS * 1000)
    moves, quorum = new_moves(), Quorum()
    for event in encode(EventBatch(events).events, brokers):
        apply(state, profile_named("4.1.0", None), event, moves)
        quorum = quorum.decided(event)
        assert not broken(state, quorum), (int(event.seq), int(event.kind))
