"""From `replication_events` rows to the kernel's integers: the one place that knows both forms."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay import encoding as c
from replay.columns import numbers
from replay.state import BOUNDED, DERIVED, NONE, OBSERVED, ROLE_FOLLOWER, ROLE_LEADER, UNKNOWN, UNSET, Ints
from schemas.model import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def numbered(names: Sequence[str]) -> dict[str, int]:
    """Words as codes: each one's place."""
    return {name: code for code, name in enumerate(names)}


EVIDENCE_CODE = numbered(EVIDENCE)
ROLES = {"follower": ROLE_FOLLOWER, "leader": ROLE_LEADER}
assert tuple(range(4)) == (OBSERVED, DERIVED, BOUNDED, UNKNOWN)  # noqa: S101 - the two orders must agree


def brokers_of(events: pa.Table) -> list[int]:
    """Every broker that the events name, sorted: the kernel's dense indices."""
    found: set[int | None] = set()
    for name in ("broker_id", "replica_id", "leader_id"):
        found.update(pc.unique(events.column(name)).to_pylist())
    for name in ("isr", "replicas"):
        found.update(pc.unique(pc.list_flatten(events.column(name))).to_pylist())
    return sorted(b for b in found if b is not None and b >= 0)


def codes(column: pa.ChunkedArray, table: dict[str, int], missing: int) -> Ints:
    """A text column as codes."""
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    lookup = np.array([table.get(v, missing) for v in encoded.dictionary.to_pylist()] + [missing], np.int64)
    return lookup[np.asarray(encoded.indices.fill_null(len(lookup) - 1).to_numpy(zero_copy_only=False), np.int64)]


def indices(column: pa.ChunkedArray, brokers: Sequence[int]) -> Ints:
    """Broker ids as dense indices; null and consumers as NONE."""
    ids = numbers(column, NONE)
    table = np.array([*brokers, np.iinfo(np.int64).max], np.int64)
    place = np.searchsorted(table, ids)
    return np.where((ids >= 0) & (table[np.minimum(place, len(brokers))] == ids), place, NONE)


def masks(column: pa.ChunkedArray, brokers: Sequence[int]) -> Ints:
    """Lists of broker ids as bit masks; null as UNSET."""
    place = {b: k for k, b in enumerate(brokers)}
    cache: dict[tuple[int, ...], int] = {}
    out = np.full(len(column), UNSET, np.int64)
    told = np.flatnonzero(column.is_valid().to_numpy())  # mostly none: only decisions name replicas
    for k, value in zip(told.tolist(), column.take(told).to_pylist(), strict=True):
        key = tuple(value)
        if key not in cache:
            cache[key] = sum(1 << place[b] for b in set(key))
        out[k] = cache[key]
    return out


def encode(events: pa.Table, brokers: Sequence[int]) -> Ints:
    """Events in any order -> their integer form, a row each. `seq` is taken where it is there, else 0."""
    out = np.full((len(events), c.EVENT_WIDTH), UNSET, np.int64)
    column = events.column
    out[:, c.E_KIND] = codes(column("kind"), c.KIND, UNSET)
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
        (c.E_LO, "ts_lo", 0),
    ):
        out[:, place] = numbers(column(name), missing)
    kind = out[:, c.E_KIND]
    out[:, c.E_BROKER] = indices(column("broker_id"), brokers)
    out[:, c.E_REPLICA] = indices(column("replica_id"), brokers)
    out[:, c.E_LEADER] = indices(column("leader_id"), brokers)
    out[:, c.E_ISR] = masks(column("isr"), brokers)
    out[:, c.E_ASSIGNED] = masks(column("replicas"), brokers)
    out[:, c.E_EVIDENCE] = codes(column("evidence"), EVIDENCE_CODE, UNKNOWN)
    out[:, c.E_END_EVIDENCE] = codes(column("next_offset_evidence"), EVIDENCE_CODE, DERIVED)
    out[:, c.E_CAUSE] = codes(column("cause"), numbered(c.CAUSES), c.CAUSE_LEADER_EPOCH)
    stated = numbers(column("hw"), UNSET)
    out[:, c.E_HW] = np.where(stated != UNSET, stated, numbers(column("response_hw"), UNSET))
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
    (c.APPEND, c.E_VALUE, "acks", whole),
    (c.APPEND, c.E_EXTRA, "base_offset", whole),
    (c.OBSERVATION, c.E_EXTRA, "hw_by_lines", whole),
    (c.FETCH_UPDATE, c.E_EXTRA, "follower_log_start_offset", whole),
    *(
        (kind, c.E_EXTRA, "log_start_offset", whole)
        for kind in (c.LOG_START_CHANGE, c.FETCH_READ, c.FETCH_APPLY, c.CONSUMER_READ)
    ),
)
