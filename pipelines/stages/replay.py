"""The replay stage: `replication_events` -> one tagged stream with the rows of every replay table.

Each partition is replayed once, batch by batch, in seq order; the biggest start first (`spread`). The rows of all
tables leave in one frame: `output` names the table, `rows` holds thousands of its rows as one Arrow stream. So they go
through Spark's staging as bytes, and become rows of Spark only where their table is written (`packed`).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from pipelines.spark.packed import STREAM, packed
from pipelines.spark.spark_schemas import spark_ddl
from pipelines.spark.spread import spread
from pipelines.spark.workers import settle
from replay.tables.partitions import KEY, replayed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

# Columns of the events that no rule looks at: names of lines and requests, and what the order alone needed.
UNREAD: Final = ("event_id", "request_id", "ts_hi", "ts_error_us", "implied", "run_gap_us", "recovering")
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
