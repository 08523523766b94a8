"""The layout of a log line, stripped in one place: everything else sees stamp, level, logger and text.

A layout is a row of `LAYOUTS`; adding one means adding a row. The logger may be only its last part, depending on the
layout, so whoever dispatches on it uses `last_part`. What a container's runtime puts before a line is `prefix`'s.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Split = Callable[[str], "LogLine | None"]

_STAMP = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[,.]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_HEAD = rf"(?P<stamp>{_STAMP}) (?P<level>[A-Z]+) +"
_LOGGER = r"(?P<logger>[\w.$-]+)"
_ZONE = re.compile(r"([+-])(\d\d):?(\d\d)$")
_BEGINNINGS = frozenset("[{0123456789")
_SECOND = 1_000_000
WHOLE_SECONDS = 19  # length of a stamp without a fraction
MILLISECONDS = 23
DETECTION_LINES = 500
_MOST_LOGGERS = 100_000
BEGINNING = re.compile(rf"\[?{_STAMP}\]? [A-Z]+ +")  # how a line of the text layouts begins


class LogLine(NamedTuple):
    """A line without its layout; `logger` is None where the line stops before it (cut off, or the first of many)."""

    stamp: str
    level: str
    logger: str | None
    text: str


class Layout(NamedTuple):
    """How one log4j pattern prints: `whole` takes a complete line apart, `head` one whose end is missing."""

    name: str
    pattern: str
    whole: Split
    head: Split
    ends_with_text: bool = False  # a line that was cut within its text looks whole

    def split(self, line: str) -> LogLine | None:
        """The parts of a line; None where it does not begin as this layout's lines do."""
        return self.whole(line) or self.head(line)


def _text_layout(name: str, pattern: str, head: str, whole: str, *, ends_with_text: bool = False) -> Layout:
    compiled, match = re.compile(whole, re.DOTALL), re.compile(head + "(?P<text>.*)", re.DOTALL).match
    fullmatch, make = compiled.fullmatch, tuple.__new__
    stamp, level, logger, text = (compiled.groupindex[name] for name in LogLine._fields)

    def split_whole(line: str) -> LogLine | None:
        found = fullmatch(line)
        return None if found is None else make(LogLine, found.group(stamp, level, logger, text))

    def split_head(line: str) -> LogLine | None:
        found = match(line)
        return None if found is None else LogLine(found["stamp"], found["level"], None, found["text"])

    return Layout(name, pattern, split_whole, split_head, ends_with_text)


def _logger_last(name: str, pattern: str, head: str, after: str = "") -> Layout:
    """A text layout whose text is followed by the logger in parentheses: the end is looked for from the end."""
    ending = rf" \({_LOGGER}(?::\d+)?\){after}\s*"
    layout = _text_layout(name, pattern, head, rf"{head}(?P<text>.*){ending}")
    begins, ends, make = re.compile(head).match, re.compile(ending, re.DOTALL).fullmatch, tuple.__new__
    loggers: dict[str, str] = {}  # by the ending: there are few

    def split_whole(line: str) -> LogLine | None:
        cut = line.rfind(" (")
        ending = line[cut:]
        logger = loggers.get(ending)
        if logger is None:
            found = ends(ending)
            if found is None:
                return layout.whole(line)
            if len(loggers) > _MOST_LOGGERS:
                loggers.clear()
            logger = loggers[ending] = found["logger"]
        begun = begins(line)
        if begun is None:
            return None
        text = begun.end()
        return layout.whole(line) if cut < text else make(LogLine, (*begun.groups(), logger, line[text:cut]))

    return layout._replace(whole=split_whole)


class _Log(msgspec.Struct):
    """ECS in its nested form: `{"log": {"level": ..., "logger": ...}}`."""

    level: str | None = None
    logger: str | None = None


class _Object(msgspec.Struct):
    """A line of the JSON layouts, by the names that ECS, logstash and log4j 1's JSONEventLayout give."""

    message: str
    stamp: str = msgspec.field(name="@timestamp")
    level: str | None = None
    ecs_level: str | None = msgspec.field(name="log.level", default=None)
    logger: str | None = None
    ecs_logger: str | None = msgspec.field(name="log.logger", default=None)
    logger_name: str | None = None
    log: _Log | None = None


