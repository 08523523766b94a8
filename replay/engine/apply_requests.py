"""What requests do to the state: a produce and its answer, a fetch's round, an answer that is read or handled.

What the steps of each moved is noted in `moves`. All other events are in `apply`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.arrays.jit import compiled, compiled_in_place
from replay.engine.codes import (
    BROKEN,
    FUTURE_THERE,
    MISMATCH,
    OBSERVATION,
    OK,
    STEP_FOLLOWER_APPEND,
    STEP_FOLLOWER_HW,
    STEP_FOLLOWER_LEO,
    STEP_LEADER_APPEND,
    STEP_LEADER_HW,
    STEP_OBSERVATION,
)
from replay.engine.moves import (
    HW,
    ISR,
    LEO,
    LOG_START,
    LOW_WATERMARK,
    REMOTE_LEO,
    Moves,
    note,
    note_offsets,
    offsets_of,
    put_move,
)
from replay.engine.stamps import STAMP_LATE_US
from replay.protocol.deletion import DELETING_ANSWERS, deletion_target
from replay.protocol.high_watermark import leader_low_watermark, note_future_log
from replay.protocol.isr import DOUBTFUL, NOTHING_PENDING, PREDICTED, note_fetch_epoch
from replay.protocol.log import (
    match_epochs,
    move_log_start,
)
from replay.protocol.produce import ACKS_ALL
from replay.protocol.state import (
    BOUNDED,
    OBSERVED,
    ROLE_LEADER,
    UNSET,
    State,
)
from replay.protocol.stated_logs import (
    forget_log,
    leader_agrees,
    leader_withdraw_hw,
    note_committed,
    note_hw,
    note_leo,
    take_stated_leo,
)
from replay.protocol.steps import (
    follower_begin_at_batch,
    follower_handle_answer,
    is_answered_elsewhere,
    leader_append,
    leader_forget_follower_leo,
    leader_handle_fetch,
)

if TYPE_CHECKING:
    from replay.engine.event_record import EventRecord
    from replay.protocol.profile import Profile


@compiled_in_place
def acts_in_its_epoch(s: State, e: EventRecord) -> bool:
    """Whether the event's broker leads in the leader epoch that the event names."""
    return bool(s.role[e.broker] == ROLE_LEADER and s.epoch[e.broker] == e.leader_epoch)


@compiled_in_place
def is_of_future_log(e: EventRecord) -> bool:
    """Whether an event is a line about a future log; most observations are not."""
    return bool(e.kind == OBSERVATION and e.future_log != UNSET)


@compiled_in_place
def apply_append(s: State, p: Profile, e: EventRecord, moves: Moves) -> int:
    """A leader appends a batch. If the end of the batch is unknown, its first record is still certain.

    If its log reaches beyond the computed LEO up to the batch, it fetched or appended those records unobserved; their
    epochs are unsure.
    """
    b, known = e.broker, max(e.next_offset_evidence, e.evidence)
    if e.duplicate or e.next_offset < 0:
        return OK
    if not acts_in_its_epoch(s, e) or e.next_offset <= s.leo[b]:
        return BROKEN
    leo, hw = s.leo[b], s.hw[b]
    if e.base_offset > leo:
        s.unsure_from[b] = min(s.unsure_from[b], leo) if s.unsure_from[b] < s.unsure_until[b] else leo
        s.unsure_until[b] = e.base_offset
        note_leo(s, b, e.base_offset, BOUNDED)
    sure = s.leo[b] if s.leo_evidence[b] < BOUNDED else min(s.leo_sure[b], s.leo[b])
    s.leo_sure[b] = e.next_offset if known < BOUNDED else e.base_offset + 1 if e.evidence < BOUNDED else sure
    leader_append(s, p, b, e.next_offset, known, e.ts)
    note(moves, LEO, b, leo, s.leo[b], STEP_LEADER_APPEND)
    note(moves, HW, b, hw, s.hw[b], STEP_LEADER_HW)
    return OK


@compiled_in_place
def apply_answer(s: State, e: EventRecord) -> int:
    """A producer is answered; a successful acks=all answer says that the batch was committed."""
    waited = e.acks == ACKS_ALL and not e.error_code and not e.duplicate
    if waited and e.next_offset >= 0 and acts_in_its_epoch(s, e):
        note_committed(s, e.next_offset if e.next_offset_evidence < BOUNDED else e.base_offset + 1)
    return OK


@compiled
def fetch_time(e: EventRecord) -> int:
    """The time that the leader records for a fetch: taken before the read, so earlier by any standstill in between."""
    return int(min(e.ts, e.ts_lo + STAMP_LATE_US) if e.ts_lo > 0 else e.ts)


@compiled_in_place
def apply_fetch_update(s: State, p: Profile, e: EventRecord, moves: Moves) -> int:
    """A follower's fetch reaches the leader. Its offset states the follower's LEO even if the leader refuses it."""
    b, r, offset = e.broker, e.replica, e.fetch_offset
    refused = e.error_code > 0 or (e.diverging_epoch != UNSET and not p.update_on_diverging)
    leads = acts_in_its_epoch(s, e)
    if not refused and (not leads or offset > s.leo[b]):
        return BROKEN
    remote = s.remote_leo[b, r]
    verdict = follower_states_leo(s, p, e, moves)
    if not refused:
        leader_takes_fetch(s, p, e, moves)
    elif p.failed_read_resets and leads and e.error_code > 0:
        leader_forget_follower_leo(s, b, r)
    note(moves, REMOTE_LEO, r, remote, s.remote_leo[b, r], STEP_FOLLOWER_LEO)
    return verdict


