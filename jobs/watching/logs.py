"""The log on standard error: for people with progress in place on a terminal, or one line per event for machines."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from datetime import UTC, datetime
from typing import Any, Final, Protocol

LOG: Final = logging.getLogger("tidemark")
PROGRESS_EVERY_S: Final = 30.0  # in a log; on a terminal each look is shown
IN_PLACE: Final = 79  # a longer line would wrap, and could not be overwritten

_FIRST: Final = ("time", "level", "event", "run_id", "recording_id", "stage", "step", "message")
_BARE: Final = re.compile(r"[^\s=\"\\\x00-\x1f\x7f-\x9f]+")
_CLEAR: Final = "\r\x1b[2K"


class Stream(Protocol):
    """What lines are written to."""

    def write(self, text: str, /) -> int:
        """Write the text."""

    def flush(self) -> None:
        """Write what was kept back."""


def begin(stream: Stream, log_format: str | None, *, quiet: bool, as_json: bool) -> None:
    """Log to the stream from now on. Without a format, JSON on standard output means no log at all."""
    handler: logging.Handler
    if log_format is not None:
        handler = Lines(stream, json_line if log_format == "json" else text_line)
    else:
        handler = logging.NullHandler() if as_json else Told(stream, terminal=is_terminal())
    LOG.handlers[:] = [handler]
    LOG.propagate = False
    LOG.setLevel(logging.WARNING if quiet or isinstance(handler, logging.NullHandler) else logging.INFO)


def is_terminal() -> bool:
    """Whether a person looks on. spark-submit hides the terminal from Python, so spark-submit.sh says what it saw."""
    return "TIDEMARK_TERMINAL" in os.environ or sys.stderr.isatty()


class Lines(logging.Handler):
    """Writes one line per record; of a step's progress one now and then."""

    def __init__(self, stream: Stream, line: Any) -> None:  # noqa: ANN401 - a function from fields to text
        """Write to the stream what `line` makes of a record's fields."""
        super().__init__()
        self.stream, self.line = stream, line
        self.last = time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record's line."""
        now = time.monotonic()
        if told_of(record).get("event") == "progress" and now - self.last < PROGRESS_EVERY_S:
            return
        self.last = now
        self.write(f"{self.line(fields(record))}\n")

    def write(self, text: str) -> None:
        """Write to the stream, or to Python's own standard error if the stream is gone, as with the JVM behind it."""
        try:
            self.stream.write(text)
            self.stream.flush()
        except Exception:  # noqa: BLE001 - py4j raises what it likes, and a log never ends a run
            sys.stderr.write(text)


class Told(Lines):
    """Writes for people: when each step ended; on a terminal, how far it is, in place."""

    def __init__(self, stream: Stream, *, terminal: bool) -> None:
        """Overwrite the last line on a terminal."""
        super().__init__(stream, words)
        self.terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record's words, unless another line will say the same."""
        event = told_of(record).get("event")
        if event in {"run_ended", "finding", "remark"}:  # the report says more
            return
        if self.terminal and event in {"step_started", "progress"}:
            self.write(f"{_CLEAR}{words(fields(record))[:IN_PLACE]}")
        elif self.terminal:
            self.write(f"{_CLEAR}{words(fields(record))}\n")
        elif event != "step_started":
            super().emit(record)


def told_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return what happened, as the one who logged it put it."""
    told: dict[str, Any] = getattr(record, "told", {})
    return told


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return a record as fields: time, level, event, whose run it is, the words, then everything else."""
    moment = datetime.fromtimestamp(record.created, UTC)
    found = {
        "time": f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z",
        "level": record.levelname.lower(),
        "message": " ".join(record.getMessage().split()),
        **told_of(record),
    }
    return {name: found.pop(name) for name in _FIRST if name in found} | found


def json_line(told: dict[str, Any]) -> str:
    """Return one JSON object on one line."""
    return json.dumps(told, default=str)


def text_line(told: dict[str, Any]) -> str:
    """Return `key=value` pairs on one line (logfmt); a value with spaces or signs is quoted as in JSON."""
    return " ".join(f"{name}={_quoted(value)}" for name, value in _flat(told))


def words(told: dict[str, Any]) -> str:
    """Return a line for people."""
    moment, level = str(told["time"]), told["level"]
    if level == "error":
        return f"tidemark: {told['message']}"
    if level == "warning":
        return f"warning:    {told['message']}"
    if told.get("event") == "run_started":
        return f"{told['message']}, {moment[:10]} {moment[11:19]} UTC"
    step = told.get("step")
    text = str(told["message"])
    shown = f"{step:<10}{text.removeprefix(str(step)).strip()}" if step else text
    return f"  {moment[11:19]}  {shown}"


def _flat(told: dict[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """Return nested fields side by side, their names joined by dots."""
    found: list[tuple[str, Any]] = []
    for name, value in told.items():
        found += _flat(value, f"{before}{name}.") if isinstance(value, dict) else [(f"{before}{name}", value)]
    return found


def _quoted(value: Any) -> str:  # noqa: ANN401 - any plain value
    if isinstance(value, list):
        value = ",".join(map(str, value))
    text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if _BARE.fullmatch(text) else json.dumps(text)
