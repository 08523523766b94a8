"""Removes what a container's runtime or a tool puts before a log line, and joins lines that it has split.

`docker compose logs`: `SERVICE  | `, perhaps in colour, perhaps behind a time; `kubectl logs --prefix`:
`[pod/POD/CONTAINER] `; `--timestamps` of either: a time; container runtimes' files (CRI, kubelet's `cri.go`):
`TIME stdout F `, where `P` marks a part that goes on; systemd's journal: `Mar 01 10:00:00 HOST PROGRAM[PID]: `, or with
a whole time; `grep` over several files: `FOLDER/server.log.2026-03-01-10:`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from pipelines.recording.reading import LONGEST_LINE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pipelines.lines.rows import FactSink
    from pipelines.parse.files.log_lines import LogLines
    from pipelines.parse.files.shared_lines import SharedLines, Survey

_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
_COLOUR = r"(?:\x1b\[[\d;]{0,20}m){0,3}+"
_PROGRAM = r"(?P<{}>[\w.-]{{1,100}} [\w./@-]{{1,100}}?)\[\d{{1,10}}\]:(?: |$)"
_PREFIX = re.compile(
    rf"(?:(?P<first>{_TIME}) (?={_COLOUR}[\w.-]{{1,100}}+ *+\|))?"
    rf"(?:\[pod/(?P<pod>[^\]\s]{{1,600}})\] "
    rf"|{_COLOUR}(?P<service>[\w.-]{{1,100}}+) *+\|{_COLOUR}(?: {_COLOUR}|$)"
    rf"|[^\W\d_]{{2,6}}\.? {{1,2}}\d{{1,2}} \d\d:\d\d:\d\d {_PROGRAM.format('program')}"
    rf"|(?P<folder>(?:[\w.-]{{0,100}}/){{1,20}}+)?[\w-]{{1,100}}+\.(?:log|out)[\w.-]{{0,60}}+:(?:\d{{1,9}}:)?)?"
    rf"(?:(?P<time>{_TIME})(?! {{1,6}}[A-Z]{{4,5}} )"  # before a level it is the line's own
    rf"(?: (?P<stream>stdout|stderr) (?P<tag>[FP])(?::\S*)?(?: |$)| {_PROGRAM.format('unit')}|(?: |$)))?"
)


class Prefixed(NamedTuple):
    """A line and what stood before it."""

    container: str | None
    time: str | None  # when the runtime received the line, if it says so
    stream: str | None
    goes_on: bool
    text: str


def taken_off(text: str) -> Prefixed:
    """Return a line without its prefix, and what the prefix says."""
    found = _PREFIX.match(text)
    if found is None or not found.end():
        return Prefixed(None, None, None, False, text)  # noqa: FBT003
    container = found["pod"] or found["service"] or found["program"] or found["unit"] or found["folder"]
    time = found["time"] or found["first"]
    return Prefixed(container, time, found["stream"], found["tag"] == "P", text[found.end() :])


def by_container(lines: Iterable[str]) -> dict[str | None, list[str]]:
    """Return the lines that have a prefix, without it, by the container that they name."""
    found: dict[str | None, list[str]] = defaultdict(list)
    for line in lines:
        taken = taken_off(line)
        if len(taken.text) < len(line):
            found[taken.container].append(taken.text)
    return found


class PrefixedLines:
    """The lines of a log with a prefix before each: the container's own lines, whole."""

    def __init__(self, sink: FactSink, inner: LogLines | SharedLines | Survey, container: str | None) -> None:
        """`container`: whose lines to read, if the prefixes name one."""
        self._sink = sink
        self._inner = inner
        self._container = container
        self._parts: dict[str | None, list[str]] = defaultdict(list)
        self._begun: dict[str | None, int] = {}
        self._others: Counter[str] = Counter()

    def parse(self, text: str, line: int) -> None:
        """Pass on the line, or keep it as a part of one."""
        taken = taken_off(text)
        if taken.container is not None and taken.container != self._container:
            if not self._others[taken.container]:
                self._sink.reject(line, "of another container: give each broker's lines as files of their own", text)
            self._others[taken.container] += 1
            self._sink.counts.no_interest["", "another container"] += 1
            return
        parts = self._parts[taken.stream]
        if not parts and not taken.goes_on:
            self._inner.parse(taken.text, line, taken.time)
            return
        begun = self._begun.setdefault(taken.stream, line)
        parts.append(taken.text)
        if not taken.goes_on or sum(map(len, parts)) > LONGEST_LINE:
            del self._parts[taken.stream], self._begun[taken.stream]
            self._inner.parse("".join(parts), begun, taken.time)

    def finish(self, *, cut: bool = False) -> None:
        """Handle what still waits: a line whose last part never came was cut off."""
        for stream, parts in self._parts.items():
            if parts:
                self._sink.reject(self._begun[stream], "cut off: its last part is missing", "".join(parts))
        self._inner.finish(cut=cut)
