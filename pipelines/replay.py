"""The replay stage: `replication_events` -> one tagged stream with the rows of every replay table.

Each partition is replayed once, batch by batch, in seq order; the biggest start first (`spread`). The rows of all
tables leave in one frame: `output` names the table, `rows` holds thousands of its rows as one Arrow stream. So they go
through Spark's staging as bytes, and become rows of Spark only where their table is written (`packed`).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.packed import STREAM, packed
from pipelines.spark_schemas import spark_ddl
from pipelines.spread import spread
from pipelines.workers import settle
from replay.events import Batch
from replay.output import Output
from replay.partition import PartitionReplay
from schemas.model import PARTITION_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from replay.events import Events

KEY = ["recording_id", "topic", "incarnation", "partition"]
# Columns of the events that no rule looks at: names of lines and requests, and what the order alone needed.
UNREAD: Final = ("event_id", "request_id", "ts_hi", "ts_error_us", "implied", "run_gap_us", "recovering")
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
        kept[name].append(rows)
        count += len(rows)
        if count >= ROWS_A_BATCH:
            yield from packed(kept)
            count = 0
    yield from packed(kept)
    settle("replay")


def replayed(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.Table]]:
    """Rows of the partitions' tables, batch by batch, those of all partitions in a batch together.

    That Spark keeps the sort is its planner's habit, not its promise: checked.
    """
    out = Output()
    ended: set[tuple[Any, ...]] = set()
    now: tuple[Any, ...] = ()
    last = -1
    replay: PartitionReplay | None = None
    for batch in batches:
        for events, key in partitions_of(batch):
            name, seq = tuple(key[column] for column in KEY), events.numbers("seq")
            if replay is None or name != now:
                if name in ended:
                    raise RuntimeError(OUT_OF_ORDER)
                if replay is not None:
                    replay.finish()
                ended.add(name)
                replay, now, last = PartitionReplay(key, out), name, -1
            if seq[0] <= last or (seq[1:] <= seq[:-1]).any():
                raise RuntimeError(OUT_OF_ORDER)
            last = int(seq[-1])
            replay.feed(events)
        yield from out.tables()
    if replay is not None:
        replay.finish()
    yield from out.tables()


def partitions_of(batch: pa.RecordBatch) -> Iterator[tuple[Events, dict[str, Any]]]:
    """The events of each partition in a batch that is sorted by partition, and its key columns."""
    begins = np.zeros(len(batch), bool)
    begins[:1] = True
    for name in KEY:
        column = batch.column(name)
        begins[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    firsts = np.flatnonzero(begins)
    keys = batch.select([column.name for column in PARTITION_KEY]).take(pa.array(firsts)).to_pylist()
    return zip(Batch(pa.Table.from_batches([batch]), firsts.tolist()).partitions(), keys, strict=True)
