"""The job `show`: from a warehouse on disk to what stands on the terminal, and shell completion."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from looked_up import Shelf, filled, recorded

from jobs import completing, completion, show
from jobs.showing import answers
from jobs.terminal import has_colour, width
from pipelines.lookup.places import Place
from pipelines.lookup.records import record
from pipelines.stages.screen import Screen
from schemas.errors import InputError
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

HOSTILE = "pay\x1b[2Jments"
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded partition as Delta tables, beside a recording of which only its name is known."""
    root = tmp_path_factory.mktemp("warehouse")
    shelf = recorded()
    versions = {}
    for name, table in TABLES.items():
        rows = shelf.tables.get(name, table.arrow_schema.empty_table())
        if "recording_id" in rows.column_names and name != "runs":
            there = [field.with_nullable(True) for field in rows.schema if field.name in table.arrow_schema.names]  # noqa: FBT003
            write_deltalake(
                root / name,
                rows.select([one.name for one in there]).cast(pa.schema(there)),
                partition_by=["recording_id"],
            )
            versions[name] = 0
    run = {"run_id": "run", "status": "done", "finished": NOON, "table_versions": json.dumps(versions)}
    rows = [{**run, "recording_id": "last-replica"}, {**run, "recording_id": "other"}]
    write_deltalake(root / "runs", pa.Table.from_pylist(rows), partition_by=["recording_id"])
    return root


def shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], warehouse: Path, *words: str, columns: int = 80
) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.delenv("TIDEMARK_COLUMNS", raising=False)
    named = [*words, "--warehouse", str(warehouse), "--recording-id", "last-replica"]
    monkeypatch.setattr(sys, "argv", ["show", *named])
    assert show.main() == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["incident"], ["1 incident on", "S0  |S1  |S2  |S3  ", "last_replica_standing"]),
        (["partition"], ["ledger-0"]),
        (
            ["partition", "ledger-0"],
            ["ISR ", "What happened, in short", r"\d follows \d: leo \d+ hw \d+", "in force: "],
        ),
        (["partition", "ledger-0", "--around", "500", "--steps", "3"], ["step by step", r"\n500 ", "    -> "]),
        (["record", "ledger-0@3355"], ["lost: incident ", "acknowledged to ", "cut by broker", "committed"]),
        (["broker", "1"], ["Its part in incidents", "Logs of it", "What it led", "When it was out of the ISR"]),
    ],
)
def test_answers_fit_the_width_and_say_the_same_as_json(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    warehouse: Path,
    words: Sequence[str],
    parts: list[str],
) -> None:
    text = shown(monkeypatch, capsys, warehouse, *words)
    for part in parts:
        assert re.search(part, text), part
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    told = json.loads(shown(monkeypatch, capsys, warehouse, *words, "--json"))
    assert (told["recording_id"], told["run_id"]) == ("last-replica", "run")
    for slot in told.get("slots", ()):
        assert slot["fate"]["sentence"].split(";")[0] in " ".join(text.split())
    for replica in told.get("state", {}).get("replicas", ()):
        assert replica["words"] in " ".join(text.split())


def test_an_incident_is_told_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], warehouse: Path
) -> None:
    listed = json.loads(shown(monkeypatch, capsys, warehouse, "incident", "--json"))
    (row,) = listed["incidents"]
    text = " ".join(shown(monkeypatch, capsys, warehouse, "incident", row["incident_id"][:8]).split())
    for words in ("what led to it (UTC):", "would have kept them:", row["explanation"], "lost slots: offsets "):
        assert words in text
    assert all(link["what"] in text for link in row["chain"])
    assert all(source in text for source in row["chain_sources"] if source)


def test_names_that_mean_nothing_end_with_2_and_a_sentence(warehouse: Path) -> None:
    for words, sentence in (
        (["incident", "ffff0000", "--recording-id", "last-replica"], "there is no incident 'ffff0000'"),
        (["broker", "x", "--recording-id", "last-replica"], "should be a broker's id, as 2"),
        (["incident", "--recording-id", "none"], "there is no recording 'none': there are last-replica, other"),
        (["incident"], "say which recording with --recording-id: there are last-replica, other"),
    ):
        done = run_show(*words, "--warehouse", str(warehouse), "--json")
        assert done.returncode == 2
        assert sentence in json.loads(done.stdout)["error"]
    done = run_show("incident", "--warehouse", str(warehouse / "nowhere"))
    assert done.returncode == 2
    assert "there are no tables of Tidemark" in done.stderr


