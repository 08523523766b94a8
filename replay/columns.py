"""From the kernel's integer matrices to Arrow columns."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from replay.state import Ints

Flags = npt.NDArray[np.bool_]


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
