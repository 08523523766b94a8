"""Turns the lines of a log into facts and rejected lines: any layout, request lines and server lines alike."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pipelines.lines import layout as layouts
from pipelines.lines.rows import FactSink, Line, line_identity
from pipelines.lines.whole_seconds import SECOND, Bounds, Settled, Waiting, Written
from pipelines.lines.writers import SETTINGS
from pipelines.parse.requests.request_log import PREFIX, RequestLog
from pipelines.parse.wordings.server_log import ServerLog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pipelines.lines.clock import ZoneClock

_CONTINUATION = re.compile(r"\s|$|Caused by: |Suppressed: |[\w.$]+(?:Exception|Error|Throwable)\b|\}|\]|\)")
_UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffd]")
_START_UP = re.compile(
    r"(?:\x1b\[[\d;]*m)*kafka (?:\x1b\[[\d;]*m)*\d\d:\d\d:\d\d\.\d+ "
)  # Bitnami's, before the broker
_OBJECT_BEGINNING = 12  # characters by which a log's JSON objects begin alike
_MILLISECONDS = r"(\d{1,12}(?:\.\d{1,9})?)"


class _Mark:
    """A value after a literal mark: to find the mark is many times faster than to search for the pattern."""

    def __init__(self, mark: str, value: str) -> None:
        """`value` is a pattern with one group."""
        self._mark = mark
        self._search = re.compile(re.escape(mark) + value).search

    def value(self, text: str) -> str | None:
        """Return the first value; None if there is none."""
        start = text.find(self._mark)
        found = self._search(text, start) if start >= 0 else None
        return None if found is None else found[1]


_JSON_TIMES = _Mark('"connection":"', '([^"]+)"'), _Mark('"totalTimeMs":', _MILLISECONDS)
_TEXT_TIMES = _Mark(" from connection ", r"(\S+?);"), _Mark(";totalTime:", _MILLISECONDS)


class LogLines:
    """The lines of a log, whatever their layout: request lines, server lines, and what belongs to the line before."""

    def __init__(
        self,
        sink: FactSink,
        layout: layouts.Layout,
        clock: ZoneClock,
        named: set[tuple[str, ...]] | None = None,
        *,
        within: bool = False,
    ) -> None:
        """`within`: the lines start in the middle of a file, so the first may continue an earlier one.

        `named`: what request lines before them have named.
        """
        self._sink = sink
        self._layout = layout
        self._whole = layout.whole
        self._otherwise = layouts.Form(layout).otherwise
        self._clock = clock
        self._stamps = layouts.StampReader()
        self._requests = RequestLog(named)
        self._server = ServerLog(sink)
        self._head: tuple[str, layouts.LogLine, int, int, int] | None = None  # a line whose logger is on a later line
        self._settings: tuple[int, int] | None = None  # time of the list of settings that following lines belong to
        self._follows = within
        self._printed: str | None = None  # the last line's stamp, and its time on the broker's clock and in UTC
        self._local = self._ts = 0
        self._bounds: Bounds | None = None  # set at the first stamp in whole seconds
        self._last: tuple[str, int, str | None] | None = None  # held back where only the end shows that a line is whole

    def parse(self, text: str, line: int, taken: str | None = None) -> None:
        """Add the line's facts, count it, or reject it. `taken`: when a container's runtime received it."""
        if not self._layout.ends_with_text:
            self._parse(text, line, taken)
            return
        last, self._last = self._last, (text, line, taken)
        if last is not None:
            self._parse(*last)

    def _parse(self, text: str, line: int, taken: str | None = None) -> None:
        parts = self._whole(text) or self._otherwise(text)
        if parts is None:
            if self._bounds is None:
                self._continue(text, line)
            else:
                self._settle(self._bounds.add(Waiting(text, None, line, 0), None))
            return
        stamp = parts.stamp
        if stamp != self._printed:
            try:
                self._local = self._stamps.micros(stamp)
            except ValueError:
                self._sink.reject(line, "a time that cannot be", text)
                return
            self._printed = stamp
            self._ts = self._utc(stamp, self._local)
        local, ts = self._local, self._ts
        if self._bounds is None:
            self._take(text, parts, line, local, ts)
        else:
            self._settle(self._bounds.add(Waiting(text, parts, line, local), self._written(parts, ts, taken)))

    @property
    def layout(self) -> str:
        """The name of the layout."""
        return self._layout.name

    @property
    def has_whole_seconds(self) -> bool:
        """Whether a stamp in whole seconds has come, from where on a line's time depends on the lines around it."""
        return self._bounds is not None

    def second_at(self, stamp: str) -> tuple[int, int] | None:
        """Return a printed second in microseconds, and how far its clock is ahead of UTC; None: that is not certain."""
        try:
            local = self._stamps.micros(stamp)
        except ValueError:
            return None
        return None if self._clock.is_repeated(local) else (local, self._clock.offset(local))

    def pass_over(self, local: int) -> None:
        """Note that complete lines stood here, which are read in another way; `local`: printed time of the last."""
        if self._head is not None:
            self._reject_head()
        self._follows = True
        self._settings = self._printed = None
        self._clock.utc(local)

    def _utc(self, stamp: str, local: int) -> int:
        """Return microseconds in UTC, by the offset that the stamp states, else by the broker's zone."""
        if len(stamp) == layouts.MILLISECONDS and stamp[-1] != "Z":
            return self._clock.utc(local)
        if self._bounds is None and len(stamp) == layouts.WHOLE_SECONDS:
            self._bounds = Bounds()
        ahead = layouts.offset_of(stamp)
        return self._clock.utc(local) if ahead is None else local - ahead

    def _written(self, parts: layouts.LogLine, ts: int, taken: str | None) -> Written:
        """Return the bounds of the line's time; a runtime's time is used if it lies within the stamp's whole second."""
        whole = len(parts.stamp) == layouts.WHOLE_SECONDS
        written = Written(ts, ts + SECOND - 1 if whole else ts, *connection_of(parts.text))
        if whole and taken is not None:
            try:
                told = self._stamps.micros(taken) - (layouts.offset_of(taken) or 0)
            except ValueError:
                return written
            if ts <= told < ts + SECOND:
                return written._replace(earliest=told, latest=told)
        return written

    def _settle(self, settled: Iterable[Settled]) -> None:
        """Handle the lines whose times are final; each gets the middle of its possible time."""
        for (text, parts, line, local), earliest, latest in settled:
            if parts is None:
                self._continue(text, line)
                continue
            if latest > earliest:
                self._sink.ts_errors[line] = (latest - earliest + 1) // 2
            self._take(text, parts, line, local, (earliest + latest) // 2)

    def _take(self, text: str, parts: layouts.LogLine, line: int, local: int, ts: int) -> None:
        """Handle a stamped line."""
        if self._head is not None:
            self._reject_head()
        self._sink.counts.saw(ts)
        self._follows = True
        self._settings = None
        if "\n" in parts.text:
            first, *others = parts.text.rstrip("\n").split("\n")
            self._take(first, parts._replace(text=first), line, local, ts)
            for other in others:
                self._continue(other, line)
        elif parts.text.startswith(PREFIX):
            self._request(text, parts, line, local, ts)
        elif parts.logger is None:
            self._head = (text, parts, line, local, ts)
        elif not self._server.parse(parts, line, local, ts):
            self._sink.counts.no_interest[parts.level, parts.logger] += 1
            if parts.text.startswith(SETTINGS):
                self._settings = (local, ts)

    def _request(self, text: str, parts: layouts.LogLine, line: int, local: int, ts: int) -> None:
        reason: str | None = "request line cut off before its end"
        if parts.logger is not None:
            logger = layouts.last_part(parts.logger)
            told = line_identity(self._sink.broker_id, local, parts.level, logger, parts.text)
            reason = self._requests.parse(parts.text, self._sink, Line(told, line, ts, parts.level))
        if reason is not None:
            self._sink.reject(line, reason, text)
            self._glued(text, line)

    def _glued(self, text: str, line: int) -> None:
        """Parse what follows in a line that a killed broker left unfinished and that went on after its restart."""
        if text.startswith("{"):
            again = text.rfind(text[:_OBJECT_BEGINNING], _OBJECT_BEGINNING)
        else:
            found = layouts.BEGINNING.finditer(text, layouts.WHOLE_SECONDS)
            again = max((beginning.start() for beginning in found), default=-1)
        if again > 0:
            self._parse(text[again:], line)

    def finish(self, *, cut: bool = False) -> None:
        """Handle what still waits. `cut`: the last line has no line end."""
        if self._last is not None:
            text, line, _ = self._last
            if cut and (self._whole(text) or self._otherwise(text)) is not None:
                self._sink.reject(line, "cut off before its end", text)
            else:
                self._parse(*self._last)
            self._last = None
        while self._bounds is not None and (settled := list(self._bounds.settle())):
            self._settle(settled)  # what goes on within a line that was cut comes back, and waits again
        self._reject_head()

    def _reject_head(self) -> None:
        """Reject a stamped line that stopped before its logger and was not continued: it was cut off."""
        if self._head is not None:
            text, _, line, _, _ = self._head
            self._sink.reject(line, "cut off before its end", text)
            self._head = None

    def _continue(self, text: str, line: int) -> None:
        """Handle a line without a stamp: part of the line before it (a stack trace, a list of settings), or garbage."""
        head = self._head
        if _START_UP.match(text):
            self._sink.counts.no_interest["", "start-up script"] += 1
            return
        if not text.strip(" \t\r\ufeff") and head is None:
            return  # an empty line
        if _UNREADABLE.search(text) or not self._follows or (head is None and not _CONTINUATION.match(text)):
            reason = "neither a log line nor part of the one before" if self._follows else "not a log line"
            self._sink.reject(line, reason, text)
            if text.startswith("{"):
                self._glued(text, line)
            return
        counts = self._sink.counts
        if head is not None:
            _, parts, _, local, ts = head
            self._head = None
            self._settings = (local, ts) if parts.text.startswith(SETTINGS) else None
            counts.no_interest[parts.level, "lines of many"] += 1
        if self._settings is None or not self._server.broker_setting(line, *self._settings, text):
            counts.no_interest["", "continued"] += 1


def connection_of(text: str) -> tuple[str | None, int]:
    """Return the connection of a request line, and the microseconds from the request's arrival to its line."""
    if not text.startswith(PREFIX):
        return None, 0
    connection, total = _JSON_TIMES if text.startswith("{", len(PREFIX)) else _TEXT_TIMES
    named, spent = connection.value(text), total.value(text)
    return (None, 0) if named is None or spent is None else (named, int(float(spent) * 1000))