@compiled_in_place
def follower_states_leo(s: State, p: Profile, e: EventRecord, moves: Moves) -> int:
    """Let a fetch offset override the computed LEO of the follower. MISMATCH: they differ."""
    r, offset, verdict = e.replica, e.fetch_offset, OK
    before = offsets_of(s, r)
    forget_log(s, r)
    if s.leo[r] != offset and s.role[r] != ROLE_LEADER:
        verdict = MISMATCH
        take_stated_leo(s, p, r, e.broker, offset, OBSERVED)
    note_offsets(moves, s, r, before, (STEP_OBSERVATION, STEP_FOLLOWER_HW))
    return verdict


@compiled_in_place
def leader_takes_fetch(s: State, p: Profile, e: EventRecord, moves: Moves) -> None:
    """The leader's half of a round, for an accepted fetch and for the run of unlisted ones behind it."""
    b, r, offset = e.broker, e.replica, e.fetch_offset
    match_epochs(s, p, b, r, offset)
    if e.follower_log_start_offset >= 0 and e.follower_log_start_offset != s.remote_start[b, r]:
        low = leader_low_watermark(s, b)
        s.remote_start[b, r] = e.follower_log_start_offset
        note(moves, LOW_WATERMARK, b, low, leader_low_watermark(s, b), STEP_FOLLOWER_LEO)
    note_fetch_epoch(s, b, r, e.replica_epoch)
    free, hw, isr, blocked = s.pending[b] == NOTHING_PENDING, s.hw[b], s.isr[b], s.blocked[b, r]
    expanded, _ = leader_handle_fetch(s, p, b, r, offset, fetch_time(e))
    if free and s.pending[b] == PREDICTED and e.ts_lo <= s.settled[b]:
        s.pending[b] = DOUBTFUL
    if e.run_until != UNSET and e.run_until > e.ts:
        expanded = leader_handle_fetch(s, p, b, r, offset, e.run_until)[0] or expanded
    note(moves, HW, b, hw, s.hw[b], STEP_LEADER_HW)
    if expanded:
        put_move(moves, ISR, r, isr, s.maximal_isr[b], STEP_FOLLOWER_LEO, blocked)


@compiled_in_place
def apply_read(s: State, p: Profile, e: EventRecord, moves: Moves) -> int:
    """An answer is read on the leader: its HW and log start are those of that moment, so they win if they are ahead."""
    b, hw = e.broker, e.hw
    start, hw_before = s.log_start[b], s.hw[b]
    if e.kind != OBSERVATION and e.log_start_offset > 0 and acts_in_its_epoch(s, e):
        move_log_start(s, b, min(e.log_start_offset, s.leo[b]))
        note(moves, LOG_START, b, start, s.log_start[b], STEP_OBSERVATION)
    verdict = OK if hw < 0 or not acts_in_its_epoch(s, e) else leader_states_hw(s, p, e)
    note(moves, HW, b, hw_before, s.hw[b], STEP_OBSERVATION)
    return verdict


@compiled_in_place
def leader_states_hw(s: State, p: Profile, e: EventRecord) -> int:
    """Compare a leader's stated HW, from a line or an answer, with the computed one.

    MISMATCH: the stated one won. BROKEN: it is impossible.
    """
    b, hw = e.broker, e.hw
    if hw > s.leo[b] and p.truncation_lowers_hw:
        return BROKEN
    agrees = leader_agrees(s, b, hw, e.ts_lo, e.ts)
    if s.hw[b] == hw:
        note_committed(s, hw)
        return OK
    if s.hw[b] < hw:
        note_hw(s, b, hw, OBSERVED)
    elif not agrees:
        leader_withdraw_hw(s, b, hw)
    return MISMATCH


@compiled_in_place
def apply_observation(s: State, p: Profile, e: EventRecord, moves: Moves) -> int:
    """A broker's own line states something. What it says of a future log may raise the low watermark."""
    b = e.broker
    if is_of_future_log(e):
        low = leader_low_watermark(s, b)
        note_future_log(s, b, e.future_log == FUTURE_THERE, e.log_start_offset)
        note(moves, LOW_WATERMARK, b, low, leader_low_watermark(s, b), STEP_OBSERVATION)
    return apply_read(s, p, e, moves)


@compiled
def apply_deletion(s: State, e: EventRecord, moves: Moves) -> int:
    """A leader deletes records on request: its log starts where they end. A refused request moves nothing."""
    if not was_deleted(e) or not acts_in_its_epoch(s, e):
        return OK
    b = e.broker
    before = offsets_of(s, b)
    target = e.log_start_offset if e.log_start_offset >= 0 else deletion_target(s, b, e.requested_offset)
    move_log_start(s, b, min(target, s.leo[b]))
    note_offsets(moves, s, b, before, (STEP_OBSERVATION, STEP_LEADER_HW))
    return OK


@compiled_in_place
def was_deleted(e: EventRecord) -> bool:
    """Whether records went: the request was answered without error, or had to wait for other replicas for too long."""
    return e.error_code in DELETING_ANSWERS


@compiled_in_place
def apply_fetch_apply(s: State, p: Profile, e: EventRecord, moves: Moves) -> int:
    """A follower handles an answer: steps 8 and 9."""
    r = e.replica
    if s.role[r] == ROLE_LEADER:
        return BROKEN
    if is_answered_elsewhere(s, r, e.fetch_offset, e.next_offset):
        return OK
    before = offsets_of(s, r)
    if e.base_offset >= 0:
        follower_begin_at_batch(s, p, r, e.base_offset)
    follower_handle_answer(s, p, e.broker, r, (e.next_offset, e.next_offset_evidence, e.hw, e.log_start_offset))
    note_offsets(moves, s, r, before, (STEP_FOLLOWER_APPEND, STEP_FOLLOWER_HW))
    return OK
