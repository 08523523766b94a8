"""The nine steps of the fetch protocol, from top to bottom as a record passes through them.

The leader appends a batch (1) and moves its LEO (2). A follower fetches from its own LEO (3); the leader records that
as the follower's LEO (4), maybe adds it to the ISR (5), maybe raises the HW (6), and answers with records and the HW
that it read before (7). The follower appends them, moves its LEO (8), and its HW follows the leader's (9).

`leader_handle_fetch` and `follower_handle_answer` are the two halves of a round. What the HW waits for is in
`high_watermark`, who may join and leave the ISR in `isr`, how roles begin in `role_changes`.

Names are apache/kafka's (Partition, Replica, AbstractFetcherThread) in snake case. `b` leads, `r` follows. Each
function states its guard, its effect, and what it leaves unchanged; a `maybe_` returns whether it changed anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.arrays.jit import compiled, compiled_in_place
from replay.protocol.high_watermark import hw_candidate, is_fetched, is_under_min_isr, may_be_under_min_isr
from replay.protocol.isr import NEVER_FETCHED, NOTHING_PENDING, PREDICTED, blocks_expansion
from replay.protocol.log import copy_epochs, epoch_assign, move_log_start, restart_at
from replay.protocol.state import BOUNDED, DERIVED, NONE, ROLE_LEADER, State
from replay.protocol.stated_logs import DENIALS

if TYPE_CHECKING:
    from replay.protocol.profile import Profile


@compiled_in_place
def leader_append(s: State, p: Profile, b: int, end: int, evidence: int, now: int) -> bool:
    """Steps 1 and 2: the leader appends a batch, its LEO moves to `end`, and one HW attempt follows.

    Guard: `end` is beyond the LEO. The first batch of an epoch sets its start in the epoch cache, unless that was set
    when the role was taken up (2.0.1+). Leaves unchanged: remote LEOs, ISR.
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
    """Steps 3 and 4: the leader records the fetch offset as r's LEO, and when r was last caught up.

    It is an assignment, so the LEO may fall. r is caught up now if it reaches the leader's LEO, or at its previous
    fetch if it reaches the LEO of that time (0.10.2+). Leaves unchanged: the leader's own LEO and HW. Returns whether
    the remote LEO changed.
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
    """Kafka <= 2.3: a failed read resets the remote LEO to -1, which blocks the HW until the next successful fetch."""
    s.remote_leo[b, r], s.remote_start[b, r] = NONE, NONE
    s.leo_at_fetch[b, r], s.fetched[b, r] = NONE, 0


@compiled
def leader_maybe_expand_isr(s: State, p: Profile, b: int, r: int) -> bool:
    """Step 5: r joins the ISR (2.7+: asks to join) once it has reached the HW and the start of the leader's epoch.

    Guard: assigned, not in the ISR, remote LEO >= HW and >= epoch start (2.0.1+, KAFKA-7128), nothing in flight,
    eligible. Leaves unchanged: offsets; in 2.7+ also the committed ISR, until the controller answers.
    """
    bit = 1 << r
    if s.isr[b] & bit:
        s.blocked[b, r] = 0
        return False
    if s.maximal_isr[b] & bit:
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
def leader_maybe_increment_hw(s: State, p: Profile, b: int, now: int) -> bool:
    """Step 6: the HW moves up to the candidate; never down. Leaves unchanged: everything else.

    If b's own statements denied the HW computed in this epoch, only statements move it. The move is `bounded`, and
    commits nothing, if an unknown min.insync.replicas may forbid it, or if the ISR is a guess (the logs begin after the
    decision that set it). If the move reaches b's own end and that is only known within bounds, what b certainly has is
    committed.
    """
    if (p.hw_needs_min_isr and is_under_min_isr(s, b)) or s.hw_denied[b] >= DENIALS:
        return False
    candidate = hw_candidate(s, p, b, now)
    if candidate < s.hw[b] or (candidate == s.hw[b] and s.hw_evidence[b] < BOUNDED):
        return False
    evidence = DERIVED if candidate < s.leo[b] or is_fetched(s, b, candidate) else max(DERIVED, s.leo_evidence[b])
    if (p.hw_needs_min_isr and may_be_under_min_isr(s, b)) or s.partition[0].decision >= BOUNDED:
        evidence = max(BOUNDED, evidence)
    else:
        sure = candidate if evidence < BOUNDED else min(candidate, s.leo_sure[b])
        s.partition[0].true_hw = max(s.partition[0].true_hw, sure)
    if candidate == s.hw[b]:
        return False
    s.hw[b], s.hw_evidence[b] = candidate, evidence
    if not s.hw_apart[b]:
        s.hw_apart[b] = now
    return True


@compiled
def leader_handle_fetch(s: State, p: Profile, b: int, r: int, fetch_offset: int, now: int) -> tuple[bool, bool]:
    """Steps 3 to 6 as the leader runs them for one follower fetch that was read without error.

    Up to 2.3 the HW is attempted after every fetch, from 2.4 on only if the remote LEO changed. Returns whether r
    joined the ISR (or the leader requested it), and whether the HW rose.
    """
    changed = leader_update_follower_leo(s, p, b, r, fetch_offset, now)
    expanded = leader_maybe_expand_isr(s, p, b, r)
    raised = (changed or bool(p.hw_on_every_fetch)) and leader_maybe_increment_hw(s, p, b, now)
    return expanded, raised


@compiled
def answered_hw(p: Profile, hw_read: int, hw_after: int) -> int:
    """Step 7: the HW in an immediate answer, from before this fetch's own steps 4 to 6; in 1.0.0-1.1.0 from after.

    If the fetch waited, its data is read again and the answer carries the HW of that time. The merge of a tenure
    (`replay.order.merge`) uses the HW in an answer to find the fetch's place.
    """
    return hw_after if p.answer_after_update else hw_read


@compiled_in_place
def follower_append(s: State, b: int, r: int, end: int, evidence: int) -> bool:
    """Step 8: the follower appends what leader b sent, its LEO moves to `end`, and the epochs are copied.

    What b sent beyond its known LEO belongs to its own epoch: an answer may come before the append that it shows.
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
def follower_begin_at_batch(s: State, p: Profile, r: int, base: int) -> bool:
    """Before step 8: an empty log begins with the batch that straddles its end (Partition.appendRecordsToFollower).

    Guard: the log is empty and the batch's first offset, `base`, below its end, as where DeleteRecords moved the
    leader's log start into a batch (KAFKA-6975). The log begins anew at `base`; what is below the leader's log start is
    given up again with the answer's log start.
    """
    if s.leo[r] != s.log_start[r] or base >= s.leo[r]:
        return False
    restart_at(s, p, r, base)
    return True


