"""The lives of a client: connections that it used at the same times, apart from those that it used before or later.

A client that starts anew counts its requests anew, under the same name. Connections of different lives are never open
at the same time, so what is missing on one of them is not sought on the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from replay.arrays.alike import alike
from replay.arrays.columns import differing, numbers
from replay.arrays.ints import NEVER
from replay.evidence.client_gaps import SLACK_US, Connections, Gaps, Used, sent_since
from schemas.model import INT32, INT64, STRING

if TYPE_CHECKING:
    from replay.arrays.ints import Flags, Ints

TRAITS: Final = ("fetches", "replicates", "appends", "unkept")  # of requests, columns of `REQUEST_SCHEMA`
SETTLED_SCHEMA: Final = pa.schema(
    [
        pa.field("client_id", STRING),
        pa.field("connection", STRING),
        pa.field("broker_id", INT32),
        pa.field("correlation_id", INT64),  # the last before the gap
        pa.field("since_us", INT64),
        pa.field("until_us", INT64),
        pa.field("lines", INT64),  # how many numbers are left out on the connection
        pa.field("missing", pa.list_(INT64)),  # which of these the client sent to no other broker; null: all
    ]
)
BELOW_ALL: Final = -NEVER  # numbers; they are counted in 32 bits, and below zero after the greatest
APART_US: Final = 4 * SLACK_US  # between two lives
NO_LIFE: Final = -1
Place = tuple[int, str]  # a broker and a connection to it


class Lines(NamedTuple):
    """Requests of a client, each once: by connection, and then by number."""

    place: Ints  # of its connection among the client's
    number: Ints
    taken: Ints  # when a handler took it up, microseconds
    sent: Ints  # since when it may have been sent
    row: Ints  # where it stands among the client's rows

    def where(self, which: Flags) -> Lines:
        """Return some of them."""
        return Lines(*(column[which] for column in self))


@dataclass
class Life:
    """Connections of a client that were used at the same times."""

    lines: Lines  # requests that are there
    known: dict[int, dict[str, Any]] = field(default_factory=dict)  # by place: what is known of those before
    gaps: dict[int, list[dict[str, Any]]] = field(default_factory=dict)  # by place: those between these

    @property
    def is_across(self) -> bool:
        """Whether the client is known to count across its connections."""
        return any(row["across"] for row in self.known.values())

    @property
    def until(self) -> int:
        """Up to which number requests on any of its connections are known; BELOW_ALL: on none."""
        return max((row["until"] for row in self.known.values()), default=BELOW_ALL)

    def limits(self, places: Ints) -> Ints:
        """Return up to which number requests on these connections are known."""
        of_place = np.full(int(places.max(initial=-1)) + 1, self.until if self.is_across else BELOW_ALL)
        for place, row in self.known.items():
            of_place[place : place + 1] = row["until"]
        found: Ints = of_place[places]
        return found


@dataclass
class Client:
    """All that is there of the requests of one client on one host."""

    client_id: str
    known: list[dict[str, Any]]  # what is known of those before, by connection (`later_gaps.COUNTER_SCHEMA`),
    gaps: list[dict[str, Any]]  # and gaps between those (`SETTLED_SCHEMA`)
    rows: pa.Table  # of `client_requests.REQUEST_SCHEMA`
    places: dict[Place, int] = field(default_factory=dict)
    place: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # of each row's connection, see `lines`

    @property
    def traits(self) -> Flags:
        """Return `TRAITS` of the requests, in rows."""
        return np.stack([numbers(self.rows[trait]) > 0 for trait in TRAITS])

    def place_of(self, row: dict[str, Any]) -> int:
        """Return the place of the connection that a row of `known` or `gaps` is about."""
        return self.places[row["broker_id"], row["connection"]]

    def connections(self) -> Connections:
        """Return all connections, by their places."""
        lines = self.lines
        last = np.full(len(self.places), BELOW_ALL)
        np.maximum.at(last, lines.place, lines.number)
        kinds = np.zeros((len(TRAITS), len(self.places)), np.bool_)
        np.logical_or.at(kinds.T, self.place, self.traits.T)
        for row in self.known:
            place = self.place_of(row)
            last[place] = max(last[place], row["number"])
            kinds[:, place] |= [row[trait] for trait in TRAITS]
        broker, name = zip(*self.places, strict=True)
        return Connections(np.array(broker, np.int64), pa.array(name, STRING), last, *kinds)

    def used(self) -> Used:
        """Return when each connection was used, by their places."""
        lines, names = self.lines, ("number", "begun_us", "ended_us")
        told = [[self.place_of(row), row["last_us"][-1], *(row[name] for name in names)] for row in self.known]
        known = np.array(told, np.int64).reshape(-1, 2 + len(names)).T
        place, taken, number, first, latest = (
            np.concatenate(pair)
            for pair in zip(known, (lines.place, lines.taken, lines.number, lines.taken, lines.taken), strict=True)
        )
        ended, last = np.full((2, len(self.places)), -NEVER)
        begun = np.full(len(self.places), NEVER)
        np.minimum.at(begun, place, first)
        np.maximum.at(ended, place, latest)
        order = np.lexsort((taken, number))
        last[place[order]] = taken[order]  # of each place the last one stays
        return Used(begun, ended, last)

    def settled(self) -> Gaps:
        """Return the gaps between requests that are not there."""
        names = ("correlation_id", "since_us", "until_us", "lines")
        told = [[self.place_of(row), *(row[name] for name in names)] for row in self.gaps]
        of, number, since, until, lines = np.array(told, np.int64).reshape(-1, 1 + len(names)).T
        wanted = zip((number + 1).tolist(), (number + lines + 1).tolist(), strict=True)
        absent = [row["missing"] or range(*every) for row, every in zip(self.gaps, wanted, strict=True)]
        at = np.repeat(np.arange(len(told)), [*map(len, absent)])
        missing = np.array([one for some in absent for one in some], np.int64)
        return Gaps(of, number, since, until, lines, np.zeros(len(told), np.bool_), at, missing)

    def rows_of(self, gaps: Gaps) -> list[dict[str, Any]]:
        """Return gaps in which numbers are missing, as rows (`SETTLED_SCHEMA`)."""
        names, rows = list(self.places), []
        missing = np.split(gaps.missing, np.searchsorted(gaps.at, np.arange(1, len(gaps.of))))
        columns = (column.tolist() for column in gaps[:5])
        for place, number, since, until, lines, absent in zip(*columns, missing[: len(gaps.of)], strict=True):
            if len(absent):
                broker, connection = names[place]
                of = {"client_id": self.client_id, "connection": connection, "broker_id": broker}
                told = {"correlation_id": number, "since_us": since, "until_us": until, "lines": lines}
                rows.append({**of, **told, "missing": absent.tolist() if len(absent) < lines else None})
        return rows

    @cached_property
    def lines(self) -> Lines:
        """The requests; connections that have no place yet get one."""
        for row in self.known:
            self.places.setdefault((row["broker_id"], row["connection"]), len(self.places))
        if not len(self.rows):
            return Lines(*np.zeros((5, 0), np.int64))
        connection = self.rows["connection"].combine_chunks()
        pairs, pair = alike(np.stack([numbers(self.rows["broker_id"]), numbers(connection.indices)]))
        of_pair = [
            self.places.setdefault((broker, connection.dictionary[name].as_py()), len(self.places))
            for broker, name in pairs.T.tolist()
        ]
        place = self.place = np.array(of_pair, np.int64)[pair]
        number, taken = numbers(self.rows["correlation_id"]), numbers(self.rows["taken_us"])
        order = np.lexsort((taken, number, place))
        order = order[differing(place[order], number[order], taken[order])]
        place, number, taken = place[order], number[order], taken[order]
        return Lines(place, number, taken, self.sent_since(place, taken), order)

    def sent_since(self, place: Ints, taken: Ints) -> Ints:
        """Return since when requests may have been sent, which come after what is known of their connections."""
        known = [(self.place_of(row), us) for row in self.known for us in row["last_us"]]
        before = np.array(known, np.int64).reshape(-1, 2).T
        every = np.concatenate([before, np.stack([place, taken])], axis=1)
        order = np.argsort(every[0], kind="stable")
        out = np.empty_like(order)
        out[order] = sent_since(every[1][order], every[0][order])
        return out[before.shape[1] :]

    def lives(self) -> list[Life] | None:
        """Return its lives, of which only the last may go on; None: an earlier one does, or was not all there."""
        lines = self.lines
        of_place = np.full(len(self.places), NO_LIFE)
        for row in self.known:
            of_place[self.place_of(row)] = row["life"]
        last = int(of_place.max(initial=NO_LIFE))
        of_known = of_place[lines.place]
        over = max((row["ended_us"] for row in self.known if row["life"] < last), default=-NEVER)
        if ((of_known != NO_LIFE) & (of_known < last)).any() or (lines.taken <= over + APART_US).any():
            return None
        reached = max((row["ended_us"] for row in self.known), default=-NEVER)
        reached = max(reached, int(lines.taken[of_known != NO_LIFE].max(initial=-NEVER)))
        for place, begun, ended in spans_of(lines):
            if of_place[place] == NO_LIFE:
                last += last == NO_LIFE or begun > reached + APART_US
                of_place[place] = last
                reached = max(reached, ended)
        found = [Life(lines.where(of_place[lines.place] == number)) for number in range(last + 1)]
        for row in self.known:
            found[row["life"]].known[self.place_of(row)] = row
        for row in self.gaps:
            place = self.place_of(row)
            found[of_place[place]].gaps.setdefault(place, []).append(row)
        return found


def spans_of(lines: Lines) -> list[tuple[int, int, int]]:
    """Return the place of each connection, and the first and last time that it was used, by the first."""
    if not len(lines.place):
        return []
    first = np.flatnonzero(differing(lines.place))
    begun, ended = (of.reduceat(lines.taken, first) for of in (np.minimum, np.maximum))
    order = np.argsort(begun, kind="stable")
    return list(zip(*(column[order].tolist() for column in (lines.place[first], begun, ended)), strict=True))
