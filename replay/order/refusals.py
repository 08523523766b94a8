"""Produces and markers that a broker refused before it appended anything, as events: a minimum ISR not met, and others.

They change nothing, but they show what the broker thought at that moment: its role, and how large its ISR was. Whether
its metadata cache has a topic stands in no log, but it has it once the broker has had a role in the partition for a
while, and until it hears of the deletion. An answer that the topic does not exist is an event if the broker had a role.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from replay.arrays.ints import NEVER
from replay.engine.codes import DELETED, TRANSACTIONAL
from replay.engine.stamps import CLOCK_SLACK_US, STAMP_EARLY_US
from replay.evidence.group_coordinators import is_on
from replay.evidence.markers import MARKER_NAMES, may_be_marked
from replay.evidence.request_times import DECISION_LATE_US, TIMING, local_window, phases, phases_at
from replay.evidence.roles import moment
from replay.evidence.rows import places_of
from replay.evidence.tenures import micros
from replay.order.appends import PRODUCED, in_order, was_appended
from replay.order.front import OP_REFUSED
from replay.order.operation_blocks import Block, drafts_at, operations_of
from replay.protocol.produce import (
    ACKS_ALL,
    KAFKA_STORAGE_ERROR,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from replay.protocol.state import NONE
from replay.protocol.state_machines import CACHED

if TYPE_CHECKING:
    from replay.evidence.partition_facts import PartitionFacts
    from replay.evidence.rows import Row
    from replay.evidence.tenures import Tenure

OF_GROUPS: Final = ("__consumer_offsets", "__share_group_state")  # group and share coordinators append to them


def refusals_by_tenure(facts: PartitionFacts) -> dict[int, list[Row]]:
    """Return every produce that was refused at once, by the leader epoch in which its broker then had a role.

    One of a topic that its broker may not have heard of yet is left out.
    """
    refused = [row for row in facts.by_kind["produce"] if not was_appended(row)]
    refused += [row for row in facts.by_kind["transaction"] if is_refused_marker(row)]
    refused += facts.by_kind["append_refused"]
    if any(row["error_code"] == UNKNOWN_TOPIC_OR_PARTITION for row in refused):
        roles, started, cached = roles_of(facts), starts_of(facts), cached_at(facts)
        refused = [
            row
            for row in refused
            if row["error_code"] != UNKNOWN_TOPIC_OR_PARTITION
            or knew_topic((roles[b := row["broker_id"]], cached[b]), started[b], phases(row).taken)
        ]
    return {epoch: in_order(rows) for epoch, rows in by_role(facts, refused).items()}


def is_refused_marker(row: Row) -> bool:
    """Whether the answer to WriteTxnMarkers says that the marker was refused, as what asks for all replicas is.

    A broker that does not host the partition answers UNKNOWN_TOPIC_OR_PARTITION, whatever its metadata cache has
    (`KafkaApis.handleWriteTxnMarkersRequest`).
    """
    if row["name"] not in MARKER_NAMES or may_be_marked(row):
        return False
    return row["error_code"] in {NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR}


def by_role(facts: PartitionFacts, rows: list[Row]) -> dict[int, list[Row]]:
    """Return requests by the leader epoch in which their broker then had a role; those in no known one are left out."""
    out: dict[int, list[Row]] = defaultdict(list)
    roles = roles_of(facts) if rows else {}
    for row in rows:
        broker, us = row["broker_id"], phases(row).taken
        held = [epoch for epoch, since in roles[broker] if since <= us + STAMP_EARLY_US]
        found = max(held) if held else facts.epoch_at(broker, us)
        if row["error_code"] == NOT_LEADER_OR_FOLLOWER:
            found = max([one for one in (found, replaced_in(facts, broker, us)) if one is not None], default=None)
        if found is not None:
            out[found].append(row)
    return out


def roles_of(facts: PartitionFacts) -> dict[int, list[tuple[int, int]]]:
    """Return the roles that each broker's lines tell: leader epoch, when."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for (broker, epoch), line in facts.role_lines.items():
        found[broker].append((epoch, moment(line)))
    return found


def starts_of(facts: PartitionFacts) -> dict[int, list[int]]:
    """Return when each broker started: with an empty metadata cache."""
    found: dict[int, list[int]] = defaultdict(list)
    for row in facts.cluster:
        if row["kind"] == "broker_lifecycle" and row["name"] == "start" and row["ts"] is not None:
            found[row["broker_id"]].append(micros(row["ts"]))
    return found


