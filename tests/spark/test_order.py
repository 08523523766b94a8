"""What the order stage finds by looking at all facts, through Spark: the same as of facts that lie in one table."""

from __future__ import annotations

from collections.abc import Iterator  # noqa: TC003 - Spark reads the annotations
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.intake.collect import collect
from pipelines.overview.cluster import overview_of
from pipelines.recording.recording import discover
from pipelines.spark.packed import STREAM
from pipelines.spark.spark_schemas import spark_ddl
from pipelines.spark.staging import stage
from pipelines.stages.deposed import records_set_aside
from pipelines.stages.questions import asked_here
from replay.evidence.cluster import cluster_told
from replay.evidence.metadata_log import LOG_PART, PART

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

START = datetime(2026, 1, 1, tzinfo=UTC)
RECORD_COLUMNS = (
    "fact_id string, kind string, name string, ts timestamp, metadata_offset bigint, last_offset bigint, "
    "controller_epoch int, in_snapshot boolean"
)


@dataclass(frozen=True)
class AskedOfSpark:
    """Facts that are asked by way of Spark."""

    facts: DataFrame

    def __call__(self, question: str, *tables: str) -> list[dict[str, Any]]:
        return self.arrow(question, *tables).to_pylist()

    def arrow(self, question: str, *_: str) -> pa.Table:
        return self.facts.sparkSession.sql(question, facts=self.facts).toArrow()


@dataclass(frozen=True)
class AskedOfDuckDB:
    """Facts that are asked by way of DuckDB."""

    facts: pa.Table

    def __call__(self, question: str, *tables: str) -> list[dict[str, Any]]:
        return self.arrow(question, *tables).to_pylist()

    def arrow(self, question: str, *_: str) -> pa.Table:
        return asked_here(question, {"facts": self.facts})


def test_records_that_a_later_controller_overwrote_are_counted_once(spark: SparkSession) -> None:
    parts = [(PART, LOG_PART, 0, 120, 1), (PART, LOG_PART, 110, 130, 2)]
    records = [("partition_change", None, offset, None, epoch) for offset, epoch in ((109, 1), (110, 1), (110, 2))]
    records += [("broker_change", None, 110, None, 1), ("broker_change", None, 111, None, 1)]
    rows = [(f"f{k}", *row[:2], START, *row[2:], False) for k, row in enumerate((*parts, *records))]
    some, others = (spark.createDataFrame(told, RECORD_COLUMNS) for told in (rows, rows[2:]))
    for facts, count in ((some, len({110, 111})), (others, 0)):
        assert records_set_aside(AskedOfSpark(facts)) == records_set_aside(AskedOfDuckDB(facts.toArrow())) == count


@pytest.mark.parametrize("name", ["last-replica", "unclean-election"])
def test_what_is_found_by_looking_at_all_facts_is_the_same_through_spark(
    spark: SparkSession, recordings: Path, tmp_path: Path, name: str
) -> None:
    recording = discover(str(recordings / name), recording_id=name)
    facts = collect(recording).facts
    stated = {"kafka_version": recording.manifest.kafka, "broker_config": recording.manifest.broker_config}
    here = overview_of(facts)
    expected = cluster_told(here.cluster, stated, here.coverage.missing)
    assert expected.standstills
    files = [tmp_path / f"{k}.parquet" for k in range(3)]
    for k, file in enumerate(files):
        mine = facts.slice(k * len(facts) // 3, (k + 1) * len(facts) // 3 - k * len(facts) // 3)
        pq.write_table(mine.drop_columns("recording_id"), file, row_group_size=5_000)
    frame = spark.createDataFrame(facts).repartition(3, "source_line")
    for found in (overview_of(frame), overview_of(frame, files)):
        assert found.coverage == here.coverage
        cluster = cluster_told(found.cluster, stated, found.coverage.missing)
        assert [row["fact_id"] for row in cluster.rows] == [row["fact_id"] for row in expected.rows]
        assert replace(cluster, rows=[]) == replace(expected, rows=[])


def test_packed_rows_are_handed_over_some_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    """A row may be thousands of facts, so their bytes are what ends a batch."""
    size, streams = 100_000, 20
    limit = spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch")

    def noted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"output": ["batch"], "rows": [bytes(len(batch))]}, STREAM)

    rows = spark.range(streams).selectExpr("0 as bucket", f"cast(repeat('x', {size}) as binary) as rows")
    grouped = rows.groupBy("bucket")
    counts = {}
    for name, most in (("few", 3 * size), ("all", None)):
        frame = grouped.applyInArrow(noted, spark_ddl(STREAM))
        staged = stage(frame, str(tmp_path / name), 1, most).frame.toArrow()
        counts[name] = [len(batch) for batch in staged["rows"].to_pylist()]
    assert counts["all"] == [streams]
    assert sum(counts["few"]) == streams
    assert max(counts["few"]) <= 4
    assert spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch") == limit
