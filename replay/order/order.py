"""Turn all facts of one partition into its events, in one deterministic order.

The order is decided by, first to last: leader epochs (`tenures`); offsets and each chain's own order; within a tenure
the merge (`merge`), which applies the engine's rules as it goes. Wall clocks of different brokers are compared only
where the controller's decisions meet a leader's requests.
"""

from __future__ import annotations

import itertools
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from replay.arrays.columns import ranges
from replay.arrays.ints import NEVER
from replay.arrays.memory import give_back
from replay.arrays.records import blank
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
from replay.order.deletions import deletion_chain, deletions_by_tenure
from replay.order.event_rows import AT_ONCE, EventRows, completed
from replay.order.fetch_chains import follower_chains, left_out_chain
from replay.order.future_events import future_chain
from replay.order.isr_joins import expansions_of
from replay.order.line_order import hw_by_lines
from replay.order.log_dumps import dump_drafts
from replay.order.marks import (
    Grid,
    Merged,
    behind,
    ground_of,
    grounds_of,
    marks_of,
    told_sum,
)
from replay.order.merge import follow, merged
from replay.order.operations import Draft
from replay.order.refusals import refusal_chain, refusals_by_tenure
from replay.order.segment_events import segment_chains, segments_by_tenure
from replay.order.settings_events import (
    configuration_draft,
    opening_broker_drafts,
    opening_quota_drafts,
    removal_drafts,
)
from replay.order.stored import Stored
from replay.protocol.profile import profile_named
from replay.protocol.state import MIN_ISR_UNKNOWN, NONE, copied, new_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from replay.arrays.ints import Ints
    from replay.arrays.records import Records
    from replay.evidence.partition_facts import PartitionFacts
    from replay.evidence.rows import Row
    from replay.evidence.tenures import Tenure
    from replay.order.appends import Appended
    from replay.order.front import OperationRecord, PieceRecord
    from replay.order.marks import Ground, Mark
    from replay.order.operation_blocks import Block
    from replay.order.operations import Operation
    from replay.order.windows import Boundary
    from replay.protocol.profile import Profile
    from replay.protocol.state import State

MANY: Final = 20_000  # events for which it is worth while to give memory back


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
    begin: int = 0  # seq of the first: the order may have gone on from a mark
    marks: Sequence[Mark] = ()  # from which a later order can go on
    others: Sequence[Mark] = ()  # marks where other windows begin

    @property
    def hashes(self) -> None:
        """Hashes of the events, if they are known; these are not."""

    def pieces(self, begin: int = 0) -> Iterator[pa.Table]:
        """Yield the events from seq `begin` on, in tables of `AT_ONCE` rows and less; at least one, if it is empty."""
        end = self.begin + len(self.order)
        for first in range(begin, max(end, begin + 1), AT_ONCE):
            piece = self.rows.take(self.order[first - self.begin : first - self.begin + AT_ONCE])
            yield completed(piece, **self.key, seq=np.arange(first, first + len(piece)))


def order_of(facts: PartitionFacts, *grids: Grid) -> OrderedEvents:
    """Order the events that the facts of one incarnation of a partition make; the facts are released on the way.

    `grids`: the windows from whose beginnings a later order may go on, and perhaps others.
    """
    key, grounds = facts.key, grounds_of(facts) if grids else {}
    min_isr, lag_us = facts.min_insync_replicas or MIN_ISR_UNKNOWN, facts.lag_us
    rows = EventRows()
    spans = laid(facts, rows)
    facts.release()
    rows.close()
    brokers = sorted({broker for events, _ in rows.slices() for broker in brokers_of(EventBatch(events).events)})
    state = new_state(len(brokers), min_isr=min_isr, lag_us=lag_us)
    if len(rows) > MANY:
        give_back()
    events = encoded(rows, brokers)
    order, tenures = arrange(state, events, spans, rows, grounds)
    found = [marks_of(tenures, events, (order, 0), tuple(brokers), (grid, 0)) for grid in grids] if tenures else []
    marks, others = [*found, [], []][:2]
    return OrderedEvents(key, rows, order, 0, marks, others)


def order_on(facts: PartitionFacts, mark: Mark, second: Mark, at: Boundary, *grids: Grid) -> OrderedEvents | None:
    """Order the events from a mark on; None: that cannot be done, so all have to be ordered.

    `facts`: all but those of requests that are left out (`steady`). `second`: the mark behind it, up to which nothing
    new may be known to be missing, nor how a transaction ended: where a batch ends that was appended before the mark,
    requests behind it show, up to that one. `at`: the boundary that the mark is for. `grids`: the windows from there on
    where marks are made, and perhaps others.
    """
    key, grounds = facts.key, grounds_of(facts)
    ground, behind_it = (grounds.get(one.epoch) or ground_of(facts, one.epoch) for one in (mark, second))
    if ground is None or ground.at(mark.since) != mark.ground:
        return None
    if behind_it is None or behind_it.pending_at(second.since) != second.pending:
        return None
    rows = EventRows()
    spans = laid(facts, rows)
    facts.release()
    rows.close()
    place = [span.epoch for span in spans].index(mark.epoch)
    front, every, profile, _, apart = spans[place]
    chains = behind(mark, rows, every)
    if not chains:
        return None
    before = np.zeros(len(rows), np.bool_)
    end = front + sum(int(chain["count"].sum()) for chain in every)
    before[:end] = True
    for chain in chains:
        before[ranges(chain["first"], chain["count"])] = False
    if len(rows) > MANY:
        give_back()
    events = encoded(rows, mark.brokers)
    named = {broker for some, _ in rows.slices() for broker in brokers_of(EventBatch(some).events)}
    if told_sum(rows, before) != mark.told or not named <= {*mark.brokers}:
        return None
    state = copied(mark.state)
    pieces = merged(state, profile, events, chains, new_moves())
    gone_on = rows_in_order(pieces)
    later, tenures = arrange(state, events, spans[place + 1 :], rows, grounds, end)
    order = np.concatenate([gone_on, later])
    shift = mark.seq + len(gone_on) - end
    own = Merged(rows, mark.seq, chains, pieces, before, mark.state, profile, mark.reach, ground, apart)
    tenures = [own, *(one._replace(begin=one.begin + shift) for one in tenures)]
    begin = at.seq - mark.seq
    found = [marks_of(tenures, events, (order, mark.seq), mark.brokers, (grid, begin)) for grid in grids]
    marks, others = [*found, [], []][:2]
    return OrderedEvents(key, rows, order, mark.seq, marks, others)


