"""Turn all facts of one partition into its events, in one deterministic order.

The order is decided by, first to last: leader epochs (`tenures`); offsets and each chain's own order; within a tenure
the merge (`merge`), which applies the engine's rules as it goes. Wall clocks of different brokers are compared only
where the controller's decisions meet a leader's requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from replay.arrays.records import blank, together
from replay.engine.encode import brokers_of, encode
from replay.engine.event_record import EventRecord
from replay.engine.events import EventBatch
from replay.engine.moves import new_moves
from replay.evidence.request_times import Window
from replay.evidence.versions import Spoken
from replay.order.appends import append_chain, batches_of, markers_by_tenure, produces_by_tenure
from replay.order.consumer_chains import consumer_chains
from replay.order.contradictions import contradiction_drafts, unled_drafts
from replay.order.control_chain import control_chain, log_start_chains, role_drafts, storage_chain, witness_chain
from replay.order.controller_events import controller_chain, controller_drafts
from replay.order.event_rows import AT_ONCE, EventRows, completed
from replay.order.fetch_chains import follower_chains, left_out_chain
from replay.order.future_events import future_chain
from replay.order.isr_requests import expansions_of
from replay.order.line_order import hw_by_lines
from replay.order.log_dumps import dump_drafts
from replay.order.merge import follow, merge
from replay.order.operations import Draft
from replay.order.settings_events import configuration_draft, opening_broker_drafts, removal_drafts
from replay.order.stored import Stored
from replay.protocol.profile import profile_named
from replay.protocol.state import MIN_ISR_UNKNOWN, new_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from replay.arrays.ints import Ints
    from replay.arrays.records import Records
    from replay.evidence.partition_facts import PartitionFacts
    from replay.evidence.rows import Row
    from replay.evidence.tenures import Tenure
    from replay.order.merge import OperationRecord
    from replay.order.operation_blocks import Block
    from replay.order.operations import Operation
    from replay.protocol.profile import Profile
    from replay.protocol.state import State


def ordered(facts: PartitionFacts) -> Iterator[pa.Table]:
    """Yield the `replication_events` (without recording_id) of one incarnation of a partition, in replay order.

    At least one table is yielded. The facts are released as soon as all events have been made of them.
    """
    yield from order_of(facts).pieces()


class OrderedEvents(NamedTuple):
    """The events of one incarnation of a partition in replay order; their rows are made when they are asked for."""

    key: dict[str, Any]
    rows: EventRows
    order: Ints

    def pieces(self, begin: int = 0) -> Iterator[pa.Table]:
        """Yield the events from seq `begin` on, in tables of `AT_ONCE` rows and less; at least one, if it is empty."""
        for first in range(begin, max(len(self.order), begin + 1), AT_ONCE):
            piece = self.rows.take(self.order[first : first + AT_ONCE])
            yield completed(piece, **self.key, seq=np.arange(first, first + len(piece)))


def order_of(facts: PartitionFacts) -> OrderedEvents:
    """Order the events that the facts of one incarnation of a partition make; the facts are released on the way."""
    key = facts.key
    min_isr, lag_us = facts.min_insync_replicas or MIN_ISR_UNKNOWN, facts.lag_us
    rows, spans = laid(facts)
    del facts
    rows.close()
    brokers = sorted({broker for events, _ in rows.slices() for broker in brokers_of(EventBatch(events).events)})
    state = new_state(len(brokers), min_isr=min_isr, lag_us=lag_us)
    return OrderedEvents(key, rows, arrange(state, encoded(rows, brokers), spans))


def laid(facts: PartitionFacts) -> tuple[EventRows, list[TenureSpan]]:
    """Make all events of a partition; the spans say what is known of their order."""
    rows = EventRows(facts)
    computed = hw_by_lines(facts)
    produces, markers = produces_by_tenure(facts), markers_by_tenure(facts)
    stored = Stored()
    told = controller_drafts(facts)
    rows.add(
        [
            configuration_draft(facts),
            *contradiction_drafts(facts),
            *unled_drafts(facts),
            *opening_broker_drafts(facts),
            *told[0],
        ]
    )
    opening = profile_named(facts.kafka_version, facts.inter_broker_protocol)
    spans: list[TenureSpan] = [TenureSpan(len(rows), [], opening)]
    spoken: dict[int, Spoken] = {}
    for tenure, changes in zip(facts.tenures, told[1:], strict=True):
        rows.add(version_drafts(facts, tenure, spoken))
        rows.add(role_drafts(facts, tenure))
        profile = facts.profile_in(tenure.epoch, tenure.leader)
        if tenure.leader >= 0:
            lines = (produces.pop(tenure.epoch, []), markers.pop(tenure.epoch, []))
            chains = chains_of(facts, tenure, lines, stored, computed, changes)
            end = len(rows)
            merged = [found for k, chain in enumerate(chains) if len(found := rows.add_chain(chain, k))]
            spans.append(TenureSpan(end, merged, profile))
        else:
            rows.add([*(d for op in control_chain(facts, tenure, {}) for d in op.drafts), *changes])
            spans.append(TenureSpan(len(rows), [], profile))
    rows.lay()
    rows.add([*removal_drafts(facts), *dump_drafts(facts, rows.latest)])
    spans.append(TenureSpan(len(rows), [], opening))
    rows.lay()
    return rows, spans


def encoded(rows: EventRows, brokers: Sequence[int]) -> Records[EventRecord]:
    """Return all events as the rules see them, indexed by draft number."""
    out = blank(len(rows), EventRecord)
    for events, numbers in rows.slices():
        out[numbers] = encode(EventBatch(events).events, brokers)
    return out


class TenureSpan(NamedTuple):
    """Rows that are in order already, up to `end`, followed by operations that are not, chain by chain."""

    end: int
    chains: list[Records[OperationRecord]]
    profile: Profile  # of the broker that leads


def chains_of(
    facts: PartitionFacts,
    tenure: Tenure,
    lines: tuple[list[Row], list[Row]],
    stored: Stored,
    computed: dict[str, int],
    changes: list[Draft],
) -> Iterator[Iterable[Operation | Block]]:
    """Yield the chains that the merge orders in a tenure. `lines`: the tenure's produces and its markers."""
    joins = expansions_of(facts, tenure)
    appended = batches_of(facts, tenure, *lines)
    start = facts.starts.get(tenure.epoch)
    stored.take(appended.batches, None if start is None else start[0])
    yield from append_chain(facts, tenure, appended)
    yield control_chain(facts, tenure, joins)
    yield witness_chain(facts, tenure, computed)
    yield storage_chain(facts, tenure)
    yield future_chain(facts, tenure)
    yield controller_chain(changes)
    yield from log_start_chains(facts, tenure)
    yield from follower_chains(facts, tenure, joins)
    yield from consumer_chains(facts, tenure, stored)
    yield left_out_chain(facts, tenure)


