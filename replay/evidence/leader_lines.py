"""When a leader's appends and its followers' fetches took effect, where its own lines say so.

A request's line is stamped when its answer was sent, and its durations leave tens of milliseconds open. `Appended
message set` (TRACE) and `Recorded replica` (DEBUG) are written by the acting thread right after the effect. With them
the order of two effects is hardly in doubt, and the HW takes the values that it really took.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replay.engine.stamps import STAMP_EARLY_US, STAMP_LATE_US
from replay.evidence.request_times import Window, line_window, local_window, phases
from replay.evidence.tenure_index import among
from replay.evidence.tenures import micros
from replay.protocol.state import NONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.arrays.ints import Ints
    from replay.evidence.rows import Row
    from replay.evidence.tenure_index import IndexedByTenure
    from replay.evidence.tenures import Tenure

LineTimes = tuple["Ints", "Ints"]  # offsets and times of lines, rising


def append_lines(facts: IndexedByTenure, tenure: Tenure, placed: dict[int, Row]) -> dict[int, Row]:
    """Base offset -> the leader's own line about the append there.

    For the tenure's produces: the lines that fall into their time. For batches without a produce (a coordinator's
    records, acks=0): the lines that fit seamlessly between those of the batches before and after, so that no single
    number has to be trusted.
    """
    out: dict[int, Row] = {}
    for base, row in placed.items():
        for line in facts.append_lines.get((tenure.leader, base), ()):
            if line["last_offset"] is not None and is_within(line, row):
                out[base] = line
    return out | {base: line for base, line in joined_lines(facts, tenure).items() if base not in placed}


def is_within(line: Row, request: Row) -> bool:
    """Whether a leader's line falls into the time in which it handled the request."""
    window = local_window(phases(request))
    return bool(window.lo <= micros(line["ts"]) <= window.hi + STAMP_LATE_US)


def joined_lines(facts: IndexedByTenure, tenure: Tenure) -> dict[int, Row]:
    """Base offset -> lines about appends while the leader led, if they fit seamlessly between their neighbours."""
    since, until = facts.led(tenure)
    lines = among(*facts.turns.append_lines.get(tenure.leader, ([], [])), since, until)
    bases = [line["base_offset"] for line in lines]
    ends = [line["last_offset"] + 1 for line in lines]
    if not lines:
        return {}
    start = facts.starts.get(tenure.epoch, (bases[0], ""))[0]
    before, after = [start, *ends[:-1]], [*bases[1:], *ends[-1:]]
    return {
        base: line
        for line, base, end, earlier, later in zip(lines, bases, ends, before, after, strict=True)
        if earlier == base < end == later
    }


def as_told(local: Window, lines: Sequence[Row | None]) -> Window:
    """Windows of appends, replaced by that of the leader's own line where there is one."""
    us = np.array([NONE if line is None else micros(line["ts"]) for line in lines], np.int64)
    told = line_window(us)
    return Window(*(np.where(us < 0, ours, theirs) for ours, theirs in zip(local, told, strict=True)))


def recorded_lines(facts: IndexedByTenure, leader: int) -> dict[int, LineTimes]:
    """Replica -> that leader's `Recorded replica` lines."""
    rows = [row for row in facts.by_kind["remote_leo_update"] if row["broker_id"] == leader and row["ts"] is not None]
    replicas = np.array([NONE if row["replica_id"] is None else row["replica_id"] for row in rows], np.int64)
    offsets = np.array([NONE if row["offset"] is None else row["offset"] for row in rows], np.int64)
    times = np.array([micros(row["ts"]) for row in rows], np.int64)
    out = {}
    for replica in np.unique(replicas).tolist():
        mine = np.flatnonzero(replicas == replica)
        mine = mine[np.lexsort((times[mine], offsets[mine]))]
        out[replica] = (offsets[mine], times[mine])
    return out


def as_recorded(local: Window, offset: Ints, lines: LineTimes | None) -> Window:
    """Windows in which fetches at these offsets updated the leader's follower state; they end at its line, if any."""
    if lines is None or not len(lines[0]):
        return local
    offsets, times = lines
    each = np.unique(offsets)
    width = int(times.max() - times.min()) + 2
    keys = np.searchsorted(each, offsets) * width + times - times.min()
    code = np.minimum(np.searchsorted(each, offset), len(each) - 1)
    since = np.clip(local.lo - times.min(), 0, width - 1)
    place = np.minimum(np.searchsorted(keys, code * width + since), len(keys) - 1)
    found = (offsets[place] == offset) & (times[place] >= local.lo) & (times[place] <= local.hi + STAMP_LATE_US)
    us = times[place]
    return Window(
        np.where(found, np.minimum(local.lo, us), local.lo),
        np.where(found, np.minimum(local.est, us), local.est),
        np.where(found, us + STAMP_EARLY_US, local.hi),
    )
