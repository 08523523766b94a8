"""The fold: one partition's ordered events in, rows of the timelines out, compiled.

`apply` is the only place where an event meets the rules. A driver is the order of the events, nothing else: the same
`apply` serves the order stage, which runs ahead to see which interleaving the answers allow, and the replay.
An event that breaks a rule changes nothing and is reported (`CHECK_RULE`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replay.arrays.bundle import borrowed
from replay.arrays.jit import compiled, compiled_in_place
from replay.engine.codes import (
    ACK,
    APPEND,
    BROKER_CHANGE,
    CAUSE_HIGH_WATERMARK,
    CAUSE_OUT_OF_RANGE,
    CAUSE_RECOVERY,
    CHECK_FETCH_IS_LEO,
    CHECK_HW_BY_LINES,
    CHECK_HW_LINE,
    CHECK_OVERDUE,
    CHECK_RESPONSE_HW,
    CHECK_ROLE_HW,
    CHECK_ROLE_LEO,
    CHECK_RULE,
    CHECK_SHRINK,
    CONFIG_CHANGE,
    CONSUMER_READ,
    E_ASSIGNED,
    E_BROKER,
    E_CAUSE,
    E_DIVERGING_END,
    E_DIVERGING_EPOCH,
    E_DUPLICATE,
    E_END,
    E_END_EVIDENCE,
    E_EPOCH,
    E_ERROR,
    E_EVIDENCE,
    E_EXTRA,
    E_FETCH,
    E_HW,
    E_ISR,
    E_KIND,
    E_LEADER,
    E_LEO,
    E_LO,
    E_REPLICA,
    E_SEQ,
    E_TARGET,
    E_TS,
    E_UNTIL,
    E_VALUE,
    FETCH_APPLY,
    FETCH_READ,
    FETCH_UPDATE,
    FUTURE_THERE,
    ISR_COMMITTED,
    ISR_PENDING_EXPAND,
    ISR_PENDING_SHRINK,
    ISR_REQUEST,
    LOG_LOAD,
    LOG_START_CHANGE,
    OBSERVATION,
    PARTITION_CHANGE,
    REQUEST_RESET,
    ROLE_CHANGE,
    STEP_FOLLOWER_APPEND,
    STEP_FOLLOWER_HW,
    STEP_FOLLOWER_LEO,
    STEP_LEADER_APPEND,
    STEP_LEADER_HW,
    STEP_LOAD,
    STEP_OBSERVATION,
    STEP_ROLE,
    STEP_TRUNCATE,
    TOPIC_CHANGE,
    TRUNCATION,
)
from replay.engine.emit import N_CUT, N_HW, N_LEO, Rows, check, put
from replay.engine.isr_checks import check_isr_request, emit_isr
from replay.engine.log_starts import emit_starts, is_of_future_log, may_raise_low_watermark
from replay.engine.purgatory import watch
from replay.engine.stamps import STAMP_LATE_US
from replay.protocol.high_watermark import leader_low_watermark, note_future_log
from replay.protocol.isr import ASKED, DOUBTFUL, NOTHING_PENDING, PREDICTED, is_out_of_sync, note_expiry
from replay.protocol.log import (
    diverging_target,
    end_offset_for,
    forget_empty_epochs,
    forget_epoch,
    match_epochs,
    move_log_start,
    restart_at,
    truncate_to,
)
from replay.protocol.role_changes import make_follower, make_leader
from replay.protocol.state import (
    ASSIGNED,
    BOUNDED,
    DECISION,
    DERIVED,
    EARLIER_HW,
    LAG_US,
    MIN_ISR,
    NONE,
    OBSERVED,
    ROLE_FOLLOWER,
    ROLE_LEADER,
    ROLE_NONE,
    STATED_HW,
    TRUE_HW,
    UNSET,
    State,
)
from replay.protocol.stated_logs import (
    forget_log,
    last_leader,
    leader_agrees,
    leader_withdraw_hw,
    note_committed,
    note_hw,
    note_leo,
    take_own_leo,
    take_stated_leo,
)
from replay.protocol.steps import (
    follower_handle_answer,
    leader_append,
    leader_commit_isr,
    leader_forget_follower_leo,
    leader_handle_fetch,
)

if TYPE_CHECKING:
    from replay.arrays.ints import Ints
    from replay.engine.purgatory import Purgatory
    from replay.protocol.profile import Profile

ACKS_ALL = -1
OK, MISMATCH, BROKEN = 0, 1, 2  # what `apply` says of an event


@compiled
def fetch_time(e: Ints) -> int:
    """The time that the leader notes of a fetch: of before it reads, seconds earlier if it stood still meanwhile."""
    return int(min(e[E_TS], e[E_LO] + STAMP_LATE_US) if e[E_LO] > 0 else e[E_TS])


@compiled_in_place
def apply_fetch_update(s: State, p: Profile, e: Ints) -> int:
    """A follower's fetch reaches the leader. Its offset states the follower's LEO, even where the leader refuses it."""
    b, r, offset = e[E_BROKER], e[E_REPLICA], e[E_FETCH]
    refused = e[E_ERROR] > 0 or (e[E_DIVERGING_EPOCH] != UNSET and not p.update_on_diverging)
    leads = s.role[b] == ROLE_LEADER and s.epoch[b] == e[E_EPOCH]
    if not refused and (not leads or offset > s.leo[b]):
        return BROKEN
    verdict = OK
    forget_log(s, r)
    if s.leo[r] != offset and s.role[r] != ROLE_LEADER:
        verdict = MISMATCH
        take_stated_leo(s, p, r, b, offset, OBSERVED)
    if refused:
        if p.failed_read_resets and leads and e[E_ERROR] > 0:
            leader_forget_follower_leo(s, b, r)
        return verdict
    match_epochs(s, p, b, r, offset)
    if e[E_EXTRA] >= 0:
        s.remote_start[b, r] = e[E_EXTRA]
    free = s.pending[b] == NOTHING_PENDING
    leader_handle_fetch(s, p, b, r, offset, fetch_time(e))
    if free and s.pending[b] == PREDICTED and e[E_LO] <= s.settled[b]:
        s.pending[b] = DOUBTFUL
    if e[E_UNTIL] != UNSET and e[E_UNTIL] > e[E_TS]:
        leader_handle_fetch(s, p, b, r, offset, e[E_UNTIL])
    return verdict


@compiled_in_place
def apply_read(s: State, p: Profile, e: Ints) -> int:
    """An answer is read on the leader: the HW and log start it carries are that moment's, so they win where ahead."""
    b, hw = e[E_BROKER], e[E_HW]
    if e[E_KIND] != OBSERVATION and e[E_EXTRA] > 0 and s.role[b] == ROLE_LEADER and s.epoch[b] == e[E_EPOCH]:
        move_log_start(s, b, min(e[E_EXTRA], s.leo[b]))
    if hw < 0 or s.role[b] != ROLE_LEADER or s.epoch[b] != e[E_EPOCH]:
        return OK
    if hw > s.leo[b] and p.truncation_lowers_hw:
        return BROKEN
    agrees = leader_agrees(s, b, hw, e[E_LO], e[E_TS])
    if s.hw[b] == hw:
        note_committed(s, hw)
        return OK
    if s.hw[b] < hw:
        note_hw(s, b, hw, OBSERVED)
    elif not agrees:
        leader_withdraw_hw(s, b, hw)
    return MISMATCH


