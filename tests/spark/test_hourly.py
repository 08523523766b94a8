"""Runs over a recording that grows, through Spark: rows of windows without news stay, and all are those of one run."""

from __future__ import annotations

import gzip
import re
import shutil
from datetime import UTC, datetime
from itertools import takewhile
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

SETTINGS = {"shuffle_partitions": 2, "window_minutes": 1}
CUT = datetime(2026, 11, 21, 3, 52, 40, tzinfo=UTC)  # in the middle: what the first run finds was written before
STAMP = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)|.*CreateTime: (\d+)")


@pytest.fixture(scope="module")
def recording(recordings: Path) -> Path:
    return recordings / NAME


def arrive(recording: Path, folder: Path, *, is_over: bool) -> None:
    """Lay out what is there in the middle of the recording or when it is over; logs are plain, and grow."""
    for packed in sorted(recording.rglob("*.gz")):
        if "segments" in packed.parts:  # these tell where every batch ends, so that all rows would be replaced
            continue
        lines = gzip.decompress(packed.read_bytes()).splitlines(keepends=True)
        name = folder / packed.relative_to(recording).with_suffix("")
        name.parent.mkdir(parents=True, exist_ok=True)
        name.write_bytes(b"".join(lines if is_over else takewhile(was_written, lines)))
    shutil.copy(recording / "MANIFEST.json", folder)


def was_written(line: bytes) -> bool:
    """Whether a line was there at the first run."""
    stamp = STAMP.match(line)
    if stamp is None:
        return True
    if stamp[2]:
        return datetime.fromtimestamp(int(stamp[2]) / 1000, UTC) < CUT
    return datetime.fromisoformat(f"{stamp[1].decode()}Z") < CUT


def run(spark: SparkSession, folder: Path, warehouse: Path) -> None:
    recording = discover(str(folder), recording_id=NAME)
    execute(spark, str(warehouse), NAME, recording, ("ingest", "replay"), SETTINGS, lambda _name, _seconds: None)


def test_runs_over_what_has_come_write_the_tables_of_one_run(
    spark: SparkSession, recording: Path, tmp_path: Path
) -> None:
    stepwise, once = (Warehouse(spark, str(tmp_path / name)) for name in ("stepwise", "once"))
    arrive(recording, tmp_path / "growing", is_over=False)
    run(spark, tmp_path / "growing", tmp_path / "stepwise")
    stood = len(rows(stepwise, "replication_events"))
    arrive(recording, tmp_path / "growing", is_over=True)
    run(spark, tmp_path / "growing", tmp_path / "stepwise")
    written = DeltaTable.forPath(spark, stepwise.table_path("replication_events")).history(1).head()
    assert int(written.operationMetrics["numDeletedRows"]) < stood
    run(spark, tmp_path / "growing", tmp_path / "once")
    for table in (*DERIVED, "event_windows", "coverage"):
        assert rows(stepwise, table) == rows(once, table), table
    assert rows(once, "data_loss_incidents")
