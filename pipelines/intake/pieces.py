"""Reads a file for the ledger: whether its content is known, and what it says, in pieces that later runs can add to.

What may grow is read in two pieces. What the first says holds for good. The second is a log's last moment, or a
metadata dump's last batch, whose last line may be torn: it is read again, with what follows it, once there is more.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from pipelines.intake.clocks import together, turns_of
from pipelines.intake.inputs import notes_of, told, widened
from pipelines.parse.files.content import Content, content_of, lines_of
from pipelines.parse.files.file_parser import Range, parse_file
from pipelines.parse.files.splits import beginning_of, goes_on_at
from pipelines.recording.prints import HEAD, block_before, digest_of, head_of, print_of
from pipelines.recording.reading import is_packed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipelines.intake.clocks import Turns
    from pipelines.intake.inputs import Notes
    from pipelines.recording.prints import Print
    from pipelines.recording.recording import Recording, Source

FACT, REJECTED, COUNTS = "fact", "rejected", "counts"
Heads = dict[tuple[int, str], list[int]]  # (length, digest) of first bytes -> lengths whose checksums tell more


class Begun(NamedTuple):
    """A content that was read up to a place: what it takes to go on there."""

    place: int
    digest: str
    block: str
    line: int  # number of the line that begins there
    layout: str | None
    dump_state: str | None = None  # what a metadata dump's lines before it tell


class Work(NamedTuple):
    """A file to read: as a whole, a range of it that other tasks complete, or from where reading ended before."""

    source: Source
    part: Range | None = None
    is_last: bool = True  # the file's end is in it
    begun: Begun | None = None
    named: tuple[tuple[str, ...], ...] = ()  # what request lines before the range have named
    weight: int = 0  # bytes to parse, decompressed


class Look(NamedTuple):
    """What a file shows before it is parsed; `content` is None if its first bytes are of no content known."""

    name: str
    content: Print | None = None
    place: int | None = None  # where reading could go on once it has grown; None: it is read as a whole
    layout: str | None = None
    is_readable: bool = True


def seen(recording: Recording, source: Source, begun: Begun | None, heads: Heads) -> Look:
    """Look at a file: if it begins as a known content, read it for its checksums.

    `begun`: what was read of the file of that name. If it still has the bytes at the beginning and before the place
    where reading ended, only what follows is read.
    """
    try:
        head = head_of(source.path)
        lengths = sorted({length for length, _ in heads if length <= len(head)})
        marks = {one for length in lengths for one in heads.get((length, digest_of(head[:length])), ())}
        if not marks:
            return Look(source.name)
        place = goes_on_at(recording, source)
        layout = _layout_of(recording, source) if place is not None else None
        start, digest = 0, ""
        can_go_on = begun is not None and place is not None and place >= begun.place
        if can_go_on and begun is not None and begun.block == (block_before(source.path, begun.place) or None):
            start, digest = begun.place, begun.digest
        end = None if place is None else _end_of(source)
        return Look(source.name, print_of(source.path, marks, start=start, begun=digest, end=end), place, layout)
    except OSError:  # told when the file is parsed
        return Look(source.name, is_readable=False)


def _end_of(source: Source) -> int | None:
    """Return where a plain file ended when it was listed, though it may have grown; None: where a packed one ends."""
    try:
        return None if is_packed(source.path) else source.size
    except OSError:  # told when it is read
        return source.size


def rest_of(source: Source, begun: Begun | None) -> int:
    """Return how many bytes of a file are not read yet, if it is the one of that name that was read before."""
    return source.size if begun is None or begun.place > source.size else source.size - begun.place


def _layout_of(recording: Recording, source: Source) -> str | None:
    first = beginning_of(source) or []
    lines = lines_of(recording, first) if content_of(source, first) is Content.LOG else None
    return lines.layout.name if lines is not None and not isinstance(lines, str) else None


def said_of(recording: Recording, work: Work) -> Iterator[tuple[str, pa.Table]]:
    """Yield what a work says: batches of facts and of rejected lines, and at the end of each piece its counts."""
    source, begun, part = work.source, work.begun, work.part
    place = goes_on_at(recording, source) if work.is_last else None
    first = begun.place if begun else part.start if part else 0
    line = begun.line if begun else part.first_line if part else 1
    pieces: list[tuple[Range | None, bool]] = [(part, not work.is_last)]
    if place is not None and place > first:
        pieces = [(Range(first, place, line), True), (Range(place, _end_of(source), 0), False)]
    elif begun is not None:
        pieces = [(Range(first, _end_of(source), line), False)]
    named = set(work.named)
    dump_state = begun.dump_state if begun else None
    for piece, settled in pieces:
        notes: Notes = {}
        turns: Turns = {}
        span = piece
        if span is not None:
            span = span._replace(first_line=line, dump_state=dump_state, is_followed=settled)
        for batch in parse_file(recording, source, span, named):
            if batch.facts is not None:
                notes = widened(notes, notes_of(batch.facts))
                turns = together(turns, turns_of(batch.facts))
                yield FACT, pa.Table.from_batches([batch.facts])
            if batch.rejected is not None:
                yield REJECTED, pa.Table.from_batches([batch.rejected])
            if batch.counts is not None:
                said = json.loads(told(source, span, batch.counts, notes, turns)) | {"settled": settled}
                said["named_clusters"] = sorted(cluster for kind, cluster, *_ in named if not kind)
                line, dump_state = line + batch.counts.lines, batch.counts.dump_state
                yield COUNTS, pa.table({"counts": [json.dumps(said, sort_keys=True)]})
    if work.is_last:
        yield COUNTS, pa.table({"counts": [json.dumps(printed(source, begun, place))]})


def printed(source: Source, begun: Begun | None, place: int | None) -> dict[str, Any]:
    """Return what to know the file's content by, as JSON; `place`: where to go on, if it grows."""
    try:
        head = head_of(source.path)
        start, digest = (begun.place, begun.digest) if begun is not None else (0, "")
        marks = () if place is None else (place,)
        found = print_of(source.path, marks, start=start, begun=digest, end=None if place is None else _end_of(source))
        block = None if place is None else block_before(source.path, place)
    except OSError:
        return {"path": source.name, "print": None}
    if place is not None and place not in found.reached:  # another file has taken its place, and is shorter
        return {"path": source.name, "print": None}
    ended = (found.ended, found.ended_digest) if place is None else (place, found.reached[place])
    head = head[: found.ended] or head  # a short one may end with what is not there when it has grown
    return {
        "path": source.name,
        "print": {
            "head_length": min(len(head), HEAD),
            "head": digest_of(head),
            "length": found.length,
            "digest": found.digest,
            "broken": found.broken,
            "is_cut": found.is_cut,
            "settled": ended[0],
            "settled_digest": ended[1],
            "block": block,
        },
    }
