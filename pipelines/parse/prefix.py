"""What stands before a log line where a container wrote it: taken off, and lines that were split put together.

`docker compose logs`: `SERVICE  | `; `kubectl logs --prefix`: `[pod/POD/CONTAINER] `; `--timestamps` of either: a time;
container runtimes' files (CRI, kubelet's `cri.go`): `TIME stdout F `, where `P` marks a part that goes on.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from pipelines.parse.reading import LONGEST_LINE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pipelines.parse.files import LogLines
    from pipelines.parse.rows import FactSink

_PREFIX = re.compile(
    r"(?:\[pod/(?P<pod>[^\]\s]+)\] |(?P<service>[\w.-]+) *\|(?: |$))?"
    r"(?:(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d))"
    r"(?: (?P<stream>stdout|stderr) (?P<tag>[FP])(?::\S*)?)?(?: |$))?"
)


class Prefixed(NamedTuple):
    """A line and what stood before it."""

    container: str | None
    time: str | None  # when the runtime took the line, where it says so
    stream: str | None
    goes_on: bool
    text: str


def taken_off(text: str) -> Prefixed:
    """A line without its prefix."""
    found = _PREFIX.match(text)
    if found is None or not found.end():
        return Prefixed(None, None, None, False, text)  # noqa: FBT003
    container = found["pod"] or found["service"]
    return Prefixed(container, found["time"], found["stream"], found["tag"] == "P", text[found.end() :])


def by_container(lines: Iterable[str]) -> dict[str | None, list[str]]:
    """The lines that have a prefix, without it, by the container that they name."""
    found: dict[str | None, list[str]] = defaultdict(list)
    for line in lines:
        taken = taken_off(line)
        if len(taken.text) < len(line):
            found[taken.container].append(taken.text)
    return found


class PrefixedLines:
    """The lines of a log with a prefix before each: the container's own lines, whole."""

    def __init__(self, sink: FactSink, inner: LogLines, container: str | None) -> None:
        """`container`: whose lines to read, where the prefixes name one."""
        self._sink = sink
        self._inner = inner
        self._container = container
        self._parts: dict[str | None, list[str]] = defaultdict(list)
        self._begun: dict[str | None, int] = {}
        self._others: Counter[str] = Counter()

    def parse(self, text: str, line: int) -> None:
        """Hand on the line, or remember its part."""
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
        """Settle what still waits: a line whose last part never came was cut off."""
        for stream, parts in self._parts.items():
            if parts:
                self._sink.reject(self._begun[stream], "cut off: its last part is missing", "".join(parts))
        self._inner.finish(cut=cut)
