"""From `replication_events` rows to the kernel's integers: the one place that knows both forms."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from replay.arrays.columns import codes, numbers
from replay.engine import codes as c
from replay.engine.events import known_in
from replay.protocol.state import BOUNDED, DERIVED, NONE, OBSERVED, ROLE_FOLLOWER, ROLE_LEADER, UNKNOWN, UNSET
from schemas.model import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from replay.arrays.ints import Ints
    from replay.engine.events import Batch, Events


def numbered(names: Sequence[str]) -> dict[str, int]:
    """Words as codes: each one's place."""
    return {name: code for code, name in enumerate(names)}


EVIDENCE_CODE = numbered(EVIDENCE)
ROLES = {"follower": ROLE_FOLLOWER, "leader": ROLE_LEADER}
assert tuple(range(4)) == (OBSERVED, DERIVED, BOUNDED, UNKNOWN)  # noqa: S101 - the two orders must agree


def brokers_of(events: Events) -> list[int]:
    """Every broker that the events name, sorted: the kernel's dense indices."""
    named = np.concatenate([events.numbers(name, NONE) for name in ("broker_id", "replica_id", "leader_id")])
    found = set(np.unique(named).tolist())
    for name in ("isr", "replicas"):
        found.update(broker for _, members in sets_of(events, name) for broker in members)
    return sorted(b for b in found if b >= 0)


def sets_of(events: Events, name: str) -> list[tuple[int, tuple[int, ...]]]:
    """A column of lists where it is not null, for only decisions name replicas: place among the events, and list."""
    places, found = events.batch.once(sets_in, name)
    first, stop = np.searchsorted(places, (events.first, events.stop)).tolist()
    return list(zip((places[first:stop] - events.first).tolist(), found[first:stop], strict=True))


def sets_in(batch: Batch, name: str) -> tuple[Ints, list[tuple[int, ...]]]:
    """Places where a column of lists is not null, and what it holds there."""
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


def encode(events: Events, brokers: Sequence[int]) -> Ints:
    """A partition's events -> their integer form, a row each. `seq` is taken where it is there, else 0.

    Brokers' indices are the partition's own; all else is encoded for the whole batch, whose matrix the rows are of.
    """
    out = events.read(encoded)
    ids = np.stack([events.numbers(name, NONE) for name in ("broker_id", "replica_id", "leader_id")], axis=1)
    out[:, [c.E_BROKER, c.E_REPLICA, c.E_LEADER]] = indices(ids, brokers)
    out[:, c.E_ISR] = masks(events, "isr", brokers)
    out[:, c.E_ASSIGNED] = masks(events, "replicas", brokers)
    return out


def encoded(batch: Batch) -> Ints:
    """All that is encoded alike for every partition of a batch: `encode` but for the brokers."""
    out = np.full((len(batch.table), c.EVENT_WIDTH), UNSET, np.int64)
    column, events = batch.table.column, batch.events
    kind = out[:, c.E_KIND] = events.kinds
    for place, name, missing in (
        (c.E_TS, "ts", 0),
        (c.E_LO, "ts_lo", 0),
        (c.E_EPOCH, "leader_epoch", UNSET),
        (c.E_END, "next_offset", UNSET),
        (c.E_FETCH, "fetch_offset", UNSET),
        (c.E_LEO, "leo", UNSET),
        (c.E_PARTITION_EPOCH, "partition_epoch", UNSET),
        (c.E_DIVERGING_EPOCH, "diverging_epoch", UNSET),
        (c.E_DIVERGING_END, "diverging_end_offset", UNSET),
        (c.E_TARGET, "truncate_to", UNSET),
        (c.E_ERROR, "error_code", 0),
        (c.E_UNTIL, "run_until", UNSET),
        (c.E_DUPLICATE, "duplicate", 0),
        (c.E_SEQ, "seq", 0),
    ):
        out[:, place] = events.numbers(name, missing)
    out[:, c.E_EVIDENCE] = codes(column("evidence"), EVIDENCE_CODE, UNKNOWN)
    out[:, c.E_END_EVIDENCE] = codes(column("next_offset_evidence"), EVIDENCE_CODE, DERIVED)
    out[:, c.E_CAUSE] = codes(column("cause"), numbered(c.CAUSES), c.CAUSE_LEADER_EPOCH)
    stated = events.numbers("hw", UNSET)
    out[:, c.E_HW] = np.where(stated != UNSET, stated, events.numbers("response_hw", UNSET))
    for code, place, name, read in SAID_BY_KIND:
        at = np.flatnonzero(kind == code)
        if len(at):
            out[at, place] = read(column(name).take(at))
    return out


whole = partial(numbers, missing=UNSET)

# What only events of one kind say, and where it stands: kind, place, column, how it is read.
SAID_BY_KIND: Final[tuple[tuple[int, int, str, Callable[[pa.ChunkedArray], Ints]], ...]] = (
    (c.ROLE_CHANGE, c.E_VALUE, "role", partial(codes, table=ROLES, missing=UNSET)),
    (c.LOG_LOAD, c.E_VALUE, "cause", partial(codes, table={c.LOG_CREATED: 1}, missing=UNSET)),
    (c.ISR_REQUEST, c.E_VALUE, "cause", partial(codes, table=numbered(c.REQUEST_STATES), missing=c.ISR_COMMITTED)),
    (c.CONFIG_CHANGE, c.E_VALUE, "min_insync_replicas", whole),
    (c.CONFIG_CHANGE, c.E_EXTRA, "replica_lag_time_max_us", whole),
    (c.BROKER_CHANGE, c.E_VALUE, "fenced", whole),
    (c.BROKER_CHANGE, c.E_EXTRA, "in_controlled_shutdown", whole),
    *((kind, c.E_VALUE, "acks", whole) for kind in (c.APPEND, c.ACK)),
    *((kind, c.E_EXTRA, "base_offset", whole) for kind in (c.APPEND, c.ACK)),
    (c.OBSERVATION, c.E_EXTRA, "hw_by_lines", whole),
    (c.OBSERVATION, c.E_VALUE, "state", partial(codes, table=c.FUTURE_STATES, missing=UNSET)),
    (c.OBSERVATION, c.E_TARGET, "log_start_offset", whole),
    (c.FETCH_UPDATE, c.E_EXTRA, "follower_log_start_offset", whole),
    *(
        (kind, c.E_EXTRA, "log_start_offset", whole)
        for kind in (c.LOG_START_CHANGE, c.FETCH_READ, c.FETCH_APPLY, c.CONSUMER_READ)
    ),
)
