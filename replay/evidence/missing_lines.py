"""Lines that a request log lost, found by gaps in clients' correlation ids (`client_gaps`).

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
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import differing, numbers, texts
from replay.evidence.client_gaps import gaps_in
from replay.evidence.client_requests import requests_in, shared_connections, users_in, users_together
from replay.evidence.tenures import micros

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from replay.arrays.ints import Ints
    from replay.evidence.rows import Row

NEAR_US = 60_000_000  # how far around a gap a log is assumed to lose lines


def missing_requests(facts: pa.Table) -> MissingLines:
    """Where a recording's request logs lack lines; its facts are in one table."""
    return missing_lines(gaps_in(requests_in(facts), shared_connections(users_together(users_in(facts)))))


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
    def edges(self) -> dict[int | None, Ints]:
        """When lines begin and end to be missing, by broker, microseconds."""
        return {one: np.array([hole[:2] for hole in holes], np.int64).ravel() for one, holes in self.holes.items()}

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
    near = {broker: around(mine) for broker, mine in holes.items()}
    lossy = {broker: crowded(near[broker], mine) for broker, mine in holes.items()}
    gaps: dict[int, list[Gap]] = defaultdict(list)
    may_append = gaps_and_ends.filter(pc.invert(gaps_and_ends["fetches"]))
    are_ends = pc.equal(may_append["lines"], 0)
    for row in may_append.filter(pc.invert(are_ends)).to_pylist():
        gaps[row["broker_id"]].append(Gap(row["since_us"], row["until_us"]))
    at_lossy = pc.is_in(may_append["broker_id"], pa.array([one for one in lossy if lossy[one]], pa.int32()))
    for row in may_append.filter(pc.and_(are_ends, at_lossy)).to_pylist():
        for stretch in lossy[row["broker_id"]]:
            if stretch.since <= row["since_us"] <= stretch.until:
                gaps[row["broker_id"]].append(Gap(row["since_us"], min(row["until_us"], stretch.until)))
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


def around(holes: Iterable[Hole]) -> list[Gap]:
    """Stretches around holes, disjoint and rising."""
    return united([Gap(hole.since - NEAR_US, hole.until + NEAR_US) for hole in holes])


def crowded(near: list[Gap], holes: list[Hole]) -> list[Gap]:
    """Stretches with at least two holes: a log that loses lines at random loses more than one.

    A single hole is a request that a client never completed, or sent to a broker that stood still.
    """
    return [one for one in near if sum(one.since <= hole.since <= one.until for hole in holes) > 1]


def united(gaps: list[Gap]) -> list[Gap]:
    """Overlapping stretches joined, rising."""
    out: list[Gap] = []
    for gap in sorted(gaps):
        if out and gap.since <= out[-1].until:
            out[-1] = Gap(out[-1].since, max(out[-1].until, gap.until))
        else:
            out.append(gap)
    return out
