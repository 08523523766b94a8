"""From which minute on `cluster_metrics` may differ, by what of `partition_meters` and `coverage` came and went.

A minute tells of what was before it, not of what comes after: a gauge stands on the steps that were taken, a meter
counts, a stretch of a log says what can be claimed of its own minutes. The last minute is an exception: what lies
behind the end of all logs counts in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import numbers
from replay.arrays.digests import row_hashes
from replay.evidence.coverage import LOGGED, REQUEST_LOG
from replay.tables.cluster_metrics import brokers_of, span_of
from replay.tables.meters import MINUTE_US

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.tables.cluster_metrics import Stretch

_PARTITION: Final = ["topic", "incarnation", "partition"]
_PLACE: Final = [*_PARTITION, "seq"]
_OF_STRETCH: Final = ("broker_id", "source", "state", "reason", "start_ts")
_FIRST: Final = "first"


def first_changed_minute(
    parts: pa.Table, gone: pa.Table, new: pa.Table, before: Sequence[Stretch], now: Sequence[Stretch]
) -> int | None:
    """Return a minute (microseconds) before which every row is as it was; None: any may be another.

    `parts`: all rows of `partition_meters`, `new`: those of them that came, `gone`: those that went; a row may have
    gone and come back. `before`, `now`: all rows of `coverage`, times in microseconds.
    """
    span, was = span_of(now), span_of(before)
    if span is None or was is None or span[0] != was[0] or _brokers(now) != _brokers(before):
        return None
    if any(rows[name].null_count < len(rows) for rows in (parts, gone) for name in ("quota_limit", "quota_window")):
        return None  # a byte-rate goes over the shortest window that any row of the recording names
    last_minute = min(was[1], span[1]) - MINUTE_US
    moments = [last_minute, *_moved(before, now)]
    times = _times_from_first_change(parts, gone, new)
    if times.null_count:
        return None
    moments += [int(numbers(times).min())] if len(times) else []
    return min(moments) // MINUTE_US * MINUTE_US


def _brokers(coverage: Sequence[Stretch]) -> tuple[list[int], set[int]]:
    """Return the brokers whose metrics are told, and those of which there are requests."""
    requests = {row["broker_id"] for row in coverage if row["source"] == REQUEST_LOG and row["state"] == LOGGED}
    return brokers_of(coverage), requests


def _moved(before: Sequence[Stretch], now: Sequence[Stretch]) -> list[int]:
    """Return from where on each stretch differs that is not as it was: one that goes on does so from its old end."""
    old, new = ({tuple(row[name] for name in _OF_STRETCH): row["end_ts"] for row in rows} for rows in (before, now))
    both = old.keys() & new.keys()
    begun = [stretch[-1] for stretch in old.keys() ^ new.keys()]
    return [*begun, *(min(old[one], new[one]) for one in both if old[one] != new[one])]


def _times_from_first_change(parts: pa.Table, gone: pa.Table, new: pa.Table) -> pa.ChunkedArray:
    """Return the times of all rows from the first on, in its partition's order, that came or went; none if none did.

    What follows is among them since a row is taken to be no earlier than the one before it.
    """
    differing = pa.concat_tables([_others(gone, new), _others(new, gone)]).select(_PLACE)
    rows = pa.concat_tables([parts.select([*_PLACE, "ts"]), gone.select([*_PLACE, "ts"])])
    firsts = differing.group_by(_PARTITION).aggregate([("seq", "min")]).rename_columns([*_PARTITION, _FIRST])
    behind = rows.join(firsts, _PARTITION, join_type="inner")
    return behind.filter(pc.greater_equal(behind["seq"], behind[_FIRST]))["ts"]


def _others(rows: pa.Table, known: pa.Table) -> pa.Table:
    """Return the rows that are not among those of the same table that are known."""
    return rows.filter(pa.array(~np.isin(row_hashes(rows), row_hashes(known))))


def stretches_before(now: pa.Table, new: pa.Table, gone: pa.Table) -> pa.Table:
    """Return rows as they stood, of those that stand now, those of them that came, and those that went."""
    return pa.concat_tables([_others(now, new), gone])
