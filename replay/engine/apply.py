"""Apply an event to the rules: what each kind of event does to the state, step by step.

`apply` is the only place that does so. The order stage runs it ahead to see which interleavings the answers allow, the
fold runs it to replay: callers differ only in the order of events. What moved is noted in `moves`, with the step that
moved it. An event that breaks a rule changes nothing, and is reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.arrays.jit import compiled, compiled_in_place
from replay.engine.apply_requests import (
    acts_in_its_epoch,
    apply_answer,
    apply_append,
    apply_deletion,
    apply_fetch_apply,
    apply_fetch_update,
    apply_observation,
    apply_read,
)
from replay.engine.codes import (
    ACK,
    APPEND,
    BROKEN,
    BROKER_CHANGE,
    CAUSE_OUT_OF_RANGE,
    CAUSE_TIERED_STORAGE,
    CONFIG_CHANGE,
    CONSUMER_READ,
    DELETE_RECORDS,
    FETCH_APPLY,
    FETCH_READ,
    FETCH_UPDATE,
    ISR_COMMITTED,
    ISR_PENDING_EXPAND,
    ISR_PENDING_SHRINK,
    ISR_REQUEST,
    LOG_LOAD,
    LOG_START_CHANGE,
    OBSERVATION,
    OK,
    PARTITION_CHANGE,
    REQUEST_RESET,
    ROLE_CHANGE,
    STEP_FOLLOWER_HW,
    STEP_LEADER_HW,
    STEP_LOAD,
    STEP_OBSERVATION,
    STEP_ROLE,
    STEP_TRUNCATE,
    TOPIC_CHANGE,
    TRUNCATION,
)
from replay.engine.moves import HW, ISR, LEO, LOG_START, LOW_WATERMARK, Moves, note, note_offsets, offsets_of, put_move
from replay.protocol.high_watermark import leader_low_watermark
from replay.protocol.isr import ASKED, NOTHING_PENDING, note_fencing, note_registration
from replay.protocol.log import (
    diverging_target,
    end_offset_for,
    forget_empty_epochs,
    forget_epoch,
    move_log_start,
    restart_at,
    restart_in_tier,
    truncate_to,
)
from replay.protocol.role_changes import make_follower, make_leader
from replay.protocol.state import (
    BOUNDED,
    DERIVED,
    NONE,
    ROLE_LEADER,
    ROLE_NONE,
    UNKNOWN,
    UNSET,
    State,
)
from replay.protocol.stated_logs import (
    forget_log,
    last_leader,
    note_hw,
    note_leo,
    note_lost,
    take_own_leo,
    take_stated_leo,
)
from replay.protocol.steps import leader_commit_isr

if TYPE_CHECKING:
    from replay.engine.event_record import EventRecord
    from replay.protocol.profile import Profile


@compiled_in_place
def leads_on(s: State, e: EventRecord) -> bool:
    """Whether a leader gets its role again without having stopped: its very next epoch, and no log loaded.

    ZooKeeper's controller does this when it removes a replica from the ISR, and KRaft's up to 3.5 as well.
    """
    b = e.broker
    return s.role[b] == ROLE_LEADER and e.role == ROLE_LEADER and e.leader_epoch == s.epoch[b] + 1


@compiled
def apply_role(s: State, p: Profile, e: EventRecord, moves: Moves) -> int:
    """A broker takes up a role with the LEO and HW of its line; a leader attempts to raise its HW at once."""
    b = e.broker
    forget_log(s, b)
    known = UNSET if leads_on(s, e) else s.leo_evidence[b]
    leo, hw, start = offsets_of(s, b)
    take_role_offsets(s, p, e)
    taken = s.hw[b]
    if e.role == ROLE_LEADER:
        make_leader(s, p, b, e.leader_epoch, e.isr, e.ts)
        s.leo_sure[b] = s.leo[b] if s.leo_evidence[b] < BOUNDED else 0
        if e.leo < 0 and e.evidence >= BOUNDED:
            forget_epoch(s, b, e.leader_epoch)
    else:
        make_follower(s, p, b, e.leader, e.leader_epoch)
    note(moves, LEO, b, leo, s.leo[b], STEP_ROLE, known)
    put_move(moves, HW, b, hw, taken, STEP_ROLE, NONE)
    note(moves, HW, b, taken, s.hw[b], STEP_LEADER_HW)
    note(moves, LOG_START, b, start, s.log_start[b], STEP_ROLE)
    return OK


@compiled
def take_role_offsets(s: State, p: Profile, e: EventRecord) -> None:
    """Let the LEO and HW in a role's line override the computed ones.

    A leader never truncates its own log: if a leader that leads on has less than computed, too much was counted. If
    only the lower bound of its end is known, it has at least that. The HW of a log whose filling was not observed is
    unknown.
    """
    b = e.broker
    end = s.leo[b]
    if 0 <= e.leo < s.leo[b] and leads_on(s, e):
        truncate_to(s, p, b, e.leo)
        note_leo(s, b, e.leo, e.evidence)
        note_lost(s, e.leo)
    elif e.leo >= 0:
        take_own_leo(s, p, b, e.leo, e.evidence)
    elif e.role == ROLE_LEADER:
        note_leo(s, b, max(s.leo[b], e.next_offset), max(s.leo_evidence[b], e.evidence))
    if e.hw >= 0:
        note_hw(s, b, min(e.hw, s.leo[b]), e.evidence)
    elif s.hw[b] == 0 and s.leo[b] > end:
        s.hw_evidence[b] = max(s.hw_evidence[b], BOUNDED)


@compiled
def apply_load(s: State, p: Profile, e: EventRecord, moves: Moves) -> int:
    """A broker started and loaded its log: it has no role, and LEO and HW as its files say. A new log is empty.

    Epochs without records are forgotten (LogLoader: LeaderEpochFileCache.truncateFromEnd). A log that was created anew
    lost its records with the directory, which is no truncation.
    """
    b, is_new = e.broker, e.log_created == 1
    forget_log(s, b)
    known = UNSET if is_new else s.leo_evidence[b]
    before = offsets_of(s, b)
    if is_new:
        s.gone[b] = 1
        forget_log(s, b)
    if e.leo >= 0:
        if s.role[b] == ROLE_LEADER:  # as it stopped: only its disk may have truncated it
            take_stated_leo(s, p, b, last_leader(s, DERIVED), e.leo, e.evidence)
        else:
            take_own_leo(s, p, b, e.leo, e.evidence)
    forget_empty_epochs(s, b)
    s.role[b], s.follows[b] = ROLE_NONE, NONE
    if e.hw >= 0:
        note_hw(s, b, min(e.hw, s.leo[b]), e.evidence)
    note_offsets(moves, s, b, before, (STEP_LOAD, STEP_LOAD), known)
    return OK


@compiled
def apply_isr_request(s: State, p: Profile, e: EventRecord, moves: Moves) -> int:
    """The leader applies a committed ISR, requests another one, or has its request rejected.

    Reset (OPERATION_NOT_ATTEMPTED, INELIGIBLE_REPLICA; a conditional update that lost): back to the last committed ISR.
    Refused (fenced, invalid, a new leader): pending until metadata arrives. Retried: pending.
    """
    b = e.broker
    if not acts_in_its_epoch(s, e):
        return OK  # a zombie, or a broker that has moved on: the decision does not affect it
    if e.isr_request == ISR_COMMITTED:
        s.asked[b] &= ~e.isr
        s.settled[b] = max(s.settled[b], e.ts)
        hw = s.hw[b]
        leader_commit_isr(s, p, b, e.isr, e.ts)
        note(moves, HW, b, hw, s.hw[b], STEP_LEADER_HW)
    elif e.isr_request == REQUEST_RESET:
        if e.isr != UNSET:
            s.isr[b] = e.isr
        s.maximal_isr[b], s.pending[b] = s.isr[b], NOTHING_PENDING
        s.settled[b] = max(s.settled[b], e.ts)
    elif e.isr_request in (ISR_PENDING_EXPAND, ISR_PENDING_SHRINK):
        leader_asks(s, p, e, moves)
    return OK


@compiled_in_place
def leader_asks(s: State, p: Profile, e: EventRecord, moves: Moves) -> None:
    """A leader requests another ISR: pending until answered; before KIP-497 written at once.

    In the latter case the commit of a shrink follows, or a line that it failed.
    """
    b, r, free = e.broker, e.replica, s.pending[e.broker] == NOTHING_PENDING
    if e.isr_request == ISR_PENDING_EXPAND:
        s.maximal_isr[b] = s.isr[b] | e.isr
        s.asked[b] |= e.isr & ~s.isr[b]
    if not p.isr_change_pending:
        s.isr[b] = s.maximal_isr[b]
        return
    s.pending[b] = ASKED
    if e.isr_request == ISR_PENDING_EXPAND and free and s.maximal_isr[b] != s.isr[b]:
        put_move(moves, ISR, r, s.isr[b], s.maximal_isr[b], STEP_OBSERVATION, s.blocked[b, r] if r >= 0 else 0)


@compiled
def apply_truncation(s: State, p: Profile, e: EventRecord, moves: Moves) -> int:
    """Truncate a replica's log to the stated target, else to where the leader's answer and its own epochs say.

    A stated target is where the replica next fetched, or where its log ended when next stated. If the replica's log has
    the epoch that the answer names, it was truncated at most to where that epoch ends, by the answer and by its own
    log, and has grown to the target since. If its fetch was out of the leader's range because it lies below the log
    start there, it drops its log and restarts at that log start; if what it asked for is in the remote tier alone, it
    restarts behind the tier.
    """
    b, target = e.broker, e.truncate_to
    before, known = offsets_of(s, b), s.leo_evidence[b]
    if target == UNSET:
        target, _ = diverging_target(s, p, b, e.diverging_epoch, e.diverging_end_offset)
    elif e.diverging_end_offset >= 0 and end_offset_for(s, p, b, e.diverging_epoch)[0] == e.diverging_epoch:
        target = min(target, diverging_target(s, p, b, e.diverging_epoch, e.diverging_end_offset)[0])
    if e.cause == CAUSE_TIERED_STORAGE and e.replica >= 0:
        restart_in_tier(s, b, e.replica, target)
    elif target > s.leo[b] and e.cause == CAUSE_OUT_OF_RANGE:
        restart_at(s, p, b, target)
    else:
        truncate_to(s, p, b, target)
    note_offsets(moves, s, b, before, (STEP_TRUNCATE, STEP_TRUNCATE), known)
    return OK


@compiled
def apply_log_start(s: State, e: EventRecord, moves: Moves) -> int:
    """A log start moves up; the HW is never below it."""
    b = e.broker
    before = offsets_of(s, b)
    move_log_start(s, b, e.log_start_offset)
    raising = STEP_LEADER_HW if s.role[b] == ROLE_LEADER else STEP_FOLLOWER_HW
    note_offsets(moves, s, b, before, (STEP_OBSERVATION, raising))
    return OK


@compiled
def apply_cluster(s: State, p: Profile, e: EventRecord, moves: Moves) -> int:
    """Apply what holds for the partition as a whole: assignment, configuration, which brokers are fenced.

    Who is assigned, and who is alive, decides for whose log start the leader's low watermark waits.
    """
    of = s.partition[0]
    leads = last_leader(s, UNKNOWN) if e.kind in (PARTITION_CHANGE, BROKER_CHANGE) else NONE
    low = leader_low_watermark(s, leads) if leads >= 0 else NONE
    if e.kind == PARTITION_CHANGE:
        of.decision = e.evidence
        if e.replicas != UNSET:
            for b in range(len(s.leo)):
                if of.assigned & ~e.replicas & (1 << b):
                    s.gone[b] = 1
            of.assigned = e.replicas
    elif e.kind == CONFIG_CHANGE:
        if e.min_insync_replicas != UNSET:
            of.min_isr = e.min_insync_replicas
        if e.replica_lag_us != UNSET:
            of.lag_us = e.replica_lag_us
    elif e.kind == BROKER_CHANGE:
        if e.broker_epoch >= 0:
            note_registration(s, p, e.broker, e.broker_epoch)
        if e.fenced != UNSET:
            s.fenced[e.broker] = e.fenced
            note_fencing(s, p, e.broker)
        if e.in_controlled_shutdown != UNSET:
            s.stopping[e.broker] = e.in_controlled_shutdown
    if leads >= 0:
        note(moves, LOW_WATERMARK, leads, low, leader_low_watermark(s, leads), STEP_OBSERVATION)
    return OK


@compiled_in_place
def names_who_acts(e: EventRecord) -> bool:
    """Whether the event names the brokers that its kind requires."""
    kind = e.kind
    if kind in (FETCH_UPDATE, FETCH_APPLY):
        return e.broker >= 0 and e.replica >= 0
    return e.broker >= 0 or kind in (PARTITION_CHANGE, CONFIG_CHANGE, TOPIC_CHANGE)


@compiled_in_place
def apply(s: State, p: Profile, e: EventRecord, moves: Moves) -> int:
    """Apply one event. Returns OK, MISMATCH (a source corrected the state) or BROKEN (nothing changed)."""
    kind = e.kind
    moves.filled[0] = 0
    if not names_who_acts(e):
        return BROKEN
    if kind == APPEND:
        return apply_append(s, p, e, moves)
    if kind == FETCH_UPDATE:
        return apply_fetch_update(s, p, e, moves)
    if kind == ACK:
        return apply_answer(s, e)
    if kind in (FETCH_READ, CONSUMER_READ):
        return apply_read(s, p, e, moves)
    if kind == OBSERVATION:
        return apply_observation(s, p, e, moves)
    if kind == FETCH_APPLY:
        return apply_fetch_apply(s, p, e, moves)
    if kind == ROLE_CHANGE:
        return apply_role(s, p, e, moves)
    if kind == LOG_LOAD:
        return apply_load(s, p, e, moves)
    if kind == ISR_REQUEST:
        return apply_isr_request(s, p, e, moves)
    if kind == TRUNCATION:
        return apply_truncation(s, p, e, moves)
    if kind == LOG_START_CHANGE:
        return apply_log_start(s, e, moves)
    if kind == DELETE_RECORDS:
        return apply_deletion(s, e, moves)
    return apply_cluster(s, p, e, moves)
