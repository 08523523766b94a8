"""The order stage: all facts of a recording -> `replication_events`.

Two grouped passes. Fetch sessions are rebuilt per broker and session, for an incremental fetch is one of every
partition in its session; then each partition's facts are ordered on their own. What holds for the whole cluster
(registrations, configuration, topic ids, standstills) is small, and goes to every partition as it is.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator  # noqa: TC003 - Spark reads the annotations
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from heapq import merge
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pipelines.overview.coverage import coverage_of, source_of_fact
from pipelines.overview.deposed import topics_named
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
from replay.evidence.broker_pauses import AWAKE_US, DUE_PARTS, PARTS, STANDSTILL_US
from replay.evidence.clock_steps import steadied
from replay.evidence.controller_view import MIN_ISR_SETTING
from replay.evidence.coverage import SERVER_LOG
from replay.evidence.incarnations import Lives, starts_of_brokers
from replay.evidence.metadata_log import PART, Parts, standing
from replay.evidence.missing_lines import MissingLines
from replay.evidence.partition_facts import LAG_SETTING, PartitionFacts
from replay.evidence.rows import METADATA_TOPIC, Row, rows_of_facts
from replay.evidence.sessions import rebuild_sessions
from replay.evidence.tenures import micros
from replay.evidence.versions import PROTOCOL_SETTING
from replay.order.operation_blocks import EVENT_SCHEMA
from replay.order.order import ordered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import Column, GroupedData

NAMING_KINDS = ("topic_change", "role_change", "leader_and_isr")  # facts that may state a topic's name and id
CLUSTER_KINDS = ("broker_change", "config_change", "feature_change", "broker_lifecycle", PART)
# Columns of the facts that neither sessions nor the order read.
MANIFEST_SETTINGS = (LAG_SETTING, MIN_ISR_SETTING, PROTOCOL_SETTING)  # what is read of a manifest's broker_config
UNREAD = (
    "recording_id", "api_key", "api_version", "replica_epoch", "producer_epoch", "base_sequence", "is_control",
    "is_transactional",
)  # fmt: skip
EVENTS_AT_ONCE = 5_000  # so many events go back to Spark at once, at least: those of small partitions together
WHOLE_SECOND_US = 1_000_000  # no stamp is off by more
LONGEST_REQUEST_US = 3_600_000_000  # no request waits for longer, whatever its line says
UNORDERED_KINDS = ("api", "leo_update")  # statements that neither the order nor its checks need


@dataclass(frozen=True, slots=True)
class Cluster:
    """What holds for every partition of a recording."""

    recording_id: str
    rows: list[Row]
    topics: dict[str, tuple[str, int]]  # topic id -> (topic, incarnation)
    created: dict[str, list[tuple[int, str]]]  # topic -> (when, topic id), rising
    standstills: dict[int, list[tuple[int, int]]]
    begins: dict[int, int]  # broker -> its first line
    connection_ends: dict[tuple[int, str], int]
    own_logs: frozenset[int]  # brokers whose own log is at hand, not only their request log
    kafka_version: str | None
    settings: dict[str, int | None]
    inter_broker_protocol: str | None = None
    missing: MissingLines = field(default_factory=MissingLines)
    facts: int = 0  # how many there are
    about: dict[str | None, list[tuple[int, Row]]] = field(default_factory=dict, compare=False)  # rows by topic

    def rows_about(self, topic: str) -> list[Row]:
        """The rows about all topics, and those about this one, in their order."""
        if not self.about:
            for place, row in enumerate(self.rows):
                self.about.setdefault(row["topic"], []).append((place, row))
        return [row for _, row in merge(self.about.get(None, ()), self.about.get(topic, ()), key=itemgetter(0))]


def order(
    spark: SparkSession, facts: DataFrame, settings: Mapping[str, Any], missing: MissingLines | None = None
) -> DataFrame:
    """Facts of one recording -> its `replication_events`, ordered by seq within each partition.

    `missing`: where its logs are known to miss lines; None: found out here.
    """
    cluster = cluster_of(facts, settings, coverage_of(facts).missing if missing is None else missing)
    tasks = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    buckets = bucket_count(cluster.facts, tasks)
    tasks = min(tasks, buckets)
    wanted = (
        facts.drop(*UNREAD)
        .where(~F.col("kind").isin(*UNORDERED_KINDS))
        .where((F.col("kind") != "hw_update") | (F.col("name") == "leader"))
    )
    wanted = wanted.where((F.col("kind") == "fetch") | F.col("partition").isNotNull())
    sent = wanted.withColumn("session", F.pmod(session_of_fetch(), F.lit(buckets)))
    names = {topic_id: topic for topic_id, (topic, _) in cluster.topics.items()}
    packed = sent.mapInArrow(partial(by_session, names=names, buckets=buckets), spark_ddl(BY_SESSION))
    rebuilt = by_number(packed, "session", tasks).applyInArrow(rebuilding(buckets), spark_ddl(BY_PARTITION))
    return by_number(rebuilt, "bucket", tasks).applyInArrow(ordering(cluster), spark_ddl(WITH_RECORDING))


def by_number(frame: DataFrame, name: str, tasks: int) -> GroupedData:
    """Rows grouped by a number from 0, dealt out to the tasks in turns."""
    return frame.repartitionById(tasks, name).groupBy(name)


BY_PARTITION = pa.schema([pa.field("bucket", pa.int32()), pa.field("rows", pa.binary())])
BY_SESSION = pa.schema([pa.field("session", pa.int32()), *BY_PARTITION])  # no bucket: fetches to be rebuilt
WITH_RECORDING = pa.schema([pa.field("recording_id", pa.string()), *EVENT_SCHEMA])


def with_topics(facts: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """The facts with the topic's name where only its id is told: the one known for that id, else the id itself."""
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
    return F.when(F.col("kind") == "fetch", F.hash("broker_id", session, alone))


