"""How fast a broker sent or fetched what it throttles, at least (KIP-73): minutes of LeaderReplication's byte-rate.

A broker has one rate for all partitions that its topics' lists name (`ReplicationQuotaManager`), so what each of them
adds is summed before it is held against the limit. It is a least value: the leader also counts what answers contain
besides records, and of partitions whose requests were not recorded nothing is known. Minutes in which no limit is
known to hold are not told of: a leader exports a small rate even then, for the answers as such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from replay.arrays.ints import Flags, Ints

SECOND_US: Final = 1_000_000
MINUTE_S: Final = 60
NO_LIMIT: Final = -1
UNKNOWN_WINDOW: Final = 0


class Throttled(NamedTuple):
    """Rows of `partition_meters` of one byte-rate of a broker, each partition's in turn."""

    us: Ints
    bytes: Ints  # sent or fetched in the second of `us`
    limit: Ints  # that holds from then on; NO_LIMIT: none
    window: Ints  # over how many seconds the rate goes at most; UNKNOWN_WINDOW: no bytes are told here
    ends: Flags  # whether it is its partition's last


class ByteRates(NamedTuple):
    """The least rate in each minute in which a limit held, in bytes per second."""

    place: Ints  # which minute
    lowest: Ints
    highest: Ints
    end: Ints  # at the minute's end
    limit: Ints  # the lowest that held in the minute
    seconds_over: Ints  # in how many seconds the rate was certainly above the limit


def byte_rates(rows: Throttled, begins: Ints) -> ByteRates:
    """Return the minutes of a byte-rate; `begins`: where all minutes begin, one after the other (microseconds)."""
    if not (rows.limit > NO_LIMIT).any():  # else each second of the recording is looked at
        return ByteRates(*(np.zeros(0, np.int64) for _ in ByteRates._fields))
    count = len(begins) * MINUTE_S
    second = (rows.us - begins[0]) // SECOND_US
    is_inside = (second >= 0) & (second < count)
    sent = np.bincount(second[is_inside], rows.bytes[is_inside], count).astype(np.int64)
    least = least_rates(sent, rows.window[rows.window != UNKNOWN_WINDOW])
    limits = limits_in(rows, np.clip(second, 0, count - 1), count)
    # A broker learns of a change within a second, and what it sent may be told half a second early or late.
    around = np.lib.stride_tricks.sliding_window_view(np.pad(limits, 1, mode="edge"), 3)
    is_over = (around.min(axis=1) > NO_LIMIT) & (least > around.max(axis=1))
    place = np.flatnonzero((limits.reshape(-1, MINUTE_S) > NO_LIMIT).any(axis=1))
    rates, held, over = (each.reshape(-1, MINUTE_S)[place] for each in (least, limits, is_over))
    lowest_limit = np.where(held > NO_LIMIT, held, held.max(axis=1, keepdims=True)).min(axis=1)
    return ByteRates(place, rates.min(axis=1), rates.max(axis=1), rates[:, -1], lowest_limit, over.sum(axis=1))


def least_rates(sent: Ints, windows: Ints) -> Ints:
    """Return the least rate at the end of each second, of what was sent in each (bytes).

    Of the seconds of its window a broker drops the first in part (`quota_rates.window_of`), and when it counted an
    answer is known to half a second, so that two of them are left out. Brokers of several versions: the least of all.
    """
    if not len(windows):
        return np.zeros(len(sent), np.int64)
    kept = int(windows.min()) - 2
    total = np.concatenate([np.zeros(kept, np.int64), np.cumsum(sent)])
    found: Ints = (total[kept:] - total[:-kept]) // int(windows.max())
    return found


def limits_in(rows: Throttled, second: Ints, count: int) -> Ints:
    """Return the limit in each second: the highest that any partition had in it; NO_LIMIT: none had any."""
    found = np.full(count, NO_LIMIT, np.int64)
    until = np.where(rows.ends, count, np.roll(second, -1) + 1)
    for k in np.flatnonzero(rows.limit > NO_LIMIT).tolist():
        lasts = slice(second[k], until[k])
        np.maximum(found[lasts], rows.limit[k], out=found[lasts])
    return found
