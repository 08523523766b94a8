"""Coverage of logs by broker and time: where lines were written, where lines are missing, and where it is unknown.

A request log is divided into stretches by its silences. A silence during which the broker was nevertheless at work is a
hole in the recording: clients' correlation ids continue across it, or the broker's own server log mentions requests
that it served. So is the time from a shutdown that closed the log until the broker is started again. Otherwise the
reason is unknown: the broker was down, stood still, or had nothing to do. That it was up at least is shown if other
brokers received its fetches, well inside the silence because clocks differ. A server log may be quiet for long (INFO),
so only its beginning and its end are reported.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import accumulate, pairwise, takewhile
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np

from replay.arrays.columns import numbers, texts
from replay.arrays.ints import NEVER
from replay.evidence.choices import Choice
from replay.evidence.missing_lines import Gap, Hole, MissingLines, united

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from replay.arrays.ints import Ints

SILENT_US = 5_000_000  # a leader receives a fetch from its followers every half second
CLOCKS_US = 5_000_000  # the most by which two brokers' clocks are assumed to differ
MOST_SILENCES = 1000  # of one log, reported one by one
RUN_LINES = 3  # so many lines of one connection are not lost in a row by chance
OWN_SIGN_US = 1_000_000  # a request's line is written when it is answered; a fetch waits half a second
CLOSING_US = 1_000_000  # after the first line of a shutdown, a log that it closes has ended by then

REQUEST_LOG, SERVER_LOG, METADATA = "request_log", "server_log", "metadata"
BY_OTHERS, BY_ITSELF, MEMBER = "by_others", "by_itself", "member"  # signs of life; MEMBER: named as a replica
STOPPING, STOPPED, STARTING = "stopping", "stopped", "starting"  # what its own server log says of its life
LIFE: Final[Mapping[str, Choice]] = {
    STOPPING: Choice(kinds=("broker_lifecycle",), names=("terminating", "shutdown")),
    STOPPED: Choice(kinds=("broker_lifecycle",), names=("shut_down", "ended")),
    STARTING: Choice(kinds=("broker_lifecycle",), names=("start", "started", "version")),
}
OF_BROKERS: Final = frozenset({BY_OTHERS, BY_ITSELF, MEMBER})  # a node that is only a controller has none of these
LOGGED, LOSSY, SILENT, MISSING = "logged", "lossy", "silent", "missing"
NOTHING_TELLS = "no line, and nothing shows that it was up"
CLOSED = (
    "its logs end at its shutdown, before it had stopped: what it answered from there on is in no log "
    "(Log4j 2 closes them first, unless its shutdownHook is disabled)"
)


class Heard(NamedTuple):
    """Lines of one source of a broker, or signs of life, second by second in time order."""

    first: Ints  # microseconds
    last: Ints
    lines: Ints

    def between(self, since: int, until: int, side: Literal["left", "right"] = "right") -> Heard:
        """Return the seconds that begin from one time to another, the last of which is left out at its left side."""
        begin, end = np.searchsorted(self.first, since), np.searchsorted(self.first, until, side)
        return Heard(*(column[begin:end] for column in self))


NOTHING_HEARD: Final = Heard(*np.zeros((3, 0), np.int64))


def heard_of(rows: pa.Table) -> dict[str, Heard]:
    """Return by source what was heard of a broker: a row tells its `source` and second, in whatever order."""
    place, sources = texts(rows["source"])
    columns = np.stack([numbers(rows[name]) for name in Heard._fields])
    order = np.lexsort((columns[0], place))
    ends = np.cumsum(np.bincount(place, minlength=len(sources)))[:-1]
    parts = np.split(columns[:, order], ends, axis=1)
    return {source: Heard(*mine) for source, mine in zip(sources, parts, strict=True)}


def windows_of(
    broker: int | None, spoke: Mapping[str, Heard], missing: MissingLines, span: tuple[int, int]
) -> list[dict[str, Any]]:
    """Rows of `coverage` for one broker, from what was heard of it by source; `span` is the whole recording."""
    if broker is None:
        return outer(METADATA, spoke.get(METADATA), span, "no dump of the metadata log")
    rows = []
    if REQUEST_LOG in spoke:
        rows += request_windows(broker, spoke, missing, span)
    elif spoke.keys() & OF_BROKERS:
        rows.append(row(REQUEST_LOG, span, MISSING, "no request log of this broker"))
    rows += outer(SERVER_LOG, spoke.get(SERVER_LOG), span, "no server log of this broker")
    return [{**one, "broker_id": broker} for one in rows]


def row(source: str, span: tuple[int, int], state: str, reason: str | None, **counts: int) -> dict[str, Any]:
    """A row of `coverage`, without its broker."""
    evidence = "observed" if state == LOGGED else "unknown" if state == SILENT else "derived"
    told = {"source": source, "start_ts": span[0], "end_ts": span[1], "state": state, "reason": reason}
    return {"broker_id": None, **told, "lines": 0, "lines_missing": None, **counts, "evidence": evidence}


def outer(source: str, lines: Heard | None, span: tuple[int, int], absent: str) -> list[dict[str, Any]]:
    """Windows of a source of which only the beginning and the end are known."""
    if lines is None:
        return [row(source, span, MISSING, absent)]
    first, last = int(lines.first[0]), int(lines.last.max())
    out = [row(source, (span[0], first), SILENT, "before its first line")] if first - span[0] >= SILENT_US else []
    out.append(row(source, (first, last), LOGGED, None, lines=int(lines.lines.sum())))
    if span[1] - last >= SILENT_US:
        out.append(row(source, (last, span[1]), SILENT, "after its last line"))
    return out


def request_windows(
    broker: int, spoke: Mapping[str, Heard], missing: MissingLines, span: tuple[int, int]
) -> list[dict[str, Any]]:
    """The stretches and silences of a request log, in time order."""
    lines = spoke[REQUEST_LOG]
    signs = {source: spoke.get(source, NOTHING_HEARD) for source in (BY_ITSELF, BY_OTHERS)}
    out: list[dict[str, Any]] = []
    since = span[0]
    for closed in closings(spoke, lines, span[1]):
        mine = lines.between(since, closed.since)
        out += open_windows(broker, mine, signs, missing, (since, closed.since))
        out.append(row(REQUEST_LOG, closed, MISSING, CLOSED))
        since = closed.until
    mine = lines.between(since, NEVER)
    return thinned(out + open_windows(broker, mine, signs, missing, (since, span[1])))


def closings(spoke: Mapping[str, Heard], lines: Heard, end: int) -> list[Gap]:
    """From where each shutdown closed the request log, until the broker was started again, or to `end`.

    Log4j 2 closes all logs at SIGTERM unless it is told not to, while the broker hands over its partitions and goes on
    answering. The broker's own log then says that it stops and never that it has stopped. If requests follow well after
    that, the log was open, and the broker was killed before it had stopped. A node that is only a controller
    acknowledges nothing.
    """
    if not spoke.keys() & OF_BROKERS:
        return []
    stopping, stopped, starting = (spoke.get(source, NOTHING_HEARD) for source in LIFE)
    starts = starting.first.tolist()
    out: list[Gap] = []
    for begin in stopping.first.tolist():
        until = next(iter(starts[bisect_right(starts, begin) :]), end)
        before = int(np.searchsorted(lines.first, until))
        since = max(begin, int(lines.last[before - 1])) if before else begin
        has_stopped = ((begin <= stopped.last) & (stopped.first <= until)).any()
        if not has_stopped and since - begin <= CLOSING_US and (not out or out[-1].until < until):
            out.append(Gap(since, max(since, until)))
    return out


def open_windows(
    broker: int,
    lines: Heard,
    signs: Mapping[str, Heard],
    missing: MissingLines,
    span: tuple[int, int],
) -> list[dict[str, Any]]:
    """The stretches and silences of a time in which no shutdown closed the log."""
    holes = missing.holes.get(broker, ())
    open_until = list(accumulate((hole.until for hole in holes), max))  # the latest end among the holes begun so far
    out: list[dict[str, Any]] = []
    until = span[0]
    for begin, end in stretches(lines):
        if begin - until >= SILENT_US:
            out.append(silence((until, begin), signs, holes, open_until))
        out += stretch_windows(broker, (begin, end), lines.between(begin, end), missing)
        until = end
    if span[1] - until >= SILENT_US:
        out.append(silence((until, span[1]), signs, holes, open_until))
    return out


def stretches(lines: Heard) -> list[tuple[int, int]]:
    """From when to when lines follow each other without a silence."""
    last = np.maximum.accumulate(lines.last)
    begins = np.flatnonzero(lines.first[1:] - last[:-1] > SILENT_US) + 1
    ends = pairwise([0, *begins.tolist(), len(last)] if len(last) else [])
    return [(int(lines.first[begin]), int(last[end - 1])) for begin, end in ends]


def thinned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of one log in time order; if very many silences are unexplained, only the longest remain.

    A client that sends requests rarely makes one silence after the other. Silences left out count as logged, together
    with what surrounds them.
    """
    quiet = [one for one in rows if one["reason"] == NOTHING_TELLS]
    if len(quiet) <= MOST_SILENCES:
        return rows
    quiet.sort(key=lambda one: (one["start_ts"] - one["end_ts"], one["start_ts"]))
    short = {one["start_ts"] for one in quiet[MOST_SILENCES:]}
    out: list[dict[str, Any]] = []
    joins = False
    for one in rows:
        if one["reason"] == NOTHING_TELLS and one["start_ts"] in short and out and out[-1]["state"] == LOGGED:
            joins = True
        elif joins and one["state"] == LOGGED:
            out[-1] |= {"end_ts": one["end_ts"], "lines": out[-1]["lines"] + one["lines"]}
            joins = False
        else:
            out.append(one)
            joins = False
    return out


