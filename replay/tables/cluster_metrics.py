"""Rows of `cluster_metrics`: what one broker's metrics, or the controller's, would have shown minute by minute.

A gauge is the sum of its partitions' parts, MaxLag their maximum, a meter counts, and a byte-rate goes over the seconds
of its window (`byte_rates`). What is claimed goes by what the logs cover: in a minute in which nothing shows that the
broker was up nothing is claimed, since a dead broker exports nothing; and a minute of which a part is not covered is
bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import numbers, stamps, words
from replay.evidence.coverage import CLOSED, LOGGED, LOSSY, METADATA, MISSING, NOTHING_TELLS, REQUEST_LOG, SERVER_LOG
from replay.tables.byte_rates import NO_LIMIT, UNKNOWN_WINDOW, Throttled, byte_rates
from replay.tables.meters import MAX_LAG, MINUTE_US
from replay.tables.quota_rates import BYTE_RATES
from schemas.meters import CLUSTER_METRICS, COUNTED, MBEANS, METRICS, OF_CONTROLLER
from schemas.model import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from replay.arrays.ints import Flags, Ints

    Stretch = Mapping[str, Any]  # a row of `coverage`, times in microseconds

SCHEMA: Final = pa.schema([field for field in CLUSTER_METRICS.arrow_schema if field.name != "recording_id"])
_KEY: Final = ("topic", "incarnation", "partition", "metric")
PARTS: Final = (  # columns that are read
    *_KEY, "seq", "ts", "broker_id", "value", "highest", "quota_limit", "quota_window", "evidence",
)  # fmt: skip
_UNKNOWN: Final = -1
_GRADES: Final = tuple(EVIDENCE[1:])  # derived, bounded, unknown
_DERIVED, _BOUNDED, _NOT_KNOWN = range(3)


class Parts(NamedTuple):
    """Rows of `partition_meters` of one metric, each partition's in turn: what was before, what is from then on."""

    us: Ints
    before: Ints  # _UNKNOWN: not known
    value: Ints
    highest: Ints
    limit: Ints  # of a byte-rate; NO_LIMIT: none
    window: Ints  # of a byte-rate, in seconds; UNKNOWN_WINDOW: none
    weak_before: Ints  # 1: known within bounds only
    weak: Ints
    ends: Flags  # whether it is its partition's last


def span_of(coverage: Iterable[Stretch]) -> tuple[int, int] | None:
    """Return the first minute of a recording and the end of the last (microseconds); None: it has no times."""
    every = [(row["start_ts"], row["end_ts"]) for row in coverage]
    if not every:
        return None
    first, last = min(start for start, _ in every), max(end for _, end in every)
    return first // MINUTE_US * MINUTE_US, (last // MINUTE_US + 1) * MINUTE_US


def brokers_of(coverage: Iterable[Stretch]) -> list[int]:
    """Return the brokers whose metrics are told: those with a request log, or whose log is said to be missing."""
    return sorted({row["broker_id"] for row in coverage if row["source"] == REQUEST_LOG})


def metrics_of(
    broker: int | None, parts: pa.Table, coverage: Sequence[Stretch], span: tuple[int, int], since: int | None = None
) -> pa.Table:
    """Return a broker's rows (None: the controller's), without the recording's name.

    `parts`: its rows of `partition_meters`, in any order. `coverage`: of the whole recording. `since`: the first minute
    that is asked for (microseconds); None: all are. It is not for parts that tell of byte-rates.
    """
    # What was before the first minute counts in it, so one more is made, which is not told.
    begins = np.arange(span[0] if since is None else max(span[0], since - MINUTE_US), span[1], MINUTE_US)
    in_turn = parts.sort_by([(name, "ascending") for name in (*_KEY, "seq")])
    names = [name for name in METRICS if (name in OF_CONTROLLER) == (broker is None)]
    told = [
        minutes_of(name, _parts_of(name, in_turn), begins, grades_of(broker, name, coverage, begins)) for name in names
    ]
    columns = {name: pa.concat_arrays([rows[name] for rows in told]) for name in told[0]}
    columns["broker_id"] = pa.array([broker] * len(columns["minute"]), pa.int32())
    rows = pa.Table.from_arrays([columns[field.name].cast(field.type) for field in SCHEMA], schema=SCHEMA)
    return rows if since is None else rows.filter(numbers(rows["minute"]) >= since)


