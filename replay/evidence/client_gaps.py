"""Numbers that a client left out on its connections, and of those the ones that it sent nowhere.

A client numbers its requests. Some clients count per connection (librdkafka, followers), others across all brokers (the
Java clients, `NetworkClient`). A number missing on a connection is therefore no lost line if the same client sent it to
another broker in the meantime. That other connection must share no number with this one: connections that share numbers
have a counter each, or belong to two clients of one name. A broker handles a connection's requests one by one, so a
lost request was handled between the two requests around the gap. For the same reason a request may wait for those
before it on its connection, while their records are replicated, and be taken up long after it was sent.

Some numbers were never sent. A Java client counts its telemetry request even if the brokers have no telemetry
(KIP-714), and requests under way to a broker that died have no line anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from replay.arrays.alike import alike
from replay.arrays.columns import differing, numbers, ranges
from replay.arrays.ints import NEVER
from replay.evidence.client_requests import REQUEST_SCHEMA, by_client
from schemas.model import BOOL, INT32, INT64, STRING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.arrays.ints import Flags, Ints

GAP_SCHEMA = pa.schema(
    [
        pa.field("broker_id", INT32),
        pa.field("connection", STRING),
        pa.field("correlation_id", INT64),  # the last before the gap
        pa.field("since_us", INT64),
        pa.field("until_us", INT64),
        pa.field("lines", INT64),  # how many are missing; 0: possibly some, after the connection's last line
        pa.field("lost", INT64),  # how many of these a log must have lost, because no harmless reason explains them
        pa.field("fetches", BOOL),  # whether the connection fetches; such connections append nothing
        pa.field("proves", BOOL),  # whether the lines missing in the gap were written, even if the log is filtered
    ]
)
SLACK_US = 50_000  # stamps of two brokers' logs, each late by some milliseconds
MOST_CLIENTS = 64  # as many of one name on one host are told apart
IN_FLIGHT = 5  # max.in.flight.requests.per.connection
GIVEN_UP_US = 30_000_000  # request.timeout.ms
NUMBERS = 1 << 32  # a client counts in 32 bits, on from the least number after the greatest
RESERVED = NUMBERS // 2 - 8  # SaslClientAuthenticator.MIN_RESERVED_CORRELATION_ID; `NetworkClient` leaves these out
FAR = 1 << 30  # numbers of one client that are further from zero, on both sides, are from before that and after
FIRST_NUMBERS = 16  # a client that has found its brokers asks for telemetry with one of these


def gaps_in(requests: pa.Table, shared: pa.Table) -> pa.Table:
    """All requests of some clients (`REQUEST_SCHEMA`) -> their gaps and ends (`GAP_SCHEMA`).

    `shared`: connections that are used by several of all clients.
    """
    return pa.concat_tables([GAP_SCHEMA.empty_table(), *map(host_gaps, by_client(requests, shared))])


def host_gaps(requests: pa.Table) -> pa.Table:
    """Requests of one client on one host (`REQUEST_SCHEMA`), some twice -> its gaps and ends (`GAP_SCHEMA`).

    Of a client whose numbers prove nothing only the ends are told: it has a gap behind nearly each of its fetches.
    """
    broker, number, taken, *traits = (numbers(requests[name]) for name in REQUEST_SCHEMA.names[2:])
    number = counted_on(number, int(number.max()))
    connection = requests["connection"].combine_chunks()
    name = numbers(connection.indices)
    order = np.lexsort((taken, number, name, broker))
    order = order[differing(*(column[order] for column in (broker, name, number, taken)))]
    broker, name, number, taken = (column[order] for column in (broker, name, number, taken))
    first = np.flatnonzero(differing(broker, name))  # first line of each connection
    last = np.append(first[1:], len(name)) - 1
    connections = Connections(
        broker[first],
        connection.dictionary.take(pa.array(name[first])),
        number[last],
        *(np.logical_or.reduceat(trait[order] > 0, first) for trait in traits),
    )
    begun, ended = (of_all.reduceat(taken, first) for of_all in (np.minimum, np.maximum))
    ends = end_rows(connections, Used(begun, ended, taken[last]))
    if prove_nothing(connections.fetches, connections.replicates, connections.appends, connections.unkept):
        return ends
    gaps = gaps_between(number, taken, np.repeat(np.arange(len(first)), last - first + 1), len(number))
    return pa.concat_tables([gap_rows(gaps, connections), ends])


def prove_nothing(fetches: Ints | Flags, *others: Ints | Flags) -> bool:
    """Whether a client's numbers prove nothing: it fetches, and a filtered log keeps nothing else of it.

    `others`: whether a request, or any of some, does what the other columns of `REQUEST_SCHEMA` say.
    """
    return bool(fetches.any()) and not any(one.any() for one in others)


def counted_on(number: Ints, greatest: int) -> Ints:
    """Numbers of a client as it would have counted without an end. `greatest`: of all that it sent."""
    return np.where((number < -FAR) & (greatest > FAR), number + NUMBERS, number)


def as_sent(number: Ints) -> Ints:
    """Return the numbers as they were sent."""
    return (number + NUMBERS // 2) % NUMBERS - NUMBERS // 2


class Connections(NamedTuple):
    """The connections of a client, as columns."""

    broker: Ints
    name: pa.StringArray
    last: Ints  # number of the last request
    fetches: Flags  # whether any request does what the columns of `REQUEST_SCHEMA` say
    replicates: Flags
    appends: Flags
    unkept: Flags

    def are_complete(self) -> Flags:
        """Whether a number that is missing on each must have had a line, even if the log is filtered."""
        found: Flags = self.replicates | (self.appends.any() & ~self.fetches) | self.unkept.any()
        return found


class Used(NamedTuple):
    """When each connection of a client was used, as columns, microseconds."""

    begun: Ints  # the first time that a request was taken up,
    ended: Ints  # and the latest
    last: Ints  # when the one with the greatest number was


class Gaps(NamedTuple):
    """The gaps between a client's lines, as columns, and of the numbers in them those that the client sent nowhere."""

    of: Ints  # the connection
    number: Ints  # the last before the gap
    since: Ints  # microseconds
    until: Ints
    lines: Ints  # how many numbers are left out on the connection
    are_wide: Flags  # whether these are more than all lines of the client could fill; then they are not sought
    at: Ints  # for each number that is missing: its gap
    missing: Ints

    def where(self, which: Flags) -> Gaps:
        """Return some of the gaps."""
        place, stay = np.cumsum(which) - 1, which[self.at]
        of, number, since, until, lines = (column[which] for column in self[:5])
        return Gaps(of, number, since, until, lines, self.are_wide[which], place[self.at[stay]], self.missing[stay])


