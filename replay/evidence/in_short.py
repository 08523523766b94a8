"""What the facts before a moment tell of the whole recording, in few rows, to be put together with later facts.

What later facts cannot bear on is left out: seconds in which a broker's lines follow each other, and most requests. So
it does not grow with the facts, but with what happened: silences, starts and stops, connections, missing numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import numbers
from replay.evidence.client_requests import shared_connections
from replay.evidence.counted_requests import Counted, counted, settled_until
from replay.evidence.heard import span_of
from replay.evidence.heard_in_short import heard_in_short
from replay.evidence.standstills import (
    CONNECTION_SCHEMA,
    awake_from,
    connections_in,
    connections_together,
    pieces_in_short,
    silences_of_all,
)
from replay.evidence.steady import NeedsAllError
from replay.evidence.summary import put_together, summary_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.evidence.summary import Summary


class InShort(NamedTuple):
    """What the facts before a moment tell."""

    until_us: int  # the moment
    told: Summary  # requests among it: those that are kept
    counters: pa.Table  # `later_gaps.COUNTER_SCHEMA`: what is known of the other requests,
    gaps: pa.Table  # and the gaps between those (`client_lives.SETTLED_SCHEMA`)
    woken: pa.Table  # `standstills.CONNECTION_SCHEMA`: connections on which produces outlasted a standstill

    def with_later(self, facts: Iterable[pa.Table]) -> Summary:
        """Return what all facts tell, but for requests that are not kept. `facts`: all from the moment on."""
        return put_together([self.told, *map(summary_of, facts)])

    def counted(self, told: Summary) -> Counted:
        """Return all requests, the early ones in short. `told`: of `with_later`."""
        return Counted(self.counters, self.gaps, told.requests)

    def gaps_in(self, told: Summary) -> pa.Table | None:
        """Return the gaps and ends of all requests; None: they cannot be told. `told`: of `with_later`."""
        return self.counted(told).found(shared_connections(told.users))

    def connections(self, facts: Iterable[pa.Table], silences: pa.Table) -> pa.Table:
        """Return the connections on which produces outlasted a standstill (`connections_in`), perhaps with others.

        `facts`: all from the moment on. `silences`: by all facts. NeedsAllError: these facts alone do not tell.
        """
        ended = silences.filter(pc.is_valid(silences["before"]))
        is_later = numbers(ended["first"]) >= self.until_us
        if (awake_from(ended)[is_later] < self.until_us).any():  # a request of before may have outlasted it
            raise NeedsAllError
        found = [connections_in(some, silences) for some in facts]
        return connections_together(pa.concat_tables([self.woken, *found]))


def in_short(before: InShort | None, facts: pa.Table, until_us: int) -> InShort:
    """Return what all facts before a moment tell.

    `before`: what those before an earlier moment tell; `facts`: all since then that are before the later one.
    NeedsAllError: these alone do not tell what a standstill around the earlier moment did.
    """
    told = summary_of(facts) if before is None else before.with_later([facts])
    silences = silences_of_all(told.pieces)
    ended = silences.filter(pc.less(silences["first"], until_us))
    woken = connections_in(facts, ended) if before is None else before.connections([facts], ended)
    every = Counted.of(told.requests) if before is None else before.counted(told)
    short = counted(every, shared_connections(told.users), until_us)
    span = span_of(told.spans)
    # What was under way later may yet show that requests of that time are missing.
    settled_us = settled_until(until_us)
    told = told._replace(
        heard=told.heard if span is None else heard_in_short(told.heard, settled_us, span[0], short.edges()),
        pieces=pieces_in_short(told.pieces),
        requests=short.kept,
    )
    return InShort(until_us, told, short.counters, short.gaps, woken.filter(woken["woken"]).cast(CONNECTION_SCHEMA))
