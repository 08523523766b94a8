"""The nine steps of the fetch protocol and the rules around them, a function each: guard, effect, what it leaves.

Names are apache/kafka's (kafka.cluster.Partition, Replica, AbstractFetcherThread) in snake case. `b` leads, `r` is a
follower.
`maybe_` functions return whether they changed anything. Nothing here orders, reads a clock, or builds a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.arrays.jit import compiled, compiled_in_place
from replay.protocol.isr import NEVER_FETCHED, NOTHING_PENDING, PREDICTED, RACE_US, blocks_eligibility, blocks_expansion
from replay.protocol.log import copy_epochs, epoch_assign, move_log_start, truncate_to
from replay.protocol.state import (
    ASSIGNED,
    BOUNDED,
    DECISION,
    DERIVED,
    EARLIER_HW,
    LAG_US,
    MIN_ISR,
    MIN_ISR_UNKNOWN,
    NONE,
    OBSERVED,
    ROLE_FOLLOWER,
    ROLE_LEADER,
    STATED_HW,
    TRUE_HW,
    UNSET,
    State,
)

if TYPE_CHECKING:
    from replay.protocol.profile import Profile

DENIALS = 2  # so many statements in a row withdraw a computed HW


@compiled_in_place
def leader_append(s: State, p: Profile, b: int, end: int, evidence: int, now: int) -> bool:
    """Steps 1 and 2: the leader appends a batch, its LEO moves to `end`, and one HW attempt follows.

    Guard: `end` beyond the LEO. The first batch of an epoch is where it begins in the epoch cache, unless taking up the
    role has noted that already (2.0.1+). Leaves unchanged: remote LEOs, ISR.
    """
    if end <= s.leo[b]:
        return False
    epoch_assign(s, b, s.epoch[b], s.leo[b])
    s.leo[b] = end
    s.leo_evidence[b] = evidence
    leader_maybe_increment_hw(s, p, b, now)
    return True


@compiled
def leader_update_follower_leo(s: State, p: Profile, b: int, r: int, fetch_offset: int, now: int) -> bool:
    """Steps 3 and 4: the fetch offset is the follower's LEO; the leader records it, and when r was last caught up.

    An assignment, it may fall. Caught up now if it reaches the leader's LEO; at the previous fetch if it reaches the
    LEO of then (0.10.2+). Leaves unchanged: the leader's own LEO and HW. Returns whether the remote LEO changed.
    """
    leo = s.leo[b]
    if fetch_offset >= leo:
        s.caught_up[b, r] = max(s.caught_up[b, r], now)
    elif p.caught_up_at_previous and s.leo_at_fetch[b, r] != NONE and fetch_offset >= s.leo_at_fetch[b, r]:
        s.caught_up[b, r] = max(s.caught_up[b, r], s.fetched[b, r])
    s.leo_at_fetch[b, r] = max(leo, s.leo_at_fetch[b, r]) if p.remembered_leo_max else leo
    s.fetched[b, r] = now
    changed = s.remote_leo[b, r] != fetch_offset
    s.remote_leo[b, r] = fetch_offset
    return changed


@compiled
def leader_forget_follower_leo(s: State, b: int, r: int) -> None:
    """Up to 2.3 a fetch that could not be read counts too, as one at -1: the HW stands until r's next good fetch."""
    s.remote_leo[b, r], s.remote_start[b, r] = NONE, NONE
    s.leo_at_fetch[b, r], s.fetched[b, r] = NONE, 0


@compiled
def is_eligible(s: State, p: Profile, r: int) -> bool:
    """Whether r may join the ISR as the brokers know it (KIP-841)."""
    return blocks_eligibility(s, p, r) == 0


