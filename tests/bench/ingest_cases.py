"""The stages before the replay: files to facts, facts to events."""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING

from made_shape import Shape
from measure import side_by_side
from pyspark.sql import functions as F
from workbench import ID, Line, against

from pipelines.recording.recording import discover
from pipelines.spark.packed import table_rows
from pipelines.spark.spark_schemas import spark_schema
from pipelines.spark.staging import as_frame, stage
from pipelines.stages import ingest, order
from pipelines.stages.renewal import ORDERED_KINDS
from pipelines.warehouse.delta_io import Warehouse
from schemas.events import REPLICATION_EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from workbench import Bench


def case_parse(bench: Bench, events: int) -> list[Line]:
    """Files to facts against Spark's own JSON functions on the same lines."""
    folder = bench.recording(Shape(events=events, partitions=60, elections=1))
    files = sorted(folder.glob("logs/node-*/kafka-request.log"))
    size = sum(path.stat().st_size for path in files) / 1e6
    recording = discover(str(folder), recording_id=ID)

    def tidemark() -> None:
        target = Warehouse(bench.spark, str(bench.fresh("parse-out")))
        parsed = ingest.parse(bench.spark, recording, target.staging_dir(ID), few=0)
        target.append_facts(parsed.facts, ID, files=parsed.files)

    def spark_json() -> None:
        target = bench.fresh("json-out")
        from_json(bench.spark, [str(path) for path in files]).write.format("delta").save(str(target / "facts"))

    costs = side_by_side({"parse": tidemark, "from_json": spark_json}, bench.rounds)
    return against("parse / Spark's from_json", costs, "parse", "from_json", "<= 1.0", size, "MB/s")


REQUEST_FIELDS = """
    requestHeader struct<requestApiKey int, requestApiVersion int, correlationId int, clientId string>,
    request struct<acks int, replicaState struct<replicaId int, replicaEpoch bigint>, maxWaitMs int, minBytes int,
        isolationLevel int, sessionId int, sessionEpoch int,
        topicData array<struct<name string, partitionData array<struct<`index` int, recordsSizeInBytes int>>>>,
        topics array<struct<topicId string, partitions array<struct<`partition` int, currentLeaderEpoch int,
            fetchOffset bigint, lastFetchedEpoch int, logStartOffset bigint>>>>>,
    response struct<errorCode int, sessionId int,
        responses array<struct<name string, topicId string,
            partitionResponses array<struct<`index` int, errorCode int, baseOffset bigint>>,
            partitions array<struct<partitionIndex int, errorCode int, highWatermark bigint, lastStableOffset bigint,
                logStartOffset bigint, divergingEpoch struct<epoch int, endOffset bigint>, recordsSizeInBytes int>>>>>,
    connection string, totalTimeMs double, requestQueueTimeMs double, localTimeMs double, remoteTimeMs double,
    throttleTimeMs double, responseQueueTimeMs double, sendTimeMs double
"""


def from_json(spark: SparkSession, files: list[str]) -> DataFrame:
    """The same fields by Spark's own means: a row for each partition of request and response."""
    lines = spark.read.text(files)
    text = F.regexp_extract("value", r"Completed request:(.*) \(kafka", 1)
    stamp = F.to_timestamp(F.substring("value", 2, 23), "yyyy-MM-dd HH:mm:ss,SSS")
    parsed = lines.select(stamp.alias("ts"), F.from_json(text, REQUEST_FIELDS).alias("r")).where("r is not null")
    head = ["ts", "r.requestHeader.*", "r.connection", "r.totalTimeMs", "r.requestQueueTimeMs", "r.localTimeMs"]
    head += ["r.remoteTimeMs", "r.throttleTimeMs", "r.responseQueueTimeMs", "r.sendTimeMs"]
    head += ["r.request.acks", "r.request.replicaState", "r.request.sessionId", "r.request.sessionEpoch"]
    sides = []
    for array, inner, alias in (
        ("r.request.topicData", "partitionData", "produced"),
        ("r.request.topics", "partitions", "asked"),
        ("r.response.responses", "partitionResponses", "answered"),
        ("r.response.responses", "partitions", "told"),
    ):
        topic = parsed.select("*", F.explode(array).alias("topic"))
        name = "topic.topicId" if alias == "asked" else "topic.name"
        rows = topic.select(*head, F.col(name).alias("name"), F.explode(f"topic.{inner}").alias(alias))
        sides.append(rows.select(*[c for c in rows.columns if c != alias], F.to_json(alias).alias("row")))
    return reduce(lambda a, b: a.unionByName(b), sides)


