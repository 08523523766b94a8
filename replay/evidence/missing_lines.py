"""Lines that a request log lost, found by gaps in clients' correlation ids.

A client numbers its requests. Some clients count per connection (librdkafka, followers), others across all brokers (the
Java clients, `NetworkClient`). A number missing on a connection is therefore no lost line if the same client sent it to
another broker in the meantime. That other connection must share no number with this one: connections that share numbers
have a counter each, or belong to two clients of one name. A broker handles a connection's requests one by one, so a
lost request was handled between the two requests around the gap. For the same reason a request may wait for those
before it on its connection, while their records are replicated, and be taken up long after it was sent.

What numbers cannot show:

- A line lost at the end of a connection. It is considered possible only near gaps, at least two of them, because a log
  without gaps loses nothing at random.
- Numbers that were never sent. A Java client counts its telemetry request even if the brokers have no telemetry
  (KIP-714), and requests under way to a broker that died have no line anywhere.
- A connection all of whose lines are lost.
- Lines that the broker never wrote, because its log is filtered (`kept_requests`). Producers and followers send nothing
  else than a filtered log keeps. Of any other client a missing number proves nothing, unless the log has other requests
  of that client: then it is not filtered. It counts only where other numbers prove that the log lost lines, and where
  the log is silent.

Two kinds of connection are left out. One that carries requests of several clients forwards them to a controller
(KIP-590) with their original senders' numbers, and appends nothing. Clients of the metadata quorum (`KafkaRaftClient`)
number every request whether or not it can be sent, so they skip numbers while a controller is down.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.alike import alike
from replay.arrays.columns import differing, numbers, texts
from replay.arrays.ints import NEVER
from replay.evidence.client_requests import (
    REQUEST_SCHEMA,
    by_client,
    requests_in,
    shared_connections,
    users_in,
    users_together,
)
from replay.evidence.tenures import micros
from schemas.model import BOOL, INT32, INT64, STRING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.arrays.ints import Flags, Ints
    from replay.evidence.rows import Row

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
NEAR_US = 60_000_000  # how far around a gap a log is assumed to lose lines
SLACK_US = 50_000  # stamps of two brokers' logs, each late by some milliseconds
MOST_CLIENTS = 64  # as many of one name on one host are told apart
IN_FLIGHT = 5  # max.in.flight.requests.per.connection
GIVEN_UP_US = 30_000_000  # request.timeout.ms
FIRST_NUMBERS = 16  # a client that has found its brokers asks for telemetry with one of these


def missing_requests(facts: pa.Table) -> MissingLines:
    """Where a recording's request logs lack lines; its facts are in one table."""
    return missing_lines(gaps_in(requests_in(facts), shared_connections(users_together(users_in(facts)))))


def gaps_in(requests: pa.Table, shared: pa.Table) -> pa.Table:
    """All requests of some clients (`REQUEST_SCHEMA`) -> their gaps and ends (`GAP_SCHEMA`).

    `shared`: connections that are used by several of all clients.
    """
    return pa.concat_tables([GAP_SCHEMA.empty_table(), *map(host_gaps, by_client(requests, shared))])