@compiled
def is_answered_elsewhere(s: State, r: int, fetch_offset: int, end: int) -> bool:
    """Whether an answer is to a fetch from another offset than where r's log ends by now: r drops it.

    That is so after a truncation that came while the answer was on its way (AbstractFetcherThread.processFetchRequest);
    a mismatch with the log itself is an error (ReplicaFetcherThread.processPartitionData). If r's next fetch shows that
    it appended the answer (`end` >= 0), the log ended there.
    """
    return fetch_offset >= 0 and end < 0 and s.leo[r] != fetch_offset


@compiled
def follower_advance_hw(s: State, p: Profile, r: int, leader_hw: int) -> bool:
    """Step 9: the lesser of its own LEO and the answer's HW, 2.4+ at least its log start; the HW may go down."""
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
    """After step 9 the follower's log start becomes its leader's, unless that is above its HW (0.11+)."""
    return leader_start <= s.hw[r] and move_log_start(s, r, leader_start)


@compiled_in_place
def follower_handle_answer(s: State, p: Profile, b: int, r: int, answer: tuple[int, int, int, int]) -> None:
    """Steps 8 and 9 as follower r runs them for one answer from leader b.

    `answer`: r's LEO after the answer and the evidence for it, the HW and the log start in the answer; negative values
    are unknown or absent.
    """
    end, evidence, hw, log_start = answer
    if end >= 0:
        follower_append(s, b, r, end, evidence)
    if hw >= 0:
        follower_advance_hw(s, p, r, hw)
    if log_start >= 0 and p.log_start_follows:
        follower_take_log_start(s, r, log_start)


@compiled
def leader_commit_isr(s: State, p: Profile, b: int, isr: int, now: int) -> bool:
    """Apply a committed ISR: nothing is pending any more; one HW attempt if the version makes it."""
    for r in range(len(s.leo)):
        if s.isr[b] & ~isr & (1 << r) and not s.blocked[b, r]:
            s.blocked[b, r] = NEVER_FETCHED
    s.isr[b], s.maximal_isr[b], s.pending[b] = isr, isr, NOTHING_PENDING
    return bool(p.hw_after_isr_commit) and leader_maybe_increment_hw(s, p, b, now)
