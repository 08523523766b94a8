"""Which files may be read in byte ranges: large plain logs whose stamps need no memory of earlier lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.lines.clock import ZoneClock
from pipelines.parse.files.content import Content, content_of, lines_of
from pipelines.parse.files.prefix import taken_off
from pipelines.recording.reading import Outcome, is_packed, read_lines, tail

if TYPE_CHECKING:
    from pipelines.recording.recording import Recording, Source

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
    if first is None or content_of(source, first) is not Content.LOG:
        return False
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
