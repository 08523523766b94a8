"""The rare events of a batch: all but requests and brokers' statements of their offsets, so there are always few."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.engine import codes as c
from replay.evidence.future_logs import FUTURE_LOG
from replay.protocol.state import ROLE_LEADER
from replay.protocol.state_machines import CACHED, FOUND, NOTICE_MADE, NOTICE_READ, STATED

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from replay.arrays.ints import Flags, Ints
    from replay.arrays.records import Records
    from replay.engine.event_record import EventRecord
    from replay.engine.events import Event, EventBatch, Events

    Rare = dict[str, list[Event]]  # by kind

FREQUENT_KINDS = (
    c.APPEND, c.ACK, c.FETCH_UPDATE, c.FETCH_READ, c.FETCH_APPLY, c.CONSUMER_READ, c.FETCH_LEFT_OUT, c.OBSERVATION,
    c.PRODUCE_REFUSED,
)  # fmt: skip
DECIDING = (c.PARTITION_CHANGE, c.CONFIG_CHANGE, c.TOPIC_CHANGE, c.SEGMENT_CHANGE)
TELLING = (  # causes of observations that count as rare
    STATED, FOUND, CACHED, c.ANSWERED, c.BROKER_EPOCH, c.STORAGE_FAILED, c.CONTRADICTED, c.LEADER_UNKNOWN, FUTURE_LOG,
    NOTICE_MADE, NOTICE_READ,
)  # fmt: skip


def is_rare(batch: EventBatch) -> Flags:
    """Return a mask of the rare events: all but requests and brokers' statements of their offsets."""
    kinds = batch.events.kinds
    told = ~np.isin(kinds, FREQUENT_KINDS)
    stated = np.flatnonzero(kinds == c.OBSERVATION)
    if len(stated):
        telling = pc.is_in(batch.table.column("cause").take(stated), pa.array(TELLING))
        told[stated] = telling.to_numpy()
    return told


def rare_events(events: Events) -> Rare:
    """Return the rare events by kind, each kind in replay order."""
    out: Rare = defaultdict(list)
    for row in events.among(is_rare).rows:
        out[row["kind"]].append(row)
    return out


def in_turn(rare: Rare, kinds: Iterable[str]) -> list[dict[str, Any]]:
    """Return the rare events of some kinds in replay order."""
    return sorted((row for kind in kinds for row in rare[kind]), key=lambda row: row["seq"])


def boundaries(events: Records[EventRecord], rare: Ints, newest: int, *, differ: bool) -> list[int]:
    """Return where a batch is split: at new leader epochs, at decisions, and after a role change to leader.

    So it is at lines about segments, whose rows tell of the state as it was then. `rare`: the places of rare events; no
    other event decides anything. `newest`: the leader epoch so far. While brokers run different versions (`differ`)
    each rare event is split off, since it may be about a follower and must then go by that broker's rules.
    """
    out = set()
    told = (events[name][rare].tolist() for name in ("kind", "leader_epoch", "role"))
    for k, kind, epoch, role in zip(rare.tolist(), *told, strict=True):
        if kind in DECIDING:
            out.add(k)
        if kind in (c.PARTITION_CHANGE, c.ROLE_CHANGE) and epoch > newest:
            newest = epoch
            out.add(k)
        if (kind == c.ROLE_CHANGE and role == ROLE_LEADER) or differ:
            out |= {k, k + 1} if differ else {k + 1}
    return sorted(k for k in out if k < len(events))