@compiled_in_place
def leads_on(s: State, e: Ints) -> bool:
    """Whether a leader is told its role anew without having stopped: its very next epoch, and no log loaded.

    ZooKeeper's controller does so as it takes a replica out of the ISR, KRaft's up to 3.5 as well.
    """
    b = e[E_BROKER]
    return s.role[b] == ROLE_LEADER and e[E_VALUE] == ROLE_LEADER and e[E_EPOCH] == s.epoch[b] + 1


@compiled_in_place
def apply_append(s: State, p: Profile, e: Ints) -> int:
    """A leader appends a batch. Of one that ends nobody knows where, the first record is sure all the same.

    What its log has below the batch and beyond what was computed, it had from somebody, or appended, unseen.
    """
    b, known = e[E_BROKER], max(e[E_END_EVIDENCE], e[E_EVIDENCE])
    if e[E_END] <= s.leo[b]:
        return BROKEN
    if e[E_EXTRA] > s.leo[b]:
        s.unsure_from[b] = min(s.unsure_from[b], s.leo[b]) if s.unsure_from[b] < s.unsure_until[b] else s.leo[b]
        s.unsure_until[b] = e[E_EXTRA]
        note_leo(s, b, e[E_EXTRA], BOUNDED)
    sure = s.leo[b] if s.leo_evidence[b] < BOUNDED else min(s.leo_sure[b], s.leo[b])
    s.leo_sure[b] = e[E_END] if known < BOUNDED else e[E_EXTRA] + 1 if e[E_EVIDENCE] < BOUNDED else sure
    leader_append(s, p, b, e[E_END], known, e[E_TS])
    return OK


