"""All facts of one partition -> its effects in one deterministic order.

The order is decided, in this order, by the epoch spine (`spine`), offsets and each chain's own order, then within a
tenure by the merge (`merge`), which runs the engine's rules ahead. Wall clocks of different brokers are compared only
where the controller's decisions meet a leader's requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from replay.appends import append_chain, produces_by_tenure
from replay.chains import control_chain, log_start_chains, role_drafts, storage_chain, witness_chain
from replay.consumer_chains import consumer_chains
from replay.encode import brokers_of, encode
from replay.event_rows import EVENT_SCHEMA, table_of
from replay.fetch_chains import follower_chains, left_out_chain
from replay.isr_requests import expansions_of
from replay.kernel import apply
from replay.line_order import hw_by_lines
from replay.log_dumps import dump_drafts
from replay.merge import OP_WIDTH, merge
from replay.profile import profile_named
from replay.state import new_state
from replay.zookeeper_view import controller_chain, controller_drafts

if TYPE_CHECKING:
    from replay.drafts import Draft, Operation
    from replay.partition_facts import PartitionFacts


def order_partition(facts: PartitionFacts) -> pa.Table:
    """One partition incarnation's facts -> `replication_events` rows (without recording_id), in replay order."""
    blocks: list[tuple[list[Draft], list[list[Operation]]]] = []
    computed = hw_by_lines(facts, profile_named(facts.kafka_version, facts.inter_broker_protocol))
    produces = produces_by_tenure(facts)
    told = controller_drafts(facts)
    opening = [facts.configuration_draft(), *facts.opening_broker_drafts(), *told[0]]
    for tenure, changes in zip(facts.tenures, told[1:], strict=True):
        heads, chains = role_drafts(facts, tenure), []
        if tenure.leader >= 0:
            appends, acks = append_chain(facts, tenure, produces[tenure.epoch])
            joins = expansions_of(facts, tenure)
            chains = [appends, acks, control_chain(facts, tenure, joins), witness_chain(facts, tenure, computed)]
            chains += [storage_chain(facts, tenure), controller_chain(changes)]
            chains += log_start_chains(facts, tenure)
            chains += follower_chains(facts, tenure, joins)
            chains += consumer_chains(facts, tenure)
            chains.append(left_out_chain(facts, tenure))
        else:
            heads += [*(d for op in control_chain(facts, tenure, {}) for d in op.drafts), *changes]
        blocks.append((heads, [chain for chain in chains if chain]))
    blocks.append(([*facts.removal_drafts(), *dump_drafts(facts, last_of(opening, blocks))], []))
    return arrange(facts, opening, blocks)


def last_of(opening: list[Draft], blocks: list[tuple[list[Draft], list[list[Operation]]]]) -> int:
    """The latest time among all drafts: what the dumps at the end say holds from then on."""
    ordered = (
        draft for heads, chains in blocks for draft in (*heads, *(d for c in chains for op in c for d in op.drafts))
    )
    return max((draft.window.est for draft in (*opening, *ordered)), default=0)


def arrange(
    facts: PartitionFacts, opening: list[Draft], blocks: list[tuple[list[Draft], list[list[Operation]]]]
) -> pa.Table:
    """Encode all drafts once, merge each tenure on them, and lay the rows out in the order found."""
    drafts: list[Draft] = list(opening)
    spans: list[tuple[int, int, list[list[Operation]], list[list[int]]]] = []
    for heads, chains in blocks:
        first = len(drafts)
        drafts += heads
        last = len(drafts)
        firsts: list[list[int]] = []
        for chain in chains:
            firsts.append([])
            for op in chain:
                firsts[-1].append(len(drafts))
                drafts += op.drafts
        spans.append((first, last, chains, firsts))
    table, place_of = table_of(facts, drafts)
    brokers = brokers_of(table)
    events = encode(table, brokers)[place_of]
    profile = profile_named(facts.kafka_version, facts.inter_broker_protocol)
    state = new_state(len(brokers), min_isr=facts.min_insync_replicas, lag_us=facts.lag_us)
    rows: list[int] = list(range(len(opening)))
    for k in rows:
        apply(state, profile, events[k])
    for first, last, chains, firsts in spans:
        for k in range(first, last):
            apply(state, profile, events[k])
            rows.append(k)
        if not chains:
            continue
        ops, start, end, op_first = operations(chains, firsts)
        sequence, swapped = merge(state, profile, events, ops, start, end)
        for place, after_own in zip(sequence.tolist(), swapped.tolist(), strict=True):
            begin, count = op_first[place]
            mine = list(range(begin, begin + count))
            if after_own:
                mine[0], mine[1] = mine[1], mine[0]
            rows += mine
    out = table.take(pa.array(place_of[rows]))
    place = out.schema.get_field_index("seq")
    return out.set_column(place, EVENT_SCHEMA.field("seq"), pa.array(np.arange(len(rows), dtype=np.int64)))


def operations(
    chains: list[list[Operation]], firsts: list[list[int]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[tuple[int, int]]]:
    """Chains -> the merge's matrix, chain bounds, and the event rows of each operation."""
    ops = np.zeros((sum(map(len, chains)), OP_WIDTH), np.int64)
    start, end, spans = [], [], []
    row = 0
    for c, (chain, begins) in enumerate(zip(chains, firsts, strict=True)):
        start.append(row)
        for op, begin in zip(chain, begins, strict=True):
            w = op.window
            ops[row] = (
                op.type, c, w.lo, w.est, w.hi, begin, len(op.drafts), op.offset, op.seen, op.hw, int(op.exact),
            )  # fmt: skip
            spans.append((begin, len(op.drafts)))
            row += 1
        end.append(row)
    return ops, np.array(start, np.int64), np.array(end, np.int64), spans
