"""Rows of `log_start_timeline`: how each log start moved, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from replay.arrays.columns import offsets, row_columns
from schemas.events import EVENT_KINDS

if TYPE_CHECKING:
    from replay.arrays.columns import Texts
    from replay.arrays.records import Records
    from replay.engine.emit import StartRow


def causes_of(rows: Records[StartRow], reasons: dict[int, str]) -> Texts:
    """Why each row's log start moved. `reasons`: seq -> the reason that a line states."""
    kinds = [EVENT_KINDS[kind] for kind in rows["kind"].tolist()]
    told = zip(rows["seq"].tolist(), kinds, strict=True)
    return np.array([reasons.get(seq) or CAUSES.get(kind, kind) for seq, kind in told], object)


def start_columns(rows: Records[StartRow], causes: Texts) -> dict[str, Any]:
    """Rows with broker ids as columns of `log_start_timeline`; `causes`: why each moved."""
    return row_columns(rows) | {
        "log_start_before": pa.array(rows["before"]),
        "log_start_offset": pa.array(rows["start"]),
        "records_removed": pa.array(rows["start"] - rows["before"]),
        "low_watermark": offsets(rows["low"]),
        "cause": pa.array(causes, pa.string()),
    }


CAUSES = {
    "fetch_update": "follower_fetch",
    "fetch_apply": "leader_answer",
    "fetch_read": "stated_in_answer",
    "consumer_read": "stated_in_answer",
    "observation": "future_log",
    "delete_records": "client_delete_records_request",
    "broker_change": "replica_fenced",
    "partition_change": "replicas_changed",
}