@compiled_in_place
def apply_answer(s: State, e: Ints) -> int:
    """A producer is answered. One that asked for acks=all is told by a good answer that its batch was committed."""
    b = e[E_BROKER]
    waited = e[E_VALUE] == ACKS_ALL and not e[E_ERROR] and not e[E_DUPLICATE]
    if waited and e[E_END] >= 0 and b >= 0 and s.role[b] == ROLE_LEADER and s.epoch[b] == e[E_EPOCH]:
        note_committed(s, e[E_END] if e[E_END_EVIDENCE] < BOUNDED else e[E_EXTRA] + 1)
    return OK


@compiled
def apply_role(s: State, p: Profile, e: Ints) -> int:
    """A broker takes up a role; where its line states LEO and HW, they win over what was computed.

    A leader never cuts its own log: where one that leads on has less than was computed, too much was counted. One of
    which only the least end is known has at least that. Of a log that nothing showed to fill nobody knows the HW.
    """
    b = e[E_BROKER]
    forget_log(s, b)
    end = s.leo[b]
    if 0 <= e[E_LEO] < s.leo[b] and leads_on(s, e):
        truncate_to(s, p, b, e[E_LEO])
        note_leo(s, b, e[E_LEO], e[E_EVIDENCE])
        for known in (TRUE_HW, STATED_HW, EARLIER_HW):
            s.cluster[known] = min(s.cluster[known], e[E_LEO])
    elif e[E_LEO] >= 0:
        take_own_leo(s, p, b, e[E_LEO], e[E_EVIDENCE])
    elif e[E_VALUE] == ROLE_LEADER:
        note_leo(s, b, max(s.leo[b], e[E_END]), max(s.leo_evidence[b], e[E_EVIDENCE]))
    if e[E_HW] >= 0:
        note_hw(s, b, min(e[E_HW], s.leo[b]), e[E_EVIDENCE])
    elif s.hw[b] == 0 and s.leo[b] > end:
        s.hw_evidence[b] = max(s.hw_evidence[b], BOUNDED)
    if e[E_VALUE] == ROLE_LEADER:
        make_leader(s, p, b, e[E_EPOCH], e[E_ISR], e[E_TS])
        s.leo_sure[b] = s.leo[b] if s.leo_evidence[b] < BOUNDED else 0
        if e[E_LEO] < 0 and e[E_EVIDENCE] >= BOUNDED:
            forget_epoch(s, b, e[E_EPOCH])
    else:
        make_follower(s, p, b, e[E_LEADER], e[E_EPOCH])
    return OK


@compiled
def apply_load(s: State, p: Profile, e: Ints) -> int:
    """A broker started and loaded its log: no role, LEO and HW as its files say. A log made anew starts empty.

    Epochs without a record are forgotten (LogLoader: LeaderEpochFileCache.truncateFromEnd).
    """
    b = e[E_BROKER]
    if e[E_VALUE] == 1:
        s.gone[b] = 1
    forget_log(s, b)
    if e[E_LEO] >= 0:
        if s.role[b] == ROLE_LEADER:  # as it stopped: only its disk may have cut it
            take_stated_leo(s, p, b, last_leader(s, DERIVED), e[E_LEO], e[E_EVIDENCE])
        else:
            take_own_leo(s, p, b, e[E_LEO], e[E_EVIDENCE])
    forget_empty_epochs(s, b)
    s.role[b], s.follows[b] = ROLE_NONE, NONE
    if e[E_HW] >= 0:
        note_hw(s, b, min(e[E_HW], s.leo[b]), e[E_EVIDENCE])
    return OK