def gaps_together(gaps: Sequence[Gaps]) -> Gaps:
    """Return all of some gaps of one client."""
    before = np.cumsum([0, *(len(some.of) for some in gaps)])
    moved = [some._replace(at=some.at + first) for some, first in zip(gaps, before[:-1].tolist(), strict=True)]
    columns: list[Any] = [np.concatenate(column) for column in zip(NO_GAPS, *moved, strict=True)]
    return Gaps(*columns)


def gaps_between(number: Ints, taken: Ints, of: Ints, count: int) -> Gaps:
    """Return the gaps between lines of a client.

    `number`, `taken`: of each line, by connection and then by number; `of`: the number of its connection, from 0 on.
    `count`: of all lines of the client.
    """
    before = np.flatnonzero((of[1:] == of[:-1]) & (np.diff(number) > 1))
    left_out = number[before + 1] - number[before] - 1
    are_wide = left_out > count
    at = missing = np.zeros(0, np.int64)
    if len(before):
        lines = ClientLines(number, taken, sent_since(taken, of), of)
        at, missing = not_elsewhere(lines, before, np.flatnonzero(~are_wide))
    ends = np.stack([taken[before], taken[before + 1]])
    return Gaps(of[before], number[before], ends.min(axis=0), ends.max(axis=0), left_out, are_wide, at, missing)


def gap_rows(gaps: Gaps, connections: Connections) -> pa.Table:
    """Return those gaps of a client in which lines may be missing (`GAP_SCHEMA`)."""
    are_complete = connections.are_complete()[gaps.of]
    unsent = is_under_way(gaps.missing, connections.last) | is_skipped(gaps.missing) | is_reserved(gaps.missing)
    missing = np.bincount(gaps.at, minlength=len(gaps.of))
    sent = np.bincount(gaps.at[~unsent], minlength=len(gaps.of))
    lost = np.where(are_complete, np.where(gaps.are_wide, gaps.lines, sent), 0)
    kept = np.flatnonzero((gaps.are_wide | (missing > 0)) & (are_complete | connections.fetches[gaps.of]))
    rows = {
        "broker_id": connections.broker[gaps.of],
        "connection": connections.name.take(pa.array(gaps.of)),
        "correlation_id": as_sent(gaps.number),
        "since_us": gaps.since,
        "until_us": gaps.until,
        "lines": gaps.lines,
        "lost": lost,
        "fetches": connections.fetches[gaps.of],
        "proves": are_complete,
    }
    return pa.table(rows, schema=GAP_SCHEMA).take(pa.array(kept))


def end_rows(connections: Connections, used: Used) -> pa.Table:
    """Return the ends of a client's connections (`GAP_SCHEMA`): up to when lines may be missing after the last."""
    rows = {
        "broker_id": connections.broker,
        "connection": connections.name,
        "correlation_id": as_sent(connections.last),
        "since_us": used.last,
        "until_us": next_begun(connections.broker, used.begun, used.ended),
        "lines": np.zeros(len(used.last), np.int64),
        "lost": np.zeros(len(used.last), np.int64),
        "fetches": connections.fetches,
        "proves": np.zeros(len(used.last), np.bool_),
    }
    return pa.table(rows, schema=GAP_SCHEMA)


