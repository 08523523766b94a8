"""What holds for the whole cluster, collected with Spark: a few hundred rows, whatever the recording's size.

Which facts are needed and what they mean is defined in `replay.evidence` (`cluster`, `standstills`, `sources`), which
also collects them from facts in one table. Here Spark selects them and aggregates those not needed one by one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from pipelines.overview.coverage import source_of_fact
from pipelines.spark.spark_schemas import spark_ddl
from replay.evidence.cluster import NAMED_COLUMNS, NAMING, WHOLE, ClusterFacts
from replay.evidence.coverage import SERVER_LOG
from replay.evidence.expiry_runs import MINUTE_US, SHRINK_SCHEMA, SHRINKS
from replay.evidence.standstills import (
    CONNECTION_SCHEMA,
    LINES,
    ON_CONNECTIONS,
    PIECE_SCHEMA,
    PIECE_US,
    PRODUCE_COLUMNS,
    PRODUCES,
    SILENCE_SCHEMA,
    ends_told,
    silences_of,
    woken,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame


def collected_by_spark(facts: DataFrame) -> ClusterFacts:
    """Collect what `collected_of` does, from facts of which there are many."""
    recording = facts.agg(F.max("recording_id").alias("recording_id"), F.count(F.lit(1)).alias("facts")).head()
    silences = silences_of_brokers(facts)
    return ClusterFacts(
        recording_id=(recording.recording_id if recording else None) or "",
        facts=recording.facts if recording else 0,
        whole=facts.where(WHOLE.sql).toArrow(),
        named=names_of_topics(facts).toArrow(),
        silences=silences,
        connection_ends=connection_ends(facts, silences),
        own_logs=own_logs(facts),
        shrinks=first_shrinks(facts),
    )


def first_shrinks(facts: DataFrame) -> pa.Table:
    """Return of each broker and minute the time of the first line about a shrink."""
    us = F.unix_micros("ts")
    minutes = facts.where(SHRINKS.sql).groupBy("broker_id", F.floor(us / MINUTE_US).alias("minute"))
    return minutes.agg(F.min(us).alias("us")).select(*SHRINK_SCHEMA.names).toArrow()


def names_of_topics(facts: DataFrame) -> DataFrame:
    """Return every pair of topic and topic id that brokers' lines state, with the time of the first statement."""
    topic, topic_id, ts = NAMED_COLUMNS
    return facts.where(NAMING.sql).groupBy(topic, topic_id).agg(F.min(ts).alias(ts))


def silences_of_brokers(facts: DataFrame) -> pa.Table:
    """Return where each broker's lines begin and where it stood still; lines are first summed up by pieces of time."""
    stamp = F.unix_micros("ts")
    line = F.struct(stamp.alias("us"), (stamp + F.coalesce("ts_error_us", F.lit(0))).alias("latest"))
    pieces = facts.where(LINES.sql).groupBy("broker_id", F.floor(stamp / PIECE_US).alias("piece"))
    told = pieces.agg(
        F.min(line).alias("line"), F.max(stamp).alias("last"), F.max(F.col("connection").isNotNull()).alias("asked")
    ).select("broker_id", F.col("line.us").alias("first"), F.col("line.latest").alias("latest"), "last", "asked")
    found = told.select(*PIECE_SCHEMA.names).groupBy("broker_id").applyInArrow(silences_of, spark_ddl(SILENCE_SCHEMA))
    return found.toArrow()


def connection_ends(facts: DataFrame, silences: pa.Table) -> dict[tuple[int, str], int]:
    """Return the last stamp on each connection that had a produce under way when a standstill ended."""
    if silences["before"].null_count == len(silences):
        return {}
    produces = facts.where(PRODUCES.sql).select(*PRODUCE_COLUMNS)
    some = produces.mapInArrow(partial(woken_of_each, silences=silences), spark_ddl(CONNECTION_SCHEMA)).distinct()
    place = CONNECTION_SCHEMA.names
    requests = facts.where(ON_CONNECTIONS.sql).join(some, on=place, how="left_semi")
    return ends_told(requests.groupBy(*place).agg(F.unix_micros(F.max("ts")).alias("last")).toArrow())


def woken_of_each(batches: Iterable[pa.RecordBatch], silences: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the connections of those produces that were under way when a standstill ended."""
    for batch in batches:
        yield from woken(pa.Table.from_batches([batch]), silences).to_batches()


def own_logs(facts: DataFrame) -> frozenset[int]:
    """Return the brokers of whose own log anything was read."""
    lines = facts.where(F.col("broker_id").isNotNull() & (source_of_fact() == SERVER_LOG))
    return frozenset(row.broker_id for row in lines.select("broker_id").distinct().collect())
