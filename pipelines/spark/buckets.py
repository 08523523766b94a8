"""Rows through a shuffle as bytes: by the thousands, an Arrow stream of those that belong in one bucket.

As rows of Spark's own, facts of a hundred columns would be written, sorted and turned into Arrow once more for each
shuffle, field by field, though only Python looks into them.
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
    from collections.abc import Iterable, Iterator

    from replay.arrays.ints import Ints

BUCKET_ROWS: Final = 50_000  # a bucket costs more to start than so many rows
MOST_BUCKETS: Final = 64  # per task: streams are the shorter, the more buckets there are
ROWS_AT_ONCE: Final = 50_000  # so many rows are divided among the buckets together


def bucket_count(rows: int, tasks: int) -> int:
    """How many buckets so many rows are divided into."""
    return max(1, min(-(-rows // BUCKET_ROWS), MOST_BUCKETS * tasks))


def bucket_of(table: pa.Table, buckets: int) -> Ints:
    """For each row the bucket of its topic and partition: partitions of one topic are dealt out in turns."""
    place, topics = texts(table.column("topic"))
    named = np.array([zlib.crc32(name.encode()) for name in topics], np.int64)
    found: Ints = (named[place] + numbers(table.column("partition"))) % buckets
    return found


def streams_by(number: Ints, table: pa.Table) -> Iterator[tuple[int, bytes]]:
    """The rows of each number, as a stream."""
    for value, rows in divided(number, table):
        yield value, stream_of(rows)


def divided(number: Ints, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each number, rising; a table of one number is left as it is."""
    if not len(table):
        return
    if number.min() == number.max():
        yield int(number[0]), table
        return
    order, spans = spans_of(number)
    table = used_columns(table).combine_chunks().take(order)
    for first, stop in spans:
        yield int(number[order[first]]), table.slice(first, stop - first)


def spans_of(number: Ints) -> tuple[Ints, list[tuple[int, int]]]:
    """Rows brought into the order of their numbers, which is kept among equal ones, and where each number's stand."""
    order = np.argsort(number, kind="stable")
    bounds = np.flatnonzero(np.diff(number[order])) + 1
    return order, list(pairwise([0, *bounds.tolist(), len(number)]))


def joined(streams: Iterable[pa.Scalar]) -> pa.Table:
    """The rows of streams, of all columns that any of them has."""
    return pa.concat_tables(map(rows_of_stream, streams), promote_options="default")


def gathered(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Tables put together until they have so many rows."""
    kept: list[pa.Table] = []
    count = 0
    for table in tables:
        kept.append(table)
        count += len(table)
        if count >= rows:
            yield pa.concat_tables(kept)
            kept, count = [], 0
    if kept:
        yield pa.concat_tables(kept)
