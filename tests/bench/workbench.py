"""What every case needs: a session, made input that is kept for the next time, and rows of the table."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from made_history import SCHEMA, History
from made_recording import MadeCluster

from pipelines.spark.spark_schemas import spark_ddl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from made_shape import Shape
    from measure import Cost
    from pyspark.sql import SparkSession

ID = "made"


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
    """A session, a place to work in, how often to repeat, and the commit to compare with."""

    def __init__(self, spark: SparkSession, place: Path, rounds: int, commit: str) -> None:
        """Nothing is made before it is needed."""
        self.spark, self.place, self.rounds, self.commit = spark, place, rounds, commit
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
        told = [shape.events, shape.partitions, shape.idle, shape.elections, shape.flaps, shape.tick_ms, shape.seed]
        told += [shape.skew] if shape.skew else []
        path = self.place / f"recording-{'-'.join(map(str, told))}"
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


def against(  # noqa: PLR0913, PLR0917 - a row of the table
    case: str, costs: dict[str, Cost], one: str, other: str, bar: str, amount: float, unit: str = "events/s"
) -> list[Line]:
    """Two contenders as rows: the ratio stands with the first."""
    ratio = costs[one].wall / costs[other].wall
    return [
        Line(case, one, ratio, bar, costs[one], amount / costs[one].wall, unit),
        Line(case, other, None, "", costs[other], amount / costs[other].wall, unit),
    ]


def shuffled_mb(spark: SparkSession) -> float:
    """What this session has written to shuffles so far."""
    context: Any = spark.sparkContext
    gateway = context._gateway
    store = context._jsc.sc().statusStore()
    nothing = gateway.new_array(gateway.jvm.double, 0)
    stages = store.stageList(None, False, False, nothing, gateway.jvm.java.util.ArrayList())  # noqa: FBT003 - Java's
    return float(sum(stages.apply(k).shuffleWriteBytes() for k in range(stages.size()))) / 1e6


def folder_mb(folder: Path) -> float:
    """What lies in a folder, all below it."""
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file()) / 1e6
