"""Runs over a recording that grows, through Spark: rows of windows without news stay, and all are those of one run."""

from __future__ import annotations

import gzip
import shutil
from typing import TYPE_CHECKING

import pytest
from delta import DeltaTable
from whole_run import DERIVED, NAME, rows

from pipelines.recording.recording import discover
from pipelines.stages.run import execute
from pipelines.warehouse.delta_io import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

STEPS = 2
SETTINGS = {"shuffle_partitions": 2, "window_minutes": 1}


@pytest.fixture(scope="module")
def recording(recordings: Path) -> Path:
    return recordings / NAME


def arrive(recording: Path, folder: Path, step: int) -> None:
    """Lay out what has come by a step: of each log the lines of that step in a file, of the metadata dump its begin."""
    for packed in sorted(recording.rglob("*.gz")):
        lines = gzip.decompress(packed.read_bytes()).splitlines(keepends=True)
        name = folder / packed.relative_to(recording).with_suffix("")
        name.parent.mkdir(parents=True, exist_ok=True)
        begin, end = (len(lines) * k // STEPS for k in (step - 1, step))
        if "logs" in name.parts:
            name.with_name(f"{name.name}.{step}").write_bytes(b"".join(lines[begin:end]))
        elif "segments" not in name.parts:  # these tell where every batch ends, so that all rows would be replaced
            name.write_bytes(b"".join(lines[:end]))
    shutil.copy(recording / "MANIFEST.json", folder)


def run(spark: SparkSession, folder: Path, warehouse: Path) -> None:
    recording = discover(str(folder), recording_id=NAME)
    execute(spark, str(warehouse), NAME, recording, ("ingest", "replay"), SETTINGS, lambda _name, _seconds: None)


def test_runs_over_what_has_come_write_the_tables_of_one_run(
    spark: SparkSession, recording: Path, tmp_path: Path
) -> None:
    stepwise, once = (Warehouse(spark, str(tmp_path / name)) for name in ("stepwise", "once"))
    for step in range(1, STEPS + 1):
        arrive(recording, tmp_path / "growing", step)
        run(spark, tmp_path / "growing", tmp_path / "stepwise")
        if step == 1:
            stood = len(rows(stepwise, "replication_events"))
        else:
            written = DeltaTable.forPath(spark, stepwise.table_path("replication_events")).history(1).head()
            assert int(written.operationMetrics["numDeletedRows"]) < stood
    run(spark, tmp_path / "growing", tmp_path / "once")
    for table in (*DERIVED, "event_windows", "coverage"):
        assert rows(stepwise, table) == rows(once, table), table
    assert rows(once, "data_loss_incidents")
