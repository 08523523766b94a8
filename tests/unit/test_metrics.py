"""Metrics are OpenMetrics text that a real parser takes, in a file that is replaced in one piece."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from scratch_tools import programs_of

from jobs.watching.metrics import Family, Metrics, text
from schemas.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = 'a "quoted" \\ name\nof two lines'
COST = {
    "seconds": 12.5, "tasks": 4, "failed_tasks": 0, "task_seconds": 20.25, "task_cpu_seconds": 1.5,
    "cpu_seconds": {"driver": 0.5, "jvm": 9.0},
}  # fmt: skip
COUNTERS: dict[str, Any] = {
    "files": 3, "bytes": 10_000, "lines": 100, "facts": 90, "rejected": 1, "events": 500, "incidents": 2,
    "new_incidents": 1, "revised_incidents": 3, "withdrawn_incidents": 2,
    "severities": {"S1": 2}, "rows": {"facts": 90, "hw_timeline": 70}, "steps": {"parse": COST},
}  # fmt: skip
READ = """
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as families
print(json.dumps([[s.name, s.labels, s.value, f.type, f.unit] for f in families(sys.stdin.read()) for s in f.samples]))
"""


def written(path: Path, **runs: bool) -> str:
    metrics = Metrics(path, "run")
    for name, went_through in runs.items():
        metrics.counters(name, "a-run", "1.2.3", COUNTERS)
        metrics.run(name, 60.0, went_through=went_through)
    metrics.write(0)
    return path.read_text()


def test_a_real_parser_takes_it_and_gives_back_what_was_measured(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "tidemark.prom", "run")
    metrics.counters(HOSTILE, "a-run", "1.2.3", COUNTERS)
    metrics.add("expectations_failed", 0, recording_id=HOSTILE, severity="error")
    metrics.run(HOSTILE, 60.0, went_through=True)
    metrics.write(4)
    python = programs_of("prometheus-client==0.23.1") / "python"
    told = (tmp_path / "tidemark.prom").read_text()
    read = subprocess.run([python, "-c", READ], input=told, capture_output=True, text=True, check=True)
    samples = json.loads(read.stdout)
    assert ["tidemark_job_exit_code", {"job": "run"}, 4.0, "gauge", ""] in samples
    about = {"recording_id": HOSTILE}
    assert ["tidemark_run_info", {**about, "run_id": "a-run", "version": "1.2.3"}, 1.0, "info", ""] in samples
    assert ["tidemark_table_rows", {**about, "table": "hw_timeline"}, 70.0, "gauge", ""] in samples
    for name, count in (("new", 1.0), ("revised", 3.0), ("withdrawn", 2.0)):
        assert [f"tidemark_{name}_incidents", about, count, "gauge", ""] in samples
    cpu = {**about, "step": "parse", "process": "jvm"}
    assert ["tidemark_step_process_cpu_seconds", cpu, 9.0, "gauge", "seconds"] in samples
    assert {one[0].removesuffix("_info") for one in samples} == set(metrics.families)


def test_the_end_is_marked_and_a_unit_ends_the_name(tmp_path: Path) -> None:
    told = written(tmp_path / "m.prom", prod=True)
    assert told.endswith("\n# EOF\n")
    assert told.count("# EOF") == 1
    units = [line.split()[2:] for line in told.splitlines() if line.startswith("# UNIT")]
    assert units
    assert all(name.endswith(f"_{unit}") for name, unit in units)


def test_a_value_that_is_not_known_has_no_line() -> None:
    family = Family("tidemark_events", "events")
    family.add(None, recording_id="prod")
    assert text([family]) == "# EOF\n"


def test_a_run_that_failed_leaves_when_the_last_one_went_through(tmp_path: Path) -> None:
    path = tmp_path / "m.prom"
    before = [line for line in written(path, prod=True, test=True).splitlines() if "last_success" in line]
    after = [line for line in written(path, prod=False, test=False).splitlines() if "last_success" in line]
    assert before == after
    assert len([line for line in before if not line.startswith("#")]) == 2


def test_the_file_is_replaced_whole_and_others_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "m.prom"
    path.write_text("old")
    reader = path.open()
    written(path, prod=True)
    assert reader.read() == "old"  # who had it open reads on in the old one
    assert os.listdir(tmp_path) == ["m.prom"]  # noqa: PTH208 - hidden ones, too
    assert path.stat().st_mode & 0o777 == 0o644


def test_where_no_file_can_be_is_bad_input(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere" / "m.prom"):
        with pytest.raises(InputError, match="metrics cannot be written"):
            Metrics(path, "run")


def test_the_page_on_monitoring_names_every_metric_and_alerts_on_none_other(repository: Path, tmp_path: Path) -> None:
    page = (repository / "docs" / "monitoring.md").read_text()
    families = Metrics(tmp_path / "m.prom", "run").families
    alerts = re.findall(r"expr: (.*)", page)
    assert alerts
    assert {name for alert in alerts for name in re.findall(r"tidemark_\w+", alert)} <= set(families)
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    named |= {f"run_input{name}" for name in named if name.startswith("_")}
    assert {name.removeprefix("tidemark_").replace("run_info", "run") for name in families} - {"run"} <= named
