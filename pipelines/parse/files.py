"""One file of a recording to facts and rejected lines: what it is, is told by what its lines say.

Only checkpoints go by their names. A log's lines are request lines or server lines, mixed or apart.
"""

from __future__ import annotations

import re
from enum import Enum
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow.compute as pc

from pipelines.parse import layout as layouts
from pipelines.parse.checkpoints import Checkpoint, Properties, checkpoint_name, is_properties
from pipelines.parse.clock import ZoneClock
from pipelines.parse.metadata_dump import MetadataDump
from pipelines.parse.prefix import PrefixedLines, by_container, taken_off
from pipelines.parse.reading import Outcome, read_lines
from pipelines.parse.request_log import PREFIX, RequestLog
from pipelines.parse.rows import FactSink, FileCounts, Line, identity, line_identity, row_id
from pipelines.parse.segment_dump import DUMPING, SegmentDump
from pipelines.parse.server_log import ServerLog
from pipelines.parse.whole_seconds import SECOND, Bounds, Settled, Waiting, Written
from pipelines.parse.writers import SharedLines, Survey, Ties, registered_in
from replay.evidence.rows import METADATA_LOG

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from pipelines.recording import Recording, Source

BATCH_ROWS = 50_000
NOBODYS = "names no broker, in a file that several wrote"
_MOST_OF_NOBODY = 1000  # are shown, the others counted
_FOLDER = re.compile(r"(?:^|/)([^/]+)-(\d+)(?:\.[0-9a-f]{32}-(?:delete|stray|future))?/[^/]+$")
_CONTINUATION = re.compile(r"\s|$|Caused by: |Suppressed: |[\w.$]+(?:Exception|Error|Throwable)\b|\}|\]|\)")
_UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffd]")
_START_UP = re.compile(
    r"(?:\x1b\[[\d;]*m)*kafka (?:\x1b\[[\d;]*m)*\d\d:\d\d:\d\d\.\d+ "
)  # Bitnami's, before the broker
# the JVM's own: unified logging (`[2026-03-01T10:00:00.123+0000][gc] Using G1`), or the head that Java 8 prints
_JVM = re.compile(r"\[[^\]]{1,80}\]\[[^\]]{1,80}\]|(?:OpenJDK|Java HotSpot\S{0,10}) .{0,40}VM")
_DUMP_BEGINS = 4  # lines; the first names the file that was dumped
_HOUR = 3_600_000_000
_SETTINGS = "KafkaConfig values:"
_OBJECT_BEGINNING = 12  # characters by which a log's JSON objects begin alike
_MILLISECONDS = r"(\d{1,12}(?:\.\d{1,9})?)"


class _Mark:
    """A value behind a literal mark: to find the mark is many times faster than to search for the pattern."""

    def __init__(self, mark: str, value: str) -> None:
        """`value`: pattern with one group."""
        self._mark = mark
        self._search = re.compile(re.escape(mark) + value).search

    def value(self, text: str) -> str | None:
        """The first value; None where there is none."""
        start = text.find(self._mark)
        found = self._search(text, start) if start >= 0 else None
        return None if found is None else found[1]


_JSON_TIMES = _Mark('"connection":"', '([^"]+)"'), _Mark('"totalTimeMs":', _MILLISECONDS)
_TEXT_TIMES = _Mark(" from connection ", r"(\S+?);"), _Mark(";totalTime:", _MILLISECONDS)


