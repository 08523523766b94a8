"""Digests of Arrow rows: equal for equal values, however rows are chunked, and whichever columns are null throughout.

They decide what a run may leave as it stands, so a digest that is equal by chance would hide news: a row has 64 bits,
and what is compared are cryptographic digests of many rows in order, or two sums of 64 bits over rows in any order.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Collection

    from replay.arrays.ints import Ints

Hashes = npt.NDArray[np.uint64]

_WORD: Final = 8  # bytes
_LOOKED: Final = 1_000  # values that tell whether some of a column's are equal
# The finalizer of splitmix64 (Steele, Lea and Flood, 2014): every bit of a word affects every bit of the result.
_STEPS: Final = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST: Final = np.uint64(31)
_SECOND: Final = np.uint64(0x9E3779B97F4A7C15)


def row_hashes(table: pa.Table, without: Collection[str] = ()) -> Hashes:
    """Return 64 bits for each row, from its columns' names and values; a null counts as a column that is not there."""
    total = np.zeros(len(table), np.uint64)
    for name in table.column_names:
        column = table.column(name)
        if name in without or column.null_count == len(column):
            continue
        salt, factor = words_of(name)
        if column.null_count:
            known = np.flatnonzero(column.is_valid().to_numpy())
            total[known] += (value_hashes(column.take(known).combine_chunks()) + salt) * factor
        else:
            total += (value_hashes(column.combine_chunks()) + salt) * factor
    return mixed(total)


def sum_of(hashes: Hashes) -> tuple[int, int]:
    """Return two sums over rows, the same in any order of the rows; sums of parts may be added (modulo 2**64)."""
    return sums_of(hashes, np.zeros(1, np.int64))[0] if len(hashes) else (0, 0)


def sums_of(hashes: Hashes, begins: Ints) -> list[tuple[int, int]]:
    """Return the same for each stretch of rows, by where they begin; none is empty."""
    both = (np.add.reduceat(words, begins, dtype=np.uint64) for words in _summed(hashes))
    return list(zip(*(sums.tolist() for sums in both), strict=True))


def running_sums(hashes: Hashes) -> tuple[Hashes, Hashes]:
    """Return the same over all rows up to each."""
    first, second = (np.cumsum(words, dtype=np.uint64) for words in _summed(hashes))
    return first, second


def _summed(hashes: Hashes) -> tuple[Hashes, Hashes]:
    """Return the two words of each row that are summed up."""
    return hashes, mixed(hashes ^ _SECOND)


def added(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """Return the sums over two sets of rows together."""
    return (one[0] + other[0]) % 2**64, (one[1] + other[1]) % 2**64


def mixed(words: Hashes) -> Hashes:
    """Return words whose every bit depends on every bit of the given one."""
    out = words.copy()
    for shift, factor in _STEPS:
        out ^= out >> shift
        out *= factor
    out ^= out >> _LAST
    return out


@cache
def words_of(name: str) -> tuple[np.uint64, np.uint64]:
    """Return two words of a column's name, so that equal values in two columns differ; the second is odd."""
    digest = hashlib.blake2b(name.encode(), digest_size=2 * _WORD).digest()
    return np.uint64(int.from_bytes(digest[:_WORD], "little")), np.uint64(int.from_bytes(digest[_WORD:], "little") | 1)


def value_hashes(values: pa.Array) -> Hashes:
    """Return a word for each of some values, of which none is null."""
    kind = values.type
    if pa.types.is_string(kind):
        some = values.slice(0, _LOOKED)
        if len(some.unique()) == len(some):  # as ids are: to look for equal ones would cost as much again
            return text_hashes(values)
        encoded = values.dictionary_encode()
        found: Hashes = text_hashes(encoded.dictionary)[encoded.indices.to_numpy()]
        return found
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    if pa.types.is_integer(values.type) or pa.types.is_timestamp(kind):
        whole: Hashes = values.cast(pa.int64()).to_numpy().view(np.uint64)
        return whole
    # Lists and floats are few: as text they need no rule of their own.
    return text_hashes(pa.array(map(repr, values.to_pylist()), pa.string()))


def text_hashes(values: pa.Array) -> Hashes:
    """Return a word for each text, from its bytes and their number; texts of one length are read together."""
    values = values.cast(pa.large_string())
    bounds = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    lengths = np.diff(bounds)
    out = np.zeros(len(values), np.uint64)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        padded = np.zeros((len(rows), -(-max(length, 1) // _WORD) * _WORD), np.uint8)
        if len(rows) == len(lengths):  # as ids are: all bytes stand in a row
            padded[:, :length] = data[bounds[0] : bounds[-1]].reshape(len(rows), length)
        else:
            padded[:, :length] = data[bounds[rows][:, None] + np.arange(length)]
        told = np.full(len(rows), length, np.uint64)
        for word in padded.view(np.uint64).T:
            told = mixed(told ^ word) + _SECOND
        out[rows] = told
    return out
