"""Rows that the fold emits: records of integers in one matrix per table, from an event and what it moved.

Fields are written by name; brokers are indices, sets are masks, words are codes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from replay.arrays.bundle import bundle
from replay.arrays.jit import compiled, compiled_in_place
from replay.arrays.records import fields_of, records
from replay.engine.apply_requests import was_deleted
from replay.engine.codes import (
    CAUSE_HIGH_WATERMARK,
    CAUSE_RECOVERY,
    DELETE_RECORDS,
    FETCH_APPLY,
    FETCH_UPDATE,
    ISR_COMMITTED,
    ISR_PENDING_EXPAND,
    LOG_LOAD,
    PARTITION_CHANGE,
    ROLE_CHANGE,
    STEP_LOAD,
    STEP_ROLE,
    STEP_TRUNCATE,
    TRUNCATION,
)
from replay.engine.moves import HW, ISR, LEO, LOG_START, LOW_WATERMARK, REMOTE_LEO, Move, Moves, before_of
from replay.protocol.high_watermark import bits, effective_min_isr, leader_low_watermark
from replay.protocol.isr import who_knows
from replay.protocol.state import (
    BOUNDED,
    DERIVED,
    MIN_ISR_UNKNOWN,
    NONE,
    OBSERVED,
    ROLE_FOLLOWER,
    ROLE_LEADER,
    UNSET,
    State,
)

if TYPE_CHECKING:
    from replay.arrays.ints import Ints
    from replay.arrays.records import Records
    from replay.engine.event_record import EventRecord
    from replay.protocol.profile import Profile


class LeoRow(NamedTuple):
    """`leo_timeline`: a LEO moved."""

    seq: int
    ts: int
    broker: int
    observer: int  # 0: the broker itself; 1: the leader
    epoch: int
    before: int
    leo: int
    step: int  # codes.STEPS
    kind: int
    evidence: int


class HwRow(NamedTuple):
    """`hw_timeline`: an HW moved, or was taken up with a role."""

    seq: int
    ts: int
    broker: int
    role: int
    epoch: int
    before: int
    hw: int
    step: int
    kind: int
    cause: int  # the replica whose fetch or answer moved it
    evidence: int


class IsrRow(NamedTuple):
    """`isr_timeline`: an ISR was decided or requested."""

    seq: int
    ts: int
    leader: int
    epoch: int
    partition_epoch: int
    isr: int
    isr_before: int
    state: int  # codes.ISR_STATES
    under_min: int
    evidence: int


class MoverRow(NamedTuple):
    """A broker that joined or left in an ISR row, and how far behind it was as its leader knew it."""

    seq: int
    state: int
    replica: int
    joined: int
    leader: int
    remote: int
    gap: int
    us: int
    blocked: int  # what had kept it out (`isr`)


class CutRow(NamedTuple):
    """`log_truncations`: a log became shorter."""

    seq: int
    ts: int
    broker: int
    epoch: int
    before: int
    after: int
    hw_before: int
    cause: int  # codes.CAUSES
    evidence: int


class StartRow(NamedTuple):
    """`log_start_timeline`: a log start moved, or the leader's low watermark."""

    seq: int
    ts: int
    broker: int
    epoch: int
    before: int
    start: int
    kind: int
    low: int
    evidence: int


class CheckRow(NamedTuple):
    """A computed and a stated value; `conformance` sums these up."""

    seq: int
    check: int  # codes.CHECKS
    broker: int
    computed: int
    stated: int


class Rows(NamedTuple):
    """Where the fold puts rows: a matrix per table, and how many rows of each are used (`filled`)."""

    leo: Ints
    hw: Ints
    isr: Ints
    mover: Ints
    cut: Ints
    check: Ints
    start: Ints
    filled: Ints


bundle(Rows, {"leo": 2, "hw": 2, "isr": 2, "mover": 2, "cut": 2, "check": 2, "start": 2, "filled": 1})

N_LEO, N_HW, N_ISR, N_CUT, N_CHECK, N_MOVER, N_START = range(7)


def new_rows(events: int, decisions: int = 0, brokers: int = 0) -> Rows:
    """Room for the rows of at most `events` events, `decisions` of them about an ISR of at most `brokers`."""

    def room(per_event: int, row: type) -> Ints:
        return np.zeros((events * per_event + decisions * brokers + 8, len(fields_of(row))), np.int64)

    return Rows(
        leo=room(3, LeoRow),
        hw=room(2, HwRow),
        isr=room(1, IsrRow),
        mover=room(1, MoverRow),
        cut=room(1, CutRow),
        check=room(4, CheckRow),
        start=room(2, StartRow),
        filled=np.zeros(7, np.int64),
    )