def _parts_of(metric: str, rows: pa.Table) -> Parts:
    """Read the rows of one metric, which are in turn."""
    mine = rows.filter(pc.equal(rows["metric"], metric)).combine_chunks()
    us, value = numbers(mine["ts"]), numbers(mine["value"], _UNKNOWN)
    weak = pc.is_in(mine["evidence"], pa.array(["bounded", "unknown"])).to_numpy().astype(np.int64)
    begins = np.zeros(len(mine), bool)
    begins[:1] = True
    for name in _KEY:
        column = mine[name]
        begins[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy()
    if len(us):  # a clock may be set back: what stands later in the order is not earlier in time
        apart = np.cumsum(begins) * (int(us.max()) - int(us.min()) + 1)
        us = np.maximum.accumulate(us + apart) - apart
    before, weak_before = np.roll(value, 1), np.roll(weak, 1)
    before[begins], weak_before[begins] = 0, 0
    limit, window = numbers(mine["quota_limit"], NO_LIMIT), numbers(mine["quota_window"], UNKNOWN_WINDOW)
    highest = numbers(mine["highest"], _UNKNOWN if metric in COUNTED else 0)
    ends = np.roll(begins, -1)
    return Parts(us, before, value, highest, limit, window, weak_before, weak, ends)


def rates_of(metric: str, parts: Parts, begins: Ints, grades: Ints) -> dict[str, pa.Array]:
    """Return the columns of a byte-rate: minutes in which a limit held, with what the rate was at least."""
    found = byte_rates(Throttled(parts.us, parts.value, parts.limit, parts.window, parts.ends), begins)
    grade = np.maximum(grades[found.place], _BOUNDED)
    is_unknown, count = grade == _NOT_KNOWN, len(found.place)
    return {
        "metric": pa.array([metric] * count, pa.string()),
        "mbean": pa.array([MBEANS[metric]] * count, pa.string()),
        "kind": pa.array(["gauge"] * count, pa.string()),
        "minute": stamps(begins[found.place]),
        "value": pa.array(found.end, mask=is_unknown),
        "lowest": pa.array(found.lowest, mask=is_unknown),
        "highest": pa.array(found.highest, mask=is_unknown),
        "per_second": pa.nulls(count, pa.float64()),
        "quota_limit": pa.array(found.limit),
        "over_quota_seconds": pa.array(found.seconds_over, mask=is_unknown),
        "evidence": words(grade, _GRADES),
    }


def minutes_of(metric: str, parts: Parts, begins: Ints, grades: Ints) -> dict[str, pa.Array]:
    """Return the columns of one metric; `grades`: what the logs allow to claim of each minute."""
    if metric in BYTE_RATES.values():
        return rates_of(metric, parts, begins, grades)
    if metric in COUNTED:
        low, most = _summed(parts.us, parts.value, begins), _summed(parts.us, parts.highest, begins)
        high = np.where(_summed(parts.us, (parts.highest < 0).astype(np.int64), begins) > 0, _UNKNOWN, most)
        end, is_vague = np.where(low == high, low, _UNKNOWN), low != high
    elif metric == MAX_LAG:
        end, high = _largest(parts, begins)
        low, is_vague = np.full(len(begins), _UNKNOWN), np.zeros(len(begins), bool)
    else:
        sure = levels(parts.us, np.maximum(parts.value, 0) - np.maximum(parts.before, 0), begins)
        may_be = levels(parts.us, (parts.value < 0).astype(np.int64) - (parts.before < 0), begins)
        weak = levels(parts.us, parts.weak - parts.weak_before, begins)
        low, high, end = sure.low, sure.high + may_be.high, np.where(may_be.end > 0, _UNKNOWN, sure.end)
        is_vague = weak.high > 0
    grade = np.maximum(grades, np.where(is_vague, _BOUNDED, _DERIVED))
    is_unknown = grade == _NOT_KNOWN
    is_counted, count = metric in COUNTED, len(begins)
    return {
        "metric": pa.array([metric] * count),
        "mbean": pa.array([MBEANS[metric]] * count),
        "kind": pa.array(["meter" if is_counted else "gauge"] * count),
        "minute": stamps(begins),
        "value": pa.array(end, mask=is_unknown | (end < 0)),
        "lowest": pa.array(low, mask=is_unknown | (low < 0)),
        "highest": pa.array(high, mask=is_unknown | (high < 0)),
        "per_second": pa.array(end / (MINUTE_US / 1e6), mask=is_unknown | (end < 0) | (not is_counted)),
        "quota_limit": pa.nulls(count, pa.int64()),
        "over_quota_seconds": pa.nulls(count, pa.int64()),
        "evidence": words(grade, _GRADES),
    }


def _place(us: Ints, begins: Ints) -> Ints:
    """Return in which minute each time lies; what lies before the first or after the last counts there."""
    found: Ints = np.clip((us - begins[0]) // MINUTE_US, 0, len(begins) - 1)
    return found


def _summed(us: Ints, counts: Ints, begins: Ints) -> Ints:
    """Sum what was counted by minute."""
    return np.bincount(_place(us, begins), counts, len(begins)).astype(np.int64)


class Levels(NamedTuple):
    """A gauge in each minute."""

    low: Ints
    high: Ints
    end: Ints


def levels(us: Ints, steps: Ints, begins: Ints) -> Levels:
    """Return a gauge in each minute from the steps that it takes; to a minute belongs also what it begins with."""
    order = np.argsort(us, kind="stable")
    when, firsts = np.unique(us[order], return_index=True)  # what happens at the same time is one step
    level = np.zeros(len(when) + 2, np.int64)
    if len(when):
        level[1:-1] = np.cumsum(np.add.reduceat(steps[order], firsts))
        level[-1] = level[-2]
    since = np.searchsorted(when, begins)
    until = np.searchsorted(when, begins + MINUTE_US)
    since[0], until[-1] = 0, len(when)
    bounds = np.stack([since, until + 1], axis=1).ravel()
    low, high = np.minimum.reduceat(level, bounds)[::2], np.maximum.reduceat(level, bounds)[::2]
    return Levels(low, high, level[until])


def _largest(parts: Parts, begins: Ints) -> tuple[Ints, Ints]:
    """Return the largest of all lags at the end of each minute, and at its highest."""
    end, high = np.zeros(len(begins), np.int64), np.zeros(len(begins), np.int64)
    place = _place(parts.us, begins)
    np.maximum.at(high, place, np.maximum(parts.highest, parts.before))
    until = np.where(parts.ends, len(begins), np.roll(place, -1))  # a lag lasts until the next row
    for k in np.flatnonzero(parts.value > 0).tolist():
        lasts = slice(place[k], until[k])
        np.maximum(end[lasts], parts.value[k], out=end[lasts])
    return end, np.maximum(high, end)


def grades_of(broker: int | None, metric: str, coverage: Sequence[Stretch], begins: Ints) -> Ints:
    """Return what the logs allow to claim of each minute: derived, bounded, or unknown."""
    if broker is None:
        told = [row for row in coverage if row["source"] == METADATA]
        holes = covered(told, begins, lambda row: row["state"] != LOGGED)
        return np.where(holes > 0, _BOUNDED, _DERIVED)
    mine = [row for row in coverage if row["broker_id"] == broker]
    requests = [row for row in mine if row["source"] == REQUEST_LOG]
    has_requests = any(row["state"] == LOGGED for row in requests)
    asked = requests if has_requests else [row for row in mine if row["source"] == SERVER_LOG]
    whole = covered(asked, begins, lambda _: True)  # of the first and last minute a part only
    dark = covered(asked, begins, lambda row: is_dark(row, has_requests=has_requests))
    holes = covered(mine if has_requests else asked, begins, lambda row: row["state"] in {MISSING, LOSSY})
    if metric == MAX_LAG:  # what the brokers that lead have answered
        of_others = [row for row in coverage if row["source"] == REQUEST_LOG]
        holes = holes + covered(of_others, begins, lambda row: row["state"] in {MISSING, LOSSY})
    grade = np.where((dark > 0) | (holes > 0) | (whole < MINUTE_US), _BOUNDED, _DERIVED)
    return np.where(dark >= np.minimum(whole, MINUTE_US), _NOT_KNOWN, grade)


def is_dark(row: Stretch, *, has_requests: bool) -> bool:
    """Whether nothing shows that the broker was up in a stretch of its log, or the log was closed as it stopped."""
    if has_requests:
        return row["reason"] in {NOTHING_TELLS, CLOSED}
    return bool(row["state"] != LOGGED)


def covered(rows: Iterable[Stretch], begins: Ints, which: Callable[[Stretch], bool]) -> Ints:
    """Return how much of each minute these stretches cover (microseconds)."""
    found = np.zeros(len(begins), np.int64)
    for row in rows:
        if which(row):
            first, last = _place(np.array([row["start_ts"], row["end_ts"]]), begins).tolist()
            inner = begins[first : last + 1]
            share = np.minimum(inner + MINUTE_US, row["end_ts"]) - np.maximum(inner, row["start_ts"])
            found[first : last + 1] += np.maximum(share, 0)
    return found
