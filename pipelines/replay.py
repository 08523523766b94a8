"""The replay stage: `replication_events` -> one tagged stream with the rows of every replay table.

Each partition is one group and is replayed once, batch by batch, in seq order. The rows of all tables leave in one
frame, `output` naming the table. Its other columns are slots, as many of each type as any one table needs: a third of
what all their columns together would be, which every row would carry through Spark. `table_rows` takes a table out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping  # noqa: TC003 - Spark reads the annotations at run time
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.spark_schemas import spark_type
from replay.partition import replay_partition
from schemas.model import PARTITION_KEY
from schemas.tables import REPLAY_TABLES, TABLES

KEY = ["recording_id", "topic", "incarnation", "partition"]


@cache
def slots(table_name: str) -> dict[str, pa.Field]:
    """A table's columns -> the slots they travel in: of each type the first, the second and so on."""
    taken: Counter[pa.DataType] = Counter()
    out = {}
    for column in TABLES[table_name].columns:
        out[column.name] = pa.field(f"slot_{TYPES.index(column.type)}_{taken[column.type]}", column.type)
        taken[column.type] += 1
    return out


TYPES: Final = list(dict.fromkeys(column.type for table in REPLAY_TABLES for column in table.columns))
TAGGED: Final = pa.schema(
    [
        pa.field("output", pa.string()),
        *sorted({slot for table in REPLAY_TABLES for slot in slots(table.name).values()}, key=lambda slot: slot.name),
    ]
)


def replay(spark: SparkSession, events: DataFrame, settings: Mapping[str, Any]) -> DataFrame:
    """Events of any number of partitions -> the tagged stream."""
    del spark, settings
    ddl = ", ".join(f"`{field.name}` {spark_type(field.type).simpleString()}" for field in TAGGED)
    ordered = events.repartition(*KEY).sortWithinPartitions(*KEY, "seq")
    return ordered.groupBy(*KEY).applyInArrow(replay_group, ddl)


def replay_group(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One partition's events, in seq order, batch by batch."""
    first = next(batches, None)
    if first is None:
        return
    key = {column.name: first.column(column.name)[0].as_py() for column in PARTITION_KEY}
    for name, rows in replay_partition(key, in_order(first, batches)):
        if len(rows):
            yield from tagged(name, rows).to_batches()


def in_order(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches as tables. That Spark keeps the sort within a group is its planner's habit, not its promise: checked."""
    last = -1
    batch: pa.RecordBatch | None = first
    while batch is not None:
        if len(batch):
            seq = batch.column("seq").to_numpy(zero_copy_only=False)
            if seq[0] <= last or np.any(np.diff(seq) <= 0):
                message = "events did not arrive in seq order"
                raise RuntimeError(message)
            last = int(seq[-1])
            yield pa.Table.from_batches([batch])
        batch = next(rest, None)


def tagged(name: str, rows: pa.Table) -> pa.Table:
    """A table's rows in the tagged form."""
    told = {slot.name: rows.column(column) for column, slot in slots(name).items()}
    told["output"] = pa.repeat(pa.scalar(name), len(rows))
    arrays = [told[field.name] if field.name in told else pa.nulls(len(rows), field.type) for field in TAGGED]
    return pa.Table.from_arrays(arrays, schema=TAGGED)


def table_rows(frame: DataFrame, table_name: str) -> DataFrame:
    """The rows of one table out of the tagged stream, with its columns in order."""
    columns = [F.col(slot.name).alias(column) for column, slot in slots(table_name).items()]
    return frame.where(F.col("output") == table_name).select(*columns)