class FoldRows(NamedTuple):
    """The emitted rows, as records."""

    leo: Records[LeoRow]
    hw: Records[HwRow]
    isr: Records[IsrRow]
    mover: Records[MoverRow]
    cut: Records[CutRow]
    check: Records[CheckRow]
    start: Records[StartRow]


def rows_of(rows: Rows) -> FoldRows:
    """The rows that were put into `rows`."""
    count = rows.filled
    return FoldRows(
        records(rows.leo[: count[N_LEO]], LeoRow),
        records(rows.hw[: count[N_HW]], HwRow),
        records(rows.isr[: count[N_ISR]], IsrRow),
        records(rows.mover[: count[N_MOVER]], MoverRow),
        records(rows.cut[: count[N_CUT]], CutRow),
        records(rows.check[: count[N_CHECK]], CheckRow),
        records(rows.start[: count[N_START]], StartRow),
    )


@compiled_in_place
def put(matrix: Ints, counts: Ints, table: int, row: tuple[int, ...]) -> None:
    """Append one row to a matrix."""
    place = counts[table]
    for k, value in enumerate(row):
        matrix[place, k] = value
    counts[table] = place + 1


@compiled_in_place
def check(rows: Rows, e: EventRecord, what: int, b: int, computed: int, stated: int) -> None:
    """Note a computed and a stated value."""
    put(rows.check, rows.filled, N_CHECK, CheckRow(seq=e.seq, check=what, broker=b, computed=computed, stated=stated))


@compiled_in_place
def emit(s: State, p: Profile, e: EventRecord, moves: Moves, rows: Rows) -> None:
    """Emit a row for each move of the event just applied, except ISR moves (see `emit_expansion`)."""
    started = False
    for k in range(moves.filled[0]):
        move = moves.noted[k]
        if move.what == LEO:
            emit_leo(s, e, move, rows)
            if move.after < move.before and move.step in (STEP_TRUNCATE, STEP_ROLE, STEP_LOAD) and move.detail != UNSET:
                emit_cut(s, p, e, move, before_of(moves, HW, move.replica, s.hw[move.replica]), rows)
        elif move.what == REMOTE_LEO:
            emit_remote_leo(s, e, move, rows)
        elif move.what == HW:
            emit_hw(s, e, move, rows)
        elif move.what == LOG_START and move.after > move.before:
            started = True
            low = leader_low_watermark(s, move.replica) if s.role[move.replica] == ROLE_LEADER else NONE
            emit_start(s, e, move.replica, (move.before, move.after, low), rows)
    if e.kind == DELETE_RECORDS and was_deleted(e) and not started and s.role[e.broker] == ROLE_LEADER:
        b = e.broker  # the records had gone already: the row tells how far the other replicas were
        emit_start(s, e, b, (s.log_start[b], s.log_start[b], leader_low_watermark(s, b)), rows)
    for k in range(moves.filled[0]):  # a low watermark has its own row if no log start moved
        move = moves.noted[k]
        rose = move.what == LOW_WATERMARK and move.after > max(move.before, 0)
        if rose and not started and s.role[move.replica] == ROLE_LEADER:
            start = s.log_start[move.replica]
            emit_start(s, e, move.replica, (start, start, move.after), rows)


@compiled_in_place
def emit_leo(s: State, e: EventRecord, move: Move, rows: Rows) -> None:
    """Emit a broker's own LEO."""
    b = move.replica
    put(rows.leo, rows.filled, N_LEO, LeoRow(
        seq=e.seq, ts=e.ts, broker=b, observer=0, epoch=s.epoch[b], before=move.before, leo=move.after, step=move.step,
        kind=e.kind, evidence=s.leo_evidence[b],
    ))  # fmt: skip


@compiled_in_place
def emit_remote_leo(s: State, e: EventRecord, move: Move, rows: Rows) -> None:
    """Emit the leader's record of a follower's LEO."""
    put(rows.leo, rows.filled, N_LEO, LeoRow(
        seq=e.seq, ts=e.ts, broker=move.replica, observer=1, epoch=s.epoch[e.broker], before=move.before,
        leo=move.after, step=move.step, kind=e.kind, evidence=OBSERVED,
    ))  # fmt: skip


