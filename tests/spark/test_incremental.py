"""Logs that arrive from run to run leave the tables that one run over all of them makes."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from pipelines.recording.recording import discover
from pipelines.stages.run import execute
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pipelines.stages.run import Run

pytestmark = pytest.mark.spark

STEPS = 3
LINES = 400
OF_A_RUN = {"run_id", "modified", "seen", "counts"}  # counts: of each piece that was read by itself


def lay_out(source: Path, root: Path, step: int) -> None:
    """Roll each log into a part per run; until the last run, the newest is written to and torn in a line."""
    chance = random.Random(step)  # noqa: S311 - a test's choice, not a secret
    shutil.rmtree(root / "logs", ignore_errors=True)
    for log in sorted((source / "logs").glob("node-*/*.gz")):
        lines = gzip.decompress(log.read_bytes()).splitlines(keepends=True)[:LINES]
        folder = root / log.parent.relative_to(source)
        folder.mkdir(parents=True, exist_ok=True)
        length = -(-len(lines) // STEPS)
        for part in range(step):
            data = b"".join(lines[part * length : (part + 1) * length])
            name = f"{log.name.removesuffix('.gz')}.{part}"
            if part < step - 1 and part % 2 == 0:
                (folder / f"{name}.gz").write_bytes(gzip.compress(data, mtime=0))
            elif part == step - 1 and step < STEPS:
                (folder / log.name.removesuffix(".gz")).write_bytes(data[: chance.randint(1, len(data))])
            else:
                (folder / name).write_bytes(data)
    for name in ("MANIFEST.json", "cluster-metadata.dump.txt.gz"):
        shutil.copy(source / name, root)
    if step == STEPS:
        shutil.copytree(source / "segments", root / "segments")


def run(spark: SparkSession, root: Path, warehouse: Path, stages: Sequence[str], **settings: object) -> Run:
    said = {"shuffle_partitions": 2, **settings}
    return execute(spark, str(warehouse), "r", discover(root, recording_id="r"), stages, said, lambda *_: None)


def rows(done: Run, table: str) -> list[str]:
    frame = done.warehouse.read(table, "r")
    kept = sorted(set(frame.columns) - OF_A_RUN)
    return sorted(row.line for row in frame.select(F.to_json(F.struct(*kept)).alias("line")).collect())


def test_the_tables_of_three_runs_are_those_of_one(spark: SparkSession, recordings: Path, tmp_path: Path) -> None:
    root = tmp_path / "r"
    for step in range(1, STEPS + 1):
        lay_out(recordings / "last-replica", root, step)
        steps = run(spark, root, tmp_path / "steps", ("ingest", "replay"))
    assert 0 < len(steps.inputs) < len(steps.known)
    one = run(spark, root, tmp_path / "one", ("ingest", "replay"))
    for table in TABLES:
        if table not in {"runs", "expectation_results", "replay_checkpoints"}:  # a state is kept where a run had it
            assert rows(steps, table) == rows(one, table), table

    # Nothing is new: nothing is read nor computed.
    again = run(spark, root, tmp_path / "steps", ("ingest", "replay", "report"))
    assert again.inputs == []
    assert set(again.durations) == {"parse", "report"}
    assert again.remarks == [f"nothing new to read: the tables stand as run {steps.run_id} left them"]

    # Another setting is said, and does so on request.
    other = run(spark, root, tmp_path / "steps", ("ingest", "replay"), conformance_ties=7)
    assert set(other.durations) == {"parse"}
    assert "conformance_ties None in place of 7; --full reads all" in other.remarks[0]
    full = run(spark, root, tmp_path / "steps", ("ingest",), full=True)
    assert len(full.inputs) == len(full.known)
    assert rows(full, "facts") == rows(one, "facts")
    last = full.warehouse.read("runs", "r").where(F.col("run_id") == full.run_id).collect()[0]
    assert len(json.loads(last.inputs)) == len(full.inputs)