def host_gaps(requests: pa.Table) -> pa.Table:
    """Requests of one client on one host (`REQUEST_SCHEMA`), some twice -> its gaps and ends (`GAP_SCHEMA`)."""
    broker, number, taken, *traits = (numbers(requests[name]) for name in REQUEST_SCHEMA.names[2:])
    connection = requests["connection"].combine_chunks()
    name = numbers(connection.indices)
    order = np.lexsort((taken, number, name, broker))
    order = order[differing(*(column[order] for column in (broker, name, number, taken)))]
    broker, name, number, taken = (column[order] for column in (broker, name, number, taken))
    fetches, replicates, appends, unkept = (trait[order] > 0 for trait in traits)
    first = np.flatnonzero(differing(broker, name))  # first line of each connection
    last = np.append(first[1:], len(name)) - 1
    of = np.repeat(np.arange(len(first)), last - first + 1)
    listens, replicas = (np.logical_or.reduceat(trait, first) for trait in (fetches, replicates))
    # Whether a number missing on a connection must have had a line, even if the log is filtered.
    complete = replicas | (appends.any() & ~listens) | unkept.any()
    step = np.diff(number)
    before = np.flatnonzero((of[1:] == of[:-1]) & (step > 1))
    lines = lost = step[before] - 1
    if len(before):
        wide = lines > len(number)  # more than all lines of the client could fill
        lines_of = ClientLines(number, taken, sent_since(taken, of), of)
        gap, missing = not_elsewhere(lines_of, before, np.flatnonzero(~wide))
        unsent = is_under_way(missing, number[last]) | is_skipped(missing)
        kept = (wide | (np.bincount(gap, minlength=len(before)) > 0)) & (complete | listens)[of[before]]
        proven = np.where(wide, lines, np.bincount(gap, ~unsent, len(before)).astype(np.int64))
        lost = np.where(complete[of[before]], proven, 0)[kept]
        before, lines = before[kept], lines[kept]
    ends = ends_of(broker, taken, first)
    at, after = np.concatenate([before, last]), before + 1
    rows = {
        "broker_id": broker[at],
        "connection": connection.dictionary.take(name[at]),
        "correlation_id": number[at],
        "since_us": np.concatenate([np.minimum(taken[before], taken[after]), taken[last]]),
        "until_us": np.concatenate([np.maximum(taken[before], taken[after]), ends]),
        "lines": np.concatenate([lines, np.zeros(len(last), np.int64)]),
        "lost": np.concatenate([lost, np.zeros(len(last), np.int64)]),
        "fetches": listens[of[at]],
        "proves": np.concatenate([complete[of[before]], np.zeros(len(last), np.bool_)]),
    }
    return pa.table(rows, schema=GAP_SCHEMA)


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
    wanted = number[before][gap] + 1 + np.arange(len(gap)) - np.repeat(np.cumsum(width) - width, width)
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
    line = order[np.repeat(first, count) + np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count)]
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
    early = missing < FIRST_NUMBERS
    return early & (len(np.unique(missing[early])) == 1)


def ends_of(broker: Ints, taken: Ints, first: Ints) -> Ints:
    """Until when lines may be missing after the last of each connection; `first`: its first line."""
    begun, ended = (of_all.reduceat(taken, first) for of_all in (np.minimum, np.maximum))
    return next_begun(broker[first], begun, ended)


def next_begun(broker: Ints, begun: Ints, ended: Ints) -> Ints:
    """When the client's next connection to the same broker began, of each connection; NEVER: not, or beside it."""
    out = np.full(len(broker), NEVER)
    for one in np.unique(broker):
        mine = np.flatnonzero(broker == one)
        mine = mine[np.argsort(begun[mine], kind="stable")]
        if np.all(ended[mine][:-1] <= begun[mine][1:]):  # one after the other: one client
            out[mine[:-1]] = begun[mine][1:]
    return out


class Gap(NamedTuple):
    """A stretch of a broker's clock in which lines may be missing, microseconds."""

    since: int
    until: int


class Cuts(NamedTuple):
    """The last requests on a connection before some that are missing, as columns, rising."""

    number: array[int]
    since: array[int]  # when these are missing at the earliest, microseconds


NO_CUTS: Final = Cuts(array("q"), array("q"))


class Hole(NamedTuple):
    """How many lines are missing between two lines of one connection."""

    since: int
    until: int
    lines: int


@dataclass(slots=True)
class MissingLines:
    """Where lines of request logs are missing, or may be."""

    gaps: dict[int, list[Gap]] = field(default_factory=dict)  # broker -> gaps of connections that may append; disjoint
    cuts: dict[tuple[int, str], Cuts] = field(default_factory=dict)  # by connection
    # broker -> stretches around its gaps, on any connection; disjoint
    lossy: dict[int, list[Gap]] = field(default_factory=dict)
    holes: dict[int, list[Hole]] = field(default_factory=dict)  # broker -> the gaps themselves, rising
    # broker -> stretches in which a number that proves nothing may be that of a lost line; disjoint
    doubtful: dict[int, list[Gap]] = field(default_factory=dict)
    left_out: dict[int, list[Gap]] = field(default_factory=dict)  # broker -> times whose lines were not given; rising

    def any_in(self, broker: int, since: int, until: int) -> bool:
        """Whether a line about an append may be missing between two times of the broker's clock, or was not given."""
        return any(is_within(gaps.get(broker, ()), since, until) for gaps in (self.gaps, self.left_out))

    @property
    def stretches(self) -> tuple[dict[int, list[Gap]], ...]:
        """All that is known to be missing by broker and time, of lines that were given."""
        return self.gaps, self.lossy, self.doubtful

    @property
    def is_empty(self) -> bool:
        """Whether no line is known to be missing."""
        return not self.cuts and not self.lossy

    def any_between(self, before: Row, after: Row) -> bool:
        """Whether a request may be missing between two successive ones; on one connection their numbers tell.

        A consumer's missing numbers prove nothing in a filtered log, which has none of its offset commits. They may be
        those of lost fetches where other numbers prove that the log lost lines, and where it is silent. There two of
        its fetches are uncertain unless they follow each other.
        """
        if self.is_empty:
            return False
        broker, connection = before["broker_id"], before["connection"] or ""
        if (broker, connection) != (after["broker_id"], after["connection"] or ""):
            return any(self.is_lossy(row["broker_id"], micros(row["ts"])) for row in (before, after))
        first, last = before["correlation_id"] or 0, after["correlation_id"] or 0
        cuts = self.cuts.get((broker, connection), NO_CUTS).number
        k = bisect_left(cuts, first)
        is_cut = k < len(cuts) and cuts[k] < last
        if is_cut or last - first <= 1 or (before["replica_id"] is not None and before["replica_id"] >= 0):
            return is_cut
        return is_within(self.doubtful.get(broker, ()), micros(before["ts"]), micros(after["ts"]))

    def is_lossy(self, broker: int, us: int) -> bool:
        """Whether the broker's log lost lines around that time of its clock."""
        return is_within(self.lossy.get(broker, ()), us, us)


