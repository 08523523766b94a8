"""Facts from some moment on that may be too many for memory: they are read some at a time, by their times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.lines.rows import LATEST
from replay.arrays.columns import numbers
from replay.arrays.ints import NEVER
from replay.evidence.steady import OF_THE_END
from schemas.model import TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pipelines.warehouse.table_files import TableFiles
    from replay.arrays.ints import Ints

MINUTE_US: Final = 60_000_000
TIME: Final = "ts"


@dataclass(frozen=True)
class Later:
    """The facts with a time from `since` on, in microseconds; -NEVER: all, and those without a time come first.

    Facts `OF_THE_END` of partitions have no time, and are always among them, and first.
    """

    files: TableFiles
    since: int = -NEVER

    @property
    def paths(self) -> list[Path]:
        """The files that have these rows, and perhaps others."""
        return self.files.paths

    @cached_property
    def minutes(self) -> tuple[Ints, Ints]:
        """In which minutes there are rows, and how many; rows without a time count as of the first."""
        found: dict[int, int] = {}
        for batch in self.files.batches([TIME], self.where(self.since)):
            minute, count = np.unique(numbers(batch[TIME], -NEVER) // MINUTE_US, return_counts=True)
            for one, rows in zip(minute.tolist(), count.tolist(), strict=True):
                found[one] = found.get(one, 0) + rows
        minutes = np.array(sorted(found), np.int64)
        return minutes, np.array([found[one] for one in minutes.tolist()], np.int64)

    @property
    def count(self) -> int:
        """How many rows there are."""
        return int(self.minutes[1].sum())

    def ends(self, rows: int, until: int = NEVER) -> list[int]:
        """Return up to when to read so that it is about so many rows each time; the last is `until`."""
        minute, count = self.minutes
        before = np.cumsum(count)
        cuts = minute[np.searchsorted(before, np.arange(rows, int(before[-1]) if len(before) else 0, rows))]
        return [*(one for one in np.unique((cuts + 1) * MINUTE_US).tolist() if self.since < one < until), until]

    def read(self, since: int, until: int, columns: Sequence[str] = (), *also: pc.Expression) -> pa.Table:
        """Read the rows between two moments, and only these columns; `also`: what they have to meet."""
        where = self.where(since, until)
        for one in also:
            where = one if where is None else where & one
        is_first = since == self.since
        files = self.files if since == -NEVER else self.files.between(TIME, since, min(until, LATEST), or_none=is_first)
        return files.rows(columns, where)

    def slices(self, rows: int, columns: Sequence[str]) -> Slices:
        """Return what reads these columns of all rows, about so many at a time, in the order of their times."""
        return Slices(self, rows, columns)

    def where(self, since: int, until: int = NEVER) -> pc.Expression | None:
        """Return what rows between two moments meet; None: all do."""
        told = []
        if since != -NEVER:
            told.append(pc.field(TIME) >= pa.scalar(since, pa.int64()).cast(TIMESTAMP))
        if until != NEVER:
            early = pc.field(TIME) < pa.scalar(until, pa.int64()).cast(TIMESTAMP)
            told.append(early | ~pc.field(TIME).is_valid() if since == -NEVER else early)
        if not told:
            return None
        found = told[0] if len(told) == 1 else told[0] & told[1]
        return found | OF_THE_END.expression if since == self.since != -NEVER else found


@dataclass(frozen=True)
class Slices:
    """Rows about so many at a time, which are read each time that they are gone through."""

    rows: Later
    at_once: int
    columns: Sequence[str]

    def __iter__(self) -> Iterator[pa.Table]:
        """Read them."""
        since = self.rows.since
        for until in self.rows.ends(self.at_once):
            yield self.rows.read(since, until, self.columns)
            since = until
