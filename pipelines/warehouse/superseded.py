"""Which facts a new reading replaces. Facts depend on a file's content, its broker, zone and layout, and the parsers.

If the same content is read again and any of the others differs, the new facts replace those from before. A dump or
checkpoint describes one moment: if it is read again under the same name with other content, the later one is valid. A
log with the name of an older one does not replace it, since log files roll.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from pipelines.parse.files.content import Content

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

    from pipelines.recording.recording import Manifest
    from pipelines.warehouse.delta_io import Warehouse

PARSERS: Final = ("lines/*.py", "parse/**/*.py", "recording/reading.py")  # files that decide which facts are read
MOMENTS: Final = (Content.SEGMENT_DUMP.value, Content.CHECKPOINT.value)
_AROUND_US: Final = 2_000_000  # a stamp may be off by a second
_ENTRY: Final = "path STRING, content STRING, fingerprint STRING, said STRING"
_PAST: Final = (
    "ARRAY<STRUCT<path: STRING, content: STRING, fingerprint: STRING, said: STRING, first_ts: BIGINT, last_ts: BIGINT>>"
)


@cache
def parser_version() -> str:
    """Return a digest of the parsers' source files."""
    rooms = Path(__file__).parent.parent
    parsers = sorted(path for place in PARSERS for path in rooms.glob(place))
    return hashlib.blake2b(b"\0".join(path.read_bytes() for path in parsers), digest_size=8).hexdigest()


def with_said(inputs: Iterable[dict[str, Any]], manifest: Manifest) -> list[dict[str, Any]]:
    """Return the files that were read, each with its broker, zone, layout and parser version (`said`)."""
    return [
        {
            **entry,
            "said": json.dumps(
                [entry["broker_id"], manifest.time_zone(entry["broker_id"]), entry["layout"], parser_version()]
            ),
        }
        for entry in inputs
    ]


def superseded_facts(warehouse: Warehouse, recording_id: str, inputs: list[dict[str, Any]]) -> DataFrame | None:
    """Return ids of the facts that earlier readings of these files stated and that are now superseded; None: none.

    Facts that the new reading states again are included.
    """
    spark = warehouse.spark
    files = [(e["path"], e["content"], e["fingerprint"], e["said"]) for e in inputs if e["fingerprint"]]
    if not files:
        return None
    # By way of an RDD, so that the plan does not grow with the number of files.
    now = spark.createDataFrame(spark.sparkContext.parallelize(files), _ENTRY).alias("now")
    entries = warehouse.read("runs", recording_id).select(
        "finished", F.explode(F.from_json("inputs", _PAST)).alias("e")
    )
    newest = Window.partitionBy("path", "fingerprint").orderBy(F.desc("finished"))
    past = (
        entries.select("finished", "e.*").withColumn("age", F.row_number().over(newest)).where("age = 1").alias("past")
    )
    again = past.join(now, on="fingerprint").where("past.said <> now.said").select("past.*")
    other = F.col("past.fingerprint") != F.col("now.fingerprint")
    later = past.join(now, on="path").where(F.col("past.content").isin(*MOMENTS) & other).select("past.*")
    spans = again.unionByName(later).select("path", "content", "first_ts", "last_ts").distinct().persist()
    if not spans.head(1):
        spans.unpersist()
        return None
    stamp = F.unix_micros("ts")
    inside = stamp.between(F.col("first_ts") - _AROUND_US, F.col("last_ts") + _AROUND_US)
    of_file = warehouse.read("facts", recording_id).join(spans, on=F.col("source_file") == F.col("path"))
    told = F.when(F.col("content").isin(*MOMENTS), F.col("kind").isin("segment_batch", "checkpoint")).otherwise(
        F.coalesce(inside, F.col("ts").isNull())
    )
    return of_file.where(told).select("fact_id").distinct()