@compiled
def apply_isr_request(s: State, p: Profile, e: Ints) -> int:
    """The leader takes over a committed ISR, asks for another one, or has its request rejected.

    Reset (OPERATION_NOT_ATTEMPTED, INELIGIBLE_REPLICA; a conditional update that lost): back to the last committed.
    Refused (fenced, invalid, a new leader): pending until metadata comes. Retried: pending.
    """
    b = e[E_BROKER]
    if s.role[b] != ROLE_LEADER or s.epoch[b] != e[E_EPOCH]:
        return OK  # a zombie, or a broker that has moved on: the decision does not act on it
    if e[E_VALUE] == ISR_COMMITTED:
        s.asked[b] &= ~e[E_ISR]
        s.settled[b] = max(s.settled[b], e[E_TS])
        leader_commit_isr(s, p, b, e[E_ISR], e[E_TS])
    elif e[E_VALUE] == REQUEST_RESET:
        if e[E_ISR] != UNSET:
            s.isr[b] = e[E_ISR]
        s.maximal_isr[b], s.pending[b] = s.isr[b], NOTHING_PENDING
        s.settled[b] = max(s.settled[b], e[E_TS])
    elif e[E_VALUE] in (ISR_PENDING_EXPAND, ISR_PENDING_SHRINK):
        if e[E_VALUE] == ISR_PENDING_EXPAND:
            s.maximal_isr[b] = s.isr[b] | e[E_ISR]
            s.asked[b] |= e[E_ISR] & ~s.isr[b]
        if p.isr_change_pending:
            s.pending[b] = ASKED
        else:
            s.isr[b] = s.maximal_isr[b]  # written at once: a shrink's commit follows, or the line that it failed
    return OK


@compiled
def apply_truncation(s: State, p: Profile, e: Ints) -> int:
    """A replica cuts its log: to the target stated, else to where the leader's answer and its own epochs say.

    A stated one is where it next fetched, or stood: where it knows the epoch that it was told of, it was cut to where
    that ends at most, by the answer and by its own log, and had more since. Out of its leader's range below the log
    start there, it drops its log and starts there.
    """
    b = e[E_BROKER]
    target = e[E_TARGET]
    if target == UNSET:
        target, _ = diverging_target(s, p, b, e[E_DIVERGING_EPOCH], e[E_DIVERGING_END])
    elif e[E_DIVERGING_END] >= 0 and end_offset_for(s, p, b, e[E_DIVERGING_EPOCH])[0] == e[E_DIVERGING_EPOCH]:
        target = min(target, diverging_target(s, p, b, e[E_DIVERGING_EPOCH], e[E_DIVERGING_END])[0])
    if target > s.leo[b] and e[E_CAUSE] == CAUSE_OUT_OF_RANGE:
        restart_at(s, p, b, target)
    else:
        truncate_to(s, p, b, target)
    return OK


@compiled
def apply_cluster(s: State, e: Ints) -> int:
    """What holds for the partition as a whole: assignment, configuration, which brokers are fenced."""
    kind = e[E_KIND]
    if kind == PARTITION_CHANGE:
        s.cluster[DECISION] = e[E_EVIDENCE]
        if e[E_ASSIGNED] != UNSET:
            for b in range(len(s.leo)):
                if s.cluster[ASSIGNED] & ~e[E_ASSIGNED] & (1 << b):
                    s.gone[b] = 1
            s.cluster[ASSIGNED] = e[E_ASSIGNED]
    elif kind == CONFIG_CHANGE:
        if e[E_VALUE] != UNSET:
            s.cluster[MIN_ISR] = e[E_VALUE]
        if e[E_EXTRA] != UNSET:
            s.cluster[LAG_US] = e[E_EXTRA]
    elif kind == BROKER_CHANGE:
        if e[E_VALUE] != UNSET:
            s.fenced[e[E_BROKER]] = e[E_VALUE]
        if e[E_EXTRA] != UNSET:
            s.stopping[e[E_BROKER]] = e[E_EXTRA]
    return OK


@compiled_in_place
def names_who_acts(e: Ints) -> bool:
    """Whether the event names the brokers that its kind is about."""
    kind = e[E_KIND]
    if kind in (FETCH_UPDATE, FETCH_APPLY):
        return e[E_BROKER] >= 0 and e[E_REPLICA] >= 0
    return e[E_BROKER] >= 0 or kind in (PARTITION_CHANGE, CONFIG_CHANGE, TOPIC_CHANGE)


