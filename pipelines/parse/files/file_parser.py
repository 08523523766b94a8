"""Parses one file of a recording into facts and rejected lines; its first lines tell what it is.

Only checkpoints and meta.properties go by their names. A log may hold request lines, server lines, or both.
"""

from __future__ import annotations

import re
import sys
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow.compute as pc

from pipelines.lines.clock import ZoneClock
from pipelines.lines.rows import FactSink, FileCounts
from pipelines.lines.writers import Ties
from pipelines.parse.dumps.checkpoints import Checkpoint, Properties, checkpoint_name, is_properties
from pipelines.parse.dumps.metadata_dump import MetadataDump, snapshot_named
from pipelines.parse.dumps.segment_dump import SegmentDump
from pipelines.parse.files.content import Content, LineFormat, content_of, lines_of
from pipelines.parse.files.log_lines import LogLines
from pipelines.parse.files.prefix import PrefixedLines
from pipelines.parse.files.shared_lines import SharedLines, Survey, registered_in
from pipelines.recording.reading import Outcome, read_blocks, read_lines, split_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from pipelines.parse.files.request_blocks import RequestBlocks
    from pipelines.recording.recording import Recording, Source

BATCH_ROWS = 50_000
MANY_BYTES = 32 << 20  # of a file with so many lines are read together,
SOME_BYTES = 2 << 20  # or with so many if what reads them is loaded already
PACKED_RATIO = 12  # how much larger logs are than their gzip or zstd files
TOGETHER_BYTES = 4 << 20  # about so many at once
TOGETHER = "apache"  # the layout whose request lines are
NOBODYS = "names no broker, in a file that several wrote"
_MOST_OF_NOBODY = 1000  # of these lines are rejected one by one, the others only counted
_FOLDER = re.compile(r"(?:^|/)([^/]+)-(\d+)(?:\.[0-9a-f]{32}-(?:delete|stray|future))?/[^/]+$")
# The JVM's own logs: unified logging (`[2026-03-01T10:00:00.123+0000][gc] Using G1`), or the head that Java 8 prints.
_JVM = re.compile(r"\[[^\]]{1,80}\]\[[^\]]{1,80}\]|(?:OpenJDK|Java HotSpot\S{0,10}) .{0,40}VM")
_HOUR = 3_600_000_000


class Range(NamedTuple):
    """A byte range of a plain log or of a metadata dump, which may be compressed: it is of the decompressed bytes.

    `first_line` is the number of the first line that begins in it.
    """

    start: int
    end: int | None  # None: where the file ends
    first_line: int
    dump_state: str | None = None  # what a dump's lines before it tell (`MetadataDump.state`)
    is_followed: bool = False  # whether another range goes on from what this one tells


class ParsedBatch(NamedTuple):
    """Some of a file's facts and rejected lines; `counts` comes with the last batch."""

    facts: pa.RecordBatch | None
    rejected: pa.RecordBatch | None
    counts: FileCounts | None


class _Lines(Protocol):
    def parse(self, text: str, line: int) -> None: ...


def parse_file(
    recording: Recording, source: Source, part: Range | None = None, named: set[tuple[str, ...]] | None = None
) -> Iterator[ParsedBatch]:
    """Yield facts and rejected lines of one file, or of one byte range of it, in batches.

    `named`: what the request lines before the range have named already (`RequestLog`); names in the range are added.
    """
    sink = FactSink(recording.recording_id, source.name, source.broker_id)
    outcome = Outcome()
    blocks = _blocks(source, outcome, part, sink)
    begun = next(blocks, b"")
    first = split_lines(begun)
    head = first if part is None else _head_of(source)  # a range may end before what tells the file's content
    reason = source.set_aside
    known = set() if named is None else named
    parser = _parser(recording, source, sink, head, part, known) if reason is None else _Refused(sink, reason, head)
    number = part.first_line if part else 1
    together = _read_together(parser, source, part, sink)
    every = chain([begun], blocks)
    for block in every if together is None else larger(every):
        if together is not None:
            number += together.parse(block, number)
        else:
            for text in split_lines(block):
                parser.parse(text, number)
                number += 1
        if sink.waiting >= BATCH_ROWS:
            yield ParsedBatch(_taken(sink, source), sink.take_rejected(), None)
    _finish(parser, part, outcome, sink)
    counts = sink.counts
    if source.shared is None:
        counts.lines = number - (part.first_line if part else 1)
    if source.shared is None or source.broker_id is None:  # of several sources of one file, one speaks for the file
        counts.bytes = _bytes_read(part, outcome, counts)
        if outcome.broken:
            sink.reject(number, outcome.broken, None)
    facts = _taken(sink, source)  # may still reject lines
    yield ParsedBatch(facts, sink.take_rejected(), counts)


