"""From `replication_events` rows to records of integers: the only place that knows both forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from replay.arrays.columns import codes
from replay.arrays.records import blank
from replay.engine import codes as c
from replay.engine.event_record import EventRecord
from replay.engine.events import known_in
from replay.protocol.deletion import POLICIES
from replay.protocol.produce import ACKS_ALL, ACKS_OF_COORDINATOR, ACKS_OF_TRANSACTION, ACKS_TO_DELETED
from replay.protocol.state import (
    BOUNDED,
    DERIVED,
    NONE,
    OBSERVED,
    ROLE_FOLLOWER,
    ROLE_LEADER,
    STOPPING_REGISTERED,
    STOPPING_UNTOLD,
    UNKNOWN,
    UNSET,
)
from schemas.model import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.arrays.ints import Ints
    from replay.arrays.records import Records
    from replay.engine.events import EventBatch, Events


def numbered(names: Sequence[str]) -> dict[str, int]:
    """Words as codes: the index of each."""
    return {name: code for code, name in enumerate(names)}


EVIDENCE_CODE = numbered(EVIDENCE)
ROLES = {"follower": ROLE_FOLLOWER, "leader": ROLE_LEADER}
assert tuple(range(4)) == (OBSERVED, DERIVED, BOUNDED, UNKNOWN)  # noqa: S101 - the two orders must agree


def brokers_of(events: Events) -> list[int]:
    """Every broker that the events name, sorted: the engine's dense indices."""
    named = np.concatenate([events.numbers(name, NONE) for name in ("broker_id", "replica_id", "leader_id")])
    found = set(np.unique(named).tolist())
    for name in ("isr", "replicas"):
        found.update(broker for _, members in sets_of(events, name) for broker in members)
    return sorted(b for b in found if b >= 0)


def sets_of(events: Events, name: str) -> list[tuple[int, tuple[int, ...]]]:
    """The non-null lists of a column, with their places among the events; only decisions name replicas."""
    places, found = events.batch.once(sets_in, name)
    first, stop = np.searchsorted(places, (events.first, events.stop)).tolist()
    return list(zip((places[first:stop] - events.first).tolist(), found[first:stop], strict=True))


def sets_in(batch: EventBatch, name: str) -> tuple[Ints, list[tuple[int, ...]]]:
    """Places where a column of lists is not null, and the lists there."""
    places = np.flatnonzero(known_in(batch, name))
    return places, [tuple(members) for members in batch.table.column(name).take(places).to_pylist()]


def indices(ids: Ints, brokers: Sequence[int]) -> Ints:
    """Broker ids as dense indices; null and consumers as NONE."""
    order = np.argsort(brokers)
    table = np.array([*sorted(brokers), np.iinfo(np.int64).max], np.int64)
    place = np.searchsorted(table, ids)
    found = (ids >= 0) & (table[np.minimum(place, len(brokers))] == ids)
    return np.where(found, np.append(order, NONE)[np.minimum(place, len(brokers))], NONE)


def masks(events: Events, name: str, brokers: Sequence[int]) -> Ints:
    """Lists of broker ids as bit masks; null as UNSET."""
    place = {b: k for k, b in enumerate(brokers)}
    out = np.full(len(events), UNSET, np.int64)
    for k, members in sets_of(events, name):
        out[k] = sum(1 << place[b] for b in set(members))
    return out


def encode(events: Events, brokers: Sequence[int]) -> Records[EventRecord]:
    """A partition's events as records of integers. `seq` is taken if present, else 0.

    Broker indices are specific to the partition; everything else is encoded once for the whole batch, whose records
    these are.
    """
    out = events.records(encoded)
    for field, name in (("broker", "broker_id"), ("replica", "replica_id"), ("leader", "leader_id")):
        out[field] = indices(events.numbers(name, NONE), brokers)
    preferred = events.numbers("preferred_read_replica", NONE)
    if (preferred >= 0).any():
        out["preferred"] = indices(preferred, brokers)
    for name in ("isr", "replicas"):
        out[name] = masks(events, name, brokers)
    return out


