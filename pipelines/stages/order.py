"""The order stage: turns all facts of a recording into `replication_events`.

It makes two grouped passes. First fetch sessions are rebuilt per broker and session, because an incremental fetch is
one of every partition in its session; then each partition's facts are ordered on their own. What holds for the whole
cluster (registrations, configuration, topic ids, standstills) is small, and every partition gets all of it.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator  # noqa: TC003 - Spark reads the annotations
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.overview.cluster import cluster_of
from pipelines.overview.coverage import coverage_of
from pipelines.spark.buckets import (
    ROWS_AT_ONCE,
    bucket_count,
    bucket_of,
    divided,
    gathered,
    joined,
    spans_of,
    streams_by,
)
from pipelines.spark.spark_schemas import spark_ddl
from pipelines.spark.workers import settle
from replay.arrays.columns import numbers, texts
from replay.evidence.choices import FETCHES, Choice, any_of, any_sql
from replay.evidence.clock_steps import steadied
from replay.evidence.incarnations import Lives, starts_of_brokers
from replay.evidence.partition_facts import PartitionFacts
from replay.evidence.rows import METADATA_TOPIC, Row, rows_of_facts
from replay.evidence.sessions import rebuild_sessions
from replay.evidence.tenures import micros
from replay.order.operation_blocks import EVENT_SCHEMA
from replay.order.order import ordered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import Column, GroupedData

    from replay.evidence.cluster import Cluster
    from replay.evidence.missing_lines import MissingLines

# Columns of the facts that neither sessions nor the order read.
UNREAD = (
    "recording_id", "api_key", "replica_epoch", "producer_epoch", "base_sequence", "is_control",
    "is_transactional",
)  # fmt: skip
EVENTS_AT_ONCE = 5_000  # events returned to Spark at once, at least: small partitions are combined
ORDERED = (  # facts that the order or its checks need; neither reads `api` and `leo_update`
    FETCHES,
    Choice(kinds=("hw_update",), names=("leader",), filled=("partition",)),
    Choice(others=("fetch", "hw_update", "api", "leo_update"), filled=("partition",)),
)


def order(
    spark: SparkSession, facts: DataFrame, settings: Mapping[str, Any], missing: MissingLines | None = None
) -> DataFrame:
    """Return the `replication_events` of one recording's facts, ordered by seq within each partition.

    `missing`: where the logs are known to miss lines; None: it is computed here.
    """
    cluster = cluster_of(facts, settings, coverage_of(facts).missing if missing is None else missing)
    tasks = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    buckets = bucket_count(cluster.facts, tasks)
    tasks = min(tasks, buckets)
    sent = facts.where(any_sql(ORDERED)).drop(*UNREAD).withColumn("session", F.pmod(session_of_fetch(), F.lit(buckets)))
    packed = sent.mapInArrow(partial(by_session, names=cluster.names, buckets=buckets), spark_ddl(BY_SESSION))
    rebuilt = by_number(packed, "session", tasks).applyInArrow(rebuilding(buckets), spark_ddl(BY_PARTITION))
    return by_number(rebuilt, "bucket", tasks).applyInArrow(ordering(cluster), spark_ddl(WITH_RECORDING))


def by_number(frame: DataFrame, name: str, tasks: int) -> GroupedData:
    """Group rows by a number that starts at 0; numbers are dealt to the tasks in turn."""
    return frame.repartitionById(tasks, name).groupBy(name)


BY_PARTITION = pa.schema([pa.field("bucket", pa.int32()), pa.field("rows", pa.binary())])
BY_SESSION = pa.schema([pa.field("session", pa.int32()), *BY_PARTITION])  # bucket null: fetches to be rebuilt
WITH_RECORDING = pa.schema([pa.field("recording_id", pa.string()), *EVENT_SCHEMA])


def with_topics(facts: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """Fill in missing topic names by topic id; where no name is known for the id, the id itself is used."""
    ids = pa.array(names.keys(), pa.string())
    named = pa.array(names.values(), pa.string()).take(pc.index_in(facts["topic_id"], ids))
    topics = pc.coalesce(facts["topic"], named, facts["topic_id"])
    return facts.set_column(facts.schema.get_field_index("topic"), "topic", topics)


def session_of_fetch() -> Column:
    """Hash of a fetch's broker and session; a fetch without a session hashes its connection instead.

    Null for facts of other kinds.
    """
    opened = F.when(F.col("session_epoch") == 0, F.coalesce("response_session_id", F.lit(0))).otherwise(F.lit(0))
    session = F.when(F.col("session_epoch") > 0, F.coalesce("session_id", F.lit(0))).otherwise(opened)
    alone = F.when(session == 0, F.col("connection")).otherwise(F.lit(""))
    return F.when(F.expr(FETCHES.sql), F.hash("broker_id", session, alone))


def in_one_session(facts: pa.Table) -> pa.Table:
    """Return facts of one recording as `by_session` takes them if one task gets all: each fetch has the number 0."""
    wanted = any_of(ORDERED, facts).drop_columns(list(UNREAD))
    return wanted.append_column("session", pc.if_else(FETCHES.mask(wanted), pa.scalar(0, pa.int32()), None))


def by_session(batches: Iterable[pa.RecordBatch], names: Mapping[str, str], buckets: int) -> Iterator[pa.RecordBatch]:
    """Yield fetches by session (`BY_SESSION`), and all other facts by partition, since they need no session."""
    for told in gathered((pa.Table.from_batches([one]) for one in batches), ROWS_AT_ONCE):
        table = with_topics(told, names)
        fetches = table.filter(pc.is_valid(table["session"]))
        others = known_partitions(table.filter(pc.is_null(table["session"])).drop_columns("session"))
        sessions = streams_by(numbers(fetches["session"]), fetches)
        rows: list[tuple[int, int | None, bytes]] = [(k, None, one) for k, one in sessions]
        rows += [(k, k, one) for k, one in streams_by(bucket_of(others, buckets), others)]
        yield pa.RecordBatch.from_pylist([dict(zip(BY_SESSION.names, row, strict=True)) for row in rows], BY_SESSION)


def known_partitions(rows: pa.Table) -> pa.Table:
    """Return rows whose topic is known by name or id, without the metadata log."""
    others = pc.invert(pc.is_in(rows["topic"], pa.array(METADATA_TOPIC)))
    return rows.filter(pc.and_(pc.is_valid(rows["topic"]), others))


def rebuilding(buckets: int) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Make the function that Spark calls for sessions: it completes fetches; all rows leave it by partition."""

    def batches_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: list[pa.Scalar] = []
        for batch in batches:
            through = pc.is_valid(batch["bucket"])
            yield batch.filter(through).select(BY_PARTITION.names)
            found += batch.filter(pc.invert(through))["rows"]
        if found:
            fetches = joined(found)
            del found
            for _, mine in divided(numbers(fetches["broker_id"]), fetches):
                for rows in map(known_partitions, rebuild_sessions(mine)):
                    told = dict(streams_by(bucket_of(rows, buckets), rows))
                    yield pa.RecordBatch.from_pydict({"bucket": [*told], "rows": [*told.values()]}, schema=BY_PARTITION)

    return batches_of


