"""What is measured against what: each case gives rows of the table, a contender against its measure.

Every case makes its own input from a `Shape`, so that a case can be run by itself.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from made_history import SCHEMA, History
from made_recording import MadeCluster
from made_shape import Shape
from measure import Cost, cost_of, side_by_side
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pipelines import ingest, order, replay, validate
from pipelines.delta_io import Warehouse
from pipelines.recording import discover
from pipelines.spark_schemas import spark_ddl, spark_schema
from replay.partition import PartitionReplay
from schemas.events import REPLICATION_EVENTS
from schemas.model import PARTITION_KEY
from schemas.tables import REPLAY_TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

ID = "made"
KEY = replay.KEY
MILLION = 1_000_000


@dataclass(slots=True)
class Line:
    """One row of the table: what was measured against what, and how it came out."""

    case: str
    what: str
    ratio: float | None
    bar: str
    cost: Cost
    per_second: float | None = None
    unit: str = "events/s"
    note: str = ""


class Bench:
    """A session, a place to work in, and how often to repeat."""

    def __init__(self, spark: SparkSession, place: Path, rounds: int) -> None:
        """Nothing is made before it is needed."""
        self.spark, self.place, self.rounds = spark, place, rounds
        place.mkdir(parents=True, exist_ok=True)

    def events(self, shape: Shape) -> str:
        """A Delta table of made events, shuffled as the order stage leaves them: in no order of partitions."""
        name = f"events-{shape.events}-{shape.partitions}-{shape.skew}-{shape.seed}"
        path = self.place / name
        if not path.exists():
            numbers = self.spark.range(shape.partitions).repartition(min(shape.partitions, 16))
            made = numbers.mapInArrow(lambda batches: make_events(batches, shape), spark_ddl(SCHEMA))
            made.write.format("delta").save(str(path))
        return str(path)

    def recording(self, shape: Shape) -> Path:
        """A made recording."""
        path = self.place / f"recording-{shape.events}-{shape.partitions}-{shape.seed}"
        if not path.exists():
            MadeCluster(shape, path).write()
        return path

    def fresh(self, name: str) -> Path:
        """An empty place to write to."""
        path = self.place / name
        shutil.rmtree(path, ignore_errors=True)
        return path


def make_events(batches: Iterator[pa.RecordBatch], shape: Shape) -> Iterator[pa.RecordBatch]:
    """Partition numbers -> their events."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for table in History(shape, number).tables():
                yield from table.cast(SCHEMA).to_batches()


def replay_all(bench: Bench, events: str, target: Path) -> None:
    """The replay job's own work: replay, stage, write table by table."""
    warehouse = Warehouse(bench.spark, str(target))
    frame = bench.spark.read.format("delta").load(events)
    tagged = replay.replay(bench.spark, frame, {})
    staged = str(target / "_staged")
    tagged.write.mode("overwrite").partitionBy("output").parquet(staged)
    write_tables(bench, warehouse, staged, tagged.schema)


def replay_into(bench: Bench, events: str) -> None:
    """The same, into a place that is emptied first."""
    replay_all(bench, events, bench.fresh("replay-out"))


def write_tables(bench: Bench, warehouse: Warehouse, staged: str, schema: T.StructType) -> None:
    """Staged rows into their Delta tables."""
    rows = bench.spark.read.schema(schema).parquet(staged)
    for table in REPLAY_TABLES:
        warehouse.replace(table.name, replay.table_rows(rows, table.name), ID)


def floor_all(bench: Bench, events: str, told: str, target: Path) -> None:
    """The same without Python: read, shuffle, sort; stage and write the rows that a replay has told before."""
    frame = bench.spark.read.format("delta").load(events)
    ordered = frame.repartition(*KEY).sortWithinPartitions(*KEY, "seq")
    ordered.write.format("noop").mode("overwrite").save()
    rows = bench.spark.read.parquet(told)
    staged = str(target / "_staged")
    rows.write.mode("overwrite").partitionBy("output").parquet(staged)
    write_tables(bench, Warehouse(bench.spark, str(target)), staged, rows.schema)


def tell(bench: Bench, events: str) -> str:
    """The rows that a replay of these events tells, as one flat folder: what the floor writes."""
    path = f"{events}-told"
    if not Path(path).exists():
        frame = bench.spark.read.format("delta").load(events)
        replay.replay(bench.spark, frame, {}).write.parquet(path)
    return path


def case_replay(bench: Bench, events: int) -> list[Line]:
    """Replay against the floor."""
    path = bench.events(Shape(events=events, partitions=100))
    told = tell(bench, path)
    costs = side_by_side(
        {
            "replay": partial(replay_into, bench, path),
            "floor": lambda: floor_all(bench, path, told, bench.fresh("floor-out")),
        },
        bench.rounds,
    )
    return against("replay / Spark floor", costs, "replay", "floor", "<= 1.3", events)


