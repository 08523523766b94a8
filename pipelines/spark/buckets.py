"""Passes rows through a shuffle as bytes: one Arrow stream holds thousands of rows that belong in one bucket.

As Spark rows, facts of a hundred columns would be written, sorted and converted to Arrow again for each shuffle, field
by field, though only Python reads them.
"""

from __future__ import annotations

import zlib
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pipelines.spark.packed import rows_of_stream, stream_of
from replay.arrays.columns import numbers, texts
from replay.evidence.rows import used_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from replay.arrays.ints import Ints

BUCKET_ROWS: Final = 50_000  # to start a bucket costs more than to process so many rows
MOST_BUCKETS: Final = 64  # per task: the more buckets, the shorter the streams
ROWS_AT_ONCE: Final = 50_000  # rows that are divided among the buckets at once


def bucket_count(rows: int, tasks: int) -> int:
    """Return how many buckets so many rows are divided into."""
    return max(1, min(-(-rows // BUCKET_ROWS), MOST_BUCKETS * tasks))


def bucket_of(table: pa.Table, buckets: int) -> Ints:
    """Return the bucket of each row by topic and partition; partitions of one topic go to consecutive buckets."""
    place, topics = texts(table.column("topic"))
    named = np.array([zlib.crc32(name.encode()) for name in topics], np.int64)
    found: Ints = (named[place] + numbers(table.column("partition"))) % buckets
    return found


def by_partition(table: pa.Table) -> tuple[Ints, Callable[[int], tuple[str, int]]]:
    """Return a number for each row that is that of its partition, and what tells which partition a number is of."""
    place, topics = texts(table["topic"])
    found: Ints = numbers(table["partition"]) * len(topics) + place
    return found, lambda number: (topics[number % len(topics)], number // len(topics))


def streams_by(number: Ints, table: pa.Table) -> Iterator[tuple[int, bytes]]:
    """Yield the rows of each number as one stream, numbers ascending."""
    for value, rows in divided(number, table):
        yield value, stream_of(rows)


def divided(number: Ints, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each number, numbers ascending; a table with a single number is yielded as it is."""
    if not len(table):
        return
    if number.min() == number.max():
        given = [table]
        del table  # who gets it may release it
        yield int(number[0]), given.pop()
        return
    order, spans = spans_of(number)
    table = used_columns(table).combine_chunks().take(order)
    for first, stop in spans:
        yield int(number[order[first]]), table.slice(first, stop - first)


def spans_of(number: Ints) -> tuple[Ints, list[tuple[int, int]]]:
    """Return the order that sorts rows by number (stable), and the span of each number in that order."""
    order = np.argsort(number, kind="stable")
    bounds = np.flatnonzero(np.diff(number[order])) + 1
    return order, list(pairwise([0, *bounds.tolist(), len(number)]))


def joined(streams: Iterable[pa.Scalar]) -> pa.Table:
    """Return the rows of several streams, with all columns that any of them has."""
    return pa.concat_tables(map(rows_of_stream, streams), promote_options="default")


def gathered(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Concatenate tables until each result has at least so many rows."""
    kept: list[pa.Table] = []
    count = 0
    for table in tables:
        kept.append(table)
        count += len(table)
        del table
        if count >= rows:
            found = [pa.concat_tables(kept)]
            kept, count = [], 0
            yield found.pop()  # who gets it may release it
    if kept:
        yield pa.concat_tables(kept)
