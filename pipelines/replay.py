"""The replay stage: `replication_events` -> one tagged stream with the rows of every replay table.

Each partition is replayed once, batch by batch, in seq order; the biggest start first (`spread`). The rows of all
tables leave in one frame: `output` names the table, `rows` holds thousands of its rows as one Arrow stream. So they go
through Spark's staging as bytes, and become rows of Spark only where their table is written (`packed`).
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.packed import STREAM, packed
from pipelines.spark_schemas import spark_ddl
from pipelines.spread import spread
from pipelines.workers import settle
from replay.partition import replay_partition
from schemas.model import PARTITION_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

KEY = ["recording_id", "topic", "incarnation", "partition"]
# Columns of the events that no rule looks at: names of lines and requests, and what the order alone needed.
UNREAD: Final = (
    "event_id", "request_id", "ts_hi", "ts_error_us", "last_fetched_epoch", "implied", "run_gap_us",
    "recovering",
)  # fmt: skip
OUT_OF_ORDER: Final = "events did not arrive in seq order"
ROWS_A_BATCH: Final = 20_000  # so many rows go back to Spark at once, about: those of small partitions together


def replay(spark: SparkSession, events: DataFrame, settings: Mapping[str, Any]) -> DataFrame:
    """Events of any number of partitions -> the tagged stream."""
    del spark, settings
    ordered = spread(read_of(events), KEY).sortWithinPartitions(*KEY, "seq")
    # Not a grouped function: it would bring each partition in Arrow batches of its own, and most may be small.
    return ordered.mapInArrow(replay_partitions, spark_ddl(STREAM))


def read_of(events: DataFrame) -> DataFrame:
    """The events without what only readers of the table ask for: the engine's input."""
    return events.drop(*UNREAD)


def replay_partitions(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """Whole partitions, one after the other, each in seq order -> their rows, those of many in one batch."""
    kept: defaultdict[str, list[pa.Table]] = defaultdict(list)
    count = 0
    for name, rows in replayed(batches):
        if len(rows):
            kept[name].append(rows)
            count += len(rows)
        if count >= ROWS_A_BATCH:
            yield from packed(kept)
            count = 0
    yield from packed(kept)
    settle("replay")


def replayed(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.Table]]:
    """Rows of each partition's tables. That Spark keeps the sort is its planner's habit, not its promise: checked."""
    ended = set()
    for name, pieces in groupby(pieces_of(batches), key=itemgetter(0)):
        if name in ended:
            raise RuntimeError(OUT_OF_ORDER)
        ended.add(name)
        tables = in_order(table for _, table in pieces)
        first = next(tables)
        key = {column.name: first.column(column.name)[0].as_py() for column in PARTITION_KEY}
        yield from replay_partition(key, chain([first], tables))


def pieces_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """Batches cut where another partition begins: its name (`KEY`) and its events."""
    for batch in batches:
        table = pa.Table.from_batches([batch])
        for first, stop in spans(batch):
            yield tuple(batch.column(name)[first].as_py() for name in KEY), table.slice(first, stop - first)


def in_order(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """One partition's events, checked to come in seq order."""
    last = -1
    for table in tables:
        seq = table.column("seq").to_numpy()
        if seq[0] <= last or np.any(np.diff(seq) <= 0):
            raise RuntimeError(OUT_OF_ORDER)
        last = int(seq[-1])
        yield table


def spans(batch: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """Where each partition's events begin and end in a batch that is sorted by partition."""
    begins = np.zeros(len(batch), bool)
    begins[:1] = True
    for name in KEY:
        column = batch.column(name)
        begins[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    first = np.flatnonzero(begins)
    return zip(first.tolist(), [*first[1:].tolist(), len(batch)], strict=True) if len(batch) else iter(())
