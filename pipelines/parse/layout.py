"""The layout of a log line, stripped in one place: everything else sees stamp, level, logger and text.

A layout is a row of `LAYOUTS`; adding one means adding a row. The logger may be only its last part, depending on the
layout, so whoever dispatches on it uses `last_part`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_STAMP = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[,.]\d{3,9})?"
_SECOND = 1_000_000
DETECTION_LINES = 500


class LogLine(NamedTuple):
    """A line without its layout; `logger` is None where the line stops before it (cut off, or the first of many)."""

    stamp: str
    level: str
    logger: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Layout:
    """How one log4j pattern prints: `whole` matches a complete line, `head` a line whose end is missing."""

    name: str
    pattern: str
    whole: re.Pattern[str]
    head: re.Pattern[str]

    def split(self, line: str) -> LogLine | None:
        """The parts of a line; None where the line does not begin as this layout's lines do."""
        match = self.whole.fullmatch(line)
        if match is not None:
            return LogLine(*match.group("stamp", "level", "logger", "text"))
        match = self.head.match(line)
        if match is None:
            return None
        stamp, level, text = match.group("stamp", "level", "text")
        return LogLine(stamp, level, None, text)


def _layout(name: str, pattern: str, head: str, tail: str) -> Layout:
    return Layout(name, pattern, re.compile(head + tail, re.DOTALL), re.compile(head, re.DOTALL))


LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        _layout(
            "apache",
            "[%d] %p %m (%c)%n",
            rf"\[(?P<stamp>{_STAMP})\] (?P<level>[A-Z]+) +(?P<text>.*)",
            r" \((?P<logger>[\w.$-]+)(?::\d+)?\)\s*",
        ),
    )
}


def detect(lines: Iterable[str]) -> Layout | None:
    """The layout that most of the lines have; None where no line has a known one."""
    sample = list(lines)
    counted = [
        (sum(layout.whole.fullmatch(line) is not None for line in sample), layout) for layout in LAYOUTS.values()
    ]
    count, best = max(counted, key=lambda pair: pair[0])
    return best if count else None


def last_part(logger: str) -> str:
    """The logger's last part, which every layout prints."""
    return logger.rpartition(".")[2]


class StampReader:
    """Turns printed stamps into microseconds of the printed wall clock; seconds repeat, so they are remembered."""

    def __init__(self) -> None:
        """Start with nothing remembered."""
        self._seconds: dict[str, int] = {}

    def micros(self, stamp: str) -> int:
        """Microseconds since 1970 on the clock that printed the stamp; ValueError for a time that cannot be."""
        second = stamp[:19]
        base = self._seconds.get(second)
        if base is None:
            if len(self._seconds) > 100_000:
                self._seconds.clear()
            base = int(datetime.fromisoformat(second).replace(tzinfo=UTC).timestamp()) * _SECOND
            self._seconds[second] = base
        fraction = stamp[20:26]
        if len(fraction) == 3:
            return base + int(fraction) * 1000
        return base + int(fraction.ljust(6, "0"))
