"""Logs that arrive from run to run leave the tables that one run over all of them makes, and most rows stand."""

from __future__ import annotations

import gzip
import re
import shutil
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from delta import DeltaTable
from pyspark.sql import functions as F

import tidemark
from pipelines.overview import metrics
from pipelines.recording.recording import discover
from pipelines.spark import buckets, row_files, staging
from pipelines.stages import report
from pipelines.stages.run import execute
from pipelines.warehouse import delta_io, delta_reads, soundness
from pipelines.warehouse.exchange import in_place_of
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pipelines.stages.run import Run
    from pipelines.warehouse.table_files import TableFiles
    from pipelines.warehouse.within import Within

pytestmark = pytest.mark.spark

LIMITS = [(module, "SMALL_BYTES") for module in (staging, delta_io, delta_reads)]
LIMITS += [(module, "HERE_BYTES") for module in (row_files, soundness)]
LIMITS += [
    (staging, "STREAM_BYTES"),
    (delta_reads, "FRAME_BYTES"),
    (delta_reads, "PART_BYTES"),
    (delta_reads, "LARGE_ROWS"),
]
OF_A_RUN = {"run_id", "modified", "seen", "counts"}  # counts: of each piece that was read by itself
OF_A_RUN |= {"status", "first_reported", "first_run_id", "revised", "revised_run_id", "revision"}  # of an incident
CUT = datetime(2026, 11, 21, 3, 53, 5, tzinfo=UTC)  # late: most events have come by then
STAMP = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)|.*CreateTime: (\d+)")


def arrive(source: Path, root: Path, *, is_over: bool) -> None:
    """Lay out what is there in the middle of the recording, or when it is over.

    In the middle each log ends in a line that is not all there yet. Later they have grown; the controller's has been
    rolled and compressed. If a broker's own were, the events that name it would be others. So they would be if segment
    dumps told where every batch ends: there are none.
    """
    for packed in sorted((source / "logs").rglob("*.gz")):
        lines = gzip.decompress(packed.read_bytes()).splitlines(keepends=True)
        before = len(list(takewhile(was_written, lines)))
        log = root / packed.relative_to(source).with_suffix("")
        log.parent.mkdir(parents=True, exist_ok=True)
        if is_over and log.parent.name == "node-0":
            log.with_name(f"{log.name}.1.gz").write_bytes(gzip.compress(b"".join(lines[:before])))
            log.write_bytes(b"".join(lines[before:]))
        else:
            log.write_bytes(b"".join(lines) if is_over else b"".join(lines[:before])[:-5])
    dump = gzip.decompress((source / "cluster-metadata.dump.txt.gz").read_bytes()).splitlines(keepends=True)
    (root / "cluster-metadata.dump.txt").write_bytes(b"".join(dump if is_over else takewhile(was_written, dump)))
    shutil.copy(source / "MANIFEST.json", root)


def was_written(line: bytes) -> bool:
    """Whether a line was there at the first run."""
    stamp = STAMP.match(line)
    if stamp is None:
        return True
    if stamp[2]:
        return datetime.fromtimestamp(int(stamp[2]) / 1000, UTC) < CUT
    return datetime.fromisoformat(f"{stamp[1].decode()}Z") < CUT


def run(spark: SparkSession, root: Path, warehouse: Path, stages: Sequence[str], **settings: object) -> Run:
    said = {"shuffle_partitions": 2, "window_minutes": 1, **settings}
    return execute(spark, str(warehouse), "r", discover(root, recording_id="r"), stages, said, lambda *_: None)


