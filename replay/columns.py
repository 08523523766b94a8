"""Between Arrow columns and arrays of integers."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from replay.state import Flags, Ints


def numbers(column: pa.Array | pa.ChunkedArray, missing: int = 0) -> Ints:
    """A numeric, boolean or time column as int64, times in microseconds, nulls as `missing`."""
    if pa.types.is_timestamp(column.type) and column.type.unit != "us":
        column = column.cast(pa.timestamp("us", column.type.tz))
    if column.type not in (pa.int32(), pa.int64()):
        column = column.cast(pa.int64())
    if column.null_count:
        column = column.fill_null(missing)
    found: Ints = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return found


def places(rows: Ints, names: tuple[str, ...]) -> dict[str, Ints]:
    """A kernel matrix as named columns."""
    return {name: rows[:, k] for k, name in enumerate(names)}


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