def case_order(bench: Bench, events: int) -> list[Line]:
    """Facts to events against the shuffle and sort that it needs."""
    folder = bench.recording(Shape(events=events, partitions=60, elections=1))
    given = Warehouse(bench.spark, str(bench.fresh("order-facts")))
    parsed = ingest.parse(bench.spark, discover(str(folder), recording_id=ID), given.staging_dir(ID), few=0)
    given.append_facts(parsed.facts, ID, files=parsed.files)
    told = str(bench.fresh("order-told"))

    def ordered(place: str) -> DataFrame:
        facts, files = given.read("facts", ID), given.paths("facts", ID)
        stream = order.order(bench.spark, facts, {"kafka_version": "4.1.0"}, files=files)
        return table_rows(stage(stream, str(bench.fresh(place)), ORDERED_KINDS).frame, "replication_events")

    ordered("order-staged").write.parquet(told)
    count = bench.spark.read.parquet(told).count()

    def tidemark() -> None:
        target = Warehouse(bench.spark, str(bench.fresh("order-out")))
        target.replace("replication_events", ordered("order-staged"), ID, arranged=True)

    def floor() -> None:
        rows = bench.spark.read.schema(spark_schema(REPLICATION_EVENTS)).parquet(told)
        shuffle_and_sort(bench, given.read("facts", ID), rows)

    costs = side_by_side({"order": tidemark, "shuffle and sort": floor}, bench.rounds)
    return against("order / its shuffle and sort", costs, "order", "shuffle and sort", "<= 1.5", count)


def shuffle_and_sort(bench: Bench, facts: DataFrame, events: DataFrame) -> None:
    """The floor of an order: facts to their partitions, in order of time; and events written that were told before."""
    sent = facts.repartition("topic_id", "partition").sortWithinPartitions("topic_id", "partition", "ts")
    sent.write.format("noop").mode("overwrite").save()
    Warehouse(bench.spark, str(bench.fresh("order-floor"))).replace("replication_events", events, ID)


def case_idle(bench: Bench, events: int) -> list[Line]:
    """A thousand partitions that nobody writes to, in every fetch session, against none: no fetch names them."""
    shape = Shape(events=min(events, 200_000), partitions=10, elections=0, flaps=0)
    folders = {"1,000 idle partitions": bench.recording(shape.named(idle=1000)), "none": bench.recording(shape)}

    def to_events(name: str) -> None:
        place = bench.fresh(f"idle-{name}")
        recording = discover(str(folders[name]), recording_id=ID)
        parsed = ingest.parse(bench.spark, recording, str(place / "_staging"))
        facts = as_frame(bench.spark, parsed.facts).withColumn("recording_id", F.lit(ID))
        stream = order.order(bench.spark, facts, {"kafka_version": "4.1.0"})
        events = table_rows(stage(stream, str(place / "_order"), ORDERED_KINDS).frame, "replication_events")
        events.write.parquet(str(place / "events"))

    costs = side_by_side({name: partial(to_events, name) for name in folders}, bench.rounds)
    lines = against("idle partitions, parse and order", costs, *folders, "", shape.events)
    counts = [bench.spark.read.parquet(str(bench.place / f"idle-{name}" / "events")).count() for name in folders]
    lines[0].note = f"{counts[0] - counts[1]:,} events more, {counts[1]:,} without"
    return lines
