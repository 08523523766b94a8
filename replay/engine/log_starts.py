"""Where logs begin: rows of `log_start_timeline`. Retention, DeleteRecords, a leader's answer move it, up only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from replay.arrays.columns import offsets, places, row_columns
from replay.arrays.jit import compiled_in_place
from replay.engine import codes as c
from replay.engine.codes import E_BROKER, E_EVIDENCE, E_KIND, E_SEQ, E_TS, E_VALUE, FETCH_UPDATE, OBSERVATION
from replay.engine.emit import N_START, Rows, put
from replay.protocol.high_watermark import leader_low_watermark
from replay.protocol.state import NONE, ROLE_LEADER, UNSET
from schemas.events import EVENT_KINDS

if TYPE_CHECKING:
    from replay.arrays.columns import Texts
    from replay.arrays.ints import Ints
    from replay.protocol.state import State


@compiled_in_place
def is_of_future_log(e: Ints) -> bool:
    """Whether an event is a line about a future log: most observations are not."""
    return bool(e[E_KIND] == OBSERVATION and e[E_VALUE] != UNSET)


@compiled_in_place
def may_raise_low_watermark(e: Ints) -> bool:
    """Whether an event may raise the leader's low watermark though no log start of a replica moves."""
    return bool(e[E_KIND] == FETCH_UPDATE or is_of_future_log(e))


@compiled_in_place
def emit_starts(s: State, e: Ints, start_before: Ints, low_before: int, rows: Rows) -> None:
    """A row for each log start that the event moved, and for the leader's low watermark where only that rose."""
    moved = False
    for b in range(len(s.leo)):
        if s.log_start[b] > start_before[b]:
            moved = True
            low = leader_low_watermark(s, b) if s.role[b] == ROLE_LEADER else NONE
            put(rows.start, rows.filled, N_START, (
                e[E_SEQ], e[E_TS], b, s.epoch[b], start_before[b], s.log_start[b], e[E_KIND], low, e[E_EVIDENCE],
            ))  # fmt: skip
    b = e[E_BROKER]
    if may_raise_low_watermark(e) and not moved and s.role[b] == ROLE_LEADER:
        low = leader_low_watermark(s, b)
        if low > max(low_before, 0):
            put(rows.start, rows.filled, N_START, (
                e[E_SEQ], e[E_TS], b, s.epoch[b], s.log_start[b], s.log_start[b], e[E_KIND], low, e[E_EVIDENCE],
            ))  # fmt: skip


def causes_of(rows: Ints, reasons: dict[int, str]) -> Texts:
    """Why each row's log start moved. `reasons`: seq -> what the line says."""
    at = places(rows, c.START_ROW)
    kinds = [EVENT_KINDS[kind] for kind in at["kind"].tolist()]
    told = zip(at["seq"].tolist(), kinds, strict=True)
    return np.array([reasons.get(seq) or CAUSES.get(kind, kind) for seq, kind in told], object)


def start_columns(rows: Ints, causes: Texts) -> dict[str, Any]:
    """Kernel rows, with brokers' ids, as columns of `log_start_timeline`; `causes`: of each, why."""
    at = places(rows, c.START_ROW)
    return row_columns(at) | {
        "log_start_before": pa.array(at["before"]),
        "log_start_offset": pa.array(at["start"]),
        "records_removed": pa.array(at["start"] - at["before"]),
        "low_watermark": offsets(at["low"]),
        "cause": pa.array(causes, pa.string()),
    }


CAUSES = {
    "fetch_update": "follower_fetch",
    "fetch_apply": "leader_answer",
    "fetch_read": "stated_in_answer",
    "consumer_read": "stated_in_answer",
    "observation": "future_log",
}
