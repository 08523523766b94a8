"""Produces that a broker refused before anything was appended, as events: a minimum ISR not met, no leader, others.

They change nothing, but they show what the broker thought at that moment: its role, and how large its ISR was. An
answer that the topic does not exist is no event of the partition: whether a broker's metadata cache had heard of a
topic stands in no log.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from replay.engine.codes import TRANSACTIONAL, UNKNOWN_TOPIC_OR_PARTITION
from replay.engine.stamps import STAMP_EARLY_US
from replay.evidence.request_times import local_window, phases, phases_at
from replay.evidence.roles import moment
from replay.evidence.rows import places_of
from replay.order.appends import PRODUCED, in_order, was_appended
from replay.order.fetch_chains import TIMING
from replay.order.merge import OP_REFUSED
from replay.order.operation_blocks import Block, drafts_at, operations_of
from replay.protocol.produce import NOT_LEADER_OR_FOLLOWER
from replay.protocol.state import NONE

if TYPE_CHECKING:
    from replay.evidence.partition_facts import PartitionFacts
    from replay.evidence.rows import Row
    from replay.evidence.tenures import Tenure


def refusals_by_tenure(facts: PartitionFacts) -> dict[int, list[Row]]:
    """Return every produce that was refused at once, by the leader epoch in which its broker then had a role."""
    refused = [
        row
        for row in facts.by_kind["produce"]
        if not was_appended(row) and row["error_code"] != UNKNOWN_TOPIC_OR_PARTITION
    ]
    return {epoch: in_order(rows) for epoch, rows in by_role(facts, refused).items()}


def by_role(facts: PartitionFacts, rows: list[Row]) -> dict[int, list[Row]]:
    """Return requests by the leader epoch in which their broker then had a role; those in no known one are left out."""
    out: dict[int, list[Row]] = defaultdict(list)
    roles: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for (broker, epoch), line in facts.role_lines.items() if rows else ():
        roles[broker].append((epoch, moment(line)))
    for row in rows:
        broker, us = row["broker_id"], phases(row).taken
        held = [epoch for epoch, since in roles[broker] if since <= us + STAMP_EARLY_US]
        found = max(held) if held else facts.epoch_at(broker, us)
        if row["error_code"] == NOT_LEADER_OR_FOLLOWER:
            found = max([one for one in (found, replaced_in(facts, broker, us)) if one is not None], default=None)
        if found is not None:
            out[found].append(row)
    return out


def replaced_in(facts: PartitionFacts, broker: int, us: int) -> int | None:
    """Return the newest leader epoch, by the controller's clock, if another broker leads it: it has heard of it.

    A replica that is removed from the assignment writes no line about its role.
    """
    led = [tenure for tenure in facts.tenures if tenure.decisions and tenure.decisions[0].us <= us]
    return led[-1].epoch if led and led[-1].leader not in (broker, NONE) else None


def refusal_chain(tenure: Tenure, rows: list[Row]) -> list[Block]:
    """Return the chain of a tenure's refused produces, in the order in which they were handled."""
    if not rows:
        return []
    columns, places = rows[0].columns, places_of(rows)
    window = local_window(phases_at(columns, places))
    fields = {
        "broker_id": np.array([row["broker_id"] for row in rows], np.int32),
        "leader_epoch": tenure.epoch,
        "cause": pa.array([TRANSACTIONAL if row["transactional_id"] else None for row in rows], pa.string()),
        "evidence": "observed",
    }
    events = drafts_at(columns, places, window, "produce_refused", fields, (*PRODUCED, *TIMING))
    numbers = np.arange(len(rows))
    return [Block(numbers, operations_of(window, type=OP_REFUSED, first=numbers, count=1), [events])]
