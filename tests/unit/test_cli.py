"""Arguments, settings, and how a job says that something went wrong."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs import cli, endings, stage_jobs
from schemas.errors import HeldError, InputError, TidemarkError

if TYPE_CHECKING:
    import argparse


def parsed(*arguments: str) -> argparse.Namespace:
    parser = cli.job_parser("run", "A job.", ("--warehouse DIR",))
    cli.add_input_flags(parser)
    cli.add_warehouse_flags(parser)
    cli.add_output_flags(parser)
    cli.add_watch_flags(parser)
    return parser.parse_args(["--warehouse", "w", *arguments])


def log(folder: Path) -> Path:
    path = folder / "logs" / "node-1" / "server.log"
    path.parent.mkdir(parents=True)
    path.write_text("")
    return folder


def test_several_recordings_and_several_flags_add_up(tmp_path: Path) -> None:
    one, two, three = (str(log(tmp_path / name)) for name in ("a", "b", "c"))
    found = [find() for find in cli.recordings(parsed("--recording", one, two, "--recording", three))]
    assert [recording.recording_id for recording in found] == ["a", "b", "c"]


def test_logs_are_named_broker_by_broker(tmp_path: Path) -> None:
    path = log(tmp_path / "x") / "logs"
    arguments = ("--logs", f"4={path}", "--recording-id", "prod", "--time-zone", "4=Europe/Berlin", "UTC")
    (find,) = cli.recordings(parsed(*arguments))
    recording = find()
    assert [source.broker_id for source in recording.sources] == [4]
    assert [recording.manifest.time_zone(broker) for broker in (4, 5)] == ["Europe/Berlin", "UTC"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--recording", "a", "b", "--recording-id", "c"), "--recording-id names one recording"),
        (("--recording", "a", "--logs", "1=x"), "leave out --logs"),
        (("--logs", "1=x"), "--recording-id NAME"),
    ],
)
def test_flags_that_contradict_each_other_are_bad_input(arguments: tuple[str, ...], told: str) -> None:
    with pytest.raises(InputError, match=told):
        cli.recordings(parsed(*arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--logs", "x"),
        ("--logs", "a=x"),
        ("--time-zone", "Mars/Base"),
        ("--from", "noon"),
        ("--topic", "("),
        ("--rec", "x"),
    ],
)
def test_a_flag_that_cannot_be_read_is_bad_usage(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parsed(*arguments)
    assert caught.value.code == endings.BAD_INPUT
    assert "error:" in capsys.readouterr().err


def test_times_become_utc_and_narrow_the_settings() -> None:
    found = cli.settings(parsed("--from", "2025-03-01T10:00+01:00", "--to", "2025-03-01T10:00", "--topic", "a", "b.*"))
    assert found["from"] == "2025-03-01T09:00:00+00:00"
    assert found["to"] == "2025-03-01T10:00:00+00:00"
    assert found["topics"] == ["a", "b.*"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("colour = 1", "there is no setting 'colour'"),
        ("shuffle_partitions = 'many'", "should be a whole number"),
        ("shuffle_partitions = true", "should be a whole number"),
        ("conformance_ties = 0.5", "should be a whole number"),
        ("window_minutes = 0", "should be a whole number, 1 or more"),
        ("conformance_ties = -1", "should be a whole number, 0 or more"),
        ("shuffle_partitions = ", "Invalid value"),
    ],
)
def test_settings_that_cannot_be_are_bad_input(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=told) as caught:
        cli.settings(parsed("--settings", str(path)))
    assert caught.value.source == str(path)


def test_the_last_word_of_bad_input_is_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    failure = endings.failure_of(InputError("not JSON", source="MANIFEST.json", line=3))
    assert failure.tell(as_json=False) == endings.BAD_INPUT
    assert capsys.readouterr().err == "tidemark: MANIFEST.json:3: not JSON\n"


def test_the_last_word_of_a_bug_is_one_line_and_the_trace_lies_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> int:
        raise TidemarkError("first line\nsecond line")

    assert endings.guarded(broken) == endings.FAILED
    told = capsys.readouterr().err
    assert told.startswith("tidemark: TidemarkError: first line (details: ")
    assert told.count("\n") == 1
    trace = Path(told.split("details: ")[1].rstrip(")\n"))
    assert "in broken" in trace.read_text()
    trace.unlink()


def test_of_a_workers_error_its_own_last_line_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    error = RuntimeError(
        "\n  An exception was thrown.\nTraceback (most recent call last):\n  File x\nValueError: odd\n\nat a.b"
    )
    endings.failure_of(error).tell(as_json=False)
    told = capsys.readouterr().err
    assert told.startswith("tidemark: RuntimeError: ValueError: odd (details: ")
    Path(told.split("details: ")[1].rstrip(")\n")).unlink()


@pytest.mark.parametrize(("codes", "code"), [((), 0), ((0, 4), 4), ((4, 3, 0), 3), ((3, 2), 2), ((2, 1, 4), 1)])
def test_of_several_recordings_the_worst_code_wins(codes: tuple[int, ...], code: int) -> None:
    assert endings.worst(codes) == code


def test_a_dry_run_reads_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = log(tmp_path / "a")
    args = parsed("--recording", str(folder), "--dry-run", "--warehouse", str(tmp_path / "w"))
    assert stage_jobs.run_stages(args, "run", ("ingest", "replay")) == endings.DONE
    assert "a: would read 1 files" in capsys.readouterr().out
    assert not (tmp_path / "w").exists()


def test_a_dry_run_tells_machines_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = parsed("--recording", str(log(tmp_path / "a")), "--dry-run", "--json")
    assert stage_jobs.run_stages(args, "run", ("ingest", "report")) == endings.DONE
    told = json.loads(capsys.readouterr().out)
    (recording,) = told["recordings"]
    assert (recording["recording_id"], recording["files"][0]["broker_id"]) == ("a", 1)
    assert {"facts", "runs"} <= set(told["would_write"])


def test_the_shipped_settings_are_settings() -> None:
    assert json.dumps(cli.settings(parsed()))


@pytest.mark.parametrize("job", ["run", "ingest", "replay_job", "validate", "report"])
def test_a_job_names_stages_that_there_are(monkeypatch: pytest.MonkeyPatch, job: str) -> None:
    module = importlib.import_module(f"jobs.{job}")
    asked: list[Any] = []
    monkeypatch.setattr(module.stage_jobs, "run_stages", lambda _args, _job, stages: asked.extend(stages) or 0)
    monkeypatch.setattr(sys, "argv", [job, "--warehouse", "/lake", "--recording", "/tape"])
    assert module.main() == 0
    assert asked
    assert set(asked) <= {"ingest", "replay", "validate", "report"}


def as_json(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    assert found["recordings"] == []
    assert found["error"] == found["failure"]["message"]
    assert found["exit_code"] == found["failure"]["exit_code"]
    return dict(found["failure"])


def test_bad_usage_is_json_if_json_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parsed("--json", "--from", "noon")
    assert caught.value.code == endings.BAD_INPUT
    told = as_json(capsys.readouterr().out)
    assert told["kind"] == "usage"
    assert "--from" in told["message"]


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (InputError("odd", source="a.log", line=3), 2, {"kind": "input", "file": "a.log", "line": 3}),
        (ValueError("odd"), 1, {"kind": "failed", "type": "ValueError", "file": None, "line": None}),
        (KeyboardInterrupt(), 130, {"kind": "interrupted", "message": "interrupted"}),
        (SystemExit(143), 143, {"kind": "interrupted", "exit_code": 143}),
        (HeldError("by another"), 5, {"kind": "held", "message": "by another"}),
        (ConnectionRefusedError(111, "Connection refused"), 1, {"kind": "failed", "details": None}),
    ],
)
def test_every_error_is_json_if_json_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    expected: dict[str, Any],
) -> None:
    def broken() -> int:
        raise error

    monkeypatch.setattr(sys, "argv", ["run", "--json"])
    assert endings.guarded(broken) == code
    told = as_json(capsys.readouterr().out)
    assert expected.items() <= told.items()
    if told["details"]:
        Path(told["details"]).unlink()


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (OSError(28, "No space left on device", "/lake/x"), 1, r"a disk is full; .*\[Errno 28\].*: '/lake/x'$"),
        (
            RuntimeError(
                "An error occurred while calling o81.save.\n: org.apache.spark.SparkException: Job\n\tat a.b(C.java)"
                "\nCaused by: java.io.IOException: No space left on device\n\tat d.e(F.java)"
            ),
            1,
            "a disk is full; with more room the next run mends what this one left: No space left on device$",
        ),
        (
            PermissionError(13, "Permission denied", "/lake"),
            2,
            r"a permission is missing: .*Permission denied: '/lake'$",
        ),
        (
            RuntimeError(": java.io.IOException: Mkdirs failed to create file:/lake/x (exists=false, cwd=file:/)"),
            1,
            r"a folder cannot be made, .*: Mkdirs failed to create file:/lake/x \(exists=false, cwd=file:/\)$",
        ),
        (
            RuntimeError(": java.net.ConnectException: Call From a to b:8020 failed: Connection refused\n\tat x"),
            1,
            "a store cannot be reached; .*: Call From a to b:8020 failed: Connection refused$",
        ),
    ],
)
def test_what_a_store_refuses_is_one_sentence_without_a_trace(error: Exception, code: int, sentence: str) -> None:
    failure = endings.failure_of(error)
    assert (failure.kind, failure.exit_code, failure.details) == ("store", code, None)
    assert re.match(sentence, failure.message), failure.message
    assert "\n" not in failure.message


def test_a_webhook_may_stand_in_the_environment_and_a_bad_one_is_not_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEMARK_WEBHOOK", "https://alerts.example.com/secret")
    assert parsed().webhook == "https://alerts.example.com/secret"
    monkeypatch.setenv("TIDEMARK_WEBHOOK", "secret")
    with pytest.raises(SystemExit):
        parsed()
    assert "secret" not in capsys.readouterr().err


def test_what_ended_before_an_interruption_is_still_told(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = stage_jobs.Outcomes(parsed("--json"), None)
    outcomes.add(lambda: ("prod", None), lambda _name, _it: (_ for _ in ()).throw(InputError("odd")))
    outcomes.interrupted = endings.interruption(SystemExit(143))
    assert outcomes.finish() == 143
    told = json.loads(capsys.readouterr().out)
    assert (told["failure"]["kind"], told["exit_code"]) == ("interrupted", 143)
    assert [(one["recording_id"], one["failure"]["kind"]) for one in told["recordings"]] == [("prod", "input")]
