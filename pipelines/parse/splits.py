"""Which files may be read in byte ranges: large plain logs whose stamps need no memory of earlier lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.parse.clock import ZoneClock
from pipelines.parse.files import Content, content_of, layout_of
from pipelines.parse.layout import Layout, StampReader
from pipelines.parse.reading import Outcome, is_packed, read_lines, tail

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pipelines.recording import Recording, Source

_LONGEST = 150 * 86_400 * 1_000_000  # a zone may change its offset and change it back in so long a time


def may_split(recording: Recording, source: Source) -> bool:
    """Whether tasks may share the file: a plain log in whose time the broker's clock is not put back."""
    if is_packed(source.path):
        return False
    first = next(read_lines(source.path, Outcome()), [])
    if content_of(source, first) is not Content.LOG:
        return False
    layout = layout_of(recording, first)
    clock = ZoneClock(recording.manifest.time_zone(source.broker_id))
    if layout is None or clock.is_utc:
        return layout is not None
    begin, end = _stamps(layout, first), _stamps(layout, tail(source.path))
    if not begin or not end or end[-1] - begin[0] > _LONGEST:
        return False
    return clock.offset(begin[0]) == clock.offset(end[-1]) and not any(map(clock.is_repeated, (begin[0], end[-1])))


def _stamps(layout: Layout, lines: Iterable[str]) -> list[int]:
    reader, found = StampReader(), []
    for text in lines:
        match = layout.head.match(text)
        if match is not None:
            try:
                found.append(reader.micros(match["stamp"]))
            except ValueError:
                continue
    return found