def is_within(gaps: Sequence[Gap], since: int, until: int) -> bool:
    """Whether any of the stretches, disjoint and rising, overlaps [since, until]."""
    k = bisect_right(gaps, until, key=lambda gap: gap.since)
    return k > 0 and gaps[k - 1].until >= since


def missing_lines(gaps_and_ends: pa.Table) -> MissingLines:
    """Where a broker's log may lack an append, from all clients' gaps and ends."""
    holes: dict[int, list[Hole]] = defaultdict(list)
    for row in gaps_and_ends.filter(pc.greater(gaps_and_ends["lost"], 0)).to_pylist():
        holes[row["broker_id"]].append(Hole(row["since_us"], row["until_us"], row["lost"]))
    near = {
        broker: united([Gap(hole.since - NEAR_US, hole.until + NEAR_US) for hole in mine])
        for broker, mine in holes.items()
    }
    lossy = {broker: crowded(around, holes[broker]) for broker, around in near.items()}
    gaps: dict[int, list[Gap]] = defaultdict(list)
    for row in gaps_and_ends.filter(pc.invert(gaps_and_ends["fetches"])).to_pylist():
        if row["lines"]:
            gaps[row["broker_id"]].append(Gap(row["since_us"], row["until_us"]))
            continue
        for around in lossy.get(row["broker_id"], ()):
            if around.since <= row["since_us"] <= around.until:
                gaps[row["broker_id"]].append(Gap(row["since_us"], min(row["until_us"], around.until)))
    return MissingLines(
        {broker: united(mine) for broker, mine in gaps.items()},
        cuts_of(gaps_and_ends.filter(pc.and_(gaps_and_ends["proves"], pc.greater(gaps_and_ends["lines"], 0)))),
        lossy,
        {broker: sorted(mine) for broker, mine in holes.items()},
        near,
    )


def cuts_of(gaps: pa.Table) -> dict[tuple[int, str], Cuts]:
    """Return the cuts that gaps (`GAP_SCHEMA`) make, by connection."""
    if not len(gaps):
        return {}
    broker, number, since = (numbers(gaps[name]) for name in ("broker_id", "correlation_id", "since_us"))
    name, names = texts(gaps["connection"])
    order = np.lexsort((number, name, broker))
    begins = np.flatnonzero(differing(broker[order], name[order]))
    parts = np.split(order, begins[1:])
    return {
        (int(broker[mine[0]]), names[name[mine[0]]]): Cuts(*(array("q", of[mine].tobytes()) for of in (number, since)))
        for mine in parts
    }


def crowded(around: list[Gap], holes: list[Hole]) -> list[Gap]:
    """Stretches with at least two holes: a log that loses lines at random loses more than one.

    A single hole is a request that a client never completed, or sent to a broker that stood still.
    """
    return [one for one in around if sum(one.since <= hole.since <= one.until for hole in holes) > 1]


def united(gaps: list[Gap]) -> list[Gap]:
    """Overlapping stretches joined, rising."""
    out: list[Gap] = []
    for gap in sorted(gaps):
        if out and gap.since <= out[-1].until:
            out[-1] = Gap(out[-1].since, max(out[-1].until, gap.until))
        else:
            out.append(gap)
    return out