def version_drafts(facts: PartitionFacts, tenure: Tenure, told: dict[int, Spoken]) -> list[Draft]:
    """Make events for brokers whose version or protocol changes with this tenure. `told`: the last known of each."""
    opening = Spoken(facts.kafka_version, facts.inter_broker_protocol)
    at = tenure.decisions[0].us if tenure.decisions else 0
    drafts = []
    for broker, spoken in facts.spoken.get(tenure.epoch, {}).items():
        if spoken != told.get(broker, opening):
            fields = {"kafka_version": spoken.version, "inter_broker_protocol": spoken.protocol}
            said = {"broker_id": broker, **fields, "evidence": "observed"}
            drafts.append(Draft("config_change", None, Window(at, at, at), said))
            told[broker] = spoken
    return drafts


def arrange(state: State, events: Records[EventRecord], spans: list[TenureSpan]) -> Ints:
    """Return the order of all drafts (by number); each tenure is merged on the encoded rows."""
    order: list[Ints] = []
    moves = new_moves()
    begin = 0
    for end, chains, profile in spans:
        follow(state, profile, events, (begin, end - begin, 0), moves)
        order.append(np.arange(begin, end))
        begin = end
        if chains:
            ends = np.cumsum([len(chain) for chain in chains])
            ops = together(chains)
            merged = rows_in_order(ops, *merge(state, profile, events, ops, ends, moves))
            order.append(merged)
            begin += len(merged)
    return np.concatenate(order)


def rows_in_order(ops: Records[OperationRecord], sequence: Ints, swapped: Ints) -> Ints:
    """Return the event rows of the operations in `sequence`; where `swapped`, the first two rows change places."""
    first, count = ops["first"][sequence], ops["count"][sequence]
    begins = np.cumsum(count) - count
    out: Ints = np.repeat(first - begins, count) + np.arange(count.sum())
    own = begins[swapped == 1]
    out[own], out[own + 1] = out[own + 1], out[own]
    return out
