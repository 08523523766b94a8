"""Numbers that are missing on the connections of a client that counts on each by itself: no other one can have them.

Two connections that are open at the same time and share a number have a counter each (`client_gaps.collide`), whatever
comes later. So where all do, a number that is missing on one was sent nowhere, and the others' requests need not be
known. It cannot be told where one that has such a number shares none, as if it had only just been opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from replay.arrays.columns import differing, ranges
from replay.arrays.ints import NEVER
from replay.evidence.client_gaps import MOST_CLIENTS, SLACK_US, Gaps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from replay.arrays.ints import Ints
    from replay.evidence.client_lives import Life

    Row = Mapping[str, Any]


class Connection(NamedTuple):
    """What is known of a connection's requests."""

    begun: int  # when the earliest was taken up, microseconds,
    ended: int  # and the latest
    first: Ints  # numbers: of stretches without a gap the first,
    last: Ints  # and the last; rising

    def has_any(self, first: int, last: int) -> bool:
        """Whether it has any of these numbers."""
        k = int(np.searchsorted(self.last, first))
        return k < len(self.last) and bool(self.first[k] <= last)

    def collides(self, other: Connection) -> bool:
        """Whether both used the same number and were open at the same time."""
        if self.begun > other.ended or other.begun > self.ended:
            return False
        k = np.searchsorted(other.last, self.first)
        found = k < len(other.last)
        return bool((other.first[k[found]] <= self.last[found]).any())


def connections_of(life: Life) -> dict[int, Connection]:
    """Return the connections of one life, by their places, with the requests of before."""
    lines = life.lines
    begins = np.flatnonzero(differing(lines.place))
    stops = np.append(begins[1:], len(lines.place))
    mine = {int(lines.place[begin]): slice(begin, stop) for begin, stop in zip(begins, stops, strict=True)}
    return {
        place: connection_of(life.known.get(place), life.gaps.get(place, ()), lines.number[at], lines.taken[at])
        for place in sorted({*life.known, *mine})
        for at in (mine.get(place, slice(0, 0)),)
    }


def connection_of(known: Row | None, gaps: Sequence[Row], number: Ints, taken: Ints) -> Connection:
    """Return one connection. `known`, `gaps`: of its requests of before; `number`, `taken`: of the others."""
    edges = sorted((row["correlation_id"], row["correlation_id"] + row["lines"] + 1) for row in gaps)
    begun, ended = int(taken.min(initial=NEVER)), int(taken.max(initial=-NEVER))
    first, last = [other for _, other in edges], [one for one, _ in edges]
    if known is not None:
        begun, ended = min(begun, known["begun_us"]), max(ended, known["ended_us"])
        first, last = [known["least"], *first], [*last, known["number"]]
    is_first, is_last = np.diff(number, prepend=-NEVER) > 1, np.diff(number, append=NEVER) > 1
    stretches = ((first, number[is_first]), (last, number[is_last]))
    return Connection(begun, ended, *(np.concatenate([np.array(one, np.int64), more]) for one, more in stretches))


def gaps_apart(life: Life, gaps: Gaps, low: Ints) -> Gaps | None:
    """Return the gaps of one life with all of their numbers as missing; None: it cannot be told that these are.

    `gaps`: those between requests that are there, or that are the last of before; `low`: when the numbers in each may
    have been sent at the earliest.
    """
    least = int(life.lines.sent.min()) - SLACK_US
    settled = [(place, row) for place, rows in life.gaps.items() for row in rows if row["until_us"] >= least]
    if len(gaps.of) or settled:
        every = connections_of(life)
        if not (are_missing(gaps, low, every) and stay_missing(life, settled, every)):
            return None
    at = np.repeat(np.arange(len(gaps.of)), gaps.lines)
    return gaps._replace(at=at, missing=ranges(gaps.number + 1, gaps.lines))


def are_missing(gaps: Gaps, low: Ints, every: Mapping[int, Connection]) -> bool:
    """Whether no other connection that has numbers of a gap can explain that they are missing on this one."""
    columns = (gaps.of, gaps.number, gaps.lines, low)
    for place, number, lines, since in zip(*(column.tolist() for column in columns), strict=True):
        at_the_time = (other for other, one in every.items() if other != place and one.ended >= since)
        others = [other for other in at_the_time if every[other].has_any(number + 1, number + lines)]
        if not all_collide(place, others, every):
            return False
    return True


def stay_missing(life: Life, settled: Sequence[tuple[int, Row]], every: Mapping[int, Connection]) -> bool:
    """Whether no number that was missing before may have been sent on another connection after all."""
    lines = life.lines
    for place, row in settled:
        first, last = row["correlation_id"] + 1, row["correlation_id"] + row["lines"]
        is_it = (lines.number >= first) & (lines.number <= last) & (lines.sent <= row["until_us"] + SLACK_US)
        others = np.unique(lines.place[is_it & (lines.place != place)]).tolist()
        if not all_collide(place, others, every):
            return False
    return True


def all_collide(place: int, others: Sequence[int], every: Mapping[int, Connection]) -> bool:
    """Whether a connection is of another counter than each of some others, which are few enough to tell."""
    return len(others) <= MOST_CLIENTS and all(every[other].collides(every[place]) for other in others)