def against(  # noqa: PLR0913, PLR0917 - a row of the table
    case: str, costs: dict[str, Cost], one: str, other: str, bar: str, amount: float, unit: str = "events/s"
) -> list[Line]:
    """Two contenders as rows: the ratio stands with the first."""
    ratio = costs[one].wall / costs[other].wall
    return [
        Line(case, one, ratio, bar, costs[one], amount / costs[one].wall, unit),
        Line(case, other, None, "", costs[other], amount / costs[other].wall, unit),
    ]


def case_parse(bench: Bench, events: int) -> list[Line]:
    """Files to facts against Spark's own JSON functions on the same lines."""
    folder = bench.recording(Shape(events=events, partitions=60, elections=1))
    files = sorted(folder.glob("logs/node-*/kafka-request.log"))
    size = sum(path.stat().st_size for path in files) / 1e6
    recording = discover(str(folder), recording_id=ID)

    def tidemark() -> None:
        target = bench.fresh("parse-out")
        parsed = ingest.parse(bench.spark, recording, str(target / "_staging"))
        parsed.facts.write.format("delta").save(str(target / "facts"))

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
    facts = str(bench.fresh("order-facts"))
    parsed = ingest.parse(bench.spark, discover(str(folder), recording_id=ID), str(bench.fresh("order-staging")))
    parsed.facts.withColumn("recording_id", F.lit(ID)).write.format("delta").save(facts)
    told = str(bench.fresh("order-told"))

    def ordered() -> DataFrame:
        return order.order(bench.spark, bench.spark.read.format("delta").load(facts), {"kafka_version": "4.1.0"})

    ordered().write.parquet(told)
    count = bench.spark.read.parquet(told).count()

    def tidemark() -> None:
        Warehouse(bench.spark, str(bench.fresh("order-out"))).replace("replication_events", ordered(), ID)

    def floor() -> None:
        frame = bench.spark.read.format("delta").load(facts)
        frame.repartition("topic_id", "partition").sortWithinPartitions("topic_id", "partition", "ts").write.format(
            "noop"
        ).mode("overwrite").save()
        rows = bench.spark.read.schema(spark_schema(REPLICATION_EVENTS)).parquet(told)
        Warehouse(bench.spark, str(bench.fresh("order-floor"))).replace("replication_events", rows, ID)

    costs = side_by_side({"order": tidemark, "shuffle and sort": floor}, bench.rounds)
    return against("order / its shuffle and sort", costs, "order", "shuffle and sort", "<= 1.5", count)


def fold_alone(events: pa.Table, rows: int = 20_000) -> float:
    """CPU seconds of the replay of one partition, in this process: from Arrow batches to Arrow rows."""
    key = {column.name: events.column(column.name)[0].as_py() for column in PARTITION_KEY}
    replayed = PartitionReplay(key)
    start = time.process_time()
    for first in range(0, len(events), rows):
        for _ in replayed.feed(events.slice(first, rows)):
            pass
    for _ in replayed.finish():
        pass
    return time.process_time() - start


def case_kernel(bench: Bench, events: int) -> list[Line]:
    """The engine by itself: compiled, and the same rules as they stand."""
    made = pa.concat_tables(History(Shape(events=min(events, MILLION), partitions=1), 0).tables())
    small = made.slice(0, 50_000)
    fold_alone(small)
    compiled = float(np.median([fold_alone(made) for _ in range(bench.rounds)]))
    script = (
        f"import cases, pyarrow.parquet as q; print(cases.fold_alone(q.read_table({str(bench.place)!r} + '/fold')))"
    )
    pa.parquet.write_table(small, bench.place / "fold")
    here = Path(__file__).parent
    environment = {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": f"{here}:{here.parent.parent}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True)
    plain = float(done.stdout.split()[-1])
    one = Cost(compiled, 0, compiled, 0, 0)
    other = Cost(plain, 0, plain, 0, 0)
    rate, plain_rate = len(made) / compiled, len(small) / plain
    return [
        Line("kernel alone", "compiled, one core", None, ">= 10 M/s", one, rate),
        Line("kernel alone", "the same rules, not compiled", rate / plain_rate, "", other, plain_rate),
    ]


