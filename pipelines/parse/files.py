"""One file of a recording to facts and rejected lines: what it is, is told by what its lines say.

Only checkpoints go by their names. A log's lines are request lines or server lines, mixed or apart.
"""

from __future__ import annotations

import re
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pipelines.parse import layout as layouts
from pipelines.parse.checkpoints import Checkpoint, checkpoint_name
from pipelines.parse.clock import ZoneClock
from pipelines.parse.metadata_dump import MetadataDump
from pipelines.parse.reading import Outcome, read_lines
from pipelines.parse.request_log import PREFIX, Context, RequestLog
from pipelines.parse.rows import FactSink, FileCounts, line_identity
from pipelines.parse.segment_dump import DUMPING, SegmentDump
from pipelines.parse.server_log import ServerLog
from replay.rows import METADATA_LOG

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pipelines.recording import Recording, Source

BATCH_ROWS = 50_000
_FOLDER = re.compile(r"(?:^|/)([^/]+)-(\d+)(?:\.[0-9a-f]{32}-(?:delete|stray|future))?/[^/]+$")
_CONTINUATION = re.compile(r"\s|$|Caused by: |Suppressed: |[\w.$]+(?:Exception|Error|Throwable)\b|\}|\]|\)")
_UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffd]")
_HOUR = 3_600_000_000
_SETTINGS = "KafkaConfig values:"


class Content(Enum):
    """What a file can be."""

    LOG = "log"
    METADATA_DUMP = "metadata dump"
    SEGMENT_DUMP = "segment dump"
    CHECKPOINT = "checkpoint"
    NOTHING = "nothing"


class Range(NamedTuple):
    """A byte range of a large plain file; `first_line` is the number of the first line that begins in it."""

    start: int
    end: int
    first_line: int


class Batch(NamedTuple):
    """Some of a file's facts and rejected lines; `counts` comes with the last batch."""

    facts: pa.RecordBatch | None
    rejected: pa.RecordBatch | None
    counts: FileCounts | None


class _Lines(Protocol):
    def parse(self, text: str, line: int) -> None: ...


class LogLines:
    """The lines of a log, whatever their layout: request lines, server lines, and what belongs to the line before."""

    def __init__(self, sink: FactSink, layout: layouts.Layout, clock: ZoneClock, *, within: bool = False) -> None:
        """`within`: the lines start in the middle of a file, so that the first may belong to one before."""
        self._sink = sink
        self._split = layout.split
        self._clock = clock
        self._stamps = layouts.StampReader()
        self._requests = RequestLog()
        self._server = ServerLog(sink)
        self._head: tuple[layouts.LogLine, int, int, int] | None = None  # a stamped line whose logger has not come yet
        self._settings: tuple[int, int] | None = None  # time of the list of settings that the lines belong to
        self._follows = within
        self._glued = layout.head.search

    def parse(self, text: str, line: int) -> None:
        """Add the line's facts, count it, or reject it."""
        parts = self._split(text)
        if parts is None:
            self._continue(text, line)
            return
        try:
            local = self._stamps.micros(parts.stamp)
        except ValueError:
            self._sink.reject(line, "a time that cannot be", text)
            return
        self.finish()
        ts = self._clock.utc(local)
        self._sink.counts.saw(ts)
        self._follows = True
        self._settings = None
        if parts.text.startswith(PREFIX):
            self._request(parts, line, local, ts)
        elif parts.logger is None:
            self._head = (parts, line, local, ts)
        elif not self._server.parse(parts, line, local, ts):
            self._sink.counts.no_interest[parts.level, parts.logger] += 1

    def _request(self, parts: layouts.LogLine, line: int, local: int, ts: int) -> None:
        reason: str | None = "request line cut off before its end"
        if parts.logger is not None:
            identity = line_identity(self._sink.broker_id, local, parts.level, parts.logger, parts.text)
            reason = self._requests.parse(parts.text, Context(self._sink, identity, line, ts, parts.level))
        if reason is None:
            return
        self._sink.reject(line, reason, f"[{parts.stamp}] {parts.level} {parts.text}")
        glued = self._glued(parts.text)  # a broker killed within a line goes on in it when it starts again
        if glued is not None:
            logger = "" if parts.logger is None else f" ({parts.logger})"
            self.parse(parts.text[glued.start() :] + logger, line)

    def finish(self) -> None:
        """Settle a stamped line that stopped before its logger and had nothing after it: it was cut off."""
        if self._head is not None:
            parts, line, _, _ = self._head
            self._sink.reject(line, "cut off before its end", f"[{parts.stamp}] {parts.level} {parts.text}")
            self._head = None

    def _continue(self, text: str, line: int) -> None:
        """A line without a stamp: part of the one before it (a stack trace, a list of settings), or garbage."""
        head = self._head
        if _UNREADABLE.search(text) or not self._follows or (head is None and not _CONTINUATION.match(text)):
            reason = "neither a log line nor part of the one before" if self._follows else "not a log line"
            self._sink.reject(line, reason, text)
            return
        counts = self._sink.counts
        if head is not None:
            parts, _, local, ts = head
            self._head = None
            self._settings = (local, ts) if parts.text.startswith(_SETTINGS) else None
            counts.no_interest[parts.level, "lines of many"] += 1
        if self._settings is None or not self._server.broker_setting(line, *self._settings, text):
            counts.no_interest["", "continued"] += 1


