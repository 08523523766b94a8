"""The fold: one partition's ordered events in, rows of the timelines out, compiled.

For each event: what it states is compared with the state (`checks`), it is applied to the rules (`apply`), what it
moved becomes rows (`emit`), and the purgatories follow it (`purgatory`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.arrays.bundle import borrowed
from replay.arrays.jit import compiled
from replay.engine.apply import apply, names_who_acts
from replay.engine.checks import check_before
from replay.engine.codes import (
    APPEND,
    BROKEN,
    CHECK_OVERDUE,
    CHECK_RULE,
    FETCH_READ,
    FETCH_UPDATE,
    ISR_COMMITTED,
    ISR_PENDING_SHRINK,
    ISR_REQUEST,
    LOG_LOAD,
    PARTITION_CHANGE,
    ROLE_CHANGE,
)
from replay.engine.emit import Rows, check, emit, emit_expansion, emit_isr
from replay.engine.purgatory import watch
from replay.protocol.isr import note_expiry
from replay.protocol.state import NONE, UNSET, State
from replay.protocol.stated_logs import forget_log

if TYPE_CHECKING:
    from replay.arrays.records import Records
    from replay.engine.event_record import EventRecord
    from replay.engine.moves import Moves
    from replay.engine.purgatory import Purgatory
    from replay.protocol.profile import Profile


@compiled
def fold(  # noqa: PLR0913, PLR0917 - compiled
    s: State, p: Profile, events: Records[EventRecord], isr_before: int, moves: Moves, rows: Rows, g: Purgatory
) -> int:
    """Replay `events` in order into `rows`, updating `g`. Returns the committed ISR mask to continue with."""
    held = borrowed(events)
    for k in range(len(events)):
        e = held[k]
        kind, b = e.kind, e.broker
        if not names_who_acts(e):
            check(rows, e, CHECK_RULE, NONE, NONE, NONE)
            continue
        if b >= 0 and kind in (ROLE_CHANGE, LOG_LOAD):
            forget_log(s, b)
        check_before(s, p, e, rows)
        if apply(s, p, e, moves) == BROKEN:
            check(rows, e, CHECK_RULE, b, s.leo[b], e.next_offset if kind == APPEND else e.fetch_offset)
        emit(s, p, e, moves, rows)
        if kind == PARTITION_CHANGE and e.isr != UNSET:
            emit_isr(s, e, (ISR_COMMITTED, e.isr, isr_before), 0, rows)
            isr_before = e.isr
        if kind == ISR_REQUEST and e.isr_request == ISR_PENDING_SHRINK:
            emit_isr(s, e, (ISR_PENDING_SHRINK, e.isr, s.isr[b]), 0, rows)
        elif emit_expansion(s, e, moves, rows):
            pass
        elif kind in (APPEND, FETCH_UPDATE, FETCH_READ) and s.epoch[b] == e.leader_epoch:
            overdue = note_expiry(s, p, b, e.ts)
            if overdue:
                check(rows, e, CHECK_OVERDUE, b, overdue, 0)
        watch(g, s, p, e, moves)
    return isr_before
