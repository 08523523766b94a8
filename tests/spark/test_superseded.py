"""A file that is read as something else than before: its facts take the place of those that it told then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pipelines.recording.recording import discover
from pipelines.stages.run import execute

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.spark

CUT = (
    "[2026-01-01 0{}:00:00,000] INFO [Log partition=orders-0, dir=/d] Truncating to offset {} (kafka.log.UnifiedLog)\n"
)


def test_facts_belong_to_a_files_content_and_to_what_was_said_of_it(spark: SparkSession, tmp_path: Path) -> None:
    root, log = tmp_path / "r", tmp_path / "r" / "logs" / "node-1" / "server.log"
    stated = root / "segments" / "node-1" / "replication-offset-checkpoint"
    for path in (log, stated):
        path.parent.mkdir(parents=True)

    def facts(**said: Any) -> list[Row]:
        done = execute(
            spark, str(tmp_path / "w"), "r", discover(root, recording_id="r", **said), ("ingest",), {}, lambda *_: None
        )
        columns = ("kind", "broker_id", "ts", "offset", "hw", "source_file", "source_line")
        return sorted(done.warehouse.read("facts", "r").select(*columns).collect(), key=str)

    log.write_text(CUT.format(1, 5) + CUT.format(2, 6))
    stated.write_text("0\n1\norders 0 100\n")
    first = facts()
    assert len(first) == 3

    # Another zone: the same lines, five hours later.
    moved = facts(time_zones={1: "America/New_York"})
    lines = [[row.ts.hour for row in found if row.ts is not None] for found in (first, moved)]
    assert [sorted(hours) for hours in lines] == [[1, 2], [6, 7]]
    assert len(moved) == 3
    assert facts(time_zones={1: "America/New_York"}) == moved

    # A later checkpoint of the same name holds; a log that was rolled away still tells what it told.
    stated.write_text("0\n1\norders 0 200\n")
    log.write_text(CUT.format(3, 7))
    later = facts(time_zones={1: "America/New_York"})
    assert [row.hw for row in later if row.kind == "checkpoint"] == [200]
    assert sorted(row.ts.hour for row in later if row.ts is not None) == [6, 7, 8]

    # The logs were another broker's.
    log.parent.rename(log.parent.with_name("node-2"))
    swapped = facts(time_zones={2: "America/New_York"})
    assert [(row.broker_id, row.ts.hour) for row in swapped if row.ts is not None and row.ts.hour == 8] == [(2, 8)]