def cached_at(facts: PartitionFacts) -> dict[int, list[int]]:
    """Return when each broker's metadata cache took the partition's state, where it logs that (ZooKeeper, TRACE)."""
    found: dict[int, list[int]] = defaultdict(list)
    for row in facts.by_kind["state_change"]:
        if row["name"] == CACHED:
            found[row["broker_id"]].append(micros(row["ts"]))
    return found


def knew_topic(told: tuple[list[tuple[int, int]], list[int]], started: list[int], us: int) -> bool:
    """Whether a broker must have known the topic at `us`. `told`: its roles (epoch, when), when its cache was told.

    ZooKeeper's controller tells it of the role first and of the metadata next. A broker that starts has heard of none.
    """
    begun = max((one for one in started if one <= us + CLOCK_SLACK_US), default=-NEVER)
    roles, cached = told
    known = [*(since + DECISION_LATE_US for _, since in roles if since > begun), *(at for at in cached if at > begun)]
    return any(since <= us - CLOCK_SLACK_US for since in known)


def causes_of(facts: PartitionFacts, rows: list[Row]) -> list[str | None]:
    """Return what else is known of each refusal: whether the topic was deleted by then, or who produced.

    A broker may answer that it does not know the topic as soon as its deletion was decided, and must do so some time
    later.
    """
    deletion = facts.deletion()
    deleted = NEVER if deletion is None else micros(deletion["ts"])
    out: list[str | None] = []
    for row in rows:
        is_unknown = row["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
        heard = deleted - CLOCK_SLACK_US if is_unknown else deleted + DECISION_LATE_US
        transactional = TRANSACTIONAL if row["transactional_id"] else None
        out.append(DELETED if phases(row).taken >= heard else transactional)
    return out


def replaced_in(facts: PartitionFacts, broker: int, us: int) -> int | None:
    """Return the newest leader epoch, by the controller's clock, if another broker leads it: it has heard of it.

    A replica that is removed from the assignment writes no line about its role.
    """
    led = [tenure for tenure in facts.tenures if tenure.decisions and tenure.decisions[0].us <= us]
    return led[-1].epoch if led and led[-1].leader not in (broker, NONE) else None


def lacked_replicas(facts: PartitionFacts, tenure: Tenure, row: Row) -> bool:
    """Whether a refusal may be for want of replicas: group and share coordinators of KIP-848 do not ask for any."""
    if row["kind"] != "append_refused" or row["topic"] not in OF_GROUPS:
        return True
    if is_on(facts.turns.new_group_coordinators, row["broker_id"], micros(row["ts"])):
        return False
    return bool(facts.profile_in(tenure.epoch, row["broker_id"]).groups_ask_all)


def refusal_chain(facts: PartitionFacts, tenure: Tenure, rows: list[Row]) -> list[Block]:
    """Return the chains of a tenure's refused produces, markers, and appends of coordinators, each in its own order."""
    rows = [row for row in rows if lacked_replicas(facts, tenure, row)]
    found = ([row for row in rows if row["kind"] == kind] for kind in ("produce", "transaction", "append_refused"))
    return [block_of(facts, tenure, alike) for alike in found if alike]


def block_of(facts: PartitionFacts, tenure: Tenure, rows: list[Row]) -> Block:
    """Return the chain of refused requests of one kind."""
    columns, places = rows[0].columns, places_of(rows)
    window = local_window(phases_at(columns, places))
    fields = {
        "broker_id": np.array([row["broker_id"] for row in rows], np.int32),
        "leader_epoch": tenure.epoch,
        "cause": pa.array(causes_of(facts, rows), pa.string()),
        "evidence": "observed",
        "is_control": True if rows[0]["kind"] == "transaction" else None,
    }
    copied: tuple[str, ...] = (*PRODUCED, *TIMING)
    if rows[0]["kind"] == "append_refused":  # a line, no request of its own
        copied = ()
        fields |= {"acks": ACKS_ALL, "error_code": NOT_ENOUGH_REPLICAS, "evidence": "derived"}
    events = drafts_at(columns, places, window, "produce_refused", fields, copied)
    numbers = np.arange(len(rows))
    return Block(numbers, operations_of(window, type=OP_REFUSED, first=numbers, count=1), [events])
