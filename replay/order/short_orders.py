"""Order many short partitions together: what is done once for all of them costs each of them next to nothing.

Most of an order's time goes to tables of few rows, which cost as much as tables of a thousand. So the facts of short
partitions share their columns (`rows_of_partitions`), their events are laid into the same rows, and these are encoded,
brought into order and hashed at once. What a partition's events are and how they follow each other is decided for each
one alone, by the same functions as of a partition that is ordered alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from replay.arrays.digests import row_hashes
from replay.engine.encode import brokers_of, encode, encoded
from replay.engine.events import EventBatch
from replay.order.event_rows import EventRows, completed
from replay.order.order import arrange, laid
from replay.order.windows import NOT_HASHED
from replay.protocol.state import MIN_ISR_UNKNOWN, new_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from replay.arrays.digests import Hashes
    from replay.arrays.ints import Ints
    from replay.evidence.partition_facts import PartitionFacts
    from replay.order.order import TenureSpan


class ShortOrder(NamedTuple):
    """The events of one incarnation of a short partition in replay order, as `OrderedEvents`."""

    key: Mapping[str, Any]
    events: pa.Table
    hashes: Hashes
    marks: tuple[()] = ()

    def pieces(self, begin: int = 0) -> Iterator[pa.Table]:
        """Yield the events from seq `begin` on, in one table."""
        yield self.events.slice(begin)


class Laid(NamedTuple):
    """What is known of a partition whose events have been laid into the rows of many."""

    key: Mapping[str, Any]
    begin: int  # number of its first draft
    spans: list[TenureSpan]
    min_isr: int
    lag_us: int


def orders_of(parts: Iterable[PartitionFacts]) -> Iterator[ShortOrder]:
    """Order the events that each of the parts' facts make; the facts are released on the way."""
    rows, found = EventRows(), []
    for facts in parts:
        begin, spans = len(rows), laid(facts, rows)
        min_isr = facts.min_insync_replicas or MIN_ISR_UNKNOWN
        found.append(Laid(facts.key, begin, spans, min_isr, facts.lag_us))
        facts.release()
    if not len(rows):
        nothing = completed(pa.table({}))
        yield from (ShortOrder(one.key, nothing, row_hashes(nothing)) for one in found)
        return
    rows.close()
    events = rows.take(np.concatenate(numbers_in_order(rows, found)))
    begins = [one.begin for one in found]
    of = np.repeat(np.arange(len(found)), np.diff([*begins, len(rows)]))
    seq = np.arange(len(rows)) - np.array(begins)[of]
    keys = {name: pa.array([one.key[name] for one in found]).take(pa.array(of)) for name in found[0].key}
    events = completed(events, **keys, seq=seq)
    hashes = row_hashes(events, NOT_HASHED)
    for one, stop in zip(found, [*begins[1:], len(rows)], strict=True):
        yield ShortOrder(one.key, events.slice(one.begin, stop - one.begin), hashes[one.begin : stop])


def numbers_in_order(rows: EventRows, found: list[Laid]) -> list[Ints]:
    """Return the numbers of each partition's drafts in the order of its events."""
    batch = EventBatch(completed(rows.take(np.arange(len(rows)))), [one.begin for one in found])
    orders = []
    for one, mine in zip(found, batch.partitions(), strict=True):
        brokers = brokers_of(mine)
        encode(mine, brokers)  # into the records of the batch
        state = new_state(len(brokers), min_isr=one.min_isr, lag_us=one.lag_us)
        orders.append(arrange(state, batch.once(encoded), one.spans, begin=one.begin)[0])
    return orders
