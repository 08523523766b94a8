"""A run after one that failed reads what is new since something was handed on, and leaves the tables of one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hourly_case import arrive
from made_lines import START_MS
from made_recording import MadeCluster
from made_shape import Shape
from test_handed_on import handed_on
from test_incremental import OF_A_RUN, run

from pipelines.stages.renewal import Renewal
from pipelines.warehouse.delta_io import Warehouse
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pipelines.stages.run import Run

pytestmark = pytest.mark.spark

MINUTES = (5, 8, 10)  # up to when there are lines at the runs before the one that fails
STAGES = ("ingest", "replay")
NOT_COMPARED = {"runs", "expectation_results", "order_states", "files"}
OF_A_STATE = {"state", "engine"}  # of which boundaries one is kept depends on the runs


def runs_until_failure(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch, of: type, method: str, first: str | None = None
) -> tuple[Path, Path]:
    """Some runs, of which the last fails in a method (`first`: if that is what it is given first).

    Return the recording, and the folder with what has arrived of it.
    """
    shape = Shape(events=60_000, partitions=3, elections=0, flaps=0, tick_ms=130)
    made, arrived = folder / "made", folder / "arrived"
    MadeCluster(shape, made).write()
    for until in MINUTES:
        arrive(made, arrived, START_MS + until * 60_000)
        done = run(spark, arrived, folder / "steps", STAGES)
    assert handed_on(done)
    whole = getattr(of, method)

    def failing(one: object, *given: Any, **more: Any) -> object:
        if first is not None and given[0] != first:
            return whole(one, *given, **more)
        raise OSError("the disk is full")

    arrive(made, arrived, START_MS + 12 * 60_000)
    with monkeypatch.context() as broken:
        broken.setattr(of, method, failing)
        with pytest.raises(OSError, match="full"):
            run(spark, arrived, folder / "steps", STAGES)
    return made, arrived


def are_those_of_one_run(spark: SparkSession, done: Run, arrived: Path, folder: Path) -> None:
    one = run(spark, arrived, folder, STAGES)
    for table in (name for name in TABLES if name not in NOT_COMPARED):
        assert lines_of(done, table) == lines_of(one, table), table


def lines_of(done: Run, table: str) -> list[str]:
    found = done.warehouse.arrow(table, "r")
    kept = [name for name in found.column_names if name not in {*OF_A_RUN, *OF_A_STATE}]
    return sorted(map(repr, found.select(kept).to_pylist()))


@pytest.mark.parametrize(
    ("fails_in", "minute"),  # up to when there are lines at the run behind it: nothing is new since, or something is
    [("ordered", 13), ("hand_on", 13), ("write_replay", 12)],
)
def test_a_run_after_a_failure_reads_only_what_is_new(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_in: str, minute: int
) -> None:
    made, arrived = runs_until_failure(spark, tmp_path, monkeypatch, Renewal, fails_in)
    arrive(made, arrived, START_MS + minute * 60_000)
    monkeypatch.setattr(Renewal, "facts_here", None)
    done = run(spark, arrived, tmp_path / "steps", STAGES)
    monkeypatch.undo()
    are_those_of_one_run(spark, done, arrived, tmp_path / "one")


def test_a_run_after_one_that_had_begun_to_write_events_reads_all_facts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, arrived = runs_until_failure(spark, tmp_path, monkeypatch, Warehouse, "replace", "replication_events")
    done = run(spark, arrived, tmp_path / "steps", STAGES)
    assert any(remark.startswith("all facts were ordered") for remark in done.remarks)
    are_those_of_one_run(spark, done, arrived, tmp_path / "one")