NONE_THERE: Final = np.zeros(0, np.int64)
NO_GAPS: Final = Gaps(*(NONE_THERE,) * 5, np.zeros(0, np.bool_), NONE_THERE, NONE_THERE)


class ClientLines(NamedTuple):
    """A client's lines, by connection and then by number, as columns."""

    number: Ints
    taken: Ints  # when a handler took it up, microseconds
    sent: Ints  # since when it may have been sent
    of: Ints  # the connection


def sent_since(taken: Ints, of: Ints) -> Ints:
    """Since when each request may have been sent; `of`: its connection, whose requests follow each other.

    That is, since the broker took up the `IN_FLIGHT`th one before it, and not before its client would have given it up.
    """
    out = taken.copy()
    for back in range(1, IN_FLIGHT + 1):
        before = np.where(of[back:] == of[:-back], taken[:-back], NEVER)
        out[back:] = np.minimum(out[back:], before)
    return np.maximum(out, taken - GIVEN_UP_US)


def not_elsewhere(lines: ClientLines, before: Ints, places: Ints) -> tuple[Ints, Ints]:
    """Numbers in the gaps at `places` that no other connection of the client has, each with the place of its gap.

    `before`: the line before each gap.
    """
    number, taken, sent, of = lines
    width = number[before + 1][places] - number[before][places] - 1
    gap = np.repeat(places, width)
    wanted = ranges(number[before][places] + 1, width)
    order = np.lexsort((taken, number))
    origin, span = int(taken.min()), int(taken.max() - taken.min()) + 4 * SLACK_US
    known = np.unique(number)
    keys = (np.searchsorted(known, number) * span + (taken - origin) + SLACK_US)[order]
    spot = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    # A broker that stands still may take up the later of two requests, by its own measure, before the earlier one.
    low = np.minimum(sent[before], sent[before + 1])[gap] - SLACK_US
    least = np.minimum(taken[before], taken[before + 1])[gap] - SLACK_US
    high = np.maximum(taken[before], taken[before + 1])[gap] + SLACK_US

    def place_of(us: Ints, side: Literal["left", "right"]) -> Ints:
        found: Ints = np.searchsorted(keys, spot * span + np.clip(us - origin + SLACK_US, 0, span - 1), side)
        return found

    is_any, first = known[spot] == wanted, place_of(low, "left")
    # So many clients may have this name that one of them has any number at any time.
    found = is_any & (place_of(high, "right") - place_of(least, "left") > MOST_CLIENTS)
    count = np.where(is_any & ~found, place_of(high + (taken - sent).max(), "right") - first, 0)
    at = np.repeat(np.arange(len(gap)), count)
    line = order[ranges(first, count)]
    in_time = sent[line] <= high[at]
    at, line = at[in_time], line[in_time]
    found[at[~collide(lines, of[before][gap[at]], of[line])]] = True
    return gap[~found], wanted[~found]


def collide(lines: ClientLines, one: Ints, other: Ints) -> Flags:
    """For each pair of connections, whether both used the same number and were open at the same time."""
    if not len(one):
        return np.zeros(0, bool)
    starts = np.flatnonzero(np.diff(lines.of, prepend=-1))
    begun, ended = (of_all.reduceat(lines.taken, starts) for of_all in (np.minimum, np.maximum))
    numbers = np.split(lines.number, starts[1:])
    pairs, pair = alike(np.stack([one, other]))
    hits = [
        bool(begun[a] <= ended[b] and begun[b] <= ended[a] and len(np.intersect1d(numbers[a], numbers[b])))
        for a, b in pairs.T.tolist()
    ]
    out: Flags = np.array(hits)[pair]
    return out


def is_under_way(missing: Ints, last: Ints) -> Flags:
    """Whether each number may have been under way when another connection ended, at one of these last numbers."""
    ends = np.sort(last)
    before: Flags = np.searchsorted(ends, missing) > np.searchsorted(ends, missing - IN_FLIGHT)
    return before


def is_skipped(missing: Ints) -> Flags:
    """Whether each number is the one that a client counts but does not send when brokers have no telemetry."""
    early = (missing >= 0) & (missing < FIRST_NUMBERS)
    return early & (len(np.unique(missing[early])) == 1)


def is_reserved(missing: Ints) -> Flags:
    """Whether each number is for authentication only, of which the request log has no line."""
    reserved: Flags = (missing >= RESERVED) & (missing < NUMBERS // 2)
    return reserved


def next_begun(broker: Ints, begun: Ints, ended: Ints) -> Ints:
    """When the client's next connection to the same broker began, of each connection; NEVER: not, or beside it."""
    out = np.full(len(broker), NEVER)
    for one in np.unique(broker):
        mine = np.flatnonzero(broker == one)
        mine = mine[np.argsort(begun[mine], kind="stable")]
        if np.all(ended[mine][:-1] <= begun[mine][1:]):  # one after the other: one client
            out[mine[:-1]] = begun[mine][1:]
    return out