def parse_file(recording: Recording, source: Source, part: Range | None = None) -> Iterator[Batch]:
    """Facts and rejected lines of one file (or one byte range of it), in batches."""
    sink = FactSink(recording.recording_id, source.name, source.broker_id)
    outcome = Outcome()
    blocks = _blocks(source, outcome, part, sink)
    first = next(blocks, [])
    parser = _parser(recording, source, sink, _head_of(source) if part and part.start else first, part)
    number = part.first_line if part else 1
    for block in chain([first], blocks):
        for text in block:
            parser.parse(text, number)
            number += 1
        if sink.waiting >= BATCH_ROWS:
            yield Batch(sink.take_facts(), sink.take_rejected(), None)
    if isinstance(parser, LogLines):
        parser.finish()
    if outcome.broken:
        sink.reject(number, outcome.broken, None)
    counts = sink.counts
    counts.lines = number - (part.first_line if part else 1)
    counts.bytes = outcome.bytes or (part.end - part.start if part else 0)
    facts = sink.take_facts()  # may still reject lines
    yield Batch(facts, sink.take_rejected(), counts)


def _blocks(source: Source, outcome: Outcome, part: Range | None, sink: FactSink) -> Iterator[list[str]]:
    start, end = (part.start, part.end) if part else (0, None)
    try:
        yield from read_lines(source.path, outcome, start, end)
    except OSError as error:
        sink.reject(0, f"the file cannot be read: {error}", None)


def _head_of(source: Source) -> list[str]:
    return next(read_lines(source.path, Outcome()), [])


class _Refused:
    """A file that is nothing known: said once, its lines are only counted."""

    def __init__(self, sink: FactSink, first: list[str]) -> None:
        """Reject the file as a whole, showing its first line."""
        sink.reject(0, "not a Kafka log, dump or checkpoint: no line has a known form", first[0] if first else None)
        self._sink = sink

    def parse(self, text: str, line: int) -> None:
        """Count the line."""
        del text, line
        self._sink.counts.no_interest["", "unknown file"] += 1


class _Nothing:
    """An empty file: there is no line."""

    def parse(self, text: str, line: int) -> None:
        """Do nothing."""


def _place_of(source: Source) -> tuple[str, int] | None:
    """Topic and partition of the file's folder, if it is named so."""
    folder = _FOLDER.search("/" + source.name)
    return (folder[1], int(folder[2])) if folder and folder[1] != "node" else None


def content_of(source: Source, first: list[str]) -> Content:
    """What a file is, judged by its first lines, a checkpoint by its name."""
    if checkpoint_name(source.name) is not None:
        return Content.CHECKPOINT
    sample = first[: layouts.DETECTION_LINES]
    for text in sample:
        if text.startswith(DUMPING):
            return Content.METADATA_DUMP if METADATA_LOG in text else Content.SEGMENT_DUMP
        if text.startswith("baseOffset: "):
            records = any('payload: {"type":' in line for line in sample)
            return Content.METADATA_DUMP if records else Content.SEGMENT_DUMP
    return Content.LOG if sample else Content.NOTHING


def layout_of(recording: Recording, first: list[str]) -> layouts.Layout | None:
    """How a log's lines are laid out: as the user says, else as most of the first lines are."""
    name = recording.manifest.log_layout
    return layouts.detect(first[: layouts.DETECTION_LINES]) if name is None else layouts.LAYOUTS[name]


def _parser(recording: Recording, source: Source, sink: FactSink, first: list[str], part: Range | None) -> _Lines:
    """What parses the file's lines."""
    content = content_of(source, first)
    sink.counts.content = content.value
    if content is Content.CHECKPOINT:
        return Checkpoint(sink, checkpoint_name(source.name) or "", _place_of(source))
    if content is Content.METADATA_DUMP:
        return MetadataDump(sink)
    if content is Content.SEGMENT_DUMP:
        return SegmentDump(sink, _place_of(source))
    if content is Content.NOTHING:
        return _Nothing()
    layout = layout_of(recording, first)
    if layout is None:
        sink.counts.content = "unknown"
        return _Refused(sink, first)
    sink.counts.layout = layout.name
    name = recording.manifest.time_zone(source.broker_id)
    within = part is not None and part.start > 0
    second_pass = not within and starts_in_second_pass(source, layout, name)
    return LogLines(sink, layout, ZoneClock(name, second_pass=second_pass), within=within)


def starts_in_second_pass(source: Source, layout: layouts.Layout, zone_name: str) -> bool:
    """Whether the file begins in the second pass of an hour that came twice.

    It does where its lines leave that hour without ever going back in it, and without an hour's silence.
    """
    clock, stamps, last = ZoneClock(zone_name), layouts.StampReader(), None
    if clock.is_utc:
        return False
    for text in chain.from_iterable(read_lines(source.path, Outcome())):
        match = layout.head.match(text)
        try:
            local = stamps.micros(match["stamp"]) if match else None
        except ValueError:
            continue
        if local is None:
            continue
        if not clock.is_repeated(local):
            return last is not None and 0 < local - last < _HOUR
        if last is not None and local < last - _HOUR // 3:
            return False
        last = local
    return False