def by_session(batches: Iterable[pa.RecordBatch], names: Mapping[str, str], buckets: int) -> Iterator[pa.RecordBatch]:
    """Facts -> fetches by session (`BY_SESSION`), and all others by partition, for they need no session."""
    for told in gathered((pa.Table.from_batches([one]) for one in batches), ROWS_AT_ONCE):
        table = with_topics(told, names)
        fetches = table.filter(pc.is_valid(table["session"]))
        others = known_partitions(table.filter(pc.is_null(table["session"])).drop_columns("session"))
        sessions = streams_by(numbers(fetches["session"]), fetches)
        rows: list[tuple[int, int | None, bytes]] = [(k, None, one) for k, one in sessions]
        rows += [(k, k, one) for k, one in streams_by(bucket_of(others, buckets), others)]
        yield pa.RecordBatch.from_pylist([dict(zip(BY_SESSION.names, row, strict=True)) for row in rows], BY_SESSION)


def known_partitions(rows: pa.Table) -> pa.Table:
    """Those of topics that are known by name or id, without the metadata log."""
    others = pc.invert(pc.is_in(rows["topic"], pa.array(METADATA_TOPIC)))
    return rows.filter(pc.and_(pc.is_valid(rows["topic"]), others))


def rebuilding(buckets: int) -> Callable[..., Iterator[pa.RecordBatch]]:
    """What Spark calls for sessions: fetches leave completed, by partition; what is by partition passes."""

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


def cluster_of(facts: DataFrame, settings: Mapping[str, Any], missing: MissingLines) -> Cluster:
    """Collect what holds for the whole cluster: a few hundred rows, whatever the recording's size."""
    recording = facts.agg(F.max("recording_id").alias("recording_id"), F.count(F.lit(1)).alias("facts")).head()
    config: Mapping[str, Any] = settings.get("broker_config") or {}
    silences = standstills_of_brokers(facts).persist()
    standstills, begins = collected(silences)
    ends = connection_ends(facts, silences.where("before IS NOT NULL")) if standstills else {}
    silences.unpersist()
    whole = facts.where(F.col("kind").isin(*CLUSTER_KINDS, "topic_change")).toArrow()
    topics, created = incarnations([*names_of_topics(facts).toArrow().to_pylist(), *topics_named(whole)])
    return Cluster(
        recording_id=(recording.recording_id if recording else None) or "",
        facts=recording.facts if recording else 0,
        rows=cluster_rows(whole),
        topics=topics,
        created=created,
        standstills=standstills,
        begins=begins,
        connection_ends=ends,
        own_logs=own_logs(facts),
        kafka_version=settings.get("kafka_version"),
        settings={name: int(config[name]) for name in (LAG_SETTING, MIN_ISR_SETTING) if name in config},
        inter_broker_protocol=config.get(PROTOCOL_SETTING),
        missing=missing,
    )


def cluster_rows(facts: pa.Table) -> list[Row]:
    """Facts of no single partition, in the metadata log's order.

    By way of Arrow, like those of the partitions: times of the two are compared.
    """
    rows = sorted(rows_of_facts(facts), key=lambda row: row["fact_id"])
    of_log = [row for row in rows if row["metadata_offset"] is not None and row["kind"] != PART]
    others = [row for row in rows if row["metadata_offset"] is None or row["kind"] == PART]
    return [
        row
        for row in (*others, *standing(of_log, Parts(rows)).rows)
        if row["partition"] is None and (row["kind"] != "topic_change" or row["name"] == "remove")
    ]