@compiled_in_place
def apply(s: State, p: Profile, e: Ints) -> int:
    """One event meets the rules. Returns OK, MISMATCH (a source corrected the state) or BROKEN (nothing changed)."""
    kind = e[E_KIND]
    if not names_who_acts(e):
        return BROKEN
    if kind == APPEND:
        b = e[E_BROKER]
        if e[E_DUPLICATE] or e[E_END] < 0:
            return OK
        if s.role[b] != ROLE_LEADER or s.epoch[b] != e[E_EPOCH]:
            return BROKEN
        return apply_append(s, p, e)
    if kind == FETCH_UPDATE:
        return apply_fetch_update(s, p, e)
    if kind == ACK:
        return apply_answer(s, e)
    if kind in (FETCH_READ, CONSUMER_READ, OBSERVATION):
        if is_of_future_log(e):
            note_future_log(s, e[E_BROKER], e[E_VALUE] == FUTURE_THERE, e[E_TARGET])
        return apply_read(s, p, e)
    if kind == FETCH_APPLY:
        r = e[E_REPLICA]
        if s.role[r] == ROLE_LEADER:
            return BROKEN
        follower_handle_answer(s, p, e[E_BROKER], r, (e[E_END], e[E_END_EVIDENCE], e[E_HW], e[E_EXTRA]))
        return OK
    if kind == ROLE_CHANGE:
        return apply_role(s, p, e)
    if kind == LOG_LOAD:
        return apply_load(s, p, e)
    if kind == ISR_REQUEST:
        return apply_isr_request(s, p, e)
    if kind == TRUNCATION:
        return apply_truncation(s, p, e)
    if kind == LOG_START_CHANGE:
        move_log_start(s, e[E_BROKER], e[E_EXTRA])
        return OK
    return apply_cluster(s, e)


@compiled_in_place
def step_of(kind: int, role: int, of_hw: int) -> int:
    """Which step of the protocol moves an offset when an event of that kind acts on a broker of that role."""
    if kind == ROLE_CHANGE:
        return STEP_ROLE
    if kind == TRUNCATION:
        return STEP_TRUNCATE
    if kind == LOG_LOAD:
        return STEP_LOAD
    if kind in (FETCH_READ, CONSUMER_READ, OBSERVATION):
        return STEP_OBSERVATION
    if of_hw:
        return STEP_LEADER_HW if role == ROLE_LEADER else STEP_FOLLOWER_HW
    if kind == APPEND:
        return STEP_LEADER_APPEND
    return STEP_FOLLOWER_APPEND if kind == FETCH_APPLY else STEP_OBSERVATION


@compiled_in_place
def emit_offsets(s: State, e: Ints, leo_before: Ints, hw_before: Ints, rows: Rows) -> None:
    """A row for each LEO and HW that the event moved."""
    kind, seq, ts = e[E_KIND], e[E_SEQ], e[E_TS]
    for b in range(len(s.leo)):
        if s.leo[b] != leo_before[b]:
            put(rows.leo, rows.filled, N_LEO, (
                seq, ts, b, 0, s.epoch[b], leo_before[b], s.leo[b], step_of(kind, s.role[b], 0), kind,
                s.leo_evidence[b],
            ))  # fmt: skip
        if kind == ROLE_CHANGE and b == e[E_BROKER]:
            continue
        if s.hw[b] != hw_before[b]:
            cause = e[E_REPLICA] if kind in (FETCH_UPDATE, FETCH_APPLY) else NONE
            put(rows.hw, rows.filled, N_HW, (
                seq, ts, b, s.role[b], s.epoch[b], hw_before[b], s.hw[b], step_of(kind, s.role[b], 1), kind, cause,
                s.hw_evidence[b],
            ))  # fmt: skip


