"""Which answers to produces may have reached nobody, because a broker stood still (`broker_pauses`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replay.evidence.broker_pauses import AWAKE_US, Interval, between, is_unconfirmed
from replay.evidence.clock_steps import SET_BACK
from replay.evidence.request_columns import RequestColumns
from replay.evidence.request_times import Phases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.arrays.ints import Flags
    from replay.evidence.rows import Row
    from replay.evidence.views import Indexed


def unconfirmed(facts: Indexed, rows: Sequence[Row]) -> Flags:
    """For each produce, whether its answer may have reached nobody; all False if no broker stood still."""
    found = np.zeros(len(rows), np.bool_)
    if not any(facts.standstills.values()):
        return found
    told = RequestColumns(rows)
    at = Phases(*(us + told.now(SET_BACK, 0) for us in told.at))  # as stamped, like the standstills
    early = told.stated("ts_error_us", 0)  # stamps in whole seconds: the request may be earlier by this much
    arrival, taken, completed = at.stamp - told.stated("total_us", 0), at.taken - early, at.completed - early
    broker = told.stated("broker_id")
    for one, stood_still in facts.standstills.items():
        ends = np.array([after for _, after in stood_still], np.int64)
        begins = np.array([before for before, _ in stood_still], np.int64)
        # Those that no standstill meets, which are nearly all, are left out at once.
        met = np.searchsorted(ends, arrival - AWAKE_US) < np.searchsorted(begins, completed, side="right")
        for k in np.flatnonzero((broker == one) & met).tolist():
            request = Interval(int(arrival[k]), int(taken[k]), int(completed[k]), int(at.stamp[k]))
            last = facts.connection_ends.get((one, rows[k]["connection"] or ""), request.stamp)
            silences = between(stood_still, request.arrival - AWAKE_US, request.completed)
            waits = rows[k]["acks"] == -1
            found[k] = is_unconfirmed(request, max(last, request.stamp), silences, waits=waits)
    return found


def arrived_unseen(facts: Indexed, leader: int, rows: Sequence[Row]) -> Flags:
    """Which produces may have waited in a socket as the leader's lines begin, on connections not seen again.

    They came before the first line or soon after it: the broker may have stood still until then.
    """
    begin = facts.begins.get(leader)
    found = np.zeros(len(rows), np.bool_)
    if begin is None:
        return found
    told = RequestColumns(rows)
    early = told.stated("ts", 0) - told.stated("total_us", 0) <= begin + AWAKE_US
    last = {(r["broker_id"], r["connection"]): r["ts"] for r in facts.by_kind["produce"]} if early.any() else {}
    for k in np.flatnonzero(early).tolist():
        row = rows[k]
        found[k] = last.get((leader, row["connection"]), row["ts"]) <= row["ts"]
    return found
