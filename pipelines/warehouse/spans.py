"""Where in time facts may stand that state what others state: as SQL for Spark, and as a filter for Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.lines.rows import EARLIEST, LATEST
from pipelines.warehouse.contract import sql_time
from pipelines.warehouse.within import time_here
from schemas.model import TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable

Span = tuple[int, int]  # first and last time, in microseconds since 1970

# An equal line has an equal time, but for the hour that occurs twice where a clock is set back, and the second within
# which a stamp in whole seconds gets its time from the lines around it.
_AROUND_US: Final = 3_603_000_000


def around(spans: Iterable[Span | None]) -> Span | None:
    """Return one span around all of these, and a little more; None: none is known."""
    known = [span for span in spans if span is not None]
    if not known:
        return None
    ends = min(first for first, _ in known) - _AROUND_US, max(last for _, last in known) + _AROUND_US
    since, until = (min(max(us, EARLIEST), LATEST) for us in ends)
    return since, until


def spanned(column: str, spans: Iterable[Span | None]) -> str:
    """Return the condition that a time is around these spans, or that there is none, so that Delta skips files."""
    found = around(spans)
    if found is None:
        return f"{column} IS NULL"
    return f"({column} BETWEEN {sql_time(found[0])} AND {sql_time(found[1])} OR {column} IS NULL)"


def spanned_here(column: str, spans: Iterable[Span | None]) -> str:
    """Return the same condition for deltalake."""
    found = around(spans)
    if found is None:
        return f"{column} IS NULL"
    since, until = map(time_here, found)
    return f"({column} >= {since} AND {column} <= {until} OR {column} IS NULL)"


def is_spanned(column: str, spans: Iterable[Span | None]) -> pc.Expression:
    """Return the same condition as a filter."""
    found, time = around(spans), pc.field(column)
    if found is None:
        return time.is_null()
    since, until = (pa.scalar(us, pa.int64()).cast(TIMESTAMP) for us in found)
    return ((time >= since) & (time <= until)) | time.is_null()


def span_of(times: pa.ChunkedArray) -> Span | None:
    """Return the first and last of these times; None: there is none."""
    ends = pc.min_max(times.cast(pa.int64())).as_py()
    return None if ends["min"] is None else (ends["min"], ends["max"])
