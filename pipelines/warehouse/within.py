"""Which rows of a table a write replaces: one condition, for Spark and for rows in memory."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.warehouse.contract import sql_string

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pipelines.spark.row_files import Mask

_NOT: Final = pa.scalar(False)  # noqa: FBT003 - Arrow's own


class Within(NamedTuple):
    """The condition."""

    sql: str
    are_met: Callable[[pa.Table], Mask]  # null: it is not met
    reads: tuple[str, ...]  # the columns that `are_met` reads
    since: int | None = None  # no row of an earlier `window` meets it, in microseconds; None: not known

    def but(self, column: str, number: int) -> Within:
        """Return the condition that it is met, and that a column has this number."""
        clause, are_met = f"{column} = {number}", self.are_met
        return Within(
            f"({self.sql}) AND {clause}",
            lambda rows: pc.and_(are_met(rows), pc.equal(rows[column], number)),
            (*self.reads, column),
            self.since,
        )

    def split(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the rows that meet it, and those that do not."""
        met = pc.coalesce(self.are_met(rows), _NOT)
        return rows.filter(met), rows.filter(pc.invert(met))


def either(*conditions: Within) -> Within:
    """Return the condition that one of these is met."""
    return Within(
        " OR ".join(f"coalesce({one.sql}, false)" for one in conditions),
        lambda rows: reduce(pc.or_, (pc.coalesce(one.are_met(rows), _NOT) for one in conditions)),
        tuple(name for one in conditions for name in one.reads),
    )


def has_one_of(column: str, values: Iterable[str]) -> Within:
    """Return the condition that a column of text has one of these values."""
    known = sorted(set(values))
    sql = f"{column} IN ({', '.join(map(sql_string, known))})" if known else "false"
    values = pa.array(known, pa.string())
    return Within(sql, lambda rows: pc.is_in(rows[column], values), (column,))
