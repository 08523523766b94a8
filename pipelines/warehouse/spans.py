"""Where in time facts may stand that state what others state: as SQL for Spark, and as a filter for Arrow."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from operator import or_
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.lines.rows import EARLIEST, LATEST
from pipelines.warehouse.contract import sql_time
from schemas.model import TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable

Span = tuple[int, int]  # first and last time, in microseconds since 1970

# An equal line has an equal time, but for the hour that occurs twice where a clock is set back, and the second within
# which a stamp in whole seconds gets its time from the lines around it.
_AROUND_US: Final = 3_603_000_000
_SECOND_US: Final = 1_000_000
MOST: Final = 20  # spans of one condition
HOUR_US: Final = 3_600_000_000


def around(spans: Iterable[Span | None]) -> list[Span]:
    """Return spans around these and a little more, which rise and do not meet; none if none is known.

    They are few: conditions with thousands of them take seconds, and more make Arrow fail.
    """
    found: list[Span] = []
    for first, last in sorted(span for span in spans if span is not None):
        since, until = (min(max(us, EARLIEST), LATEST) for us in (first - _AROUND_US, last + _AROUND_US))
        if found and since <= found[-1][1]:
            found[-1] = (found[-1][0], max(until, found[-1][1]))
        else:
            found.append((since, until))
    apart = sorted(range(1, len(found)), key=lambda k: found[k - 1][1] - found[k][0])
    begins = [0, *sorted(apart[: MOST - 1])]
    return [(found[a][0], found[b - 1][1]) for a, b in pairwise([*begins, len(found)])] if found else []


def spanned(column: str, spans: Iterable[Span | None]) -> str:
    """Return the condition that a time is around these spans, or that there is none, so that Delta skips files."""
    said = [f"{column} BETWEEN {sql_time(since)} AND {sql_time(until)}" for since, until in around(spans)]
    return f"({' OR '.join([*said, f'{column} IS NULL'])})"


class Near(NamedTuple):
    """From when to when facts stand that change, in whole seconds, and whether some without a time do."""

    span: Span | None
    has_none: bool

    @classmethod
    def of(cls, *times: pa.ChunkedArray) -> Near:
        """Return what has all facts with these times, and little more."""
        known = [span for one in times if (span := span_of(one)) is not None]
        has_none = any(one.null_count for one in times)
        if not known:
            return cls(None, has_none)
        first, last = min(first for first, _ in known), max(last for _, last in known)
        # Whole seconds, since times in Delta's log have fewer digits than those in the files.
        return cls((first // _SECOND_US * _SECOND_US, (last // _SECOND_US + 1) * _SECOND_US), has_none)

    def filter(self, column: str) -> pc.Expression:
        """Return the condition that a time is one of these, as a filter."""
        time = pc.field(column)
        said = [time.is_null()] * self.has_none
        if self.span is not None:
            since, until = map(_scalar, self.span)
            said.append((time >= since) & (time <= until))
        return reduce(or_, said, pc.scalar(False))  # noqa: FBT003 - Arrow's own


def is_spanned(column: str, spans: Iterable[Span | None]) -> pc.Expression:
    """Return the condition of `spanned` as a filter."""
    time = pc.field(column)
    said = [(time >= _scalar(since)) & (time <= _scalar(until)) for since, until in around(spans)]
    return reduce(or_, said, time.is_null())


def _scalar(us: int) -> pa.Scalar:
    return pa.scalar(us, pa.int64()).cast(TIMESTAMP)


def span_of(times: pa.ChunkedArray) -> Span | None:
    """Return the first and last of these times; None: there is none."""
    ends = pc.min_max(times.cast(pa.int64())).as_py()
    return None if ends["min"] is None else (ends["min"], ends["max"])


def spans_of(times: pa.ChunkedArray) -> list[Span]:
    """Return the first and last of these times in each hour that has any."""
    us = times.cast(pa.int64()).drop_null()
    hours = pa.table({"us": us, "hour": pc.divide(us, HOUR_US)}).group_by("hour")
    ends = hours.aggregate([("us", "min"), ("us", "max")])
    return [*zip(ends["us_min"].to_pylist(), ends["us_max"].to_pylist(), strict=True)]