class Content(Enum):
    """What a file can be."""

    LOG = "log"
    METADATA_DUMP = "metadata dump"
    SEGMENT_DUMP = "segment dump"
    CHECKPOINT = "checkpoint"
    PROPERTIES = "meta.properties"
    JVM = "JVM log"
    NOTHING = "nothing"
    UNKNOWN = "unknown"


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
        self._layout = layout
        self._whole = layout.whole
        self._otherwise = layouts.Form(layout).otherwise
        self._clock = clock
        self._stamps = layouts.StampReader()
        self._requests = RequestLog()
        self._server = ServerLog(sink)
        self._head: tuple[str, layouts.LogLine, int, int, int] | None = None  # a line whose logger has not come yet
        self._settings: tuple[int, int] | None = None  # time of the list of settings that the lines belong to
        self._follows = within
        self._printed: str | None = None  # the last line's stamp, and its time on the broker's clock and in UTC
        self._local = self._ts = 0
        self._bounds: Bounds | None = None  # from the first stamp on that is a whole second
        self._last: tuple[str, int, str | None] | None = None  # held back where only the end shows that a line is whole

    def parse(self, text: str, line: int, taken: str | None = None) -> None:
        """Add the line's facts, count it, or reject it. `taken`: when a container's runtime took it."""
        if not self._layout.ends_with_text:
            self._parse(text, line, taken)
            return
        last, self._last = self._last, (text, line, taken)
        if last is not None:
            self._parse(*last)

    def _parse(self, text: str, line: int, taken: str | None = None) -> None:
        parts = self._whole(text) or self._otherwise(text)
        if parts is None:
            if self._bounds is None:
                self._continue(text, line)
            else:
                self._settle(self._bounds.add(Waiting(text, None, line, 0), None))
            return
        stamp = parts.stamp
        if stamp != self._printed:
            try:
                self._local = self._stamps.micros(stamp)
            except ValueError:
                self._sink.reject(line, "a time that cannot be", text)
                return
            self._printed = stamp
            self._ts = self._utc(stamp, self._local)
        local, ts = self._local, self._ts
        if self._bounds is None:
            self._take(text, parts, line, local, ts)
        else:
            self._settle(self._bounds.add(Waiting(text, parts, line, local), self._written(parts, ts, taken)))

    def _utc(self, stamp: str, local: int) -> int:
        """Microseconds in UTC: by the offset that the stamp tells, or else by the zone of the broker."""
        if len(stamp) == layouts.MILLISECONDS and stamp[-1] != "Z":
            return self._clock.utc(local)
        if self._bounds is None and len(stamp) == layouts.WHOLE_SECONDS:
            self._bounds = Bounds()
        ahead = layouts.offset_of(stamp)
        return self._clock.utc(local) if ahead is None else local - ahead

    def _written(self, parts: layouts.LogLine, ts: int, taken: str | None) -> Written:
        """Between when the line was written; a runtime's own time is finer than a whole second that it lies in."""
        whole = len(parts.stamp) == layouts.WHOLE_SECONDS
        written = Written(ts, ts + SECOND - 1 if whole else ts, *connection_of(parts.text))
        if whole and taken is not None:
            try:
                told = self._stamps.micros(taken) - (layouts.offset_of(taken) or 0)
            except ValueError:
                return written
            if ts <= told < ts + SECOND:
                return written._replace(earliest=told, latest=told)
        return written

    def _settle(self, settled: Iterable[Settled]) -> None:
        """Take the lines whose times are settled, each in the middle of what is possible."""
        for (text, parts, line, local), earliest, latest in settled:
            if parts is None:
                self._continue(text, line)
                continue
            if latest > earliest:
                self._sink.ts_errors[line] = (latest - earliest + 1) // 2
            self._take(text, parts, line, local, (earliest + latest) // 2)

    def _take(self, text: str, parts: layouts.LogLine, line: int, local: int, ts: int) -> None:
        """A stamped line."""
        if self._head is not None:
            self._reject_head()
        self._sink.counts.saw(ts)
        self._follows = True
        self._settings = None
        if "\n" in parts.text:
            first, *others = parts.text.rstrip("\n").split("\n")
            self._take(first, parts._replace(text=first), line, local, ts)
            for other in others:
                self._continue(other, line)
        elif parts.text.startswith(PREFIX):
            self._request(text, parts, line, local, ts)
        elif parts.logger is None:
            self._head = (text, parts, line, local, ts)
        elif not self._server.parse(parts, line, local, ts):
            self._sink.counts.no_interest[parts.level, parts.logger] += 1
            if parts.text.startswith(_SETTINGS):
                self._settings = (local, ts)

    def _request(self, text: str, parts: layouts.LogLine, line: int, local: int, ts: int) -> None:
        reason: str | None = "request line cut off before its end"
        if parts.logger is not None:
            logger = layouts.last_part(parts.logger)
            told = line_identity(self._sink.broker_id, local, parts.level, logger, parts.text)
            reason = self._requests.parse(parts.text, self._sink, Line(told, line, ts, parts.level))
        if reason is not None:
            self._sink.reject(line, reason, text)
            self._glued(text, line)

    def _glued(self, text: str, line: int) -> None:
        """A broker that was killed within a line goes on in it when it starts again; what comes last may be whole."""
        if text.startswith("{"):
            again = text.rfind(text[:_OBJECT_BEGINNING], _OBJECT_BEGINNING)
        else:
            found = layouts.BEGINNING.finditer(text, layouts.WHOLE_SECONDS)
            again = max((beginning.start() for beginning in found), default=-1)
        if again > 0:
            self._parse(text[again:], line)

    def finish(self, *, cut: bool = False) -> None:
        """Take what still waits. `cut`: the last line has no end."""
        if self._last is not None:
            text, line, _ = self._last
            if cut and (self._whole(text) or self._otherwise(text)) is not None:
                self._sink.reject(line, "cut off before its end", text)
            else:
                self._parse(*self._last)
            self._last = None
        while self._bounds is not None and (settled := list(self._bounds.settle())):
            self._settle(settled)  # what goes on within a line that was cut comes back, and waits again
        self._reject_head()

    def _reject_head(self) -> None:
        """Settle a stamped line that stopped before its logger and had nothing after it: it was cut off."""
        if self._head is not None:
            text, _, line, _, _ = self._head
            self._sink.reject(line, "cut off before its end", text)
            self._head = None

    def _continue(self, text: str, line: int) -> None:
        """A line without a stamp: part of the one before it (a stack trace, a list of settings), or garbage."""
        head = self._head
        if _START_UP.match(text):
            self._sink.counts.no_interest["", "start-up script"] += 1
            return
        if not text.strip(" \t\r\ufeff") and head is None:
            return  # nothing stands there
        if _UNREADABLE.search(text) or not self._follows or (head is None and not _CONTINUATION.match(text)):
            reason = "neither a log line nor part of the one before" if self._follows else "not a log line"
            self._sink.reject(line, reason, text)
            if text.startswith("{"):
                self._glued(text, line)
            return
        counts = self._sink.counts
        if head is not None:
            _, parts, _, local, ts = head
            self._head = None
            self._settings = (local, ts) if parts.text.startswith(_SETTINGS) else None
            counts.no_interest[parts.level, "lines of many"] += 1
        if self._settings is None or not self._server.broker_setting(line, *self._settings, text):
            counts.no_interest["", "continued"] += 1


def connection_of(text: str) -> tuple[str | None, int]:
    """The connection of a request line, and the microseconds from the request's arrival to its line."""
    if not text.startswith(PREFIX):
        return None, 0
    connection, total = _JSON_TIMES if text.startswith("{", len(PREFIX)) else _TEXT_TIMES
    named, spent = connection.value(text), total.value(text)
    return (None, 0) if named is None or spent is None else (named, int(float(spent) * 1000))


def parse_file(recording: Recording, source: Source, part: Range | None = None) -> Iterator[Batch]:
    """Facts and rejected lines of one file (or one byte range of it), in batches."""
    sink = FactSink(recording.recording_id, source.name, source.broker_id)
    outcome = Outcome()
    blocks = _blocks(source, outcome, part, sink)
    first = next(blocks, [])
    head = _head_of(source) if part and part.start else first
    reason = source.set_aside
    parser = _parser(recording, source, sink, head, part) if reason is None else _Refused(sink, reason, head)
    number = part.first_line if part else 1
    for block in chain([first], blocks):
        for text in block:
            parser.parse(text, number)
            number += 1
        if sink.waiting >= BATCH_ROWS:
            yield Batch(_taken(sink, source), sink.take_rejected(), None)
    if isinstance(parser, LogLines | SharedLines | PrefixedLines):
        parser.finish(cut=outcome.unended)
    elif isinstance(parser, MetadataDump):
        parser.finish()
    counts = sink.counts
    if source.shared is None:
        counts.lines = number - (part.first_line if part else 1)
    if source.shared is None or source.broker_id is None:  # of several sources of one file, one speaks for the file
        counts.bytes = outcome.bytes or (part.end - part.start if part else 0)
        if outcome.broken:
            sink.reject(number, outcome.broken, None)
    counts.fingerprint = fingerprint(counts.content, first, outcome) if not (part and part.start) else None
    facts = _taken(sink, source)  # may still reject lines
    yield Batch(facts, sink.take_rejected(), counts)


def _taken(sink: FactSink, source: Source) -> pa.RecordBatch | None:
    """The facts gathered since the last call. Lines of a shared file that nobody can be said to have written give none.

    All but the cluster's id, which is the same whoever tells it.
    """
    facts = sink.take_facts()
    if facts is None or source.shared is None or source.broker_id is not None:
        return facts
    of_all = pc.fill_null(pc.equal(facts["name"], "cluster_id"), fill_value=False)
    for line in pc.unique(facts.filter(pc.invert(of_all))["source_line"]).to_pylist():
        if sink.counts.rejected < _MOST_OF_NOBODY:
            sink.reject(line, NOBODYS, None)
        else:
            sink.counts.rejected += 1
    kept = facts.filter(of_all)
    sink.counts.facts -= len(facts) - len(kept)
    sink.counts.kinds.clear()
    return kept


def survey_file(recording: Recording, source: Source) -> Ties:
    """What a log, or a metadata dump, says that ties directories and addresses to brokers."""
    outcome = Outcome()
    try:
        first = _head_of(source)
    except OSError:
        return Ties()
    content, lines = content_of(source, first), lines_of(recording, first)
    blocks = read_lines(source.path, outcome)
    if content is Content.METADATA_DUMP:
        return Ties(endpoints=set(registered_in(chain.from_iterable(blocks))))
    if content is not Content.LOG or isinstance(lines, str):
        return Ties()
    survey = Survey(lines.layout)
    parser = PrefixedLines(FactSink("", "", None), survey, lines.container) if lines.prefixed else survey
    for number, text in enumerate(chain.from_iterable(blocks), 1):
        parser.parse(text, number)
    parser.finish()
    return survey.ties


def fingerprint(content: str, first: list[str], outcome: Outcome) -> str | None:
    """What tells a file's content apart: of what grows, the lines that it begins with; of all else every byte."""
    if content in {Content.LOG.value, Content.METADATA_DUMP.value}:
        return row_id(identity("\n".join(first[: 1 if content == Content.LOG.value else _DUMP_BEGINS]))).hex()
    return f"{outcome.crc:08x}" if outcome.bytes else None


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

    def __init__(self, sink: FactSink, reason: str, first: list[str]) -> None:
        """Reject the file as a whole, showing its first line."""
        sink.counts.content = Content.UNKNOWN.value
        sink.reject(0, reason, first[0] if first else None)
        self._sink = sink

    def parse(self, text: str, line: int) -> None:
        """Count the line."""
        del text, line
        self._sink.counts.no_interest["", "unknown file"] += 1


class _Passed:
    """A file that every broker has and that says nothing of replication: its lines are only counted."""

    def __init__(self, sink: FactSink, content: Content) -> None:
        """Note what the file is."""
        sink.counts.content = content.value
        self._sink = sink

    def parse(self, text: str, line: int) -> None:
        """Count the line."""
        del text, line
        self._sink.counts.no_interest["", self._sink.counts.content] += 1


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
    if is_properties(source.name):
        return Content.PROPERTIES
    sample = first[: layouts.DETECTION_LINES]
    for text in sample:
        if text.startswith((DUMPING, "baseOffset: ", "| offset: ")):
            metadata = any(is_of_metadata(line) for line in sample)
            return Content.METADATA_DUMP if metadata else Content.SEGMENT_DUMP
    return Content.LOG if sample else Content.NOTHING


def is_of_metadata(text: str) -> bool:
    """Whether a dump that has this line is of the metadata log, or of a snapshot of it, wherever that was copied to."""
    if text.startswith(DUMPING):
        return METADATA_LOG in text or ".checkpoint" in text
    return text.startswith("Snapshot end offset: ") or ' payload: {"type":"' in text


class Lines(NamedTuple):
    """How a log's lines are written: `container` is whose lines they are, where a prefix before each says so."""

    layout: layouts.Layout
    prefixed: bool
    container: str | None

    def stamps(self, lines: Iterable[str]) -> Iterator[int]:
        """The printed times of lines that have one, on the clock that printed them; microseconds."""
        split, reader = layouts.Form(self.layout).split, layouts.StampReader()
        for line in lines:
            parts = split(taken_off(line).text if self.prefixed else line)
            try:
                if parts is not None and layouts.offset_of(parts.stamp) is None:
                    yield reader.micros(parts.stamp)
            except ValueError:
                continue


def lines_of(recording: Recording, first: list[str]) -> Lines | str:
    """How a log's lines are written: as the user says, else as most of the first lines are; a text: why not known."""
    named = layouts.LAYOUT_NAMES.get(recording.manifest.log_layout or "")
    for sample in (first[: layouts.DETECTION_LINES], first):
        bare = layouts.detect(sample)
        count, lines = bare[0], None if bare[1] is None else Lines(bare[1], prefixed=False, container=None)
        known = {
            container: found
            for container, theirs in by_container(sample).items()
            if (found := layouts.detect(theirs))[1] is not None
        }
        if sum(map(itemgetter(0), known.values())) > count:
            if len(known) > 1:
                names = ", ".join(sorted(name or "none" for name in known))
                return f"lines of several containers ({names}): give each broker's as files of their own"
            ((container, (_, layout)),) = known.items()
            lines = Lines(layout, prefixed=True, container=container) if layout is not None else None
        if lines is not None:
            return lines if named is None else lines._replace(layout=layouts.LAYOUTS[named])
    if named is not None:
        return Lines(layouts.LAYOUTS[named], prefixed=False, container=None)
    return "not a Kafka log, dump or checkpoint: no line has a known form"


def _parser(recording: Recording, source: Source, sink: FactSink, first: list[str], part: Range | None) -> _Lines:
    """What parses the file's lines."""
    content = content_of(source, first)
    sink.counts.content = content.value
    if content is Content.CHECKPOINT:
        return Checkpoint(sink, checkpoint_name(source.name) or "", _place_of(source))
    if content in {Content.METADATA_DUMP, Content.PROPERTIES}:
        return MetadataDump(sink, source.name) if content is Content.METADATA_DUMP else Properties(sink)
    if content is Content.SEGMENT_DUMP:
        return SegmentDump(sink, _place_of(source))
    if content is Content.NOTHING:
        return _Nothing()
    lines = lines_of(recording, first)
    if isinstance(lines, str):
        return _Passed(sink, Content.JVM) if _JVM.match(first[0]) else _Refused(sink, lines, first)
    sink.counts.layout = f"{lines.layout.name}, prefixed" if lines.prefixed else lines.layout.name
    name = recording.manifest.time_zone(source.broker_id)
    within = part is not None and part.start > 0
    second_pass = not within and starts_in_second_pass(source, lines, name)
    log = LogLines(sink, lines.layout, ZoneClock(name, second_pass=second_pass), within=within)
    shared = source.shared
    mine = log if shared is None else SharedLines(log, lines.layout, shared, source.broker_id, sink.counts)
    return PrefixedLines(sink, mine, lines.container) if lines.prefixed else mine


def starts_in_second_pass(source: Source, lines: Lines, zone_name: str) -> bool:
    """Whether the file begins in the second pass of an hour that came twice.

    It does where its lines leave that hour without ever going back in it, and without an hour's silence.
    """
    clock, last = ZoneClock(zone_name), None
    if clock.is_utc:
        return False
    for local in lines.stamps(chain.from_iterable(read_lines(source.path, Outcome()))):
        if not clock.is_repeated(local):
            return last is not None and 0 < local - last < _HOUR
        if last is not None and local < last - _HOUR // 3:
            return False
        last = local
    return False
