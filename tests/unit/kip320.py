"""The invariants of the TLA+ specification of KIP-320 (hachikuji/kafka-specification), asked of the engine's state.

`TypeOk`: every value is one that the specification's variables may have. `LeaderInIsr`: the leader that the controller
named is in the controller's ISR (where it named one: the specification lets the leader be None, and says nothing of
it). `WeakIsr`: whoever thinks that it leads has, below its HW, what every member of its own ISR has. `StrongIsr`: it
has what every member of the controller's ISR has, from which the next leader comes. These four are all that the
specification states (Kip320.tla, THEOREM; KafkaReplication.tla and the modules that it is made of).

Its variables are here:

    replicaLog        epochs and where they begin stand for records: in one epoch one leader wrote at each offset
    replicaState      hw, epoch, follows, and of a leader its committed ISR
    quorumState       `Quorum`: what the controller decided last, whether or not anybody has heard of it
    nextLeaderEpoch   no epoch stands anywhere that the controller has not given out
    nextRecordId      no two leaders have the same epoch, so no two records the same place in one
    leaderAndIsrRequests: what brokers learned of decisions; roles and ISRs of the state

The specification's logs begin at 0 and hold a constant number of records. Here they may begin later, for records are
deleted: only what both logs may still have is compared. Offsets of which no line tells the epoch are not.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from replay.engine import codes as c
from replay.engine.apply import apply
from replay.engine.encode import brokers_of, encode
from replay.engine.events import EventBatch
from replay.engine.moves import new_moves
from replay.losses.story import KINDS, Story
from replay.protocol.log import epoch_at
from replay.protocol.state import (
    MIN_ISR_UNKNOWN,
    NONE,
    ROLE_FOLLOWER,
    ROLE_LEADER,
    ROLE_NONE,
    UNSET,
    State,
    new_state,
)
from replay.tables.partition_replay import DEFAULT_LAG_US
from replay.tables.rare_events import in_turn, rare_events

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from replay.engine.event_record import EventRecord

TYPE_OK, LEADER_IN_ISR, WEAK_ISR, STRONG_ISR = "TypeOk", "LeaderInIsr", "WeakIsr", "StrongIsr"


class Quorum(NamedTuple):
    """What the controller decided last (`quorumState`)."""

    leader: int = NONE
    epoch: int = NONE
    isr: int = 0  # a mask

    def decided(self, event: EventRecord) -> Quorum:
        """The state after an event: only the controller's decisions change it, each by what it names."""
        if event.kind != c.PARTITION_CHANGE:
            return self
        named = (int(event.leader), int(event.leader_epoch), int(event.isr))
        return Quorum(*(before if value == UNSET else value for before, value in zip(self, named, strict=True)))


class Seen(NamedTuple):
    """What an event changes: invariants that do not hold from then on, and such as hold again."""

    seq: int
    begins: frozenset[str]
    ends: frozenset[str]


def members(mask: int, count: int) -> list[int]:
    """The brokers of a mask."""
    return [b for b in range(count) if mask & (1 << b)]


def is_unsure(s: State, b: int, offset: int) -> bool:
    """Whether no line tells the epoch of b's record at an offset."""
    return bool(s.unsure_from[b] <= offset < s.unsure_until[b]) or epoch_at(s, b, offset) == NONE


def agrees_below(s: State, leader: int, other: int, hw: int) -> bool:
    """Whether two replicas have the same records below an offset (HasEntry in both logs)."""
    if min(s.leo[leader], s.leo[other]) < hw:
        return False
    begin = max(int(s.log_start[leader]), int(s.log_start[other]))  # before it one of them may have deleted
    places = {begin}
    for b in (leader, other):
        starts = s.cache_start[b, : int(s.cache_len[b])].tolist()
        places |= {offset for offset in (*starts, int(s.unsure_until[b])) if offset > begin}
    return all(
        epoch_at(s, leader, offset) == epoch_at(s, other, offset)
        for offset in places
        if offset < hw and not is_unsure(s, leader, offset) and not is_unsure(s, other, offset)
    )


def misfits(s: State, quorum: Quorum) -> Iterator[str]:
    """What in a state no variable of the specification may be (TypeOk)."""
    count = len(s.leo)
    everyone = (1 << count) - 1
    if quorum.leader not in range(NONE, count) or quorum.epoch < NONE or quorum.isr & ~everyone:
        yield "quorumState"
    leaders = [int(s.epoch[b]) for b in range(count) if s.role[b] == ROLE_LEADER]
    if len(leaders) != len(set(leaders)):
        yield "nextRecordId"
    for b in range(count):
        known = s.role[b] in {ROLE_NONE, ROLE_FOLLOWER, ROLE_LEADER} and s.follows[b] in range(NONE, count)
        if not known or (s.role[b] == ROLE_LEADER and s.follows[b] != b) or s.hw[b] < 0:
            yield "replicaState"
        if (s.isr[b] | s.maximal_isr[b]) & ~everyone:
            yield "replicaState"
        yield from misfits_of_log(s, b)
        if max(int(s.epoch[b]), *s.cache_epoch[b, : int(s.cache_len[b])].tolist(), NONE) > quorum.epoch:
            yield "nextLeaderEpoch"


def misfits_of_log(s: State, b: int) -> Iterator[str]:
    """The same of a replica's log: each offset up to its end has one record, and none beyond it has."""
    n, end = int(s.cache_len[b]), int(s.leo[b])
    epochs, starts = s.cache_epoch[b, :n].tolist(), s.cache_start[b, :n].tolist()
    rising = all(here < after for of in (epochs, starts) for here, after in pairwise(of))
    if not 0 <= s.log_start[b] <= end or not rising or min(epochs, default=0) < 0 or max(starts, default=0) > end:
        yield "replicaLog"


def broken(s: State, quorum: Quorum) -> set[str]:
    """Which invariants a state breaks."""
    found = {TYPE_OK} if any(True for _ in misfits(s, quorum)) else set()
    if quorum.leader != NONE and not quorum.isr & (1 << quorum.leader):
        found.add(LEADER_IN_ISR)
    for b in [b for b in range(len(s.leo)) if s.role[b] == ROLE_LEADER]:
        for name, isr in ((WEAK_ISR, int(s.isr[b])), (STRONG_ISR, quorum.isr)):
            if s.hw[b] > 0 and not all(agrees_below(s, b, r, int(s.hw[b])) for r in members(isr, len(s.leo))):
                found.add(name)
    return found


def seen_in(events: pa.Table) -> Iterator[Seen]:
    """Ask the state after every event of a partition that was recorded, and tell of each event that changes something.

    Each broker's events are applied by the rules of the version that it runs then.
    """
    batch = EventBatch(events).events
    versions = Story()
    versions.take_all(in_turn(rare_events(batch), KINDS))
    brokers = brokers_of(batch)
    state = new_state(len(brokers), min_isr=MIN_ISR_UNKNOWN, lag_us=DEFAULT_LAG_US)
    moves, quorum, before, leader = new_moves(), Quorum(), frozenset[str](), NONE
    for event in encode(batch, brokers):
        b = int(event.broker)
        apply(state, versions.profile_at(brokers[b] if b >= 0 else leader, int(event.seq)), event, moves)
        leader = brokers[b] if event.kind == c.ROLE_CHANGE and event.role == ROLE_LEADER else leader
        quorum = quorum.decided(event)
        now = frozenset(broken(state, quorum))
        if now != before:
            yield Seen(int(event.seq), now - before, before - now)
        before = now