def encoded(batch: EventBatch) -> Records[EventRecord]:
    """Encode what is the same for every partition of a batch: everything but the brokers."""
    out = blank(len(batch.table), EventRecord, UNSET)
    column, events, told = batch.table.column, batch.events, frozenset(batch.table.column_names)
    kind = out["kind"] = events.kinds
    for name in NUMBERS:
        # Most columns are of events that a batch has none of, and older tables do not have all of them.
        if name in told and column(name).null_count < len(out):
            out[name] = events.numbers(name, UNSET)
    out["replica_lag_us"] = events.numbers("replica_lag_time_max_us", UNSET)
    for name in COUNTED:
        out[name] = events.numbers(name, 0)
    out["evidence"] = codes(column("evidence"), EVIDENCE_CODE, UNKNOWN)
    out["next_offset_evidence"] = codes(column("next_offset_evidence"), EVIDENCE_CODE, DERIVED)
    stated = events.numbers("hw", UNSET)
    out["hw"] = np.where(stated != UNSET, stated, events.numbers("response_hw", UNSET))
    out["cause"] = c.CAUSE_LEADER_EPOCH
    for code, field, name, table, missing in WORDS:
        at = np.flatnonzero(kind == code)
        if len(at):
            out[field][at] = codes(column(name).take(at), table, missing)
    out["acks"] = acks_of(events, kind, out["acks"])
    note_untold_shutdowns(events, out)
    if "isr_broker_epochs" in told:
        note_asked_epochs(batch, out)
    return out


def note_untold_shutdowns(events: Events, out: Records[EventRecord]) -> None:
    """Of shutdowns, note those that no broker hears of: a line of ZooKeeper's controller tells them, no metadata."""
    told = np.flatnonzero((out["kind"] == c.BROKER_CHANGE) & (out["in_controlled_shutdown"] == STOPPING_REGISTERED))
    if len(told):
        untold = told[events.numbers("metadata_offset", UNSET)[told] == UNSET]
        out["in_controlled_shutdown"][untold] = STOPPING_UNTOLD


def note_asked_epochs(batch: EventBatch, out: Records[EventRecord]) -> None:
    """Of requests to add a replica to the ISR, note the broker epoch that the leader names of it."""
    places, named = batch.once(sets_in, "isr_broker_epochs")
    asked = batch.table.select(["replica_id", "isr"]).take(places).to_pylist()
    for k, row, epochs in zip(places.tolist(), asked, named, strict=True):
        out["replica_epoch"][k] = dict(zip(row["isr"] or (), epochs, strict=False)).get(row["replica_id"], UNSET)


def acks_of(events: Events, kind: Ints, asked: Ints) -> Ints:
    """Which acks each produce asked for; markers, and some refused produces, have values of their own."""
    out = np.where(events.numbers("is_control", 0) == 1, ACKS_OF_COORDINATOR, asked)
    refused = np.flatnonzero(kind == c.PRODUCE_REFUSED)
    if len(refused):
        told = codes(events.batch.table.column("cause").take(refused), REFUSED_ACKS, UNSET)
        counts = (told == ACKS_TO_DELETED) | ((told != UNSET) & (asked[refused] == ACKS_ALL))
        out[refused[counts]] = told[counts]
    return out


REFUSED_ACKS: Final = {c.TRANSACTIONAL: ACKS_OF_TRANSACTION, c.DELETED: ACKS_TO_DELETED}
COUNTED = ("ts", "ts_lo", "seq", "error_code", "duplicate")  # 0 if missing
NUMBERS = (  # UNSET if missing
    "leader_epoch", "partition_epoch", "base_offset", "next_offset", "fetch_offset", "leo", "hw_by_lines",
    "log_start_offset", "follower_log_start_offset", "requested_offset", "truncate_to", "diverging_epoch",
    "diverging_end_offset", "acks",
    "min_insync_replicas", "replica_epoch", "broker_epoch", "fenced", "in_controlled_shutdown", "run_until",
)  # fmt: skip

# Words in events of one kind only: kind, field, column, the code of each word, the code for any other word.
WORDS: Final[tuple[tuple[int, str, str, dict[str, int], int], ...]] = (
    (c.ROLE_CHANGE, "role", "role", ROLES, UNSET),
    (c.LOG_LOAD, "log_created", "cause", {c.LOG_CREATED: 1}, UNSET),
    (c.ISR_REQUEST, "isr_request", "cause", numbered(c.REQUEST_STATES), c.ISR_COMMITTED),
    (c.OBSERVATION, "future_log", "state", c.FUTURE_STATES, UNSET),
    (c.TRUNCATION, "cause", "cause", numbered(c.CAUSES), c.CAUSE_LEADER_EPOCH),
    (c.DELETE_RECORDS, "cause", "cause", POLICIES, UNSET),
)