def stretch_windows(broker: int, span: tuple[int, int], lines: Heard, missing: MissingLines) -> list[dict[str, Any]]:
    """A stretch with lines, divided where lines are missing among them."""
    out: list[dict[str, Any]] = []
    since = span[0]
    lossy = missing.lossy.get(broker, ())
    near = lossy[bisect_left(lossy, span[0], key=lambda one: one.until) :]
    for around in [*takewhile(lambda one: one.since <= span[1], near), Gap(NEVER, NEVER)]:
        holes = [hole for hole in missing.holes.get(broker, ()) if around.since <= hole.since <= around.until]
        first = max(min((hole.since for hole in holes), default=NEVER), span[0])
        last = min(max((hole.until for hole in holes), default=NEVER), span[1])
        if holes and last < since:
            continue
        until = min(max(first, since), span[1])
        if until > since or (not out and not holes):
            here = lines_in(lines, since, until, span[1])
            out.append(row(REQUEST_LOG, (since, until), LOGGED, None, lines=here))
        if not holes or first >= span[1]:
            return out
        here = lines_in(lines, until, last, span[1])
        lost = sum(hole.lines for hole in holes)
        why = "clients' correlation ids show that lines are missing"
        out.append(row(REQUEST_LOG, (until, last), LOSSY, why, lines=here, lines_missing=lost))
        since = last
    return out