def names_of_topics(facts: DataFrame) -> DataFrame:
    """Every pair of topic and topic id that brokers' lines state, and when it was first stated."""
    named = facts.where(F.col("kind").isin(*NAMING_KINDS) & F.col("topic").isNotNull() & F.col("topic_id").isNotNull())
    named = named.where(F.col("metadata_offset").isNull())
    return named.groupBy("topic", "topic_id").agg(F.min("ts").alias("ts"))


def incarnations(
    rows: Iterable[Mapping[str, Any] | Row],
) -> tuple[dict[str, tuple[str, int]], dict[str, list[tuple[int, str]]]]:
    """Topic ids in the order in which topics of one name were created."""
    seen: dict[str, dict[str, int]] = defaultdict(dict)
    for row in rows:
        if row["topic"] and row["topic_id"] and row["ts"] is not None:
            at = micros(row["ts"])
            ids = seen[row["topic"]]
            ids[row["topic_id"]] = min(ids.get(row["topic_id"], at), at)
    created = {topic: sorted((at, one) for one, at in ids.items()) for topic, ids in seen.items()}
    topics = {one: (topic, k) for topic, ids in created.items() for k, (_, one) in enumerate(ids)}
    return topics, created


def standstills_of_brokers(facts: DataFrame) -> DataFrame:
    """Where a broker wrote no line at all for seconds, though lines were due: broker_id, before, first, after.

    Where its lines begin `before` is null: nobody knows since when it had written none. Found among stretches in which
    there is no room for it: they are few, and the lines need not be sorted.
    """
    lines = facts.where(
        F.col("broker_id").isNotNull() & F.col("ts").isNotNull() & ~F.col("kind").isin("segment_batch", "checkpoint")
    )
    stamp = F.unix_micros("ts")
    line = F.struct(stamp.alias("us"), (stamp + F.coalesce("ts_error_us", F.lit(0))).alias("latest"))
    part = F.floor(F.pmod(stamp, F.lit(STANDSTILL_US)) / (STANDSTILL_US // PARTS)).cast("int")
    answered = F.when(
        F.col("connection").isNotNull(), F.element_at(F.array(*(F.lit(1 << k) for k in range(PARTS))), part + 1)
    )
    stretches = lines.groupBy("broker_id", F.floor(stamp / STANDSTILL_US).alias("stretch")).agg(
        F.min(line).alias("line"), F.max(stamp).alias("last"), F.coalesce(F.bit_or(answered), F.lit(0)).alias("parts")
    )
    rising = Window.partitionBy("broker_id").orderBy("stretch")
    before = F.when(F.lag("stretch").over(rising) == F.col("stretch") - 1, F.bit_count(F.lag("parts").over(rising)))
    lately = F.bit_count("parts") + F.coalesce(before, F.lit(0))
    ended = stretches.select("broker_id", "stretch", "line", "last", lately.alias("lately"))
    silences = ended.select(
        "broker_id", "line", F.lag("last").over(rising).alias("before"), F.lag("lately").over(rising).alias("lately")
    )
    return silences.where(
        F.col("before").isNull()
        | ((F.col("line.us") - F.col("before") >= STANDSTILL_US) & (F.col("lately") >= DUE_PARTS))
    ).select("broker_id", "before", F.col("line.us").alias("first"), F.col("line.latest").alias("after"))


def collected(silences: DataFrame) -> tuple[dict[int, list[tuple[int, int]]], dict[int, int]]:
    """Standstills by broker, rising: last line before, first line after; and each broker's first line."""
    out: dict[int, list[tuple[int, int]]] = defaultdict(list)
    begins: dict[int, int] = {}
    found = silences.select("broker_id", "before", "after").toArrow()
    for broker, before, after in zip(*(column.to_pylist() for column in found.columns), strict=True):
        if before is None:
            begins[broker] = after
        else:
            out[broker].append((before, after))
    return {broker: sorted(spans) for broker, spans in sorted(out.items())}, begins


def own_logs(facts: DataFrame) -> frozenset[int]:
    """Brokers of whose own log anything was read."""
    lines = facts.where(F.col("broker_id").isNotNull() & (source_of_fact() == SERVER_LOG))
    return frozenset(row.broker_id for row in lines.select("broker_id").distinct().collect())


def connection_ends(facts: DataFrame, silences: DataFrame) -> dict[tuple[int, str], int]:
    """Last stamp on each connection that had a produce under way as a standstill ended."""
    stamp = F.unix_micros("ts")
    latest = F.col("after") + 10 * AWAKE_US
    # Each standstill under the few stretches around its end, each produce under those in which it was under way.
    stretch = F.explode(
        F.sequence(F.floor((F.col("first") - WHOLE_SECOND_US) / STANDSTILL_US), F.floor(latest / STANDSTILL_US))
    )
    ends = silences.select("broker_id", "before", latest.alias("latest"), stretch.alias("stretch"))
    earliest = stamp - F.coalesce("ts_error_us", F.lit(0))
    arrival = earliest - F.least(F.coalesce("total_us", F.lit(0)), F.lit(LONGEST_REQUEST_US))
    produces = facts.where((F.col("kind") == "produce") & F.col("connection").isNotNull() & F.col("ts").isNotNull())
    asked = produces.select("broker_id", "connection", arrival.alias("arrival"), earliest.alias("earliest"))
    under_way = F.sequence(F.floor(F.col("arrival") / STANDSTILL_US), F.floor(F.col("earliest") / STANDSTILL_US))
    asked = asked.withColumn("stretch", F.explode(under_way))
    woken = asked.join(ends, on=["broker_id", "stretch"]).where("arrival <= latest AND earliest >= before")
    some = woken.select("broker_id", "connection").distinct()
    requests = facts.where(F.col("connection").isNotNull()).join(some, on=["broker_id", "connection"], how="left_semi")
    last = requests.groupBy("broker_id", "connection").agg(F.max(stamp).alias("last")).toArrow()
    return {(broker, name): at for broker, name, at in zip(*(c.to_pylist() for c in last.columns), strict=True)}


def ordering(cluster: Cluster) -> Callable[..., Iterator[pa.RecordBatch]]:
    """What Spark calls for each bucket; by its annotations Spark knows that it takes and gives batch by batch."""

    def batches_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in gathered(order_partitions(batches, cluster), EVENTS_AT_ONCE):
            yield from table.combine_chunks().to_batches()
        settle("order")

    return batches_of


def order_partitions(batches: Iterable[pa.RecordBatch], cluster: Cluster) -> Iterator[pa.Table]:
    """A bucket's partitions, one after the other. Each has a copy of its facts, which its order lets go."""
    facts = joined(stream for batch in batches for stream in batch["rows"]).combine_chunks()
    topic, names = texts(facts["topic"])
    order, spans = spans_of(numbers(facts["partition"]) * len(names) + topic)
    waiting = [facts.take(order[first:stop]) for first, stop in spans]
    del facts
    while waiting:
        topic, partition = (waiting[-1].column(name)[0].as_py() for name in ("topic", "partition"))
        yield from order_pieces(topic, partition, iter(waiting.pop().to_batches()), cluster)


def order_pieces(topic: str, partition: int, batches: Iterable[pa.RecordBatch], cluster: Cluster) -> Iterator[pa.Table]:
    """One topic name and partition: its incarnations, each ordered on its own; events in pieces as they are taken."""
    with without_cycles():
        for events in order_incarnations(topic, partition, batches, cluster):
            ident = pa.repeat(pa.scalar(cluster.recording_id, pa.string()), len(events))
            yield events.add_column(0, WITH_RECORDING.field(0), ident)


@contextmanager
def without_cycles() -> Iterator[None]:
    """Without the search for reference cycles: what the order is made of has none, and is looked through in vain."""
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
    """The incarnations of one partition, one after the other: by topic id, else as servers' own lines tell them."""
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
    """The facts of each life, where no topic id tells them apart; facts of a life that nothing names are left out."""
    lives = Lives(rows, starts_of_brokers(cluster.rows))
    parts: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        life = lives.of(row)
        if life is not None:
            parts[life].append(row)
    return parts


def by_incarnation(rows: Iterable[Row], ids: list[tuple[int, str]], cluster: Cluster) -> dict[int, list[Row]]:
    """The facts of each incarnation."""
    parts: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        parts[incarnation_of(row, ids, cluster)].append(row)
    return parts


def incarnation_of(row: Row, ids: list[tuple[int, str]], cluster: Cluster) -> int:
    """Which incarnation of its topic a fact is about: by id, else by when the topics of that name were created."""
    if row["topic_id"] in cluster.topics:
        return cluster.topics[row["topic_id"]][1]
    if row["ts"] is None or len(ids) < 2:
        return max(len(ids) - 1, 0)
    at = micros(row["ts"])
    return max(sum(created <= at for created, _ in ids) - 1, 0)