def case_peers(bench: Bench, events: int) -> list[Line]:
    """What less costs by other means: HW and LEO alone, as windows or a loop."""
    path = bench.events(Shape(events=events, partitions=100))
    spark = bench.spark

    def windows() -> None:
        frame = spark.read.format("delta").load(path)
        frame.createOrReplaceTempView("made_events")
        over = "(PARTITION BY topic, incarnation, `partition`, broker_id ORDER BY seq)"
        spark.sql(
            f"SELECT *, max(next_offset) OVER {over} AS leo, max(response_hw) OVER {over} AS hw FROM made_events"  # noqa: S608
        ).select("topic", "partition", "seq", "broker_id", "leo", "hw").write.format("parquet").mode("overwrite").save(
            str(bench.place / "peer-windows")
        )

    def pandas_loop() -> None:
        frame = (
            spark.read.format("delta").load(path).select(*KEY, "seq", "kind", "broker_id", "next_offset", "response_hw")
        )
        rows = frame.groupBy(*KEY).applyInPandas(
            loop, "`partition` int, seq bigint, broker_id int, leo bigint, hw bigint"
        )
        rows.write.format("parquet").mode("overwrite").save(str(bench.place / "peer-pandas"))

    costs = side_by_side(
        {
            "replay, all tables": partial(replay_into, bench, path),
            "HW and LEO by window functions": windows,
            "HW and LEO by applyInPandas": pandas_loop,
        },
        bench.rounds,
    )
    return [
        Line("peers", name, costs["replay, all tables"].wall / cost.wall, "<= 1", cost, events / cost.wall)
        for name, cost in costs.items()
    ]


def loop(frame: Any) -> Any:
    """HW and LEO of a partition by a plain loop."""
    import pandas as pd  # noqa: PLC0415 - only in the workers of this peer

    leo: dict[int, int] = {}
    hw: dict[int, int] = {}
    rows = []
    for row in frame.sort_values("seq").itertuples():
        if row.kind == "append":
            leo[row.broker_id] = max(leo.get(row.broker_id, 0), int(row.next_offset))
        elif row.kind in {"fetch_read", "consumer_read"} and row.response_hw == row.response_hw:
            hw[row.broker_id] = max(hw.get(row.broker_id, 0), int(row.response_hw))
        else:
            continue
        rows.append((row.partition, row.seq, row.broker_id, leo.get(row.broker_id), hw.get(row.broker_id)))
    return pd.DataFrame(rows, columns=["partition", "seq", "broker_id", "leo", "hw"])


def case_growth(bench: Bench, events: int) -> list[Line]:
    """Time per event from a tenth of the events to all of them."""
    lines: list[Line] = []
    first: float | None = None
    for amount in (events // 10, events):
        path = bench.events(Shape(events=amount, partitions=100))
        cost = side_by_side({"replay": partial(replay_into, bench, path)}, bench.rounds)["replay"]
        each = cost.wall / amount
        first = first or each
        lines.append(Line("growth", f"{amount:,} events", each / first, "<= 1.1", cost, amount / cost.wall))
    return lines


def case_skew(bench: Bench, events: int) -> list[Line]:
    """One partition with nine tenths of the events against an even spread: CPU seconds."""
    even = bench.events(Shape(events=events, partitions=100))
    skewed = bench.events(Shape(events=events, partitions=100, skew=0.9))
    costs = side_by_side(
        {
            "one partition with 90 %": partial(replay_into, bench, skewed),
            "even": partial(replay_into, bench, even),
        },
        bench.rounds,
    )
    lines = against("skew, CPU seconds", costs, "one partition with 90 %", "even", "<= 1.3, <= 512 MB", events)
    lines[0].ratio = costs["one partition with 90 %"].cpu / costs["even"].cpu
    return lines


def case_partitions(bench: Bench, events: int) -> list[Line]:
    """Few partitions against many, with as many events."""
    few = bench.events(Shape(events=events, partitions=10))
    many = bench.events(Shape(events=events, partitions=min(100_000, events // 40), elections=0, flaps=0))
    costs = side_by_side(
        {
            "many partitions": partial(replay_into, bench, many),
            "10 partitions": partial(replay_into, bench, few),
        },
        bench.rounds,
    )
    return against("partitions", costs, "many partitions", "10 partitions", "<= 2", events)


def case_validation(bench: Bench, events: int) -> list[Line]:
    """The share of a run that the expectations take."""
    path = bench.events(Shape(events=events, partitions=100))
    target = bench.fresh("validate-out")
    replayed = cost_of(lambda: replay_all(bench, path, target))
    warehouse = Warehouse(bench.spark, str(target))
    warehouse.replace("replication_events", bench.spark.read.format("delta").load(path), ID)
    checked = cost_of(lambda: validate.validate(bench.spark, warehouse, ID, "bench"))
    share = checked.wall / (checked.wall + replayed.wall)
    return [Line("validation / replay and validation", "share", share, "<= 0.2", checked, events / checked.wall)]


CASES: dict[str, Callable[[Bench, int], list[Line]]] = {
    "kernel": case_kernel,
    "replay": case_replay,
    "parse": case_parse,
    "order": case_order,
    "peers": case_peers,
    "growth": case_growth,
    "skew": case_skew,
    "partitions": case_partitions,
    "validation": case_validation,
}
