"""The examples of conf/schedules are such as the schedulers read them, and tell exit codes apart as they should."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scratch_tools import programs_of

from jobs import cli, endings
from jobs.kubernetes import SCHEDULES

if TYPE_CHECKING:
    import argparse

FOLDER = Path(__file__).parent.parent.parent / "conf" / "schedules"
SCRIPT = "/opt/tidemark/spark-submit.sh"
FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))  # of a crontab line


def parsed(command: str, job: str = "run") -> argparse.Namespace:
    """A line that starts the job, as the job itself reads it."""
    script, asked, *arguments = shlex.split(command)
    assert (script, asked) == (SCRIPT, job)
    parser = cli.job_parser(job, "A job.", ())
    if job == "maintain":
        cli.add_place_flags(parser)
        cli.add_print_flags(parser)
        return parser.parse_args(arguments)
    cli.add_input_flags(parser)
    cli.add_warehouse_flags(parser)
    cli.add_output_flags(parser)
    return parser.parse_args(arguments)


def unit(name: str) -> configparser.ConfigParser:
    """A unit file, strictly: nothing twice, nothing outside of a section."""
    found = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    found.optionxform = str  # type: ignore[assignment,method-assign] - names have capitals
    found.read_string((FOLDER / name).read_text())
    return found


def crontab_line(job: str = "run") -> str:
    lines = (FOLDER / "crontab").read_text().splitlines()
    (line,) = [line for line in lines if re.match(r"[\d*]", line) and f"{SCRIPT} {job} " in line]
    return line


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)
    return path


def test_systemd_starts_the_job_and_fails_at_findings_without_trying_again() -> None:
    service = unit("tidemark@.service")["Service"]
    asked = parsed(service["ExecStart"])
    assert (asked.json, asked.fail_on_loss, asked.recording) == (True, True, ["/srv/tidemark/recordings/%i"])
    never = {endings.BAD_INPUT, endings.EXPECTATIONS_FAILED, endings.LOSSES_FOUND}
    assert {int(code) for code in service["RestartPreventExitStatus"].split()} == never
    assert (service["Type"], service["Restart"]) == ("oneshot", "on-failure")
    assert service["SuccessExitStatus"] == "143"  # SIGTERM's; of a finding somebody has to be told
    assert unit("tidemark@.timer")["Timer"]["Persistent"] == "true"


def test_upkeep_is_started_once_a_week_wherever_it_is_started() -> None:
    service, timer = unit("tidemark-maintain.service")["Service"], unit("tidemark-maintain.timer")["Timer"]
    line = crontab_line("maintain")
    assert (timer["OnCalendar"], line.split()[:5]) == ("Sun *-*-* 02:35:00 UTC", SCHEDULES["maintain"].split())
    assert SCHEDULES["maintain"] in (FOLDER / "tidemark_dag.py").read_text()
    for command in (service["ExecStart"], line[line.index(SCRIPT) : line.index(" > >(")]):
        asked = parsed(command, "maintain")
        assert (asked.warehouse, asked.json, asked.dry_run) == ("/srv/tidemark/warehouse", True, False)
    assert "%" not in line


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="NOT CHECKED: there is no systemd-analyze")
def test_systemd_takes_the_units(repository: Path, tmp_path: Path) -> None:
    for name in ("tidemark@.service", "tidemark@.timer", "tidemark-maintain.service", "tidemark-maintain.timer"):
        (tmp_path / name).write_text((FOLDER / name).read_text().replace("/opt/tidemark", str(repository)))
    command = ["systemd-analyze", "verify", *(str(path) for path in tmp_path.iterdir())]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")
    (tmp_path / "tidemark@.service").write_text("[Service]\nRestart=if-need-be\n")
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "if-need-be" in ended.stderr
    for name in ("tidemark@.timer", "tidemark-maintain.timer"):
        when = unit(name)["Timer"]["OnCalendar"]
        subprocess.run(["systemd-analyze", "calendar", when], check=True, capture_output=True)


def test_cron_runs_the_job_every_hour() -> None:
    *fields, command = crontab_line().split(maxsplit=5)
    assert len(fields) == len(FIELDS)
    for field, (least, most) in zip(fields, FIELDS, strict=True):
        assert field == "*" or least <= int(field) <= most
    assert fields[1:] == ["*"] * 4
    assert "%" not in command  # to cron the end of a line
    asked = parsed(command[command.index(SCRIPT) : command.index(" > >(")])
    assert (asked.json, asked.fail_on_loss) == (True, True)


def test_cron_takes_the_table() -> None:
    usage = (
        subprocess.run(["crontab", "-h"], capture_output=True, text=True, check=False)
        if shutil.which("crontab")
        else None
    )
    if usage is None or "dry run" not in usage.stdout + usage.stderr:
        pytest.skip("NOT CHECKED: there is no crontab that checks (-n)")
    subprocess.run(["crontab", "-n", FOLDER / "crontab"], check=True, capture_output=True)


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4])
def test_cron_mails_one_line_with_the_code_and_the_journal_has_the_rest(tmp_path: Path, code: int) -> None:
    script = program(tmp_path / "spark-submit.sh", f"echo out; echo error >&2; exit {code}")
    program(tmp_path / "systemd-cat", f"cat > {tmp_path}/journal")
    command = crontab_line().split(maxsplit=5)[5].replace(SCRIPT, str(script))
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    mailed = subprocess.run(
        ["/bin/bash", "-c", f"{command}; wait"], env=environment, capture_output=True, text=True, check=False
    )
    lines = (mailed.stdout + mailed.stderr).splitlines()
    assert lines == [] if code == 0 else (len(lines) == 1 and f"ended with {code} " in lines[0])
    for _ in range(100):
        if (tmp_path / "journal").exists() and (tmp_path / "journal").read_text() == "out\nerror\n":
            return
        subprocess.run(["sleep", "0.1"], check=True)
    pytest.fail("nothing in the journal")


OUTCOMES = {  # by exit code: the state of the task that works, how often it was tried, the state of the one that tells
    endings.DONE: ("success", 1, "success"),
    endings.FAILED: ("failed", 3, "upstream_failed"),
    endings.BAD_INPUT: ("failed", 1, "upstream_failed"),
    endings.EXPECTATIONS_FAILED: ("success", 1, "failed"),
    endings.LOSSES_FOUND: ("success", 1, "failed"),
}
RUNS_THE_DAG = """
import sys
from pathlib import Path
from airflow.dag_processing.dagbag import DagBag

