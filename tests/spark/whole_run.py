"""The whole job on one real recording, and its tables as lines that can be compared."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pipelines.recording.recording import discover
from pipelines.stages.run import execute
from schemas.tables import REPLAY_TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pipelines.stages.run import Run
    from pipelines.warehouse.delta_io import Warehouse

NAME = "last-replica"
STAGES = ("ingest", "replay", "validate", "report")
DERIVED = ("replication_events", *(table.name for table in REPLAY_TABLES))


def run(spark: SparkSession, root: Path, warehouse: Path, stages: tuple[str, ...], **settings: int) -> Run:
    """Within this process's session."""
    recording = discover(str(root), recording_id=NAME)
    settings = {"shuffle_partitions": 2, **settings}
    return execute(spark, str(warehouse), NAME, recording, stages, settings, lambda _name, _seconds: None)


def rows(warehouse: Warehouse, table: str, run_id: str | None = None) -> list[str]:
    """The recording's rows as JSON, sorted; of a table that every run adds to, those of one run."""
    frame = warehouse.read(table, NAME)
    if run_id is not None and "run_id" in frame.columns:
        frame = frame.where(F.col("run_id") == run_id)
    return sorted(row.line for row in frame.select(F.to_json(F.struct(*sorted(frame.columns))).alias("line")).collect())


def without(columns: Iterable[str], lines: list[str]) -> list[str]:
    """The same rows without these columns."""
    kept = [{k: v for k, v in json.loads(line).items() if k not in columns} for line in lines]
    return sorted(json.dumps(row, sort_keys=True) for row in kept)