@compiled_in_place
def emit_hw(s: State, e: EventRecord, move: Move, rows: Rows) -> None:
    """Emit an HW; if its role's line does not state it, its evidence is no better than that line's."""
    b = move.replica
    evidence = s.hw_evidence[b]
    if e.kind == ROLE_CHANGE and e.hw < 0:
        evidence = max(evidence, min(e.evidence, BOUNDED))
    put(rows.hw, rows.filled, N_HW, HwRow(
        seq=e.seq, ts=e.ts, broker=b, role=s.role[b], epoch=s.epoch[b], before=move.before, hw=move.after,
        step=move.step, kind=e.kind, cause=e.replica if e.kind in (FETCH_UPDATE, FETCH_APPLY) else NONE,
        evidence=evidence,
    ))  # fmt: skip


@compiled
def emit_cut(s: State, p: Profile, e: EventRecord, move: Move, hw_before: int, rows: Rows) -> None:
    """Emit a log that became shorter.

    A load that states an empty log may belong to a log created anew, whose line may be missing; hence `bounded`.
    """
    b, known = move.replica, move.detail
    if e.kind == LOG_LOAD and s.leo[b] == 0:
        known = BOUNDED
    cause = e.cause if e.kind == TRUNCATION else CAUSE_RECOVERY
    if e.kind == ROLE_CHANGE and p.truncate_to_hw and e.role == ROLE_FOLLOWER and s.leo[b] == s.hw[b]:
        cause = CAUSE_HIGH_WATERMARK
    put(rows.cut, rows.filled, N_CUT, CutRow(
        seq=e.seq, ts=e.ts, broker=b, epoch=s.epoch[b] if e.kind != LOG_LOAD else UNSET, before=move.before,
        after=move.after, hw_before=hw_before, cause=cause,
        evidence=max(e.evidence, min(max(known, s.leo_evidence[b]), BOUNDED)),
    ))  # fmt: skip


@compiled_in_place
def emit_start(s: State, e: EventRecord, b: int, start: tuple[int, int, int], rows: Rows) -> None:
    """Emit b's log start: (before, now, the low watermark at that time)."""
    put(rows.start, rows.filled, N_START, StartRow(
        seq=e.seq, ts=e.ts, broker=b, epoch=s.epoch[b], before=start[0], start=start[1], kind=e.kind, low=start[2],
        evidence=e.evidence,
    ))  # fmt: skip


@compiled
def emit_isr(s: State, e: EventRecord, change: tuple[int, int, int], blocked: int, rows: Rows) -> None:
    """Emit an ISR row, and for each broker that moved how far behind it was as the leader at that time knew it.

    `change`: (state, ISR, ISR before); `blocked`: what had kept a joining replica out until now.
    """
    state, isr, before = change
    knows = who_knows(s, e.leader_epoch)
    for r in range(len(s.leo)):
        bit = 1 << r
        if before < 0 or not (isr ^ before) & bit:
            continue
        remote, gap, us = UNSET, UNSET, UNSET
        if knows not in (NONE, r):
            if s.remote_leo[knows, r] >= 0:
                remote, gap = s.remote_leo[knows, r], max(s.leo[knows] - s.remote_leo[knows, r], 0)
            if s.caught_up[knows, r] > 0:
                us = max(e.ts - s.caught_up[knows, r], 0)
        put(rows.mover, rows.filled, N_MOVER, MoverRow(
            seq=e.seq, state=state, replica=r, joined=int(bool(isr & bit)), leader=knows, remote=remote, gap=gap,
            us=us, blocked=blocked,
        ))  # fmt: skip
    is_unknown = s.partition[0].min_isr == MIN_ISR_UNKNOWN
    under = NONE if is_unknown else int(bits(isr) < effective_min_isr(s))
    put(rows.isr, rows.filled, N_ISR, IsrRow(
        seq=e.seq, ts=e.ts, leader=e.leader if e.kind == PARTITION_CHANGE else e.broker, epoch=e.leader_epoch,
        partition_epoch=e.partition_epoch if state == ISR_COMMITTED else UNSET, isr=isr, isr_before=before,
        state=state, under_min=under, evidence=e.evidence if e.kind != FETCH_UPDATE else DERIVED,
    ))  # fmt: skip


@compiled_in_place
def emit_expansion(s: State, e: EventRecord, moves: Moves, rows: Rows) -> bool:
    """Emit the ISR that a leader expanded or requested to expand. Returns whether there was one."""
    for k in range(moves.filled[0]):
        move = moves.noted[k]
        if move.what == ISR:
            emit_isr(s, e, (ISR_PENDING_EXPAND, move.after, move.before), move.detail, rows)
            return True
    return False