@compiled
def leader_maybe_expand_isr(s: State, p: Profile, b: int, r: int) -> bool:
    """Step 5: r joins the ISR (or asks to, 2.7+) once it has the HW and the start of the leader's epoch.

    Guard: assigned, not in the ISR, remote LEO >= HW and >= epoch start (2.0.1+, KAFKA-7128), nothing in flight,
    eligible.
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
def may_be_under_min_isr(s: State, b: int) -> bool:
    """Whether min.insync.replicas is not known, and some value of it is more than the committed ISR has."""
    assigned = s.cluster[ASSIGNED]
    return s.cluster[MIN_ISR] == MIN_ISR_UNKNOWN and (not assigned or bits(s.isr[b]) < bits(assigned))


@compiled
def counts_outside_isr(s: State, p: Profile, r: int) -> bool:
    """Whether the HW waits for r, caught up and outside the ISR: from 3.6 on only if it may join (KAFKA-15021)."""
    return not p.hw_caught_up_eligible or is_eligible(s, p, r)


@compiled
def hw_candidate(s: State, p: Profile, b: int, now: int) -> int:
    """Least LEO of the leader and of every replica that the HW waits for.

    A member of the ISR is a replica though no source assigns it; any broker may be one while none is assigned.
    """
    assigned = s.cluster[ASSIGNED]
    waited = s.maximal_isr[b] if p.hw_over_maximal_isr else s.isr[b]
    candidate = s.leo[b]
    for r in range(len(s.leo)):
        bit = 1 << r
        if r == b or (assigned and not (assigned | waited) & bit) or s.remote_leo[b, r] >= candidate:
            continue
        if waited & bit or (p.hw_over_caught_up and is_caught_up(s, p, b, r, now) and counts_outside_isr(s, p, r)):
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
def leader_maybe_increment_hw(s: State, p: Profile, b: int, now: int) -> bool:
    """Step 6: the HW moves up to the candidate; never down. Leaves unchanged: everything else.

    Where b's own statements denied what was computed in this epoch, they alone move it. Where only an unknown
    min.insync.replicas would allow the move, or the ISR is a guess (the logs begin after the decision that told it), it
    is bounded, and nothing counts as committed for it. Where it reaches
    b's own end, which is known within bounds only, what b surely has does.
    """
    if (p.hw_needs_min_isr and is_under_min_isr(s, b)) or s.hw_denied[b] >= DENIALS:
        return False
    candidate = hw_candidate(s, p, b, now)
    if candidate < s.hw[b] or (candidate == s.hw[b] and s.hw_evidence[b] < BOUNDED):
        return False
    evidence = DERIVED if candidate < s.leo[b] or is_fetched(s, b, candidate) else max(DERIVED, s.leo_evidence[b])
    if (p.hw_needs_min_isr and may_be_under_min_isr(s, b)) or s.cluster[DECISION] >= BOUNDED:
        evidence = max(BOUNDED, evidence)
    else:
        sure = candidate if evidence < BOUNDED else min(candidate, s.leo_sure[b])
        s.cluster[TRUE_HW] = max(s.cluster[TRUE_HW], sure)
    if candidate == s.hw[b]:
        return False
    s.hw[b], s.hw_evidence[b] = candidate, evidence
    if not s.hw_apart[b]:
        s.hw_apart[b] = now
    return True


@compiled
def leader_handle_fetch(s: State, p: Profile, b: int, r: int, fetch_offset: int, now: int) -> bool:
    """Steps 3 to 6 as the leader runs them for one follower fetch that was read without error.

    The HW is attempted after every fetch up to 2.3, from 2.4 on only where the remote LEO changed.
    """
    s.hw_sent[b, r] = s.hw[b]
    changed = leader_update_follower_leo(s, p, b, r, fetch_offset, now)
    leader_maybe_expand_isr(s, p, b, r)
    return (changed or bool(p.hw_on_every_fetch)) and leader_maybe_increment_hw(s, p, b, now)


@compiled
def leader_owes_hw(s: State, p: Profile, b: int, r: int) -> bool:
    """Whether r's fetch is answered without waiting: the HW has moved since r was told (KAFKA-8443, 2.4-2.5)."""
    return bool(p.hw_told_at_once) and s.hw[b] > s.hw_sent[b, r]


