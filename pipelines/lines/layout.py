"""Layouts of log lines. They are handled here only; all other modules see stamp, level, logger and text.

A layout is an entry of `LAYOUTS`; to add one, add an entry. Some layouts print only the logger's last part, so code
that dispatches on the logger uses `last_part`. What a container runtime puts before a line is handled by `prefix`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Split = Callable[[str], "LogLine | None"]

# Every repetition in these patterns is possessive or bounded, so the time to match grows only with a line's length.
_STAMP = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[,.]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_SHORT_STAMP = r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d(?:[,.]\d{1,9})?"  # yy/MM/dd
_LEVEL = r"(?P<level>[A-Z]{1,16})"
_HEAD = rf"(?P<stamp>{_STAMP}) {_LEVEL} ++"
_LOGGER = r"(?P<logger>[\w.$-]{1,400})"
_CLASS = r"(?P<logger>[\w$-]{1,100}(?:\.[\w$-]{1,100}){1,20}+)"  # a name with a dot in it, unlike any word of a text
_THREAD = r"\[[^\]]{0,200}+\]"
_TEXT = r"(?P<text>.*)"
_ZONE = re.compile(r"([+-])(\d\d):?(\d\d)$")
_BEGINNINGS = frozenset("[{0123456789")
_SECOND = 1_000_000
WHOLE_SECONDS = 19  # length of a stamp without a fraction
MILLISECONDS = 23
DETECTION_LINES = 500
_MOST_LOGGERS = 100_000
_LONGEST_ENDING = 700  # of a logger and a thread's name after it
_PARENTHESES = 5  # how many " (" from the end to try: a thread's name can hold some
BEGINNING = re.compile(  # how a line of a text layout begins
    rf"\[?(?:{_STAMP}|{_SHORT_STAMP})\]?(?: {_THREAD})? {{1,6}}[A-Z]{{1,16}} ++|\[[A-Z]{{1,16}}\] {_STAMP} \["
)


class LogLine(NamedTuple):
    """The parts of a line; `logger` is None if the line stops before it (cut off, or the first of several lines)."""

    stamp: str
    level: str
    logger: str | None
    text: str


class Layout(NamedTuple):
    """How one log4j pattern prints: `whole` splits a complete line, `head` one whose end is missing."""

    name: str
    pattern: str
    whole: Split
    head: Split
    ends_with_text: bool = False  # a line that was cut within its text looks complete

    def split(self, line: str) -> LogLine | None:
        """Return the parts of a line; None if it does not begin as this layout's lines do."""
        return self.whole(line) or self.head(line)


def _as_printed(stamp: str) -> str:
    return stamp


def _with_century(stamp: str) -> str:
    """Bring a stamp such as `26/03/01 ...` into the form of the others; Kafka did not exist before 2011."""
    return f"20{stamp[:2]}-{stamp[3:5]}-{stamp[6:]}"


def _head(head: str, stamp_of: Callable[[str], str] = _as_printed) -> Split:
    """Make a function that splits a line that stops within its text, or before its logger."""
    match = re.compile(head + _TEXT, re.DOTALL).match

    def split_head(line: str) -> LogLine | None:
        found = match(line)
        return None if found is None else LogLine(stamp_of(found["stamp"]), found["level"], None, found["text"])

    return split_head


def _text_last(name: str, pattern: str, head: str, logger: str, stamp_of: Callable[[str], str] = _as_printed) -> Layout:
    """Make a text layout whose lines end with the text."""
    compiled = re.compile(head + logger + _TEXT, re.DOTALL)
    fullmatch, make = compiled.fullmatch, tuple.__new__
    stamp, *others = (compiled.groupindex[name] for name in LogLine._fields)

    def split_whole(line: str) -> LogLine | None:
        found = fullmatch(line)
        return None if found is None else make(LogLine, (stamp_of(found[stamp]), *found.group(*others)))

    return Layout(name, pattern, split_whole, _head(head, stamp_of), ends_with_text=True)


def _logger_last(name: str, pattern: str, head: str, after: str = "") -> Layout:
    """Make a text layout with the logger in parentheses after the text; it is searched from the end of the line."""
    begins, make = re.compile(head).match, tuple.__new__
    ends = re.compile(rf" \({_LOGGER}(?::\d{{1,9}})?\){after}", re.DOTALL).fullmatch
    loggers: dict[str, str] = {}  # by ending; there are few

    def logger_of(ending: str) -> str | None:
        logger = loggers.get(ending)
        if logger is None and len(ending) <= _LONGEST_ENDING and (found := ends(ending)) is not None:
            if len(loggers) > _MOST_LOGGERS:
                loggers.clear()
            logger = loggers[ending] = found["logger"]
        return logger

    def split_whole(line: str) -> LogLine | None:
        line = line.rstrip()
        cut = line.rfind(" (")
        logger = logger_of(line[cut:]) if cut > 0 else None
        for _ in range(_PARENTHESES):
            if logger is not None or cut < 0:
                break
            cut = line.rfind(" (", 0, cut)
            logger = logger_of(line[cut:])
        begun = begins(line) if logger is not None else None
        if begun is None or cut <= begun.end("level"):
            return None
        return make(LogLine, (*begun.groups(), logger, line[begun.end() : cut]))

    return Layout(name, pattern, split_whole, _head(head))


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
    """Return None: a JSON object that is cut off cannot be read."""
    del line
    return None


LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        _logger_last("apache", "[%d] %p %m (%c)%n", rf"\[(?P<stamp>{_STAMP})\] {_LEVEL} ++"),
        _text_last(
            "strimzi4",
            "%d{yyyy-MM-dd HH:mm:ss} %-5p [%t] %c{1}:%L - %m%n",
            _HEAD,
            rf"\[.{{0,200}}?\] {_LOGGER}:[\d?]{{0,9}} - ",
        ),
        _logger_last("strimzi3", "%d{ISO8601} %p %m (%c) [%t]%n", _HEAD, r"(?: \[.*\])?"),
        Layout("json", '{"@timestamp": %d, "level": %p, "logger": %c, "message": %m}', _split_object, _no_head),
        _text_last(
            "spring",
            "%d %5p PID --- [%t] %-40.40logger : %m%n",
            rf"(?P<stamp>{_STAMP}) {{1,6}}{_LEVEL} \d{{1,10}} --- ",
            rf"(?:{_THREAD} ?){{1,4}}+{_LOGGER} {{1,60}}+: ?",
        ),
        _text_last(
            "hadoop",
            "%d{yy/MM/dd HH:mm:ss} %p %c{2}: %m%n",
            rf"(?P<stamp>{_SHORT_STAMP}) {_LEVEL} ++",
            rf"{_LOGGER}: ",
            _with_century,
        ),
        _text_last(
            "logback",
            "%d [%t] %-5level %logger - %m%n, or with the thread behind the level, or without; also with a colon",
            rf"(?P<stamp>{_STAMP})(?: {_THREAD})? {{1,6}}{_LEVEL} ++",
            rf"(?:{_THREAD} ++)?{_CLASS}(?: {{1,60}}+-|:) ",
        ),
        _text_last(
            "operator",
            "[%p] %d [%t] %c %M - %m%n",
            rf"\[{_LEVEL}\] (?P<stamp>{_STAMP}) ",
            rf"{_THREAD} {_CLASS} [\w$<>]{{1,100}} - ",
        ),
    )
}
# The names people use; None: the name says what stands before the line, not how the line itself is laid out.
LAYOUT_NAMES: dict[str, str | None] = {
    **{name: name for name in LAYOUTS},
    **dict.fromkeys(("confluent", "cp", "bitnami"), "apache"),
    **dict.fromkeys(("ecs", "logstash"), "json"),
    "cfk": "operator",  # Confluent for Kubernetes
    "cloudera": "logback",
    **dict.fromkeys(("compose", "cri", "journal", "kubectl"), None),
}


class Form:
    """The layout of one file's lines: mostly `layout`, but single lines may have another one."""

    def __init__(self, layout: Layout) -> None:
        """Try `layout` first for each line."""
        self.layout = layout
        self._whole = layout.whole
        self._others = [other for other in LAYOUTS.values() if other is not layout]

    def split(self, line: str) -> LogLine | None:
        """Return the parts of a line; None if it does not begin as a log line does."""
        return self._whole(line) or self.otherwise(line)

    def otherwise(self, line: str) -> LogLine | None:
        """Return the parts of a line that is not a complete one of the file's layout."""
        if not line or line[0] not in _BEGINNINGS:
            return None
        tries: list[Split] = [other.whole for other in self._others]
        tries += [self.layout.head, *(other.head for other in self._others)]
        return next((found for split in tries if (found := split(line)) is not None), None)


def detect(lines: Iterable[str]) -> tuple[int, Layout | None]:
    """Return how many lines have the most frequent layout, and that layout; None if no line has a known one."""
    sample = list(lines)
    counted = [(sum(layout.whole(line) is not None for line in sample), layout) for layout in LAYOUTS.values()]
    count, best = max(counted, key=lambda pair: pair[0])
    return count, best if count else None


def last_part(logger: str) -> str:
    """Return the logger's last part, which every layout prints."""
    return logger.rpartition(".")[2]


class StampReader:
    """Turns printed stamps into microseconds of the printed wall clock; it caches seconds, as they repeat."""

    def __init__(self) -> None:
        """Start with an empty cache."""
        self._seconds: dict[str, int] = {}

    def micros(self, stamp: str) -> int:
        """Return microseconds since 1970 by the clock that printed the stamp; ValueError for an impossible time."""
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
    """Return the microseconds that the printed clock is ahead of UTC as the stamp says; None if it does not."""
    if stamp.endswith("Z"):
        return 0
    zone = _ZONE.search(stamp, WHOLE_SECONDS)
    if zone is None:
        return None
    ahead = (int(zone[2]) * 60 + int(zone[3])) * 60 * _SECOND
    return -ahead if zone[1] == "-" else ahead
