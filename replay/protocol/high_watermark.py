"""What the high watermark waits for; also the low watermark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.arrays.jit import compiled
from replay.protocol.isr import is_eligible
from replay.protocol.state import MIN_ISR_UNKNOWN, NONE, State

if TYPE_CHECKING:
    from replay.protocol.profile import Profile


@compiled
def hw_candidate(s: State, p: Profile, b: int, now: int) -> int:
    """Least LEO of the leader and of every replica that the HW waits for.

    A member of the ISR counts as a replica even if no source assigns it; while no assignment is known, any broker may
    be a replica.
    """
    assigned = s.partition[0].assigned
    waited = s.maximal_isr[b] if p.hw_over_maximal_isr else s.isr[b]
    candidate = s.leo[b]
    for r in range(len(s.leo)):
        bit = 1 << r
        if r == b or (assigned and not (assigned | waited) & bit) or s.remote_leo[b, r] >= candidate:
            continue
        if waited & bit or (p.hw_over_caught_up and is_caught_up(s, p, b, r, now) and counts_outside_isr(s, p, b, r)):
            candidate = s.remote_leo[b, r]
    return candidate


@compiled
def is_fetched(s: State, b: int, offset: int) -> bool:
    """Whether a follower's LEO shows that b's log reaches `offset`."""
    for r in range(len(s.leo)):  # noqa: SIM110 - compiled
        if r != b and s.remote_leo[b, r] == offset:
            return True
    return False


@compiled
def is_caught_up(s: State, p: Profile, b: int, r: int, now: int) -> bool:
    """Whether r counts as caught up with leader b (Replica.isCaughtUp)."""
    if p.hw_caught_up_by_leo and s.remote_leo[b, r] == s.leo[b]:
        return True
    return now - s.caught_up[b, r] <= s.partition[0].lag_us


@compiled
def counts_outside_isr(s: State, p: Profile, b: int, r: int) -> bool:
    """Whether b's HW waits for r, which is caught up but not in the ISR; 3.6+ only if it may join (KAFKA-15021)."""
    return not p.hw_caught_up_eligible or is_eligible(s, p, b, r)


@compiled
def effective_min_isr(s: State) -> int:
    """min.insync.replicas, or the number of replicas if that is less (Partition.effectiveMinIsr)."""
    return int(min(s.partition[0].min_isr, max(bits(s.partition[0].assigned), 1)))


@compiled
def is_under_min_isr(s: State, b: int) -> bool:
    """Whether the committed ISR is below min.insync.replicas (at most the replica count)."""
    return bits(s.isr[b]) < effective_min_isr(s)


@compiled
def may_be_under_min_isr(s: State, b: int) -> bool:
    """Whether min.insync.replicas is unknown and may be larger than the committed ISR."""
    assigned = s.partition[0].assigned
    return s.partition[0].min_isr == MIN_ISR_UNKNOWN and (not assigned or bits(s.isr[b]) < bits(assigned))


@compiled
def bits(mask: int) -> int:
    """How many brokers a mask holds."""
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


@compiled
def leader_low_watermark(s: State, b: int) -> int:
    """Least log start of the leader, its live followers and its future log, if it has one.

    A DeleteRecords request is complete once it reaches the requested offset (Partition.lowWatermarkIfLeader).
    """
    low = s.log_start[b]
    for r in range(len(s.leo)):
        if r != b and s.partition[0].assigned & (1 << r) and not s.fenced[r]:
            low = min(low, s.remote_start[b, r])
    return low if s.future_start[b] == NONE else min(low, s.future_start[b])


@compiled
def may_rise_in_position(s: State, b: int, rolled: int) -> bool:
    """Whether leader b's HW may move to the segment that begins at `rolled` while its offset stays.

    Only if everything is committed as the segment is rolled. If then each replica that the HW waits for fetches there
    again, and the leader makes another attempt before they get further, its HW is the same offset on a later segment
    (UnifiedLog.maybeIncrementHighWatermark: onOlderSegment). What waits is looked at again then, but nothing that waits
    for an offset is there any sooner.
    """
    return bool(s.hw[b] == rolled and s.leo[b] == rolled)


@compiled
def note_future_log(s: State, b: int, is_there: int, log_start: int) -> None:
    """Apply a line about b's future log; a new one starts where b's log does.

    UNSET in `log_start`: the line states no start.
    """
    if not is_there:
        s.future_start[b] = NONE
        return
    known = s.future_start[b] if s.future_start[b] != NONE else s.log_start[b]
    s.future_start[b] = max(known, log_start)
