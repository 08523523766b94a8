"""A run's numbers as OpenMetrics text, which Prometheus reads, too; the file is replaced in one piece."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from schemas.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_LAST_SUCCESS: Final = "tidemark_run_last_success_seconds"
_STOOD: Final = re.compile(_LAST_SUCCESS + r'\{recording_id="((?:[^"\\]|\\.)*)"\} ([0-9.e+]+)')


@dataclass(slots=True)
class Family:
    """One metric: its name, what it means, its unit (the end of its name), its samples by labels."""

    name: str
    means: str
    unit: str | None = None
    kind: str = "gauge"
    samples: list[tuple[dict[str, str], float]] = field(default_factory=list)

    def add(self, value: float | None, **labels: str) -> None:
        """Add a sample, if its value is known."""
        if value is not None:
            self.samples.append((labels, value))

    def lines(self) -> Iterable[str]:
        """Yield its lines; a metric without samples has none."""
        if not self.samples:
            return
        yield f"# TYPE {self.name} {self.kind}"
        if self.unit:
            yield f"# UNIT {self.name} {self.unit}"
        yield f"# HELP {self.name} {_escaped(self.means)}"
        suffix = "_info" if self.kind == "info" else ""
        for labels, value in self.samples:
            shown = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            yield f"{self.name}{suffix}{{{shown}}} {value}"


class Metrics:
    """Collects what the runs of a job did, and writes it."""

    def __init__(self, path: Path, job: str) -> None:
        """Remember from the file when each recording last went through. InputError if it cannot be written there."""
        self.path, self.job, self.began = path, job, time.time()
        self.succeeded: dict[str, float] = {}
        if path.is_dir() or not path.absolute().parent.is_dir():
            message = "it is a folder" if path.is_dir() else "its folder is not there"
            raise InputError(f"metrics cannot be written: {message}", source=str(path))
        with contextlib.suppress(OSError, ValueError):
            found = _STOOD.findall(path.read_text(encoding="utf-8"))
            self.succeeded = {_plain(name): float(when) for name, when in found}
        self.families = {one.name: one for one in _families()}

    def add(self, name: str, value: float | None, **labels: str) -> None:
        """Add a sample to the metric of that name, without `tidemark_`."""
        self.families[f"tidemark_{name}"].add(value, **labels)

    def run(self, recording_id: str, seconds: float, *, went_through: bool) -> None:
        """Add how a run ended."""
        now = round(time.time(), 3)
        self.add("run_success", int(went_through), recording_id=recording_id)
        self.add("run_duration_seconds", round(seconds, 3), recording_id=recording_id)
        self.add("run_end_seconds", now, recording_id=recording_id)
        if went_through:
            self.succeeded[recording_id] = now

    def counters(self, recording_id: str, run_id: str, version: str, counters: dict[str, Any]) -> None:
        """Add what a run did: its counters as they stand in `runs`."""
        about = {"recording_id": recording_id}
        self.families["tidemark_run"].add(1, **about, run_id=run_id, version=version)
        if counters["files"]:
            for name in ("files", "bytes", "lines"):
                self.add(f"run_input_{name}", counters[name], **about)
            self.add("run_input_rejected_lines", counters["rejected"], **about)
        self.add("events", counters["events"], **about)
        for name in ("new_incidents", "revised_incidents", "withdrawn_incidents"):
            self.add(name, counters[name], **about)
        for severity, count in sorted((counters["severities"] or {}).items()):
            self.add("incidents", count, **about, severity=severity)
        for table, rows in sorted(counters["rows"].items()):
            self.add("table_rows", rows, **about, table=table)
        for step, cost in counters["steps"].items():
            self.add("step_duration_seconds", cost["seconds"], **about, step=step)
            for name in ("tasks", "failed_tasks", "task_seconds", "task_cpu_seconds"):
                self.add(f"step_{name}", cost.get(name), **about, step=step)
            for process, used in cost.get("cpu_seconds", {}).items():
                self.add("step_process_cpu_seconds", used, **about, step=step, process=process)

    def write(self, exit_code: int) -> None:
        """Replace the file."""
        self.families[_LAST_SUCCESS].samples = [
            ({"recording_id": name}, when) for name, when in sorted(self.succeeded.items())
        ]
        for name, value in (("exit_code", exit_code), ("end_seconds", round(time.time(), 3))):
            self.families[f"tidemark_job_{name}"].samples = [({"job": self.job}, value)]
        replace_file(self.path, text(self.families.values()))


def text(families: Iterable[Family]) -> str:
    """Return metrics as OpenMetrics text."""
    return "\n".join([*(line for family in families for line in family.lines()), "# EOF", ""])


def replace_file(path: Path, content: str) -> None:
    """Replace a file, so that a reader sees the old or the new one whole. Others may read it."""
    # The name ends otherwise than the file's, as node_exporter reads every *.prom of its folder.
    handle, new = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.absolute().parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o644)
        os.replace(new, path)  # noqa: PTH105 - of a name that is no Path
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new)  # noqa: PTH108 - as above
        raise


def _families() -> Iterable[Family]:
    """Yield every metric, in the order in which they are written."""
    last = "when the recording last went through, with Unix time; kept from one file to the next"
    yield Family("tidemark_job_exit_code", "the exit code of the job so far")
    yield Family("tidemark_job_end_seconds", "when the job wrote this file, with Unix time", "seconds")
    yield Family("tidemark_run", "the run that the other numbers are of", kind="info")
    yield Family("tidemark_run_success", "1: the run went through and broke no expectation, 0: it did not")
    yield Family("tidemark_run_end_seconds", "when the run ended, with Unix time", "seconds")
    yield Family(_LAST_SUCCESS, last, "seconds")
    yield Family("tidemark_run_duration_seconds", "how long the run took", "seconds")
    yield Family("tidemark_run_input_files", "files read")
    yield Family("tidemark_run_input_bytes", "bytes read, decompressed", "bytes")
    yield Family("tidemark_run_input_lines", "lines read")
    yield Family("tidemark_run_input_rejected_lines", "lines that could not be read")
    yield Family("tidemark_events", "events of the recording in replication_events")
    yield Family("tidemark_incidents", "incidents that stand in the recording, by severity")
    yield Family("tidemark_new_incidents", "incidents that no earlier run had")
    yield Family("tidemark_revised_incidents", "incidents of earlier runs that say something else now")
    yield Family("tidemark_withdrawn_incidents", "incidents of earlier runs that no longer stand")
    yield Family("tidemark_expectations_failed", "expectations that did not hold, by severity")
    yield Family("tidemark_table_rows", "rows of the recording by table")
    yield Family("tidemark_step_duration_seconds", "how long a step took", "seconds")
    yield Family("tidemark_step_tasks", "Spark tasks that a step ran")
    yield Family("tidemark_step_failed_tasks", "attempts of Spark tasks that failed in a step")
    yield Family("tidemark_step_task_seconds", "time that tasks had a core, all executors together", "seconds")
    yield Family("tidemark_step_task_cpu_seconds", "CPU of the executors' JVM task threads", "seconds")
    yield Family("tidemark_step_process_cpu_seconds", "CPU of processes on the driver's machine", "seconds")


def _escaped(words: str) -> str:
    return words.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _plain(words: str) -> str:
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], words)
