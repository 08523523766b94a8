from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from delta import DeltaTable
from pyspark.sql import functions as F

from pipelines.warehouse import delta_reads
from pipelines.warehouse.delta_io import Warehouse
from pipelines.warehouse.table_files import TableFiles
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from pipelines.stages.run import Run

pytestmark = pytest.mark.spark


def in_turn(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


def test_tables_are_read_without_spark_as_spark_reads_them(first: Run) -> None:
    read = Warehouse(first.spark, first.warehouse.path)
    for name in TABLES:
        by_spark = read.read(name, first.recording_id).toArrow()
        small = read.small(name, first.recording_id)
        assert small is not None, name
        assert small.rows.schema == TABLES[name].arrow_schema, name
        assert in_turn(small.rows) == in_turn(by_spark) == in_turn(small.frame.toArrow()), name
        assert in_turn(read.arrow(name, first.recording_id, ["recording_id"])) == in_turn(by_spark.select([0])), name


def test_rows_are_counted_from_the_log_as_spark_counts_them(first: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stated = Warehouse(first.spark, first.warehouse.path).row_counts(first.recording_id)
    monkeypatch.setattr(TableFiles, "of", lambda *_: None)
    counted = Warehouse(first.spark, first.warehouse.path).row_counts(first.recording_id)
    assert stated == counted
    assert list(stated) == [name for name in TABLES if name != "runs"]


def test_a_recording_that_is_not_there_has_no_rows(first: Run) -> None:
    read = Warehouse(first.spark, first.warehouse.path)
    assert len(read.arrow("facts", "another")) == 0
    assert set(read.row_counts("another").values()) == {0}
    small = read.small("facts", "another")
    assert small is not None
    assert small.frame.toArrow().schema.names == small.rows.schema.names


def test_a_large_table_is_left_to_spark(first: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_reads, "SMALL_BYTES", 10)
    read = Warehouse(first.spark, first.warehouse.path)
    assert read.small("coverage", first.recording_id) is None
    assert read.looked_at("coverage", first.recording_id).count() == len(read.arrow("coverage", first.recording_id))


def test_what_was_looked_at_is_looked_at_anew_after_a_write(first: Run, tmp_path: Path) -> None:
    shutil.copytree(f"{first.warehouse.path}/coverage", tmp_path / "coverage")
    warehouse = Warehouse(first.spark, str(tmp_path))
    before = warehouse.looked_at("coverage", first.recording_id)
    assert (count := before.count()) > 1
    warehouse.replace("coverage", before.limit(1), first.recording_id)
    assert warehouse.looked_at("coverage", first.recording_id).count() == 1
    assert warehouse.row_counts(first.recording_id)["coverage"] == 1
    warehouse.pin({"coverage": warehouse.version("coverage") - 1})
    assert warehouse.looked_at("coverage", first.recording_id).count() == count


def test_a_table_with_deletion_vectors_is_left_to_spark(spark: SparkSession, first: Run, tmp_path: Path) -> None:
    copy = tmp_path / "coverage"
    shutil.copytree(f"{first.warehouse.path}/coverage", copy)
    count = len(Warehouse(spark, str(tmp_path)).arrow("coverage", first.recording_id))
    spark.sql(f"ALTER TABLE delta.`{copy}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    start = Warehouse(spark, str(tmp_path)).read("coverage").agg(F.min("start_ts").alias("first")).collect()[0]["first"]
    DeltaTable.forPath(spark, str(copy)).delete(F.col("start_ts") > F.lit(start))
    assert TableFiles.of("coverage", copy, None, first.recording_id) is None
    after = Warehouse(spark, str(tmp_path))
    left = len(after.arrow("coverage", first.recording_id))
    assert 0 < left < count
    assert after.row_counts(first.recording_id)["coverage"] == left
