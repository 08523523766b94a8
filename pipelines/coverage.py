"""What the logs do not cover: lines that are missing from request logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pipelines.spark_schemas import spark_type
from replay.missing_lines import FETCH, GAP_SCHEMA, REQUEST_SCHEMA, MissingLines, client_gaps, missing_lines
from replay.rows import Row

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def missing_requests(facts: DataFrame) -> MissingLines:
    """Where the request logs of a recording's facts miss lines, by the correlation ids of their clients."""
    taken = F.unix_micros("ts") - F.coalesce("total_us", F.lit(0)) + F.coalesce("queue_us", F.lit(0))
    requests = facts.where(F.col("connection").isNotNull() & F.col("ts").isNotNull()).select(
        F.coalesce("client_id", F.lit("")).alias("client_id"),
        "broker_id",
        "connection",
        "correlation_id",
        taken.alias("taken_us"),
        (F.col("kind") == FETCH).alias("fetches"),
    )
    ddl = ", ".join(f"`{field.name}` {spark_type(field.type).simpleString()}" for field in GAP_SCHEMA)
    gaps = requests.distinct().groupBy("client_id").applyInArrow(gaps_of_group, ddl)
    return missing_lines(Row(row.asDict()) for row in gaps.collect())


def gaps_of_group(table: pa.Table) -> pa.Table:
    """One client's requests -> its gaps and ends."""
    return client_gaps(table.select(REQUEST_SCHEMA.names).cast(REQUEST_SCHEMA))
