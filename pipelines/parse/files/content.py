"""What a file is and how its lines are laid out, by its first lines; only small files of log directories go by name."""

from __future__ import annotations

from enum import Enum
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from pipelines.lines import layout as layouts
from pipelines.parse.dumps.checkpoints import checkpoint_name, is_properties
from pipelines.parse.dumps.segment_dump import DUMPING
from pipelines.parse.files.prefix import by_container, taken_off
from replay.evidence.rows import METADATA_LOG

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pipelines.recording.recording import Recording, Source


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


def content_of(source: Source, first: list[str]) -> Content:
    """Return what a file is: by its first lines; checkpoints and meta.properties by their names."""
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
    """Whether a dump with this line is of the metadata log or of a snapshot of it, wherever they were copied to."""
    if text.startswith(DUMPING):
        return METADATA_LOG in text or ".checkpoint" in text
    return text.startswith("Snapshot end offset: ") or ' payload: {"type":"' in text


class LineFormat(NamedTuple):
    """How a log's lines are laid out; `container` is the container that prefixes name, if they do."""

    layout: layouts.Layout
    prefixed: bool
    container: str | None

    def stamps(self, lines: Iterable[str]) -> Iterator[int]:
        """Yield the times that lines print without an offset, by the clock that printed them, in microseconds."""
        split, reader = layouts.Form(self.layout).split, layouts.StampReader()
        for line in lines:
            parts = split(taken_off(line).text if self.prefixed else line)
            try:
                if parts is not None and layouts.offset_of(parts.stamp) is None:
                    yield reader.micros(parts.stamp)
            except ValueError:
                continue


def lines_of(recording: Recording, first: list[str]) -> LineFormat | str:
    """Return the layout that the user names, else that of most of the first lines; a text says why it is unknown."""
    named = layouts.LAYOUT_NAMES.get(recording.manifest.log_layout or "")
    for sample in (first[: layouts.DETECTION_LINES], first):
        bare = layouts.detect(sample)
        count, lines = bare[0], None if bare[1] is None else LineFormat(bare[1], prefixed=False, container=None)
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
            lines = LineFormat(layout, prefixed=True, container=container) if layout is not None else None
        if lines is not None:
            return lines if named is None else lines._replace(layout=layouts.LAYOUTS[named])
    if named is not None:
        return LineFormat(layouts.LAYOUTS[named], prefixed=False, container=None)
    return "not a Kafka log, dump or checkpoint: no line has a known form"
