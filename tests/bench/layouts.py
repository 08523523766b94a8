"""What OPTIMIZE gains and costs: files and bytes that typical queries read, and that the next run rewrites, by layout.

    PYTHONPATH=tests/bench:. .venv/bin/python tests/bench/layouts.py [HOURS] [ROWS AN HOUR]

It makes a table in the form of `replication_events` as hourly runs leave it (one file an hour, sorted by its key; of
ten topics with eight partitions each, one has half of the rows), and lays out a copy in each way. Files are a hundredth
of what they are in a warehouse, so that some minutes are enough. docs/decisions has a table of results.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta import DeltaTable
from pyspark.sql import functions as F

from pipelines.spark.session import spark_session
from pipelines.warehouse.care import compact
from pipelines.warehouse.delta_io import FILE_BYTES, Warehouse
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

TABLE = "replication_events"
SMALLER = 100  # files here are that much smaller than in a warehouse
TOPICS, PARTITIONS = 10, 8
SHARE = 1 / (2 * TOPICS * PARTITIONS)  # of the rows, that a partition of any topic but the first has
OURS = "by time, then by key"
LAYOUTS: dict[str, Callable[[Any], object]] = {
    "as hourly runs leave it": lambda _optimize: None,
    "compacted": lambda optimize: optimize.executeCompaction(),
    "Z-order: topic, partition, seq": lambda optimize: optimize.executeZOrderBy("topic", "partition", "seq"),
    "Z-order: topic, partition, window": lambda optimize: optimize.executeZOrderBy("topic", "partition", "window"),
    OURS: lambda _optimize: None,  # below: it is ours
    "Z-order: topic, partition": lambda optimize: optimize.executeZOrderBy("topic", "partition"),
}


def hour_of(spark: SparkSession, hour: int, rows: int) -> DataFrame:
    """One hour's rows: a row's partition by its number, half of them of the first topic."""
    start = 1_700_000_000 // 3600 * 3600 + hour * 3600
    numbers = spark.range(rows).withColumn("n", F.col("id"))
    topic = F.when(F.col("n") % 2 == 0, F.lit(0)).otherwise(F.floor(F.col("n") / 2) % TOPICS)
    ts = F.timestamp_micros(F.lit(start * 1_000_000) + F.col("n") * F.lit(3_600_000_000 // rows))
    place = F.when(topic == 0, F.lit(11 * SHARE)).otherwise(F.lit(SHARE))  # seq counts within a partition
    told: dict[str, Any] = {
        "recording_id": F.lit("made"), "topic": F.concat(F.lit("topic-"), topic), "incarnation": F.lit(0),
        "partition": F.pmod(F.hash("n"), F.lit(PARTITIONS)), "seq": F.floor(place * (F.col("n") + F.lit(hour * rows))),
        "event_id": F.md5(F.concat_ws("-", F.lit(hour), "n")), "ts": ts, "ts_lo": ts, "ts_hi": ts,
        "kind": F.lit("append"), "window": F.timestamp_seconds(F.lit(start)), "evidence": F.lit("derived"),
    }  # fmt: skip
    columns = [told.get(c.name, F.lit(None)).alias(c.name) for c in TABLES[TABLE].columns]
    return numbers.select(columns)


def read_by(frame: DataFrame, condition: str) -> tuple[int, int]:
    """Files and bytes that Delta reads for a query."""
    found = frame.where(condition).select(F.sum(F.length("event_id")))
    found.collect()
    metrics = found._jdf.queryExecution().executedPlan().collectLeaves().head().metrics()
    return tuple(metrics.apply(name).value() for name in ("numFiles", "filesSize"))  # type: ignore[return-value]


def rewritten_by(frame: DataFrame, condition: str) -> tuple[int, int]:
    """Files and bytes with rows that a replacing write takes out: all of them are written anew."""
    held = frame.where(condition).select("_metadata.file_path", "_metadata.file_size").distinct()
    row = held.agg(F.count("*"), F.sum("file_size")).collect()[0]
    return int(row[0]), int(row[1])


def main(hours: int, rows: int) -> None:
    """Make the table, lay out copies, and print a row for each."""
    spark = spark_session("layouts", {"spark.master": "local[2]", "spark.sql.adaptive.enabled": "false"})
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(FILE_BYTES // SMALLER))
    spark.conf.set("spark.databricks.delta.optimize.minFileSize", str(FILE_BYTES // SMALLER // 2))
    place = Path(tempfile.mkdtemp(prefix="tidemark-layouts-"))
    made = Warehouse(spark, str(place / "made"))
    for hour in range(hours):
        made.append(TABLE, hour_of(spark, hour, rows))
    last = f"TIMESTAMP_SECONDS({1_700_000_000 // 3600 * 3600} + {(hours - 1) * 3600})"
    middle = f"TIMESTAMP_SECONDS({1_700_000_000 // 3600 * 3600} + {hours // 2 * 3600})"
    mine = "recording_id = 'made' AND topic = 'topic-3' AND partition = 5"
    seq = int(hours // 2 * rows * SHARE)
    asked = {
        "around one seq": f"{mine} AND seq BETWEEN {seq} AND {seq + 10}",
        "one partition": mine,
        "one hour": f"recording_id = 'made' AND ts BETWEEN {middle} AND {middle} + INTERVAL 1 HOUR",
    }
    print("layout | files | MB | seconds |", " | ".join(f"{name}: files, % of bytes" for name in [*asked, "next run"]))
    for name, lay_out in LAYOUTS.items():
        copy = place / name.replace(" ", "-").replace(":", "").replace(",", "")
        shutil.copytree(place / "made", copy)
        path = str(copy / TABLE)
        began = os.times().elapsed
        if name == OURS:
            compact(Warehouse(spark, str(copy)), TABLE, "made", FILE_BYTES // SMALLER)
        lay_out(DeltaTable.forPath(spark, path).optimize())
        seconds = os.times().elapsed - began
        frame = spark.read.format("delta").load(path)
        files, size = rewritten_by(frame, "true")
        found = [read_by(frame, condition) for condition in asked.values()]
        found.append(rewritten_by(frame, f"window >= {last}"))
        told = " | ".join(f"{count}, {100 * part / size:.1f} %" for count, part in found)
        print(f"{name} | {files} | {size / 1e6:.1f} | {seconds:.0f} | {told}", flush=True)
    shutil.rmtree(place)
    spark.stop()


if __name__ == "__main__":
    main(*(int(word) for word in (*sys.argv[1:], "168", "20000")[:2]))
