"""From `replication_events` rows to the kernel's integers: the one place that knows both forms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay import encoding as c
from replay.state import BOUNDED, DERIVED, NONE, OBSERVED, ROLE_FOLLOWER, ROLE_LEADER, UNKNOWN, UNSET, Ints
from schemas.model import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Sequence


def numbered(names: Sequence[str]) -> dict[str, int]:
    """Words as codes: each one's place."""
    return {name: code for code, name in enumerate(names)}


EVIDENCE_CODE = numbered(EVIDENCE)
assert tuple(range(4)) == (OBSERVED, DERIVED, BOUNDED, UNKNOWN)  # noqa: S101 - the two orders must agree


def brokers_of(events: pa.Table) -> list[int]:
    """Every broker that the events name, sorted: the kernel's dense indices."""
    found: set[int | None] = set()
    for name in ("broker_id", "replica_id", "leader_id"):
        found.update(pc.unique(events.column(name)).to_pylist())
    for name in ("isr", "replicas"):
        found.update(pc.unique(pc.list_flatten(events.column(name))).to_pylist())
    return sorted(b for b in found if b is not None and b >= 0)


def numbers(column: pa.ChunkedArray, missing: int) -> Ints:
    """A numeric, boolean or time column as int64, nulls as `missing`."""
    if pa.types.is_boolean(column.type) or pa.types.is_timestamp(column.type) or column.type != pa.int64():
        column = column.cast(pa.int64())
    return np.asarray(column.fill_null(missing).to_numpy(zero_copy_only=False), dtype=np.int64)


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
    values = {
        c.ROLE_CHANGE: codes(column("role"), {"follower": ROLE_FOLLOWER, "leader": ROLE_LEADER}, UNSET),
        c.LOG_LOAD: codes(column("cause"), {c.LOG_CREATED: 1}, UNSET),
        c.ISR_REQUEST: codes(column("cause"), numbered(c.REQUEST_STATES), c.ISR_COMMITTED),
        c.CONFIG_CHANGE: numbers(column("min_insync_replicas"), UNSET),
        c.BROKER_CHANGE: numbers(column("fenced"), UNSET),
        c.APPEND: numbers(column("acks"), UNSET),
    }
    extras = {
        c.CONFIG_CHANGE: numbers(column("replica_lag_time_max_us"), UNSET),
        c.BROKER_CHANGE: numbers(column("in_controlled_shutdown"), UNSET),
        c.OBSERVATION: numbers(column("hw_by_lines"), UNSET),
        c.APPEND: numbers(column("base_offset"), UNSET),
        c.FETCH_UPDATE: numbers(column("follower_log_start_offset"), UNSET),
        **dict.fromkeys(
            (c.LOG_START_CHANGE, c.FETCH_READ, c.FETCH_APPLY, c.CONSUMER_READ),
            numbers(column("log_start_offset"), UNSET),
        ),
    }
    for place, table in ((c.E_VALUE, values), (c.E_EXTRA, extras)):
        for code, found in table.items():
            out[:, place] = np.where(kind == code, found, out[:, place])
    return out
