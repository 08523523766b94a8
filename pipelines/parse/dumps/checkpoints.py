"""Small files of a log directory, known by name: checkpoints (a version, a count, entries), and meta.properties."""

from __future__ import annotations

import re

from pipelines.lines.rows import FactSink, Shape, identity, row_id

_LEADER_EPOCHS = "leader-epoch-checkpoint"
OFFSET_FILES = {
    "replication-offset-checkpoint": "hw",
    "recovery-point-offset-checkpoint": None,
    "log-start-offset-checkpoint": "log_start_offset",
    "cleaner-offset-checkpoint": None,
}
_NAME = re.compile(r"(?:.*/)?([a-z-]+-checkpoint)(?:\.(?:gz|zst|txt))*")
_HEADER_LINES = 2
_PROPERTIES = re.compile(r"(?:.*/)?meta\.properties(?:\.(?:gz|zst|txt))*")
_DIGITS = 10  # of a broker's id, at most nine
CLUSTER_STATED = Shape("broker_lifecycle", ("value",), (("name", "cluster_id"),))


def checkpoint_name(path: str) -> str | None:
    """Return the checkpoint's kind if the file is a known one, else None."""
    match = _NAME.fullmatch(path)
    name = match[1] if match else None
    return name if name == _LEADER_EPOCHS or name in OFFSET_FILES else None


def is_properties(path: str) -> bool:
    """Whether the file is the meta.properties of a log directory, which names its broker."""
    return _PROPERTIES.fullmatch(path) is not None


class Properties:
    """Parses a log directory's meta.properties: the broker that it belongs to, and the cluster."""

    def __init__(self, sink: FactSink) -> None:
        """Add facts to the sink."""
        self._sink = sink

    def parse(self, text: str, line: int) -> None:
        """Count the line for the broker that it names, or add the cluster's id; other lines are only counted."""
        name, _, value = (part.strip() for part in text.partition("="))
        if name in {"node.id", "broker.id"} and value.isdecimal() and len(value) < _DIGITS:
            self._sink.counts.named[int(value)] += 1
        elif name == "cluster.id" and value:
            told = identity(f"meta.properties|{self._sink.broker_id}|{value}")
            self._sink.add(CLUSTER_STATED, row_id(told), line, None, (value,))
        self._sink.counts.no_interest["", "properties"] += 1


class Checkpoint:
    """Parses the lines of one checkpoint file."""

    def __init__(self, sink: FactSink, name: str, place: tuple[str, int] | None) -> None:
        """Choose the form of entries by the file's name."""
        self._sink = sink
        self._name = name
        self._place = place
        constants = (("name", name),)
        self._epochs = Shape("checkpoint", ("topic", "partition", "leader_epoch", "offset"), constants)
        extra = OFFSET_FILES.get(name)
        self._doubled = extra is not None
        self._offsets = Shape("checkpoint", ("topic", "partition", "offset", *((extra,) if extra else ())), constants)

    def parse(self, text: str, line: int) -> None:
        """Add the entry, or reject the line."""
        parts = text.split()
        if line <= _HEADER_LINES:
            if len(parts) != 1 or not parts[0].isdecimal():
                self._sink.reject(line, f"not the head of a {self._name}", text)
            return
        if not parts:
            return
        try:
            self._entry(parts, line)
        except (ValueError, IndexError):
            self._sink.reject(line, f"not an entry of a {self._name}", text)

    def _entry(self, parts: list[str], line: int) -> None:
        told = identity(f"checkpoint|{self._sink.broker_id}|{self._name}|{self._place}|{' '.join(parts)}")
        if self._name == _LEADER_EPOCHS:
            epoch, offset = (int(part) for part in parts)
            if self._place is None:
                self._sink.reject(line, "the file's folder does not say of which partition it is", " ".join(parts))
                return
            self._sink.add(self._epochs, row_id(told), line, None, (*self._place, epoch, offset))
            return
        topic, partition, offset = parts[0], int(parts[1]), int(parts[2])
        values = (topic, partition, offset, offset) if self._doubled else (topic, partition, offset)
        self._sink.add(self._offsets, row_id(told), line, None, values)