@compiled
def emit_role(s: State, e: Ints, hw_before: int, hw_taken: int, rows: Rows) -> None:
    """The HW with which a broker takes up its role, and the raise that its first attempt may bring."""
    b, seq, ts = e[E_BROKER], e[E_SEQ], e[E_TS]
    evidence = s.hw_evidence[b] if e[E_HW] >= 0 else max(s.hw_evidence[b], min(e[E_EVIDENCE], BOUNDED))
    put(rows.hw, rows.filled, N_HW, (
        seq, ts, b, s.role[b], s.epoch[b], hw_before, hw_taken, STEP_ROLE, ROLE_CHANGE, NONE, evidence,
    ))  # fmt: skip
    if s.hw[b] != hw_taken:
        put(rows.hw, rows.filled, N_HW, (
            seq, ts, b, s.role[b], s.epoch[b], hw_taken, s.hw[b], STEP_LEADER_HW, ROLE_CHANGE, NONE, evidence,
        ))  # fmt: skip


@compiled_in_place
def check_before(s: State, p: Profile, e: Ints, rows: Rows) -> None:
    """Compare the state with what the event states, before the event corrects it."""
    kind, b, r = e[E_KIND], e[E_BROKER], e[E_REPLICA]
    if kind == ISR_REQUEST:
        check_isr_request(s, p, e, rows)
    elif kind in (FETCH_READ, CONSUMER_READ, OBSERVATION):
        if kind == OBSERVATION and r >= 0 and s.role[b] == ROLE_LEADER and s.epoch[b] == e[E_EPOCH]:
            if is_out_of_sync(s, p, b, r, e[E_TS]):
                check(rows, e, CHECK_SHRINK, r, s.remote_leo[b, r], e[E_FETCH])
        elif e[E_HW] >= 0 and s.role[b] == ROLE_LEADER and s.epoch[b] == e[E_EPOCH]:
            check(rows, e, CHECK_HW_LINE if kind == OBSERVATION else CHECK_RESPONSE_HW, b, s.hw[b], e[E_HW])
        if kind == OBSERVATION and e[E_EXTRA] != UNSET:
            check(rows, e, CHECK_HW_BY_LINES, b, e[E_EXTRA], e[E_HW])
    elif kind == FETCH_UPDATE and s.role[e[E_REPLICA]] == ROLE_FOLLOWER:
        check(rows, e, CHECK_FETCH_IS_LEO, e[E_REPLICA], s.leo[e[E_REPLICA]], e[E_FETCH])
    elif kind == ROLE_CHANGE and s.epoch[b] != NONE and e[E_EVIDENCE] == OBSERVED:
        if e[E_LEO] >= 0:
            check(rows, e, CHECK_ROLE_LEO, b, s.leo[b], e[E_LEO])
        if e[E_HW] >= 0:
            untaken = s.role[b] == ROLE_FOLLOWER and s.hw_untaken[b] == e[E_HW]  # the role came before the last answer
            check(rows, e, CHECK_ROLE_HW, b, e[E_HW] if untaken else s.hw[b], e[E_HW])


@compiled
def known_before(s: State, e: Ints) -> int:
    """How the LEO of the broker that acts is known before the event; UNSET where a lower one after it is no cut."""
    if e[E_BROKER] < 0 or (e[E_KIND] == ROLE_CHANGE and leads_on(s, e)):
        return UNSET
    return int(s.leo_evidence[e[E_BROKER]])


@compiled
def emit_cut(s: State, p: Profile, e: Ints, before: tuple[int, int, int], rows: Rows) -> None:
    """A row for a log that became shorter. One that was made anew lost its records with the directory: no cut.

    `before`: LEO, HW, and how the LEO was known. A load that states an empty log may be of one made anew all the same:
    the line that says so may be missing.
    """
    leo_before, hw_before, known = before
    kind, b = e[E_KIND], e[E_BROKER]
    if known == UNSET or (kind == LOG_LOAD and e[E_VALUE] == 1):
        return
    if kind == LOG_LOAD and s.leo[b] == 0:
        known = BOUNDED
    cause = e[E_CAUSE] if kind == TRUNCATION else CAUSE_RECOVERY
    if kind == ROLE_CHANGE and p.truncate_to_hw and e[E_VALUE] == ROLE_FOLLOWER and s.leo[b] == s.hw[b]:
        cause = CAUSE_HIGH_WATERMARK
    put(rows.cut, rows.filled, N_CUT, (
        e[E_SEQ], e[E_TS], b, s.epoch[b] if kind != LOG_LOAD else UNSET, leo_before, s.leo[b],
        hw_before, cause, max(e[E_EVIDENCE], min(max(known, s.leo_evidence[b]), BOUNDED)),
    ))  # fmt: skip


