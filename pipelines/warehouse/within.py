"""Which rows of a table a write replaces: one condition, for Spark, for rows in memory, and for deltalake.

Spark can take a condition of any size. deltalake writes it into Delta's log with each commit, so it gets none that
names many things.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.warehouse.contract import sql_string, time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pipelines.spark.row_files import Mask

_NOT: Final = pa.scalar(False)  # noqa: FBT003 - Arrow's own
MOST_NAMED: Final = 500  # in a condition for deltalake


class Within(NamedTuple):
    """The condition."""

    sql: str
    are_met: Callable[[pa.Table], Mask]  # null: it is not met
    here: str | None  # for deltalake; None: it names too much
    reads: tuple[str, ...] = ()  # the columns that `are_met` reads; none: not known
    since: int | None = None  # no row of an earlier `window` meets it, in microseconds; None: not known

    def but(self, column: str, number: int) -> Within:
        """Return the condition that it is met, and that a column has this number."""
        clause, are_met = f"{column} = {number}", self.are_met
        here = None if self.here is None else f"({self.here}) AND {clause}"
        return Within(
            f"({self.sql}) AND {clause}",
            lambda rows: pc.and_(are_met(rows), pc.equal(rows[column], number)),
            here,
            self.reads and (*self.reads, column),
            self.since,
        )

    def split(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the rows that meet it, and those that do not."""
        met = pc.coalesce(self.are_met(rows), _NOT)
        return rows.filter(met), rows.filter(pc.invert(met))


def either(*conditions: Within) -> Within:
    """Return the condition that one of these is met."""
    heres = [one.here for one in conditions]
    return Within(
        " OR ".join(f"coalesce({one.sql}, false)" for one in conditions),
        lambda rows: reduce(pc.or_, (pc.coalesce(one.are_met(rows), _NOT) for one in conditions)),
        None if None in heres else " OR ".join(f"({here})" for here in heres),
        tuple(name for one in conditions for name in one.reads) if all(one.reads for one in conditions) else (),
    )


def has_one_of(column: str, values: Iterable[str]) -> Within:
    """Return the condition that a column of text has one of these values."""
    known = sorted(set(values))
    sql = f"{column} IN ({', '.join(map(sql_string, known))})" if known else "false"
    values, here = pa.array(known, pa.string()), is_one_here(column, known)
    return Within(sql, lambda rows: pc.is_in(rows[column], values), here, (column,))


def is_one_here(value: str, known: Iterable[str]) -> str | None:
    """Return the condition for deltalake that a value is one of these texts; None: they are too many."""
    texts = sorted(set(known))
    if len(texts) > MOST_NAMED:
        return None
    return f"{value} IN ({', '.join(map(text_here, texts))})" if texts else "false"


def text_here(text: str) -> str:
    """Return a literal for exactly this text, as the SQL of deltalake and of DuckDB has it."""
    return "'" + text.replace("'", "''") + "'"


def time_here(us: int) -> str:
    """Return a literal of deltalake's SQL that is compared with a time, in microseconds since 1970."""
    return f"'{time_of(us):%Y-%m-%dT%H:%M:%S.%f}Z'"
