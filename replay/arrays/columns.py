"""Between Arrow columns and arrays of integers."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.model import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from replay.arrays.ints import Flags, Ints
    from replay.arrays.records import Records

LONG_RUN: Final = 1_000  # rows, on average: in shorter pieces, what is done piece by piece would cost more than a copy

T = TypeVar("T")
Texts = npt.NDArray[np.object_]


def numbers(column: pa.Array | pa.ChunkedArray, missing: int = 0) -> Ints:
    """A numeric, boolean or time column as int64, times in microseconds, nulls as `missing`."""
    if pa.types.is_timestamp(column.type) and column.type.unit != "us":
        column = column.cast(pa.timestamp("us", column.type.tz))
    if column.type not in (pa.int32(), pa.int64()):
        column = column.cast(pa.int64())
    if column.null_count:
        column = column.cast(pa.int64()).fill_null(missing)
    found: Ints = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return found


def numbers_of(table: pa.Table, name: str, missing: int = 0) -> Ints:
    """The same of a table's column; `missing` throughout if it has none of the name."""
    held = name in table.column_names
    return numbers(table[name], missing) if held else np.full(len(table), missing, np.int64)


def texts(column: pa.ChunkedArray) -> tuple[Ints, list[str]]:
    """A text column: for each row its place among the different texts, and these; nulls are empty."""
    encoded = pc.fill_null(column, "").combine_chunks().dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()


def in_short(rows: pa.Table) -> pa.Table:
    """Rows with each text as its place among the different ones of its column: for many that are kept, hardly read."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_string(field.type):
            words = rows.column(place).dictionary_encode()
            rows = rows.set_column(place, field.with_type(words.type), words)
    return rows


def in_full(rows: pa.Table) -> pa.Table:
    """Rows with their texts, if they were held `in_short`."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            plain = field.with_type(field.type.value_type)
            rows = rows.set_column(place, plain, rows.column(place).cast(plain.type))
    return rows


def codes(column: pa.ChunkedArray, table: dict[str, int], missing: int) -> Ints:
    """A text column as codes, nulls and other words as `missing`."""
    place, found = texts(column)
    return np.array([table.get(word, missing) for word in found], np.int64)[place]


class Names(Generic[T]):
    """Values as codes that are given out as they are met, so that rows of many partitions can name them."""

    def __init__(self, kind: pa.DataType) -> None:
        """None met; `kind`: what Arrow has them as."""
        self.kind = kind
        self.codes: dict[T, int] = {}
        self.values: list[T] = []

    def code_of(self, value: T) -> int:
        """The code of a value."""
        if value not in self.codes:
            self.codes[value] = len(self.values)
            self.values.append(value)
        return self.codes[value]

    def chosen(self, found: Ints) -> list[T | None]:
        """Codes as values; None below 0."""
        return [None if k < 0 else self.values[k] for k in found.tolist()]

    def codes_of(self, values: Iterable[T | None]) -> Ints:
        """Values as codes; -1 for None."""
        return np.array([-1 if value is None else self.code_of(value) for value in values], np.int64)

    def named(self, found: Ints) -> pa.Array:
        """Codes as values, null below 0."""
        each, place = np.unique(found, return_inverse=True)
        return pa.array(self.chosen(each), self.kind).take(pa.array(place))


def differing(*columns: Ints) -> Flags:
    """Which rows differ from the one before in any of these columns; the first does."""
    found = np.ones(len(columns[0]), np.bool_)
    found[1:] = False
    for column in columns:
        found[1:] |= column[1:] != column[:-1]
    return found


def ranges(first: Ints, count: Ints) -> Ints:
    """The numbers from each first one on, so many of each, one range after the other."""
    begins = np.cumsum(count) - count
    found: Ints = np.repeat(first - begins, count) + np.arange(count.sum())
    return found


def taken(rows: pa.Table, at: Ints) -> pa.Table:
    """The rows at these places. Where long runs of them lie together already, nothing is copied."""
    if not len(at):
        return rows[:0]
    begins = np.flatnonzero(differing(at - np.arange(len(at))))
    if len(begins) * LONG_RUN > len(at):
        return rows.take(pa.array(at))
    ends = [*begins[1:].tolist(), len(at)]
    runs = zip(begins.tolist(), ends, strict=True)
    return pa.concat_tables([rows.slice(int(at[begin]), end - begin) for begin, end in runs])


def filled(columns: Mapping[str, pa.Array | pa.ChunkedArray], count: int, schema: pa.Schema) -> pa.Table:
    """So many rows with the columns of a schema, null where there are none of the name."""
    arrays = [columns[one.name] if one.name in columns else pa.nulls(count, one.type) for one in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def completed_to(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows that may lack columns of a schema, which are null throughout, with all of them."""
    if rows.schema.equals(schema):
        return rows
    return filled(dict(zip(rows.column_names, rows.columns, strict=True)), len(rows), schema)


def row_columns(at: Records[Any]) -> dict[str, pa.Array]:
    """What every row of the fold's tells: of which event, whose replica, in which epoch, and how it is known."""
    return {
        "seq": pa.array(at["seq"]),
        "ts": stamps(at["ts"]),
        "broker_id": offsets(at["broker"]),
        "leader_epoch": offsets(at["epoch"]),
        "evidence": words(at["evidence"], EVIDENCE),
    }


def words(found: Ints, table: tuple[str, ...], *, missing: Flags | None = None) -> pa.Array:
    """Codes as text, null where `missing`."""
    return known_words(table).take(pa.array(found, pa.int64(), mask=missing))


@cache
def known_words(table: tuple[str, ...]) -> pa.Array:
    """A closed list of words as Arrow has it."""
    return pa.array(table, pa.string())


def stamps(found: Ints, *, missing: Flags | None = None) -> pa.Array:
    """Microseconds as UTC times, null where `missing`."""
    return pa.array(found, pa.int64(), mask=missing).cast(pa.timestamp("us", tz="UTC"))


def offsets(found: Ints) -> pa.Array:
    """Numbers that are null below 0."""
    return pa.array(found, mask=found < 0)


def milliseconds(found: Ints) -> pa.Array:
    """Microseconds as milliseconds with a fraction, null below 0."""
    return pa.array(found / 1000, pa.float64(), mask=found < 0)