@compiled
def answered_hw(p: Profile, hw_read: int, hw_after: int) -> int:
    """Step 7: the HW in an answer given at once, of before this fetch's own steps 4 to 6; of after in 1.0.0-1.1.0."""
    return hw_after if p.answer_after_update else hw_read


@compiled
def leader_low_watermark(s: State, b: int) -> int:
    """Least log start of the leader, its live followers and its future log, if it has one.

    There a DeleteRecords is done (Partition.lowWatermarkIfLeader).
    """
    low = s.log_start[b]
    for r in range(len(s.leo)):
        if r != b and s.cluster[ASSIGNED] & (1 << r) and not s.fenced[r]:
            low = min(low, s.remote_start[b, r])
    return low if s.future_start[b] == NONE else min(low, s.future_start[b])


@compiled
def note_future_log(s: State, b: int, is_there: int, log_start: int) -> None:
    """A line tells of b's future log. A new one begins where the log does that it copies; UNSET: it states no start."""
    if not is_there:
        s.future_start[b] = NONE
        return
    known = s.future_start[b] if s.future_start[b] != NONE else s.log_start[b]
    s.future_start[b] = max(known, log_start)


@compiled_in_place
def follower_append(s: State, b: int, r: int, end: int, evidence: int) -> bool:
    """Step 8: the follower appends what leader b sent, its LEO moves to `end`, the epochs come along.

    What b sent beyond its known LEO is of its own epoch: an answer may be told before the append that it shows.
    """
    first = s.leo[r]
    if end <= first:
        return False
    copy_epochs(s, b, r, first, end)
    if end > s.leo[b] and s.role[b] == ROLE_LEADER:
        epoch_assign(s, r, s.epoch[b], max(first, s.leo[b]))
    s.leo[r] = end
    s.leo_evidence[r] = evidence
    return True


@compiled
def follower_advance_hw(s: State, p: Profile, r: int, leader_hw: int) -> bool:
    """Step 9: min of its own LEO and the HW that the answer carries, 2.4+ not below its log start; it may go down."""
    hw = min(s.leo[r], leader_hw)
    if p.hw_from_log_start:
        hw = max(hw, s.log_start[r])
    s.hw_evidence[r] = max(DERIVED, s.leo_evidence[r])
    s.hw_untaken[r] = s.hw[r]
    if hw == s.hw[r]:
        return False
    s.hw[r] = hw
    return True


@compiled
def follower_take_log_start(s: State, r: int, leader_start: int) -> bool:
    """After step 9 the follower's log begins where its leader's does, if that is not above its HW (0.11+)."""
    return leader_start <= s.hw[r] and move_log_start(s, r, leader_start)


@compiled
def make_leader(s: State, p: Profile, b: int, epoch: int, isr: int, now: int) -> None:
    """Become leader (Partition.makeLeader), step by step.

    The ISR is as told and nothing is pending. For a new epoch (before 3.3 for any): it starts at the own LEO, and what
    b knows of its followers is reset. Then one HW attempt.
    """
    led, newer = s.role[b] == ROLE_LEADER, epoch > s.epoch[b]
    s.isr[b], s.maximal_isr[b], s.pending[b] = isr, isr, NOTHING_PENDING
    if newer or not led or not p.leader_reset_by_epoch:
        s.epoch_start[b] = s.leo[b]
        if p.epoch_cached_at_start:
            epoch_assign(s, b, epoch, s.leo[b])
        for r in range(len(s.leo)):
            reset_follower(s, p, b, r, led, bool(isr & (1 << r)), now)
    s.role[b], s.epoch[b], s.follows[b] = ROLE_LEADER, epoch, b
    s.acted[b], s.asked[b], s.settled[b] = now, 0, now
    s.hw_agreed[b], s.hw_apart[b], s.hw_denied[b] = s.hw[b], 0, 0
    s.cluster[EARLIER_HW] = s.cluster[TRUE_HW]
    leader_maybe_increment_hw(s, p, b, now)


