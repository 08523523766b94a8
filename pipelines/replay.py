"""The replay stage: `replication_events` -> one tagged stream with the rows of every replay table.

Each partition is one group and is replayed once, batch by batch, in seq order; the biggest start first (`spread`). The
rows of all tables leave in one frame, `output` naming the table and the columns being the union of all tables';
`table_rows` takes a table out of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping  # noqa: TC003 - Spark reads the annotations at run time
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.spark_schemas import spark_type
from pipelines.spread import TASK, spread
from replay.partition import replay_partition
from schemas.model import PARTITION_KEY
from schemas.tables import REPLAY_TABLES, TABLES

KEY = ["recording_id", "topic", "incarnation", "partition"]


def tagged_schema() -> pa.Schema:
    """`output`, then every column of every replay table, each name once; all may be null."""
    fields: dict[str, pa.Field] = {"output": pa.field("output", pa.string())}
    for table in REPLAY_TABLES:
        for column in table.columns:
            known = fields.setdefault(column.name, pa.field(column.name, column.type))
            if known.type != column.type:
                message = f"{table.name}.{column.name} is {column.type}, elsewhere {known.type}"
                raise TypeError(message)
    return pa.schema(list(fields.values()))


TAGGED = tagged_schema()


def replay(spark: SparkSession, events: DataFrame, settings: Mapping[str, Any]) -> DataFrame:
    """Events of any number of partitions -> the tagged stream."""
    del spark, settings
    ddl = ", ".join(f"`{field.name}` {spark_type(field.type).simpleString()}" for field in TAGGED)
    ordered = spread(events, KEY).sortWithinPartitions(TASK, *KEY, "seq")
    return ordered.groupBy(TASK, *KEY).applyInArrow(replay_group, ddl)


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
    have = {"output": pa.array([name] * len(rows), pa.string()), **{n: rows.column(n) for n in rows.column_names}}
    arrays = [have[field.name] if field.name in have else pa.nulls(len(rows), field.type) for field in TAGGED]
    return pa.Table.from_arrays(arrays, schema=TAGGED)


def table_rows(frame: DataFrame, table: str) -> DataFrame:
    """The rows of one table out of the tagged stream, with its columns in order."""
    columns = [column.name for column in TABLES[table].columns]
    return frame.where(F.col("output") == table).select(*columns)
