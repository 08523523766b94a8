"""The log: one line per event, as key=value or JSON, whatever the names in it; on a terminal progress in place."""

from __future__ import annotations

import io
import json
import logging
import re
from typing import TYPE_CHECKING, Any

import pytest

from jobs.watching import logs
from pipelines.stages.watch import progress_words, seconds_left

if TYPE_CHECKING:
    from collections.abc import Iterator

ABOUT = {"run_id": "4f", "recording_id": "prod", "stage": "ingest", "step": "parse"}


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = logs.LOG.handlers[:], logs.LOG.propagate, logs.LOG.level
    yield
    logs.LOG.handlers[:], logs.LOG.propagate, logs.LOG.level = before


def tell(event: str, message: str, level: int = logging.INFO, **told: Any) -> None:
    logs.LOG.log(level, message, extra={"told": {"event": event, **ABOUT, **told}})


def lines(log_format: str | None, *, quiet: bool = False, as_json: bool = False) -> list[str]:
    out = io.StringIO()
    logs.begin(out, log_format, quiet=quiet, as_json=as_json)
    tell("step_started", "parse ...")
    tell("progress", "parse 1 of 2 tasks", done=1, total=2)
    tell("step_ended", "parse 1.5 s", seconds=1.5, counts={"lines": 7, "rejected": 0}, failed=False)
    tell("finding", 'the clock of "1" is\noff = bad \x1b[2J', logging.WARNING)
    tell("error", "it broke", logging.ERROR, exit_code=1)
    return out.getvalue().splitlines()


def test_json_has_one_object_per_line() -> None:
    started, ended, warning, error = map(json.loads, lines("json"))
    assert list(started)[:8] == ["time", "level", "event", "run_id", "recording_id", "stage", "step", "message"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", started["time"])
    assert (ended["seconds"], ended["counts"]) == (1.5, {"lines": 7, "rejected": 0})
    assert [one["level"] for one in (started, ended, warning, error)] == ["info", "info", "warning", "error"]


def test_text_has_one_line_of_pairs_and_hostile_values_stay_values() -> None:
    started, ended, warning, error = lines("text")
    assert (
        ' level=info event=step_started run_id=4f recording_id=prod stage=ingest step=parse message="parse ..."'
        in started
    )
    assert ended.endswith("seconds=1.5 counts.lines=7 counts.rejected=0 failed=false")
    assert '\\"1\\"' in warning
    assert "\x1b" not in warning
    assert error.endswith('message="it broke" exit_code=1')


@pytest.mark.parametrize("log_format", ["text", "json", None])
def test_quiet_leaves_warnings_and_errors(log_format: str | None) -> None:
    told = lines(log_format, quiet=True)
    assert "it broke" in told[-1]
    assert not any("parse 1.5" in line for line in told)


def test_json_on_standard_output_has_no_log_beside_it_unless_one_is_asked_for() -> None:
    assert lines(None, as_json=True) == []
    assert len(lines("json", as_json=True)) == 4


def test_a_long_step_has_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    out, now = io.StringIO(), [0.0]
    monkeypatch.setattr(logs.time, "monotonic", lambda: now[0])
    logs.begin(out, "json", quiet=False, as_json=False)
    for _ in range(100):
        now[0] += 1.0
        tell("progress", "parse")
    assert len(out.getvalue().splitlines()) == 3


def test_a_terminal_shows_each_look_in_place_and_keeps_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_TERMINAL", "1")
    out = io.StringIO()
    logs.begin(out, None, quiet=False, as_json=False)
    tell("step_started", "parse ...")
    tell("progress", "parse      1 of 2 tasks")
    tell("step_ended", "parse          1.5 s  7 lines")
    shown = out.getvalue()
    assert shown.count("\n") == 1
    assert "1 of 2 tasks\r\x1b[2K" in shown
    assert re.search(r"\d\d:\d\d:\d\d  parse     1\.5 s 7 lines\n$", shown)


def test_where_the_stream_is_gone_the_line_goes_to_our_own(capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    out.close()
    logs.begin(out, "json", quiet=False, as_json=False)
    tell("error", "the JVM is gone", logging.ERROR)
    assert "the JVM is gone" in capsys.readouterr().err


def test_what_is_left_is_told_once_a_twentieth_is_done() -> None:
    assert seconds_left(0, 100, 50.0) is None
    assert seconds_left(4, 100, 50.0) is None
    assert seconds_left(25, 100, 10.0) == 30
    assert seconds_left(100, 100, 10.0) == 0
    assert progress_words("parse", 2_500_000, 10_000_000, "bytes", 30) == "parse      2 of 10 MB, about 30 s left"
    assert progress_words("replay", 3, 8, "tasks", None) == "replay     3 of 8 tasks"
