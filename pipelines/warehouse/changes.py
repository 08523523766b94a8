"""Which rows a run replaces: those of partitions that have news, from the first window that differs on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.warehouse.contract import sql_string, sql_time
from pipelines.warehouse.within import Within
from replay.evidence.tenures import micros
from replay.tables.resumption import Place, place_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from schemas.model import Table

ALL_US: Final = -(2**63)  # before any window: all rows of the partition
BETWEEN: Final = "/"  # no topic's name has one
KEY: Final = ("topic", "incarnation", "partition")


@dataclass(frozen=True, slots=True)
class Changes:
    """By partition the start of the first window whose rows are replaced, in microseconds; ALL_US: all rows are."""

    since: Mapping[Place, int]

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> Changes:
        """Read them from rows with a partition's key and `window`."""
        return cls({place_of(row): ALL_US if row["window"] is None else micros(row["window"]) for row in rows})

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.since)

    def are_replaced(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return which rows of a table with windows are replaced; the same as `condition`, for rows in memory."""
        begin = numbers_in(rows, self.since)
        window = pc.coalesce(rows["window"].cast(pa.timestamp("us")).cast(pa.int64()), pa.scalar(ALL_US + 1))
        return pc.coalesce(pc.greater_equal(window, begin), pa.scalar(False))  # noqa: FBT003 - Arrow's own

    def condition(self, table: Table) -> str:
        """Return the SQL condition that a row is replaced; of a table without windows, all rows of a partition are.

        It is one lookup, however many partitions there are; the time before it lets Delta skip files.
        """
        if not any(column.name == "window" for column in table.columns):
            return is_among(self.since)
        begin = min(self.since.values(), default=0)
        reached = f"unix_micros(window) >= element_at({as_map(self.since)}, {PLACE_KEY})"
        if begin != ALL_US:
            return f"window >= {sql_time(begin)} AND coalesce({reached}, false)"
        known = f"coalesce(unix_micros(window), {ALL_US + 1}L)"
        return f"coalesce({known} >= element_at({as_map(self.since)}, {PLACE_KEY}), false)"

    def within(self, table: Table) -> Within:
        """Return the same condition for whoever writes."""
        if not any(column.name == "window" for column in table.columns):
            return among(self.since)
        since = min(self.since.values(), default=None)
        return Within(self.condition(table), self.are_replaced, (*KEY, "window"), since)


def key_of(place: Sequence[object]) -> str:
    """Return a partition, or its key with more columns, as `PLACE_KEY` has it."""
    return BETWEEN.join(map(str, place))


def keys_in(rows: pa.Table, more: Sequence[str] = ()) -> pa.ChunkedArray:
    """Return `PLACE_KEY` of rows in memory; `more`: other columns that it goes on with."""
    return pc.binary_join_element_wise(*(rows[name].cast(pa.string()) for name in (*KEY, *more)), BETWEEN)


def numbers_in(rows: pa.Table, numbers: Mapping[Place, int]) -> pa.ChunkedArray:
    """Return by row the number of its partition; null: it has none."""
    known = pa.array(map(key_of, numbers), pa.string())
    return pa.array(numbers.values(), pa.int64()).take(pc.index_in(keys_in(rows), known))


def key_sql(more: Sequence[str] = ()) -> str:
    """Return the same as an SQL expression."""
    topic, *numbers = (*KEY, *more)
    texts = ", ".join([topic, *(f"CAST({name} AS STRING)" for name in numbers)])
    return f"concat_ws('{BETWEEN}', {texts})"


PLACE_KEY: Final = key_sql()


def is_among(places: Iterable[Place]) -> str:
    """Return the SQL condition that a row is of one of these partitions."""
    return is_one_of(PLACE_KEY, map(key_of, places))


def among(places: Iterable[Sequence[object]], more: Sequence[str] = ()) -> Within:
    """Return the same condition for whoever writes; `more`: other columns whose values follow each partition's key."""
    known, key = sorted({*map(key_of, places)}), key_sql(more)
    values = pa.array(known, pa.string())
    return Within(is_one_of(key, known), lambda rows: pc.is_in(keys_in(rows, more), values), (*KEY, *more))


def behind(column: str, numbers: Mapping[Place, int]) -> Within:
    """Return the condition that a column is above the number of the row's partition."""
    sql = f"{column} > element_at({as_map(numbers)}, {PLACE_KEY})"
    return Within(sql, lambda rows: pc.greater(rows[column], numbers_in(rows, numbers)), (*KEY, column))


def is_one_of(value: str, known: Iterable[str]) -> str:
    """Return the SQL condition that a value is one of these texts: one lookup, however many there are."""
    return f"map_contains_key({_map_of(dict.fromkeys(sorted(known), 0))}, {value})"


def as_map(numbers: Mapping[Place, int]) -> str:
    """Return a Spark SQL expression for these numbers by `PLACE_KEY`, of constant depth."""
    return _map_of({key_of(place): number for place, number in sorted(numbers.items())})


def _map_of(numbers: Mapping[str, int]) -> str:
    return f"from_json({sql_string(json.dumps(numbers))}, 'map<string,bigint>')"
