"""Which files may be read in byte ranges: plain logs whose stamps need no memory of earlier lines, and metadata dumps.

Large logs are shared by several tasks, and of a log or dump that grows only what is new is read (`goes_on_at`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.lines import layout as layouts
from pipelines.lines.clock import ZoneClock
from pipelines.parse.files.content import Content, content_of, lines_of
from pipelines.parse.files.prefix import taken_off
from pipelines.recording.listing import opened
from pipelines.recording.reading import Outcome, is_packed, read_chunks, read_lines, tail

if TYPE_CHECKING:
    from pipelines.recording.recording import Recording, Source

TAIL = 1 << 18  # the bytes at a plain file's end within which its last moment or batch is looked for
_BATCH = b"\nbaseOffset: "
_LONGEST = 150 * 86_400 * 1_000_000  # in a longer time a zone may change its offset and change it back


def beginning_of(source: Source) -> list[str] | None:
    """Return the first lines of a plain file; None if it is compressed or cannot be read (its reader reports that)."""
    try:
        return None if is_packed(source.path) else next(read_lines(source.path, Outcome()), [])
    except OSError:
        return None


def may_split(recording: Recording, source: Source) -> bool:
    """Whether tasks may share the file: a plain log during which the broker's clock was not set back."""
    first = beginning_of(source)
    return first is not None and content_of(source, first) is Content.LOG and _may_split(recording, source, first)


def _may_split(recording: Recording, source: Source, first: list[str]) -> bool:
    """Whether tasks may share a plain log with these first lines."""
    lines = lines_of(recording, first)
    if isinstance(lines, str) or (lines.prefixed and any(taken_off(line).stream for line in first)):
        return False  # unknown; or a runtime's file, whose long lines come in parts
    clock = ZoneClock(recording.manifest.time_zone(source.broker_id))
    if clock.is_utc:
        return True
    begin, end = list(lines.stamps(first)), list(lines.stamps(tail(source.path)))
    if not begin or not end or end[-1] - begin[0] > _LONGEST:
        return False
    return clock.offset(begin[0]) == clock.offset(end[-1]) and not any(map(clock.is_repeated, (begin[0], end[-1])))


def goes_on_at(recording: Recording, source: Source) -> int | None:
    """Return where reading goes on once the file has grown: the first line of the last moment in it; None: nowhere.

    From there on lines are read again. What stands before was parsed for good: the line at the place begins an event
    of its own, and none before it has the same time, since equal lines of one time count once. A stamp in whole seconds
    gets its time from the lines around it, and a line after a prefix may have parts, so such files are read whole.

    A metadata dump goes on at its last batch, which may be torn. A longer log's dump begins with the shorter one's.
    The place is one of the decompressed bytes.
    """
    try:
        if source.shared is not None or source.set_aside is not None:
            return None
        first = next(read_lines(source.path, Outcome()), [])
        content = content_of(source, first)
        if content is Content.METADATA_DUMP:
            return _last_batch(source)
        return _last_moment_of(recording, source, first) if content is Content.LOG else None
    except OSError:
        return None


def _last_moment_of(recording: Recording, source: Source, first: list[str]) -> int | None:
    """Return where the last moment of a log with these first lines begins; None: it is not one to go on with."""
    if is_packed(source.path) or not _may_split(recording, source, first):
        return None
    lines = lines_of(recording, first)
    if isinstance(lines, str) or lines.prefixed:
        return None
    begun, data = _last_bytes(source)
    stamps = _Stamps(lines.layout)
    if any(len(stamp) == layouts.WHOLE_SECONDS for stamp in map(stamps.of, first[: layouts.DETECTION_LINES]) if stamp):
        return None
    found = _last_moment(data, stamps)
    return None if found is None else begun + found


def _last_batch(source: Source) -> int | None:
    """Return where the last batch in a dump begins; None if nothing stands before it."""
    if is_packed(source.path):
        begun, chunks = 0, read_chunks(source.path, Outcome())
    else:
        begun, data = _last_bytes(source)
        chunks = iter([data])
    place, before = None, b""
    for chunk in chunks:
        data = before + chunk
        found = data.rfind(_BATCH)
        if found >= 0:
            place = begun - len(before) + found + 1
        begun += len(chunk)
        before = data[1 - len(_BATCH) :]
    return place


class _Stamps:
    """The stamps of lines that have a possible one."""

    def __init__(self, layout: layouts.Layout) -> None:
        self._split, self._reader = layouts.Form(layout).split, layouts.StampReader()

    def of(self, line: str) -> str | None:
        """Return the line's stamp as it is printed."""
        parts = self._split(line)
        try:
            return None if parts is None or self._reader.micros(parts.stamp) is None else parts.stamp
        except ValueError:
            return None


def _last_moment(data: bytes, stamps: _Stamps) -> int | None:
    """Return where the first line with the last stamp begins; None if a line with another does not stand before it."""
    last: str | None = None
    place: int | None = None
    end = len(data)
    while end > 0:
        start = data.rfind(b"\n", 0, end) + 1
        stamp = stamps.of(data[start:end].decode("utf-8", "replace").removesuffix("\r")) if start else None
        if stamp is not None:
            if len(stamp) == layouts.WHOLE_SECONDS:
                return None
            if last not in {None, stamp}:
                return place
            last, place = stamp, start
        end = start - 1
    return None


def _last_bytes(source: Source) -> tuple[int, bytes]:
    """Return the last bytes of a file as it was listed, and where they begin."""
    begun = max(source.size - TAIL, 0)
    with opened(source.path) as stream:
        stream.seek(begun)
        return begun, bytes(stream.read(source.size - begun))