@compiled
def reset_follower(s: State, p: Profile, b: int, r: int, led: bool, in_isr: bool, now: int) -> None:  # noqa: PLR0913, PLR0917, FBT001 - compiled
    """A leader's record of r as its epoch begins (Replica.resetReplicaState).

    Where b led before the remote LEO is kept, else unknown, so that the HW holds until r has fetched. ISR members count
    as caught up now, others never (0.10.2+).
    """
    if not led:
        s.remote_leo[b, r], s.remote_start[b, r], s.hw_sent[b, r] = NONE, NONE, 0
    s.blocked[b, r], s.out_for[b, r] = NEVER_FETCHED, NONE
    s.leo_at_fetch[b, r] = s.leo[b] if led else NONE
    s.fetched[b, r] = now if led and (in_isr or not p.leader_reset_by_epoch) else 0
    if p.caught_up_at_start:
        s.caught_up[b, r] = now if in_isr else 0


@compiled
def follows_anew(s: State, p: Profile, b: int, leader: int, epoch: int) -> bool:
    """Whether becoming follower of `leader` restarts b's fetcher (ReplicaManager.makeFollowers skips the others).

    Another leader does, and by version a new epoch of the same one.
    """
    if leader == NONE or s.follows[b] != leader or s.role[b] != ROLE_FOLLOWER:
        return True
    if p.refollow_on_new_epoch:
        return epoch != s.epoch[b]
    return bool(p.refollow_on_missed_epoch) and epoch not in (s.epoch[b], s.epoch[b] + 1)


@compiled
def make_follower(s: State, p: Profile, b: int, leader: int, epoch: int) -> None:
    """Become follower of `leader` (Partition.makeFollower, ReplicaManager.makeFollowers).

    Before 0.11 the log is cut to the own HW. Since then log and HW stay; the fetcher finds out where to cut.
    """
    anew = follows_anew(s, p, b, leader, epoch)
    s.role[b], s.epoch[b], s.follows[b] = ROLE_FOLLOWER, epoch, leader
    s.isr[b], s.maximal_isr[b], s.pending[b] = 0, 0, NOTHING_PENDING
    if anew and p.truncate_to_hw:
        truncate_to(s, p, b, s.hw[b])


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
        note_committed(s, hw)
    return different


@compiled
def note_committed(s: State, hw: int) -> None:
    """A leader states that everything below `hw` is committed."""
    s.cluster[TRUE_HW] = max(s.cluster[TRUE_HW], hw)
    s.cluster[STATED_HW] = max(s.cluster[STATED_HW], hw)


@compiled
def leader_agrees(s: State, b: int, hw: int, earliest: int, now: int) -> bool:
    """Leader b states its HW, at `earliest` at the earliest: whether what was computed may stand beside it.

    An answer may have been read before the move that it does not show; so one that is lower counts only if it was
    surely read after the HW was computed to be beyond the last one that both agreed on, and only the second in a row.
    """
    if hw > s.hw_agreed[b] or hw == s.hw[b]:
        s.hw_agreed[b], s.hw_denied[b] = hw, 0
        s.hw_apart[b] = now if hw < s.hw[b] else 0
    elif hw == s.hw_agreed[b] and s.hw_apart[b] and earliest > s.hw_apart[b] + RACE_US:
        s.hw_denied[b] += 1
    return s.hw_denied[b] < DENIALS


@compiled
def leader_withdraw_hw(s: State, b: int, hw: int) -> None:
    """What b states is stronger than what was computed in this epoch: the HW, and what was committed by it."""
    s.hw[b], s.hw_evidence[b] = hw, OBSERVED
    s.cluster[TRUE_HW] = max(s.cluster[EARLIER_HW], s.cluster[STATED_HW], hw)
