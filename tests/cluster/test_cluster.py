"""The whole job as a user starts it, on a Spark cluster of two workers: the same tables as on one machine.

The nodes have Spark, Java and the base Python, and nothing of Tidemark: what they run is what the script ships.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from standalone import Standalone
from whole_run import DERIVED, NAME, STAGES, rows, without

from pipelines.warehouse.delta_io import Warehouse
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.stages.run import Run

pytestmark = pytest.mark.spark

ROOMS = {"schemas", "replay", "pipelines"}  # that executors import; jobs are the driver's
QUICK = "-XX:TieredStopAtLevel=1"  # as of the tests' own session
COMPILED = re.compile(r"\[cache\] data (loaded from|saved to) '([^']+)'")


@dataclass(frozen=True)
class Submitted:
    """A run on the cluster, its end and its traces."""

    warehouse: str
    said: str
    executors: dict[str, str]  # directory -> what it wrote
    imported: list[str]  # modules, by what their executors' Python wrote of them, with its whole path
    python_tasks: Counter[str]  # by executor


@pytest.fixture(scope="module")
def submitted(first: Run, repository: Path, recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> Submitted:
    del first  # after the local run: what that has compiled is shipped
    home = tmp_path_factory.mktemp("cluster")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.executor.extraJavaOptions": QUICK,
        "spark.sql.shuffle.partitions": "4",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": home.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.executorEnv.PYTHONPYCACHEPREFIX": str(home / "imported"),
        "spark.executorEnv.NUMBA_DEBUG_CACHE": "1",
        "spark.executorEnv.PYTHONUNBUFFERED": "1",  # what numba says is lost with a worker otherwise
    }
    with Standalone(home, Path(pyspark.__file__).parent) as cluster:
        try:
            cluster.start()
            where = ("--recording", str(recordings / NAME), "--warehouse", str(home / "warehouse"))
            flags = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
            flags += ["--master", cluster.master, "--driver-memory", "1g", "--executor-memory", "1g"]
            done = subprocess.run(
                [repository / "spark-submit.sh", "run", *where, "--", *flags],
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
                cwd=home,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
        except BaseException:
            for path, text in cluster.logs():
                sys.stderr.write(f"--- {path}\n{text[-5000:]}\n")
            raise
        executors = {str(folder): (folder / "stderr").read_text(errors="replace") for folder in cluster.executors()}
    imported = [str(path).removeprefix(str(home / "imported")) for path in (home / "imported").rglob("*.pyc")]
    return Submitted(str(home / "warehouse"), done.stdout, executors, imported, python_tasks(home))


def python_tasks(home: Path) -> Counter[str]:
    """How many tasks that ran Python each executor ended, by Spark's own log of the run."""
    (log,) = home.glob("app-*")
    ended = [event for event in map(json.loads, log.open()) if event["Event"] == "SparkListenerTaskEnd"]
    return Counter(
        event["Task Info"]["Executor ID"]
        for event in ended
        if any("Python workers" in str(metric.get("Name")) for metric in event["Task Info"]["Accumulables"])
    )


@pytest.fixture
def theirs(submitted: Submitted, spark: SparkSession) -> Warehouse:
    return Warehouse(spark, submitted.warehouse)


@pytest.mark.parametrize("table", ["facts", "coverage", *DERIVED])
def test_tables_are_those_of_a_local_run(first: Run, theirs: Warehouse, table: str) -> None:
    assert rows(theirs, table) == rows(first.warehouse, table)


# What is one run's own: its name, its times, and how many shuffle partitions it was given.
OF_A_RUN = ("run_id", "started", "finished", "durations", "table_versions", "configuration")


@pytest.mark.parametrize("table", ["rejected_lines", "set_aside", "expectation_results", "runs"])
def test_what_a_run_adds_is_the_same_but_for_its_name_and_times(first: Run, theirs: Warehouse, table: str) -> None:
    (run_id,) = (row.run_id for row in theirs.read("runs", NAME).collect())
    ours = without(OF_A_RUN, rows(first.warehouse, table, first.run_id))
    assert without(OF_A_RUN, rows(theirs, table, run_id)) == ours


def test_every_table_is_compared() -> None:
    added = {"rejected_lines", "set_aside", "expectation_results", "runs"}
    assert {"facts", "coverage", *DERIVED} | added == set(TABLES)
    assert STAGES == ("ingest", "replay", "validate", "report")


def test_the_loss_is_reported(submitted: Submitted) -> None:
    assert f"\n{NAME}: 816 acknowledged records lost in 1 partition\n" in submitted.said


def test_every_worker_ran_python(submitted: Submitted) -> None:
    assert len({re.search(r"/(worker-\d)/", folder)[1] for folder in submitted.executors}) == 2  # type: ignore[index]
    assert len(submitted.executors) == len(submitted.python_tasks) == 2
    assert min(submitted.python_tasks.values()) > 0


def test_executors_import_what_was_shipped_and_not_this_checkout(submitted: Submitted) -> None:
    own = [path for path in submitted.imported if "/site-packages/" not in path]
    ours = [path for path in own if not ROOMS.isdisjoint(path.split("/")[:-1])]
    for folder in submitted.executors:
        assert any(path.startswith(f"{folder}/tidemark/pipelines/") for path in ours)
        assert any(path.startswith(f"{folder}/environment/lib/") for path in submitted.imported)
    shipped = tuple(f"{folder}/tidemark/" for folder in submitted.executors)
    assert [path for path in ours if not path.startswith(shipped)] == []


def test_compiled_rules_are_kept_beside_what_was_shipped(submitted: Submitted, repository: Path) -> None:
    said = [(folder, *found) for folder, text in submitted.executors.items() for found in COMPILED.findall(text)]
    assert any("/kernel.fold-" in path for _, _, path in said)
    beside = re.compile(r"/tidemark/replay/\w+/__pycache__/")
    assert [path for folder, _, path in said if not beside.match(path.removeprefix(folder))] == []
    if list((repository / "replay").rglob("kernel.fold-*.nbi")):  # compiled here: shipped with the sources
        assert [path for _, what, path in said if what == "saved to"] == []


def test_driver_on_a_standalone_cluster_is_refused_in_one_sentence(repository: Path, tmp_path: Path) -> None:
    flags = ("--master", "spark://127.0.0.1:1", "--deploy-mode", "cluster")
    where = ("--recording", str(tmp_path), "--warehouse", str(tmp_path))
    done = subprocess.run(
        [repository / "spark-submit.sh", "run", *where, "--", *flags], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("tidemark: a standalone cluster starts no Python drivers")
    assert done.stderr.count("\n") == 1
