"""The nine steps of the fetch protocol and the rules around them, a function each: guard, effect, what it leaves.

Names are apache/kafka's (kafka.cluster.Partition, Replica, AbstractFetcherThread) in snake case. `b` leads, `r` is a
follower.
`maybe_` functions return whether they changed anything. Nothing here orders, reads a clock, or builds a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.isr_lifecycle import NEVER_FETCHED, NOTHING_PENDING, PREDICTED, blocks_eligibility, blocks_expansion
from replay.jit import compiled
from replay.log import copy_epochs, epoch_assign
from replay.state import (
    ASSIGNED,
    BOUNDED,
    DERIVED,
    LAG_US,
    MIN_ISR,
    NONE,
    ROLE_FOLLOWER,
    ROLE_LEADER,
    TRUE_HW,
    UNSET,
    State,
)

if TYPE_CHECKING:
    from replay.profile import Profile


@compiled
def leader_append(s: State, p: Profile, b: int, end: int, evidence: int, now: int) -> bool:
    """Steps 1 and 2: the leader appends a batch, its LEO moves to `end`, and one HW attempt follows.

    Guard: `end` beyond the LEO. Leaves unchanged: remote LEOs, ISR.
    """
    if end <= s.leo[b]:
        return False
    s.leo[b] = end
    s.leo_evidence[b] = evidence
    leader_maybe_increment_hw(s, p, b, now)
    return True


@compiled
def leader_update_follower_leo(s: State, p: Profile, b: int, r: int, fetch_offset: int, now: int) -> bool:
    """Steps 3 and 4: the fetch offset is the follower's LEO; the leader records it, and when r was last caught up.

    An assignment, it may fall. Caught up now if it reaches the leader's LEO; at the previous fetch if it reaches the
    LEO of then. Leaves unchanged: the leader's own LEO and HW. Returns whether the remote LEO changed.
    """
    leo = s.leo[b]
    if fetch_offset >= leo:
        s.caught_up[b, r] = max(s.caught_up[b, r], now)
    elif s.leo_at_fetch[b, r] != NONE and fetch_offset >= s.leo_at_fetch[b, r]:
        s.caught_up[b, r] = max(s.caught_up[b, r], s.fetched[b, r])
    s.leo_at_fetch[b, r] = max(leo, s.leo_at_fetch[b, r]) if p.remembered_leo_max else leo
    s.fetched[b, r] = now
    changed = s.remote_leo[b, r] != fetch_offset
    s.remote_leo[b, r] = fetch_offset
    return changed


@compiled
def is_eligible(s: State, p: Profile, r: int) -> bool:
    """Whether r may join the ISR as the brokers know it (KIP-841)."""
    return blocks_eligibility(s, p, r) == 0


@compiled
def leader_maybe_expand_isr(s: State, p: Profile, b: int, r: int) -> bool:
    """Step 5: r joins the ISR (or asks to, 2.7+) once it has the HW and the start of the leader's epoch.

    Guard: assigned, not in the ISR, remote LEO >= HW and >= epoch start (KAFKA-7128), nothing in flight, eligible.
    Leaves unchanged: offsets; 2.7+ the committed ISR, until the controller answers.
    """
    bit = 1 << r
    if s.isr[b] & bit or s.maximal_isr[b] & bit:
        return False
    s.blocked[b, r] = blocks_expansion(s, p, b, r)
    if s.blocked[b, r]:
        return False
    s.maximal_isr[b] |= bit
    if p.isr_change_pending:
        s.pending[b] = PREDICTED
    else:
        s.isr[b] |= bit
    return True


@compiled
def is_caught_up(s: State, p: Profile, b: int, r: int, now: int) -> bool:
    """Whether r counts as caught up with leader b (Replica.isCaughtUp)."""
    if p.hw_caught_up_by_leo and s.remote_leo[b, r] == s.leo[b]:
        return True
    return now - s.caught_up[b, r] <= s.cluster[LAG_US]


@compiled
def bits(mask: int) -> int:
    """How many brokers a mask holds."""
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


@compiled
def is_under_min_isr(s: State, b: int) -> bool:
    """Whether the committed ISR is below min.insync.replicas (at most the replica count)."""
    return bits(s.isr[b]) < min(s.cluster[MIN_ISR], max(bits(s.cluster[ASSIGNED]), 1))


@compiled
def hw_candidate(s: State, p: Profile, b: int, now: int) -> int:
    """Least LEO of the leader and of every replica that the HW waits for."""
    waited = s.maximal_isr[b] if p.hw_over_maximal_isr else s.isr[b]
    candidate = s.leo[b]
    for r in range(len(s.leo)):
        bit = 1 << r
        if r == b or not s.cluster[ASSIGNED] & bit or s.remote_leo[b, r] >= candidate:
            continue
        if waited & bit or (is_caught_up(s, p, b, r, now) and (not p.hw_caught_up_eligible or is_eligible(s, p, r))):
            candidate = s.remote_leo[b, r]
    return candidate


@compiled
def leader_maybe_increment_hw(s: State, p: Profile, b: int, now: int) -> bool:
    """Step 6: the HW moves up to the candidate; never down. Leaves unchanged: everything else."""
    if p.hw_needs_min_isr and is_under_min_isr(s, b):
        return False
    candidate = hw_candidate(s, p, b, now)
    if candidate <= s.hw[b]:
        return False
    s.hw[b] = candidate
    s.hw_evidence[b] = max(DERIVED, s.leo_evidence[b])
    s.cluster[TRUE_HW] = max(s.cluster[TRUE_HW], candidate)
    return True


@compiled
def leader_handle_fetch(s: State, p: Profile, b: int, r: int, fetch_offset: int, now: int) -> bool:
    """Steps 3 to 6 as the leader runs them for one follower fetch that was read without error."""
    changed = leader_update_follower_leo(s, p, b, r, fetch_offset, now)
    leader_maybe_expand_isr(s, p, b, r)
    return changed and leader_maybe_increment_hw(s, p, b, now)


@compiled
def follower_append(s: State, b: int, r: int, end: int, evidence: int) -> bool:
    """Step 8: the follower appends what leader b sent, its LEO moves to `end`, the epochs come along."""
    first = s.leo[r]
    if end <= first:
        return False
    copy_epochs(s, b, r, first, end)
    s.leo[r] = end
    s.leo_evidence[r] = evidence
    return True


@compiled
def follower_advance_hw(s: State, r: int, leader_hw: int) -> bool:
    """Step 9: min of its own LEO and the HW that the answer carries, never below the log start; it may go down."""
    hw = max(min(s.leo[r], leader_hw), s.log_start[r])
    s.hw_evidence[r] = max(DERIVED, s.leo_evidence[r])
    if hw == s.hw[r]:
        return False
    s.hw[r] = hw
    return True


@compiled
def make_leader(s: State, p: Profile, b: int, epoch: int, isr: int, now: int) -> None:
    """Become leader (Partition.makeLeader).

    The epoch starts at the own LEO, remote LEOs are forgotten unless b led before, ISR members count as caught up now,
    and one HW attempt follows.
    """
    led = s.role[b] == ROLE_LEADER
    s.role[b], s.epoch[b], s.epoch_start[b] = ROLE_LEADER, epoch, s.leo[b]
    s.isr[b], s.maximal_isr[b], s.pending[b] = isr, isr, NOTHING_PENDING
    epoch_assign(s, b, epoch, s.leo[b])
    for r in range(len(s.leo)):
        if not led:
            s.remote_leo[b, r] = NONE
        s.leo_at_fetch[b, r] = s.leo[b] if led else NONE
        s.fetched[b, r] = now if led else 0
        s.caught_up[b, r] = now if isr & (1 << r) else 0
        s.blocked[b, r], s.out_for[b, r] = NEVER_FETCHED, NONE
    s.acted[b], s.asked[b], s.settled[b] = now, 0, now
    leader_maybe_increment_hw(s, p, b, now)


@compiled
def make_follower(s: State, b: int, epoch: int) -> None:
    """Become follower (Partition.makeFollower). Leaves unchanged: log and HW; the fetcher cuts, if anyone does."""
    s.role[b], s.epoch[b] = ROLE_FOLLOWER, epoch
    s.isr[b], s.maximal_isr[b], s.pending[b] = 0, 0, NOTHING_PENDING


@compiled
def leader_commit_isr(s: State, p: Profile, b: int, isr: int, now: int) -> bool:
    """The leader takes over a committed ISR: nothing is pending any more; one HW attempt where the version makes it."""
    s.isr[b], s.maximal_isr[b], s.pending[b] = isr, isr, NOTHING_PENDING
    return bool(p.hw_after_isr_commit) and leader_maybe_increment_hw(s, p, b, now)


@compiled
def note_leo(s: State, b: int, leo: int, evidence: int) -> bool:
    """A source states b's LEO: it wins over what was computed. Returns whether that was different."""
    if leo == UNSET or leo < 0:
        return False
    different = s.leo[b] != leo
    s.leo[b] = leo
    s.leo_evidence[b] = evidence
    return different


@compiled
def note_hw(s: State, b: int, hw: int, evidence: int) -> bool:
    """A source states b's HW: it wins over what was computed. Returns whether that was different."""
    if hw == UNSET or hw < 0:
        return False
    different = s.hw[b] != hw
    s.hw[b] = hw
    s.hw_evidence[b] = evidence
    if s.role[b] == ROLE_LEADER and evidence < BOUNDED:
        s.cluster[TRUE_HW] = max(s.cluster[TRUE_HW], hw)
    return different