bag = DagBag(sys.argv[1])
assert not bag.import_errors, bag.import_errors
assert set(bag.dags) == {"tidemark_prod", "tidemark_maintain"}
assert {(one.max_active_runs, one.catchup) for one in bag.dags.values()} == {(1, False)}
dag, upkeep = bag.dags["tidemark_prod"], bag.dags["tidemark_maintain"]
for code in sys.argv[3:]:
    Path(sys.argv[2]).write_text(code)
    tasks = {one.task_id: one for one in dag.test().get_task_instances()}
    work, findings = tasks["work_off"], tasks["findings"]
    print("ENDED", code, work.state, work.try_number, findings.state)
Path(sys.argv[2]).write_text("0")
print("TENDED", *[one.state for one in upkeep.test().get_task_instances()])
"""


@pytest.mark.airflow
def test_airflow_runs_the_dag_and_only_findings_fail_the_second_task(tmp_path: Path) -> None:
    version = os.environ.get("TIDEMARK_AIRFLOW")
    if not version:
        pytest.skip("NOT CHECKED: TIDEMARK_AIRFLOW=3.3.2 installs that version of Airflow and runs the example in it")
    programs = programs_of(f"apache-airflow=={version}", constraints=constraints_of(version))
    environment = {
        "AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "PATH": os.environ["PATH"],
    }  # fmt: skip
    script = program(tmp_path / "spark-submit.sh", f'echo "$@" >> {tmp_path}/asked; exit $(cat {tmp_path}/code)')
    (tmp_path / "dags").mkdir()
    text = (FOLDER / "tidemark_dag.py").read_text().replace(SCRIPT, str(script)).replace("minutes=5", "seconds=1")
    (tmp_path / "dags" / "tidemark_dag.py").write_text(text)
    for command in (("db", "migrate"), ("dags", "reserialize")):
        subprocess.run([programs / "airflow", *command], env=environment, check=True, capture_output=True)

    command = [programs / "python", "-c", RUNS_THE_DAG, tmp_path / "dags", tmp_path / "code", *map(str, OUTCOMES)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    told = [line.split() for line in re.findall("^ENDED (.*)$", ended.stdout, re.MULTILINE)]
    assert {int(code): (work, int(tries), tells) for code, work, tries, tells in told} == OUTCOMES, ended.stderr[-2000:]
    assert "TENDED success" in ended.stdout, ended.stderr[-2000:]
    *runs, upkeep = (tmp_path / "asked").read_text().splitlines()
    assert parsed(f"{SCRIPT} {upkeep}", "maintain").json
    for asked in runs:
        job = parsed(f"{SCRIPT} {asked}")
        assert (job.json, job.fail_on_loss, job.recording) == (True, True, ["/srv/tidemark/recordings/prod"])


def constraints_of(version: str) -> str | None:
    """Airflow's list of versions that fit each other, or nothing where it cannot be reached."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    url = f"https://raw.githubusercontent.com/apache/airflow/constraints-{version}/constraints-{python}.txt"
    try:
        with urllib.request.urlopen(url, timeout=10):
            return url
    except OSError:
        return None
