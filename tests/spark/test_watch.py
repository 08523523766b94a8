"""What is told of a run that really happens: its counters, its log, its metrics, and incidents that are new."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from delta import DeltaTable
from pyspark.sql import functions as F
from whole_run import NAME

from jobs import cli, stage_jobs
from pipelines.warehouse.delta_io import Warehouse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    log = logging.getLogger("tidemark")
    before = log.handlers[:], log.propagate, log.level
    yield
    log.handlers[:], log.propagate, log.level = before


def job(stages: tuple[str, ...], warehouse: Path, *arguments: str) -> int:
    parser = cli.job_parser("run", "A job.", ())
    for add in (cli.add_input_flags, cli.add_warehouse_flags, cli.add_output_flags, cli.add_watch_flags):
        add(parser)
    args = parser.parse_args(["--warehouse", str(warehouse), "--json", "--log-format", "json", *arguments])
    return stage_jobs.run_stages(args, "run", stages)


def test_a_run_is_told_to_logs_metrics_and_once_to_people(
    spark: SparkSession, recordings: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    warehouse, metrics, told = tmp_path / "wh", tmp_path / "m.prom", tmp_path / "told"
    by_spark = tmp_path / "settings.toml"
    by_spark.write_text("driver_facts = 0")
    flags = ("--metrics-file", str(metrics), "--on-incident", f"cat >> {told}; exit 3", "--settings", str(by_spark))
    assert job(("ingest", "replay"), warehouse, "--recording", str(recordings / NAME), *flags) == 0
    printed = capfd.readouterr()
    (run,) = json.loads(printed.out)["recordings"]
    row = Warehouse(spark, str(warehouse)).read("runs", NAME).where(F.col("run_id") == run["run_id"]).collect()[0]

    counters = json.loads(row.counters)
    assert counters["events"] == json.loads(row.counts)["replication_events"] > 0
    assert (counters["incidents"], counters["new_incidents"]) == (1, 1)
    assert counters["lines"] > counters["facts"] > 0
    assert set(counters["steps"]) == {"parse", "order", "replay", "write", "metrics"}
    for step, cost in counters["steps"].items():
        assert (cost["tasks"] > 0) == (step not in {"write", "metrics"})  # small tables take no Spark job
        assert cost["task_seconds"] >= cost["task_cpu_seconds"]
        assert (cost["task_cpu_seconds"] > 0) == (cost["tasks"] > 0)
        assert cost["cpu_seconds"]["jvm"] > 0 or step == "metrics"  # which may be over before the JVM has done anything
    assert counters["steps"]["replay"]["cpu_seconds"]["python_workers"] > 0

    message = json.loads(told.read_text())
    (incident,) = message.pop("incidents")
    assert (message.pop("revised"), message.pop("withdrawn"), message.pop("not_listed")) == ([], [], 0)
    assert message == {"recording_id": NAME, "run_id": run["run_id"], "warehouse": str(warehouse), "new_incidents": 1}
    assert [incident["incident_id"]] == row.new_incidents == run["new_incidents"]
    assert incident["mechanism"] == "last_replica_standing"
    assert incident["lost_ts"].endswith("Z")

    log = [json.loads(line) for line in printed.err.splitlines() if line.startswith("{")]
    events = [(one["event"], one.get("step")) for one in log if one["event"] != "progress"]
    steps = [(event, step) for step in run["counters"]["steps"] for event in ("step_started", "step_ended")]
    assert events == [("run_started", None), *steps, ("run_ended", None), ("not_told", None)]
    assert {(one["run_id"], one["recording_id"]) for one in log} == {(run["run_id"], NAME)}
    assert log[-1]["message"] == "the command of --on-incident ended with 3"

    samples = metrics.read_text().splitlines()
    assert f'tidemark_new_incidents{{recording_id="{NAME}"}} 1' in samples
    assert f'tidemark_run_success{{recording_id="{NAME}"}} 1' in samples
    assert any(line.startswith("tidemark_step_process_cpu_seconds{") for line in samples)

    told.unlink()
    assert job(("replay",), warehouse, *flags) == 0
    (again,) = json.loads(capfd.readouterr().out)["recordings"]
    assert again["new_incidents"] == again["revised"] == again["withdrawn"] == []
    assert not told.exists()

    DeltaTable.forPath(spark, f"{warehouse}/data_loss_incidents").delete()  # as if later evidence had withdrawn it
    assert job(("replay",), warehouse, *flags) == 0
    (last,) = json.loads(capfd.readouterr().out)["recordings"]
    message = json.loads(told.read_text())
    assert (message["new_incidents"], message["incidents"], message["revised"]) == (0, [], [])
    (gone,) = message["withdrawn"]
    assert [gone["incident_id"]] == run["new_incidents"]
    assert (gone["before"]["acked_all"], gone["now"]) == (816, None)
    assert [one["incident_id"] for one in last["withdrawn"]] == run["new_incidents"]
    assert (last["counters"]["revised_incidents"], last["counters"]["withdrawn_incidents"]) == (0, 1)


def test_a_recording_that_fails_is_json_and_a_metric(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    del spark
    metrics = tmp_path / "m.prom"
    assert job(("replay",), tmp_path / "wh", "--recording-id", "..", "--metrics-file", str(metrics)) == 2
    printed = capfd.readouterr()
    (told,) = json.loads(printed.out)["recordings"]
    failure: dict[str, Any] = told["failure"]
    assert (failure["kind"], failure["exit_code"], told["error"]) == ("input", 2, failure["message"])
    assert json.loads(printed.err.splitlines()[-1])["level"] == "error"
    assert 'tidemark_job_exit_code{job="run"} 2' in metrics.read_text()
