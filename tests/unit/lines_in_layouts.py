"""Kafka's lines in the layouts of wild logs, behind the prefixes of containers, and what is read of them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pipelines.intake.collect import Collected, collect
from pipelines.lines.layout import last_part
from pipelines.recording.recording import discover

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

TEXT = (
    "[Partition a-0 broker=1] a-0 starts at leader epoch 4 from offset {} with high watermark 1. Previous leader epoch "
    "was 0."
)
LOGGER = "kafka.cluster.Partition"
THREAD = "data-plane-kafka-request-handler-0"
APACHE = re.compile(r"\[(\S+ \S+)\] (\w+) (.*) \((\S+)\)")
WHOLE_SECONDS = {"hadoop", "strimzi4"}


def log(folder: Path, lines: Iterable[str], name: str = "stdout.log", **told: Any) -> Collected:
    path = folder / "logs" / "node-1" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return collect(discover(folder, recording_id="x", **told))


def role(offset: int, stamp: str = "2026-11-21 03:00:00,123") -> str:
    return f"[{stamp}] INFO {TEXT.format(offset)} ({LOGGER})"


def offsets(found: Collected) -> list[int]:
    return [row["offset"] for row in found.facts.to_pylist() if row["kind"] == "role_change"]


def reasons(found: Collected) -> list[tuple[int, str]]:
    return [(row["source_line"], row["reason"]) for row in found.rejected.to_pylist()]


def rendered(line: str, name: str) -> str:
    """A line of Kafka's own layout in another; what is no whole line stays as it is."""
    match = APACHE.fullmatch(line)
    if match is None or name == "apache":
        return line
    stamp, level, text, logger = match.groups()
    iso = stamp.replace(" ", "T").replace(",", ".") + "Z"
    if name in {"logstash", "ecs"}:
        names = ("level", "logger") if name == "logstash" else ("log.level", "log.logger")
        return json.dumps({"@timestamp": iso, names[0]: level, names[1]: logger, "message": text, "thread": THREAD})
    return {
        "strimzi3": f"{stamp} {level} {text} ({logger}) [{THREAD}]",
        "strimzi4": f"{stamp[:19]} {level:<5} [{THREAD}] {last_part(logger)}:66 - {text}",
        "spring": f"{iso} {level:>5} 2537 --- [{THREAD[-15:]}] {logger:<40} : {text}",
        "hadoop": f"{stamp[2:4]}/{stamp[5:7]}/{stamp[8:19]} {level} {logger}: {text}",
        "logback": f"{stamp} [{THREAD}] {level:<5} {logger} - {text}",
        "cloudera": f"{stamp} {level} {logger}: {text}",
        "operator": f"[{level}] {stamp} [{THREAD}] {logger} {level.lower()} - {text}",
    }[name]


def behind(lines: Iterable[str], prefix: str) -> list[str]:
    """Lines as a container's logs have them; a runtime's file has long lines in parts."""
    if prefix != "cri":
        return [prefix + line for line in lines]
    out = []
    for line in lines:
        parts = [line[k : k + 300] for k in range(0, len(line), 300)] or [""]
        out += [f"2026-11-21T03:00:00.123456789Z stdout P {part}" for part in parts[:-1]]
        out.append(f"2026-11-21T03:00:00.123456789Z stdout F {parts[-1]}")
    return out


STACK = [
    "java.lang.IllegalStateException: x",
    "\tat kafka.server.A.b(A.scala:1)",
    "Caused by: java.io.IOException",
    "",
    "\t... 3 more",
]
