"""`kafka-dump-log` of a partition's segments: the batches on disk at the end, exactly."""

from __future__ import annotations

import re

from pipelines.parse.rows import FactSink, Shape, identity, row_id

DUMPING = "Dumping "
_PLACE = re.compile(r"Dumping .*?([^/\\]+)-(\d+)(?:\.[0-9a-f]{32}-(?:delete|stray|future))?[/\\][^/\\]+\s*")
_BATCH = re.compile(
    r"baseOffset: (?P<base_offset>\d+) lastOffset: (?P<last_offset>\d+) count: (?P<count>\d+) "
    r"(?:baseSequence: (?P<base_sequence>-?\d+) )?(?:lastSequence: -?\d+ )?producerId: (?P<producer_id>-?\d+) "
    r"producerEpoch: (?P<producer_epoch>-?\d+) partitionLeaderEpoch: (?P<leader_epoch>-?\d+) "
    r"isTransactional: (?P<is_transactional>true|false) (?:isControl: (?P<is_control>true|false) )?"
    r"(?:deleteHorizonMs: \S+ )?position: \d+ CreateTime: (?P<created>-?\d+) size: (?P<bytes>\d+) magic: \d+ "
    r"compresscodec: \S+ crc: (?P<crc>\d+) isvalid: (?P<valid>true|false)\s*"
)
_MESSAGE = re.compile(r"(?:offset|baseOffset): ")
_SILENT = ("Log starting offset", "Starting offset:", "| offset: ", "|  offset", "log4j:", "SLF4J")
BATCH = Shape(
    "segment_batch",
    (
        "topic",
        "partition",
        "base_offset",
        "last_offset",
        "count",
        "base_sequence",
        "producer_id",
        "producer_epoch",
        "leader_epoch",
        "is_transactional",
        "is_control",
        "bytes",
        "crc",
    ),
)


def place_of(text: str) -> tuple[str, int] | None:
    """Topic and partition of a `Dumping .../topic-0/00000000000000000000.log` line."""
    match = _PLACE.fullmatch(text)
    return (match[1], int(match[2])) if match else None


class SegmentDump:
    """Parses the lines of one dump; several segments may follow one another in it."""

    def __init__(self, sink: FactSink, place: tuple[str, int] | None) -> None:
        """Start with the partition that the file's folder names, if it does."""
        self._sink = sink
        self._place = place

    def parse(self, text: str, line: int) -> None:
        """Add the line's fact, count it as of no interest, or reject it."""
        match = _BATCH.fullmatch(text)
        if match is None:
            self._without_batch(text, line)
            return
        if self._place is None:
            self._sink.reject(line, "a batch, but neither file nor folder says of which partition", text)
            return
        if match["valid"] == "false":
            self._sink.reject(line, "the batch is not valid on disk", text)
            return
        sequence, created = match["base_sequence"], int(match["created"])
        values = (
            *self._place,
            int(match["base_offset"]),
            int(match["last_offset"]),
            int(match["count"]),
            None if sequence is None else int(sequence),
            int(match["producer_id"]),
            int(match["producer_epoch"]),
            int(match["leader_epoch"]),
            match["is_transactional"] == "true",
            match["is_control"] == "true",
            int(match["bytes"]),
            int(match["crc"]),
        )
        ts = created * 1000 if created >= 0 else None
        told = identity(f"segment|{self._sink.broker_id}|{self._place}|{match[0].strip()}")
        self._sink.add(BATCH, row_id(told), line, ts, values)

    def _without_batch(self, text: str, line: int) -> None:
        if text.startswith(DUMPING):
            self._place = place_of(text) or self._place
            self._sink.counts.no_interest["", "dump"] += 1
        elif not text.strip() or text.startswith(_SILENT):
            self._sink.counts.no_interest["", "dump"] += 1
        elif _MESSAGE.match(text):
            self._sink.reject(line, "a batch cut off, or in words that are not known", text)
        else:
            self._sink.reject(line, "not a line of a segment dump", text)