_object = msgspec.json.Decoder(_Object)


def _split_object(line: str) -> LogLine | None:
    if not line.startswith("{"):
        return None
    try:
        found = _object.decode(line)
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    nested = found.log or _Log()
    level = found.level or found.ecs_level or nested.level or ""
    logger = found.logger or found.ecs_logger or found.logger_name or nested.logger or ""
    return LogLine(found.stamp, level.upper(), logger, found.message)


def _no_head(line: str) -> LogLine | None:
    """An object that is cut off says nothing."""
    del line
    return None


LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        _logger_last("apache", "[%d] %p %m (%c)%n", rf"\[(?P<stamp>{_STAMP})\] (?P<level>[A-Z]+) +"),
        _text_layout(
            "strimzi4",
            "%d{yyyy-MM-dd HH:mm:ss} %-5p [%t] %c{1}:%L - %m%n",
            _HEAD,
            rf"{_HEAD}\[.{{0,200}}?\] {_LOGGER}:[\d?]* - (?P<text>.*)",
            ends_with_text=True,
        ),
        _logger_last("strimzi3", "%d{ISO8601} %p %m (%c) [%t]%n", _HEAD, r"(?: \[.*\])?"),
        Layout("json", '{"@timestamp": %d, "level": %p, "logger": %c, "message": %m}', _split_object, _no_head),
    )
}
# what people call them; None: the name says what stands before the line, not how the line is laid out
LAYOUT_NAMES: dict[str, str | None] = {
    **{name: name for name in LAYOUTS},
    **dict.fromkeys(("confluent", "cp", "bitnami"), "apache"),
    **dict.fromkeys(("ecs", "logstash"), "json"),
    **dict.fromkeys(("compose", "cri", "kubectl"), None),
}


class Form:
    """How the lines of one file are laid out: mostly as `layout`, any single one as another."""

    def __init__(self, layout: Layout) -> None:
        """Try `layout` first on each line."""
        self.layout = layout
        self._whole = layout.whole
        self._others = [other for other in LAYOUTS.values() if other is not layout]

    def split(self, line: str) -> LogLine | None:
        """The parts of a line; None where the line does not begin as a log line does."""
        return self._whole(line) or self.otherwise(line)

    def otherwise(self, line: str) -> LogLine | None:
        """The parts of a line that is no whole one of the file's layout."""
        if not line or line[0] not in _BEGINNINGS:
            return None
        tries: list[Split] = [other.whole for other in self._others]
        tries += [self.layout.head, *(other.head for other in self._others)]
        return next((found for split in tries if (found := split(line)) is not None), None)


def detect(lines: Iterable[str]) -> tuple[int, Layout | None]:
    """The layout that most of the lines have, and how many have it; None where no line has a known one."""
    sample = list(lines)
    counted = [(sum(layout.whole(line) is not None for line in sample), layout) for layout in LAYOUTS.values()]
    count, best = max(counted, key=lambda pair: pair[0])
    return count, best if count else None


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
        second = stamp[:WHOLE_SECONDS]
        base = self._seconds.get(second)
        if base is None:
            if len(self._seconds) > 100_000:
                self._seconds.clear()
            base = int(datetime.fromisoformat(second).replace(tzinfo=UTC).timestamp()) * _SECOND
            self._seconds[second] = base
        if len(stamp) == MILLISECONDS and stamp[-1] != "Z":
            return base + int(stamp[20:23]) * 1000
        fraction = _ZONE.sub("", stamp[20:].rstrip("Z"))[:6] if stamp[19:20] in {",", "."} else ""
        return base + int(fraction.ljust(6, "0"))


def offset_of(stamp: str) -> int | None:
    """Microseconds that the printed clock is ahead of UTC, as the stamp itself says; None where it does not."""
    if stamp.endswith("Z"):
        return 0
    zone = _ZONE.search(stamp, WHOLE_SECONDS)
    if zone is None:
        return None
    ahead = (int(zone[2]) * 60 + int(zone[3])) * 60 * _SECOND
    return -ahead if zone[1] == "-" else ahead
