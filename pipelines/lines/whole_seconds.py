"""Bounds for the times of lines whose stamps are whole seconds, from the order of lines that is certain.

Within a second, a file's order is the order of writing. And a connection's next request is handled only after the line
of the previous one was written: SocketServer.processCompletedSends updates the metrics, which writes the line, before
it unmutes the channel. So a request's own duration separates its line from the previous one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pipelines.lines.layout import LogLine

SECOND = 1_000_000
AHEAD = 3 * SECOND  # lines wait until those of the next seconds are known,
KEPT = SECOND  # and the last of them keep waiting, for longer than a fetch waits
_MOST_CONNECTIONS = 100_000


class Written(NamedTuple):
    """What one line says about its time (microseconds) and about the request that it ends."""

    earliest: int
    latest: int
    connection: str | None = None
    spent: int = 0


class Waiting(NamedTuple):
    """A line that waits for its time; `parts` and `local` (its printed time) are set only if it has a stamp."""

    text: str
    parts: LogLine | None
    line: int
    local: int


class Settled(NamedTuple):
    """A line with the bounds of its time in microseconds."""

    item: Waiting
    earliest: int
    latest: int


class Bounds:
    """Takes lines in the order of their file and returns them with bounds: earliest and latest time.

    Where time goes back (a clock was set back, files were put together, a stamp is wrong) the order starts anew.
    """

    def __init__(self) -> None:
        """Start without lines."""
        self._lines: list[tuple[Waiting, Written | None]] = []
        self._earliest: list[int] = []  # of each waiting line, by the lines before it
        self._reached = 0
        self._answered: dict[str, tuple[int, str]] = {}  # per connection, of its last line: earliest time, text

    def add(self, item: Waiting, written: Written | None) -> Iterator[Settled]:
        """Add a line (`written` is None if it has no time of its own); yield the lines whose bounds are final."""
        if written is None:
            self._lines.append((item, None))
            self._earliest.append(self._reached)
            return
        earliest, latest, connection, spent = written
        if self._lines and (latest < self._reached or earliest > self._earliest[0] + AHEAD):
            anew = latest < self._reached
            yield from self.settle(2**63 - 1 if anew else earliest - KEPT)
            if anew:
                self._reached = 0
                self._answered.clear()
        reached = max(earliest, self._reached)
        if connection is not None:
            before, text = self._answered.get(connection, (-spent, ""))
            if text != item.text and before + spent <= latest:
                reached = max(reached, before + spent)
            else:  # the same line again, lines out of order, or an impossible duration
                written = written._replace(spent=0)
            if len(self._answered) > _MOST_CONNECTIONS:
                self._answered.clear()
            self._answered[connection] = reached, item.text
        self._reached = reached
        self._lines.append((item, written))
        self._earliest.append(reached)

    def settle(self, until: int = 2**63 - 1) -> Iterator[Settled]:
        """Yield the lines that were certainly written before `until`, each with its bounds."""
        lines, earliest = self._lines, self._earliest
        count = next((k for k, at in enumerate(earliest) if at >= until), len(lines))
        latest = latest_of(lines, earliest)
        self._lines, self._earliest = lines[count:], earliest[count:]
        for (item, _), lo, hi in zip(lines[:count], earliest, latest, strict=False):
            yield Settled(item, lo, hi)


def latest_of(lines: Sequence[tuple[Waiting, Written | None]], earliest: Sequence[int]) -> list[int]:
    """Return the latest time of each line, by the lines after it."""
    bound = 2**63 - 1
    begun: dict[str, int] = {}  # latest time at which each connection's next request was handled
    out = [0] * len(lines)
    for k in range(len(lines) - 1, -1, -1):
        written = lines[k][1]
        if written is not None:
            bound = min(bound, written.latest)
            if written.connection is not None:
                bound = min(bound, begun.get(written.connection, bound))
            bound = max(bound, earliest[k])
            if written.connection is not None:
                begun[written.connection] = bound - written.spent
        out[k] = bound
    return out