def _finish(parser: _Lines, part: Range | None, outcome: Outcome, sink: FactSink) -> None:
    """Let a parser add what it has kept back, or say what another one goes on from."""
    if isinstance(parser, LogLines | SharedLines | PrefixedLines):
        parser.finish(cut=outcome.unended)
    elif isinstance(parser, MetadataDump) and part is not None and part.is_followed:
        sink.counts.dump_state = parser.state
    elif isinstance(parser, MetadataDump):
        parser.finish()


def _bytes_read(part: Range | None, outcome: Outcome, counts: FileCounts) -> int:
    """Return how many bytes were read, as they are stored; those of a dump, which may be packed, count at its end."""
    if part is None or part.end is None:
        return outcome.bytes
    if counts.content == Content.METADATA_DUMP.value:
        return 0 if part.is_followed else part.end
    return part.end - part.start


def _taken(sink: FactSink, source: Source) -> pa.RecordBatch | None:
    """Return the facts added since the last call; lines of a shared file that nobody is known to have written add none.

    An exception is the cluster's id, which is the same whoever states it.
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


def told_by_name(source: Source) -> str:
    """Return what parsers take from a file's name: which checkpoint it is, of which partition or snapshot."""
    stated = checkpoint_name(source.name) or ("meta.properties" if is_properties(source.name) else None)
    return repr((stated, _place_of(source), snapshot_named(source.name)))


def survey_file(recording: Recording, source: Source) -> Ties:
    """Return what a log or a metadata dump says that ties directories and addresses to brokers."""
    outcome = Outcome()
    first = _head_of(source)
    if not first:
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


def _read_together(parser: _Lines, source: Source, part: Range | None, sink: FactSink) -> RequestBlocks | None:
    """Return what reads the lines of a block together; None: they are parsed one by one.

    It is compiled code, which takes half a second to load, and many to compile for the first time: not for little.
    """
    if not isinstance(parser, LogLines) or parser.layout != TOGETHER:
        return None
    is_loaded = "pipelines.parse.files.request_blocks" in sys.modules
    if _bytes_in(source, part) < (SOME_BYTES if is_loaded else MANY_BYTES):
        return None
    from pipelines.parse.files.request_blocks import RequestBlocks  # noqa: PLC0415 - loads numba
    from replay.arrays.peeks import IS_COMPILED  # noqa: PLC0415 - likewise

    return RequestBlocks(parser, sink) if IS_COMPILED else None


def larger(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Join blocks: what it costs to read one together hardly grows with it."""
    waiting: list[bytes] = []
    for block in blocks:
        waiting.append(block)
        if sum(map(len, waiting)) >= TOGETHER_BYTES:
            yield b"".join(waiting)
            waiting.clear()
    if waiting:
        yield b"".join(waiting)


def _bytes_in(source: Source, part: Range | None) -> int:
    """Return about how many bytes are to be parsed."""
    stored = source.size if part is None or part.end is None else part.end - part.start
    return stored * PACKED_RATIO if source.name.endswith((".gz", ".zst")) else stored


def _blocks(source: Source, outcome: Outcome, part: Range | None, sink: FactSink) -> Iterator[bytes]:
    start, end = (part.start, part.end) if part else (0, None)
    try:
        yield from read_blocks(source.path, outcome, start, end)
    except OSError as error:
        sink.reject(0, f"the file cannot be read: {error}", None)


def _head_of(source: Source) -> list[str]:
    """Return the file's first lines; none if it cannot be read, which is told where all of it is read."""
    try:
        return next(read_lines(source.path, Outcome()), [])
    except OSError:
        return []


class _Refused:
    """A file of unknown content: it is rejected once, and its lines are only counted."""

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
    """A known file that says nothing about replication: its lines are only counted."""

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
    """Return topic and partition of the file's folder, if it has such a name."""
    folder = _FOLDER.search("/" + source.name)
    return (folder[1], int(folder[2])) if folder and folder[1] != "node" else None


def _parser(
    recording: Recording,
    source: Source,
    sink: FactSink,
    first: list[str],
    part: Range | None,
    named: set[tuple[str, ...]],
) -> _Lines:
    """Return the parser for the file's lines."""
    content = content_of(source, first)
    sink.counts.content = content.value
    if content is Content.CHECKPOINT:
        return Checkpoint(sink, checkpoint_name(source.name) or "", _place_of(source))
    if content in {Content.METADATA_DUMP, Content.PROPERTIES}:
        begun = None if part is None or part.dump_state is None else (part.dump_state, part.first_line)
        return MetadataDump(sink, source.name, begun) if content is Content.METADATA_DUMP else Properties(sink)
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
    log = LogLines(sink, lines.layout, ZoneClock(name, second_pass=second_pass), named, within=within)
    shared = source.shared
    mine = log if shared is None else SharedLines(log, lines.layout, shared, source.broker_id, sink.counts)
    return PrefixedLines(sink, mine, lines.container) if lines.prefixed else mine


def starts_in_second_pass(source: Source, lines: LineFormat, zone_name: str) -> bool:
    """Whether the file begins in the second pass of an hour that occurred twice.

    It does if its lines leave that hour without ever going back in it, and without an hour's silence.
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
