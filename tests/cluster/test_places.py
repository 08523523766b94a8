"""Wherever the whole job runs and whatever stores its tables, they are those of a local run, row for row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from submitting import HADOOP, Submitted
from whole_run import DERIVED, NAME, STAGES, rows, without

from pipelines.warehouse.delta_io import Warehouse
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pipelines.stages.run import Run

pytestmark = pytest.mark.spark

PLACES = ("on_standalone", "on_yarn")  # of which the first stores everything on S3, the second on HDFS
DETERMINED = (
    "facts", "coverage", "event_windows", "order_states", "replay_checkpoints", "cluster_metrics", *DERIVED
)  # fmt: skip
ADDED = ("rejected_lines", "files", "set_aside", "expectation_results", "incident_reports", "runs")
# What is one run's own: its name, its times, what it cost, and how many shuffle partitions it was given.
OF_A_RUN = (
    "run_id",
    "first_run_id",
    "first_reported",
    "seen",
    "modified",
    "started",
    "finished",
    "durations",
    "counters",
    "table_versions",
    "configuration",
)


@pytest.fixture(scope="module", params=PLACES)
def submitted(request: pytest.FixtureRequest) -> Submitted:
    run: Submitted = request.getfixturevalue(request.param)
    return run


@pytest.fixture
def theirs(submitted: Submitted, spark: SparkSession) -> Warehouse:
    return Warehouse(spark, submitted.warehouse)


@pytest.mark.parametrize("table", DETERMINED)
def test_tables_are_those_of_a_local_run(first: Run, theirs: Warehouse, table: str) -> None:
    assert rows(theirs, table) == rows(first.warehouse, table)


@pytest.mark.parametrize("table", ADDED)
def test_what_a_run_adds_is_the_same_but_for_its_name_and_times(first: Run, theirs: Warehouse, table: str) -> None:
    (run_id,) = (row.run_id for row in theirs.read("runs", NAME).collect())
    ours = without(OF_A_RUN, rows(first.warehouse, table, first.run_id))
    assert without(OF_A_RUN, rows(theirs, table, run_id)) == ours


def test_the_loss_is_reported(submitted: Submitted) -> None:
    assert f"{NAME}: 816 acknowledged records lost in 1 partition" in submitted.said.splitlines()


def test_every_table_is_compared() -> None:
    assert {*DETERMINED, *ADDED} == set(TABLES)
    assert STAGES == ("ingest", "replay", "validate", "report")


def test_the_documentation_names_the_connector_of_sparks_own_hadoop(repository: Path) -> None:
    text = (repository / "docs" / "cluster.md").read_text()
    assert f"--packages org.apache.hadoop:hadoop-aws:{HADOOP}" in text