def rows(done: Run, table: str) -> list[str]:
    frame = done.warehouse.read(table, "r")
    of_batches = {"state"} if table == "replay_checkpoints" else set()  # where they ended shows in a state's bytes
    kept = sorted(set(frame.columns) - OF_A_RUN - of_batches)
    return sorted(row.line for row in frame.select(F.to_json(F.struct(*kept)).alias("line")).collect())


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many of the events that stood each write replaces."""
    found: list[int] = []

    def noted(spark: SparkSession, stand: TableFiles, given: Any, within: Within | None, at: Path) -> Any:
        if stand.name == "replication_events" and within is not None:
            found.append(pc.sum(within.are_met(stand.rows())).as_py())
        return in_place_of(spark, stand, given, within, at)

    monkeypatch.setattr(delta_io, "in_place_of", noted)
    return found


def test_the_tables_of_two_runs_are_those_of_one(
    spark: SparkSession, recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: list[int]
) -> None:
    monkeypatch.setattr(buckets, "BUCKET_ROWS", 5_000)  # so that there are several, as in a large recording
    root = tmp_path / "r"

    def by_spark() -> Run:
        """Spark does everything, as for a large recording."""
        with monkeypatch.context() as of_many:
            for module, limit in LIMITS:
                of_many.setattr(module, limit, 10)
            return run(spark, root, tmp_path / "many", ("ingest", "replay"), driver_facts=0)

    arrive(recordings / "last-replica", root, is_over=False)
    stood = by_spark().counts["replication_events"]
    half = run(spark, root, tmp_path / "steps", ("ingest", "replay"))
    arrive(recordings / "last-replica", root, is_over=True)
    many = by_spark()
    steps = run(spark, root, tmp_path / "steps", ("ingest", "replay"))
    one = run(spark, root, tmp_path / "one", ("ingest", "replay"))
    for table in TABLES:
        if table not in {"runs", "expectation_results", "order_states"}:
            assert rows(many, table) == rows(steps, table) == rows(one, table), table
    assert rows(one, "data_loss_incidents")
    assert half.told
    assert not steps.told  # the incident says what it said, though its chain stands elsewhere now
    assert 0 < sum(replaced) < stood / 2

    # Nothing is new: nothing is read nor computed. What an incident says is compared with what was said all the same.
    incidents = DeltaTable.forPath(spark, steps.warehouse.table_path("data_loss_incidents"))
    incidents.update(set={"acked_all": "acked_all - 1"})
    again = run(spark, root, tmp_path / "steps", ("ingest", "replay", "report"))
    assert again.inputs == []
    assert set(again.durations) == {"parse", "report"}
    assert again.remarks == [f"nothing new to read: the tables stand as run {steps.run_id} left them"]

    assert again.told
    assert again.report
    assert "withdrawn or revised" in again.report.terminal()
    (told,) = again.report.as_dict()["revised"]
    assert [told[when]["acked_all"] for when in ("before", "now")] == [816, 815]
    (noted,) = tidemark.snapshot(str(tmp_path / "steps"), "r").arrow("incident_reports").to_pylist()
    names = ("status", "first_run_id", "revised_run_id", "revision", "acked_all")
    assert [noted[name] for name in names] == ["revised", half.run_id, again.run_id, 1, 815]

    # Nor is the report made again.
    monkeypatch.setattr(report, "build", None)
    idle = run(spark, root, tmp_path / "steps", ("ingest", "replay", "report"))
    assert idle.counts == again.counts
    assert not idle.told
    assert idle.report
    assert idle.report.markdown() == again.report.markdown()

    # Another setting is said, and does so on request.
    other = run(spark, root, tmp_path / "steps", ("ingest", "replay"), conformance_ties=7)
    assert set(other.durations) == {"parse"}
    assert "conformance_ties None in place of 7; --full reads all" in other.remarks[0]

    # What a killed run had read is ordered by the next one, and by no later one.
    files = DeltaTable.forPath(spark, steps.warehouse.table_path("files"))
    files.update(set={"run_id": "'killed'"})
    mended = run(spark, root, tmp_path / "steps", ("ingest",))
    assert mended.inputs == []
    assert "order" in mended.durations
    assert "replay" in run(spark, root, tmp_path / "steps", ("ingest", "replay")).durations
    assert set(run(spark, root, tmp_path / "steps", ("ingest", "replay")).durations) == {"parse"}


def test_metrics_are_written_anew_from_the_first_minute_that_differs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of a few bytes would be written as a whole."""
    monkeypatch.setattr(delta_io, "TINY_BYTES", 0)
    warehouse = delta_io.Warehouse(spark, str(tmp_path))
    nothing = TABLES["partition_meters"].arrow_schema.empty_table()
    began = datetime(2026, 1, 1, tzinfo=UTC)
    log = {"recording_id": "r", "broker_id": 1, "source": "request_log", "state": "logged", "lines": 1}
    for minutes in (60, 60, 90):
        times = {"start_ts": began, "end_ts": began + timedelta(minutes=minutes, seconds=-1), "evidence": "observed"}
        coverage = pa.Table.from_pylist([{**log, **times}], TABLES["coverage"].arrow_schema)
        warehouse.replace("coverage", coverage, "r")
        metrics.renew(warehouse, "r")
        made = metrics.cluster_metrics(nothing, metrics.stretches_of(coverage), "r")
        assert isinstance(made, pa.Table)
        shown = warehouse.arrow("cluster_metrics", "r")
        assert sorted(map(str, shown.to_pylist())) == sorted(map(str, made.to_pylist()))
    files = [pq.read_table(path)["minute"].to_pylist() for path in warehouse.paths("cluster_metrics", "r")]
    spans = sorted((min(found), max(found)) for found in files)
    first, until, since, last = (began + timedelta(minutes=minutes) for minutes in (0, 58, 59, 89))
    assert spans == [(first, until), (since, last)]