@compiled
def fold(s: State, p: Profile, events: Ints, isr_before: int, rows: Rows, g: Purgatory) -> int:
    """Replay `events` in their order into `rows`, watched by `g`. Returns the committed ISR mask to carry on with."""
    n = len(s.leo)
    room = np.empty((3, n), np.int64)
    leo_before, hw_before, start_before = borrowed(room[0]), borrowed(room[1]), borrowed(room[2])
    held = borrowed(events)
    for k in range(len(events)):
        e = held[k]
        kind, b, r = e[E_KIND], e[E_BROKER], e[E_REPLICA]
        if not names_who_acts(e):
            check(rows, e, CHECK_RULE, NONE, NONE, NONE)
            continue
        if b >= 0 and kind in (ROLE_CHANGE, LOG_LOAD):
            forget_log(s, b)
        for x in range(n):
            leo_before[x], hw_before[x], start_before[x] = s.leo[x], s.hw[x], s.log_start[x]
        low_before = leader_low_watermark(s, b) if may_raise_low_watermark(e) else NONE
        pending_before, member_before = (s.pending[b], s.isr[b]) if b >= 0 else (0, 0)
        remote_before = s.remote_leo[b, r] if kind == FETCH_UPDATE else UNSET
        blocked = s.blocked[b, r] if b >= 0 and r >= 0 else 0
        check_before(s, p, e, rows)
        hw_taken = s.hw[b] if b >= 0 else 0
        if kind == ROLE_CHANGE:
            hw_taken = e[E_HW] if e[E_HW] >= 0 else s.hw[b]
            if p.truncation_lowers_hw or e[E_HW] >= 0:
                hw_taken = min(hw_taken, e[E_LEO] if e[E_LEO] >= 0 else s.leo[b])
        known = known_before(s, e)
        verdict = apply(s, p, e)
        if verdict == BROKEN:
            check(rows, e, CHECK_RULE, b, s.leo[b], e[E_END] if kind == APPEND else e[E_FETCH])
        if kind in (TRUNCATION, ROLE_CHANGE, LOG_LOAD) and s.leo[b] < leo_before[b]:
            emit_cut(s, p, e, (leo_before[b], hw_before[b], known), rows)
        if kind != PARTITION_CHANGE:
            emit_offsets(s, e, leo_before, hw_before, rows)
            emit_starts(s, e, start_before, low_before, rows)
        if kind == ROLE_CHANGE:
            emit_role(s, e, hw_before[b], hw_taken, rows)
        elif kind == FETCH_UPDATE and s.remote_leo[b, r] != remote_before:
            put(rows.leo, rows.filled, N_LEO, (
                e[E_SEQ], e[E_TS], r, 1, s.epoch[b], remote_before, s.remote_leo[b, r], STEP_FOLLOWER_LEO, kind,
                OBSERVED,
            ))  # fmt: skip
        elif kind == PARTITION_CHANGE and e[E_ISR] != UNSET:
            emit_isr(s, e, (ISR_COMMITTED, e[E_ISR], isr_before), 0, rows)
            isr_before = e[E_ISR]
        if kind == ISR_REQUEST and e[E_VALUE] == ISR_PENDING_SHRINK:
            emit_isr(s, e, (ISR_PENDING_SHRINK, e[E_ISR], s.isr[b]), 0, rows)
        elif b >= 0 and not pending_before and s.pending[b] and s.maximal_isr[b] != s.isr[b]:
            emit_isr(s, e, (ISR_PENDING_EXPAND, s.maximal_isr[b], s.isr[b]), blocked, rows)
        elif kind == FETCH_UPDATE and s.isr[b] != member_before:  # written at once: asked and granted
            emit_isr(s, e, (ISR_PENDING_EXPAND, s.isr[b], member_before), blocked, rows)
        elif kind in (APPEND, FETCH_UPDATE, FETCH_READ) and s.epoch[b] == e[E_EPOCH]:
            overdue = note_expiry(s, p, b, e[E_TS])
            if overdue:
                check(rows, e, CHECK_OVERDUE, b, overdue, 0)
        watch(g, s, e, leo_before, hw_before)
    return isr_before