def lines_in(lines: Heard, since: int, until: int, end: int) -> int:
    """How many lines there are from one time to before another; at the end of a stretch its last second is one more."""
    return int(lines.between(since, until, "right" if until == end else "left").lines.sum())


def silence(
    span: tuple[int, int], signs: Mapping[str, Heard], holes: Sequence[Hole], open_until: Sequence[int]
) -> dict[str, Any]:
    """A stretch without lines; it is `missing` if anything shows that the broker was at work in it."""
    begun = bisect_right(holes, span[0], key=lambda hole: hole.since)
    if begun and open_until[begun - 1] > span[0]:
        spanning = [hole for hole in holes[:begun] if span[0] < hole.until and hole.lines >= RUN_LINES]
        if spanning:
            why = "clients' correlation ids go on over it"
            return row(REQUEST_LOG, span, MISSING, why, lines_missing=sum(hole.lines for hole in spanning))
    if shows(signs[BY_ITSELF], span, OWN_SIGN_US):
        return row(REQUEST_LOG, span, MISSING, "its own server log tells of requests that it served")
    if shows(signs[BY_OTHERS], span, CLOCKS_US):
        return row(REQUEST_LOG, span, SILENT, "no line, though it was up: other brokers received its fetches")
    return row(REQUEST_LOG, span, SILENT, NOTHING_TELLS)


def shows(signs: Heard, span: tuple[int, int], margin: int) -> bool:
    """Whether any sign of life (each of one second, in time order) lies well within the stretch."""
    first = int(np.searchsorted(signs.first, span[0] + margin))
    return first < len(signs.first) and bool(signs.last[first] <= span[1] - margin)


def with_windows(missing: MissingLines, rows: Iterable[Mapping[str, Any]]) -> MissingLines:
    """`missing`, extended by the stretches in which the whole request log is missing.

    One that lasts to the end of the recording has no end: what comes later is missing as well, as far as is known.
    """
    told = [*rows]
    end = max((one["end_ts"] for one in told), default=NEVER)
    silent = defaultdict[int, list[Gap]](list)
    for one in told:
        if one["source"] == REQUEST_LOG and one["state"] == MISSING:
            until = NEVER if one["end_ts"] == end else one["end_ts"]
            silent[one["broker_id"]].append(Gap(one["start_ts"], until))

    def extended(stretches: Mapping[int, list[Gap]]) -> dict[int, list[Gap]]:
        return {one: united([*stretches.get(one, ()), *silent.get(one, ())]) for one in {**stretches, **silent}}

    return MissingLines(
        extended(missing.gaps), missing.cuts, extended(missing.lossy), missing.holes, extended(missing.doubtful)
    )