def run_show(*words: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    command = [sys.executable, str(root / "jobs" / "show.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(root)})


def test_two_moments_are_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["partition", "t-0", "--at", "2024-05-01", "--around", "3", "--warehouse", "w"]
    monkeypatch.setattr(sys, "argv", ["show", *words])
    with pytest.raises(InputError, match="both name a moment"):
        show.main()


def test_help_needs_no_package_and_shows_examples() -> None:
    root = Path(__file__).parents[2]
    for what in ([], ["incident"], ["partition"], ["record"], ["broker"]):
        command = [sys.executable, "-S", str(root / "jobs" / "show.py"), *what, "--help"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(root)})
        assert done.returncode == 0, done.stderr
        assert "examples:\n  ./spark-submit.sh show" in done.stdout
        assert "exit codes:" in done.stdout


def test_names_from_logs_give_a_terminal_no_orders() -> None:
    key = {"recording_id": "r", "topic": HOSTILE, "incarnation": 0, "partition": 0, "evidence": "observed", "ts": NOON}
    batch = {"base_offset": 0, "next_offset": 1, "leader_epoch": 0, "broker_id": 1, "client_id": "\x9b31m\u202e"}
    events = [
        {**key, **batch, "seq": 0, "kind": "append", "source_file": "\x07.log", "acks": 1},
        {**key, **batch, "seq": 1, "kind": "ack", "error_code": 0, "acks": 1},
    ]
    shelf = Shelf({"replication_events": filled("replication_events", events)})
    for colour in (False, True):
        screen = Screen(80, colour=colour)
        answers.record(screen, record(shelf, Place(HOSTILE, 0, 0), 0))
        plain = re.sub(r"\x1b\[[\d;]*m", "", screen.text()) if colour else screen.text()
        assert not set(plain) & {"\x1b", "\x9b", "\x07", "\u202e"}
        assert "pay\\x1b[2Jments-0@0" in plain


def test_colour_and_width_are_those_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TIDEMARK_COLUMNS", "133")
    assert (width(), has_colour()) == (133, True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colour()
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.delenv("TIDEMARK_COLUMNS")
    assert not has_colour()


def asked_of_bash(script: str, *words: str) -> set[str]:
    """What bash offers for the last of these words."""
    program = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; '
        '_shtab_spark_submit_sh; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program, "bash", script, *words], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_bash_completes_every_job_and_its_flags(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["completion", "bash"])
    assert completion.main() == 0
    script = tmp_path / "completion"
    script.write_text(capsys.readouterr().out)
    asked = (str(script), "./spark-submit.sh")
    assert asked_of_bash(*asked, "") == {*completing.JOBS, *completing.OTHERS}
    assert asked_of_bash(*asked, "show", "") == {"incident", "partition", "record", "broker"}
    assert asked_of_bash(*asked, "show", "partition", "orders-0", "--a") == {"--at", "--around"}
    assert asked_of_bash(*asked, "completion", "") == {"bash", "zsh"}
    (tmp_path / "warehouse").mkdir()
    assert asked_of_bash(*asked, "report", "--warehouse", f"{tmp_path}/w") == {f"{tmp_path}/warehouse"}
    for job in completing.JOBS:
        flags = flags_of(job)
        assert asked_of_bash(*asked, job, "--") == {flag for flag in flags if flag.startswith("--")}, job


def flags_of(job: str) -> list[str]:
    (of_jobs,) = (one for one in completing.whole()._actions if one.dest == "job")
    return list(dict(of_jobs.choices or {})[job]._option_string_actions)  # type: ignore[call-overload]


def test_every_job_that_the_script_knows_can_be_completed() -> None:
    script = (Path(__file__).parents[2] / "spark-submit.sh").read_text()
    named: set[str] = set()
    for line in re.findall(r"^  ([a-z| ]+)\) job=", script, re.MULTILINE):
        named |= {one.strip() for one in line.split("|")}
    assert named | {"tests", "help"} == {*completing.JOBS, *completing.OTHERS}


def test_zsh_is_given_a_script_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["completion", "zsh"])
    assert completion.main() == 0
    script: Any = capsys.readouterr().out
    assert script.startswith("#compdef spark-submit.sh")
    assert "--around" in script
