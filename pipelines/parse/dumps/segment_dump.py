"""`kafka-dump-log` of a partition's segments: the exact batches that were on disk at the end."""

from __future__ import annotations

import re

from pipelines.lines.rows import FactSink, Shape, identity, row_id

DUMPING = "Dumping "
_FOLDER = re.compile(r"(.+)-(\d{1,10})(?:\.[0-9a-f]{32}-(?:delete|stray|future))?")
_NUMBER = r"\d{1,20}"  # no field of a batch has more digits
_BATCH = re.compile(
    rf"baseOffset: (?P<base_offset>{_NUMBER}) lastOffset: (?P<last_offset>{_NUMBER}) count: (?P<count>{_NUMBER}) "
    rf"(?:baseSequence: (?P<base_sequence>-?{_NUMBER}) )?(?:lastSequence: -?{_NUMBER} )?"
    rf"producerId: (?P<producer_id>-?{_NUMBER}) producerEpoch: (?P<producer_epoch>-?{_NUMBER}) "
    rf"partitionLeaderEpoch: (?P<leader_epoch>-?{_NUMBER}) isTransactional: (?P<is_transactional>true|false) "
    rf"(?:isControl: (?P<is_control>true|false) )?(?:deleteHorizonMs: \S{{1,40}} )?position: {_NUMBER} "
    rf"(?:CreateTime|LogAppendTime|NoTimestampType): -?{_NUMBER} size: (?P<bytes>{_NUMBER}) magic: {_NUMBER} "
    rf"compresscodec: \S{{1,40}} crc: (?P<crc>{_NUMBER}) isvalid: (?P<valid>true|false)\s*"
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
    """Return topic and partition of a `Dumping .../topic-0/00000000000000000000.log` line; None if it names none."""
    path = text.removeprefix(DUMPING).rstrip().replace("\\", "/")
    folder, _, file = path.rpartition("/")
    match = _FOLDER.fullmatch(folder.rpartition("/")[2]) if file else None
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
        sequence = match["base_sequence"]
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
        told = identity(f"segment|{self._sink.broker_id}|{self._place}|{match[0].strip()}")
        # A batch's time is set by its producer to any value: it is no time of the broker.
        self._sink.add(BATCH, row_id(told), line, None, values)

    def _without_batch(self, text: str, line: int) -> None:
        if text.startswith(DUMPING):
            self._place = place_of(text) or self._place
            directory = text.removeprefix(DUMPING).rpartition("/")[0].rpartition("/")[0]
            if directory:
                self._sink.counts.directories.add(directory)
            self._sink.counts.no_interest["", "dump"] += 1
        elif not text.strip() or text.startswith(_SILENT):
            self._sink.counts.no_interest["", "dump"] += 1
        elif _MESSAGE.match(text):
            self._sink.reject(line, "a batch cut off, or in words that are not known", text)
        else:
            self._sink.reject(line, "not a line of a segment dump", text)
