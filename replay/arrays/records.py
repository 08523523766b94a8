"""Records of named int64 fields: how an event, or a row, is seen alike by Python, by numba and by the type checker.

A class that only lists its fields says what a record holds. In memory it is a row of an int64 matrix, so that many
records are a matrix and their columns its columns; a rule reads `e.fetch_offset` of one of them. Written down in
`docs/decisions/0007`, with what was measured.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, overload

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.arrays.ints import Flags, Ints

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Records(Protocol[R_co]):
    """Many records of a class: one of them by its number, a column by the field's name, or some of them."""

    def __len__(self) -> int:
        """How many there are."""

    @overload
    def __getitem__(self, which: int) -> R_co: ...

    @overload
    def __getitem__(self, which: str) -> Ints: ...

    @overload
    def __getitem__(self, which: slice | Ints | Flags) -> Records[R_co]: ...

    def __setitem__(self, which: str | int | slice | Ints | Flags, values: object) -> None:
        """Write a column, or records."""

    def copy(self) -> Records[R_co]:
        """The same in memory of its own."""


def fields_of(of: type) -> tuple[str, ...]:
    """The names of a record's fields, in their order."""
    return tuple(of.__annotations__)


def type_of(of: type) -> np.dtype[np.void]:
    """A record class as numpy has it."""
    return dtype_of(fields_of(of))


@cache
def dtype_of(names: tuple[str, ...]) -> np.dtype[np.void]:
    """Fields as numpy has them, made once; a field is an attribute (`numpy.record` takes four times as long for it)."""
    one = type("Record", (np.void,), {name: attribute(name) for name in names})
    return np.dtype((one, [(name, np.int64) for name in names]))


def attribute(name: str) -> property:
    """A field of a record as an attribute of it."""

    def read(record: np.void) -> Any:  # noqa: ANN401 - an int64
        return record[name]

    def write(record: np.void, value: int) -> None:
        record[name] = value

    return property(read, write)


def blank(count: int, of: type[R], value: int = 0) -> Records[R]:
    """So many records with the same value in every field."""
    return records(np.full((count, len(fields_of(of))), value, np.int64), of)


def together(parts: Sequence[Records[R]]) -> Records[R]:
    """Several records after each other."""
    arrays = cast("Sequence[Any]", parts)
    # As plain numbers: of records, numpy compares the fields in Python, and the result has no attributes.
    flat = [np.ascontiguousarray(one).view(np.int64) for one in arrays]
    return cast("Records[R]", np.concatenate(flat).view(arrays[0].dtype))


def records(matrix: Ints, of: type[R]) -> Records[R]:
    """The rows of a matrix as records of its memory: a column for each field. ValueError: it has another width."""
    if matrix.shape[1] != len(fields_of(of)):
        message = f"{of.__name__} has {len(fields_of(of))} fields, the matrix {matrix.shape[1]} columns"
        raise ValueError(message)
    found: Any = np.ascontiguousarray(matrix).view(type_of(of)).reshape(len(matrix))
    return cast("Records[R]", found)