def laid(facts: PartitionFacts, rows: EventRows) -> list[TenureSpan]:
    """Make all events of a partition, behind those of others; the spans say what is known of their order."""
    rows.begin(facts)
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
            *opening_quota_drafts(facts),
            *told[0],
        ]
    )
    opening = profile_named(facts.kafka_version, facts.inter_broker_protocol)
    refused, deletions, segments = refusals_by_tenure(facts), deletions_by_tenure(facts), segments_by_tenure(facts)
    spans: list[TenureSpan] = [TenureSpan(len(rows), [], opening)]
    spoken: dict[int, Spoken] = {}
    for tenure, changes in zip(facts.tenures, told[1:], strict=True):
        rows.add(version_drafts(facts, tenure, spoken))
        rows.add(role_drafts(facts, tenure))
        profile = facts.profile_in(tenure.epoch, tenure.leader)
        if tenure.leader >= 0:
            appended = batches_of(facts, tenure, produces.pop(tenure.epoch, []), markers.pop(tenure.epoch, []))
            asked = (appended, refused.pop(tenure.epoch, []), deletions.pop(tenure.epoch, []))
            end = len(rows)
            noted = segment_chains(tenure, segments.get(tenure.epoch, []))
            chains = itertools.chain(chains_of(facts, tenure, asked, stored, computed, changes), noted)
            kept = [found for k, chain in enumerate(chains) if len(found := rows.add_chain(chain, k))]
            spans.append(TenureSpan(end, kept, profile, tenure.epoch, appended.apart))
        else:
            rows.add([*(d for op in control_chain(facts, tenure, {}) for d in op.drafts), *changes])
            spans.append(TenureSpan(len(rows), [], profile, tenure.epoch))
    removed = removal_drafts(facts)
    if facts.by_kind["segment_batch"]:
        rows.lay()
        removed += dump_drafts(facts, rows.latest)
    rows.add(removed)
    spans.append(TenureSpan(len(rows), [], opening))
    return spans


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
    epoch: int = NONE  # NONE: of no leader epoch
    apart: Ints | None = None  # see `Appended`


def chains_of(
    facts: PartitionFacts,
    tenure: Tenure,
    lines: tuple[Appended, list[Row], list[Row]],
    stored: Stored,
    computed: dict[str, int],
    changes: list[Draft],
) -> Iterator[Iterable[Operation | Block]]:
    """Yield the chains that the merge orders in a tenure.

    `lines`: what it appended, its refused produces, and requests to delete records.
    """
    appended, refused, deletions = lines
    joins = expansions_of(facts, tenure)
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
    yield refusal_chain(facts, tenure, refused)
    yield deletion_chain(facts, tenure, deletions)


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


def arrange(
    state: State,
    events: Records[EventRecord],
    spans: list[TenureSpan],
    rows: EventRows | None = None,
    grounds: Mapping[int, Ground] = MappingProxyType({}),
    begin: int = 0,
) -> tuple[Ints, list[Merged]]:
    """Return the order of all drafts (by number); each tenure is merged on the encoded rows.

    `rows`, `grounds`: the events' rows, and of leader epochs in which marks are to be made; what was merged in these is
    returned, with the number of its first draft as `begin`. `begin`: the number of the first draft.
    """
    order: list[Ints] = []
    moves = new_moves()
    found: list[Merged] = []
    for end, chains, profile, epoch, apart in spans:
        follow(state, profile, events, (begin, end - begin, 0), moves)
        order.append(np.arange(begin, end))
        begin = end
        if chains:
            ground = grounds.get(epoch)
            opening = None if ground is None else copied(state)
            pieces = merged(state, profile, events, chains, moves)
            order.append(rows_in_order(pieces))
            if rows is not None and ground is not None and opening is not None:
                found.append(Merged(rows, end, chains, pieces, end, opening, profile, -NEVER, ground, apart))
            begin += len(order[-1])
    return np.concatenate(order), found


def rows_in_order(pieces: Records[PieceRecord]) -> Ints:
    """Return the event rows of the pieces, in order; where one is `turned`, its first rows come behind the next one."""
    first, count, turned = pieces["first"], pieces["count"], pieces["turned"]
    out = ranges(first, count)
    begins = np.cumsum(count) - count
    for k in np.unique(turned[turned > 0]).tolist():
        where = begins[turned == k][:, None] + np.arange(k + 1)
        out[where] = out[np.roll(where, 1, axis=1)]
    return out