def ordering(cluster: Cluster) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Make the function that Spark calls for each bucket; its annotations tell Spark that it works batch by batch."""

    def batches_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in gathered(order_partitions(batches, cluster), EVENTS_AT_ONCE):
            yield from table.combine_chunks().to_batches()
        settle("order")

    return batches_of


def order_partitions(batches: Iterable[pa.RecordBatch], cluster: Cluster) -> Iterator[pa.Table]:
    """Order a bucket's partitions one after the other. Each has a copy of its facts, which is released by its order."""
    facts = joined(stream for batch in batches for stream in batch["rows"]).combine_chunks()
    topic, names = texts(facts["topic"])
    order, spans = spans_of(numbers(facts["partition"]) * len(names) + topic)
    waiting = [facts.take(order[first:stop]) for first, stop in spans]
    del facts
    while waiting:
        topic, partition = (waiting[-1].column(name)[0].as_py() for name in ("topic", "partition"))
        yield from order_pieces(topic, partition, iter(waiting.pop().to_batches()), cluster)


def order_pieces(topic: str, partition: int, batches: Iterable[pa.RecordBatch], cluster: Cluster) -> Iterator[pa.Table]:
    """Order the incarnations of one topic name and partition; events are yielded in pieces as they are made."""
    with without_cycles():
        for events in order_incarnations(topic, partition, batches, cluster):
            ident = pa.repeat(pa.scalar(cluster.recording_id, pa.string()), len(events))
            yield events.add_column(0, WITH_RECORDING.field(0), ident)


@contextmanager
def without_cycles() -> Iterator[None]:
    """Disable Python's search for reference cycles: the order makes none, so the search would be in vain."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def order_incarnations(
    topic: str, partition: int, batches: Iterable[pa.RecordBatch], cluster: Cluster
) -> Iterator[pa.Table]:
    """Order the incarnations of one partition one by one, told apart by topic id, else by servers' own lines."""
    ids = cluster.created.get(topic, [])
    rows = rows_of_facts(steadied(pa.Table.from_batches(batches)))
    parts = by_incarnation(rows, ids, cluster) if ids else by_life(rows, cluster)
    for incarnation in sorted(parts):
        facts = PartitionFacts(
            topic=topic,
            topic_id=ids[incarnation][1] if incarnation < len(ids) else None,
            incarnation=incarnation,
            partition=partition,
            rows=parts.pop(incarnation),
            cluster=cluster.rows_about(topic),
            standstills=cluster.standstills,
            begins=cluster.begins,
            connection_ends=cluster.connection_ends,
            own_logs=cluster.own_logs,
            kafka_version=cluster.kafka_version,
            settings=cluster.settings,
            inter_broker_protocol=cluster.inter_broker_protocol,
            missing=cluster.missing,
        )
        pieces = ordered(facts)
        del facts
        yield from pieces


def by_life(rows: list[Row], cluster: Cluster) -> dict[int, list[Row]]:
    """Return the facts of each incarnation if there are no topic ids; facts that cannot be assigned are left out."""
    lives = Lives(rows, starts_of_brokers(cluster.rows))
    parts: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        life = lives.of(row)
        if life is not None:
            parts[life].append(row)
    return parts


def by_incarnation(rows: Iterable[Row], ids: list[tuple[int, str]], cluster: Cluster) -> dict[int, list[Row]]:
    """Return the facts of each incarnation by topic ids."""
    parts: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        parts[incarnation_of(row, ids, cluster)].append(row)
    return parts


def incarnation_of(row: Row, ids: list[tuple[int, str]], cluster: Cluster) -> int:
    """Return the incarnation that a fact is about: by its topic id, else by when topics of that name were created."""
    if row["topic_id"] in cluster.topics:
        return cluster.topics[row["topic_id"]][1]
    if row["ts"] is None or len(ids) < 2:
        return max(len(ids) - 1, 0)
    at = micros(row["ts"])
    return max(sum(created <= at for created, _ in ids) - 1, 0)
