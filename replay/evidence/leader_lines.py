"""When a leader's appends and its followers' fetches took effect, where its own lines say so.

A request's line is stamped when its answer was sent, and its durations leave tens of milliseconds open. `Appended
message set` (TRACE) and `Recorded replica` (DEBUG) are written by the acting thread right after the effect. With them
the order of two effects is hardly in doubt, and the HW takes the values that it really took.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replay.engine.stamps import STAMP_EARLY_US, STAMP_LATE_US
from replay.evidence.coverage import CLOCKS_US
from replay.evidence.request_times import Window, line_window, local_window, phases
from replay.evidence.tenure_index import among, least_after
from replay.evidence.tenures import micros
from replay.protocol.state import NONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.arrays.ints import Flags, Ints
    from replay.evidence.rows import Row
    from replay.evidence.tenure_index import IndexedByTenure
    from replay.evidence.tenures import Tenure

LineTimes = tuple["Ints", "Ints"]  # offsets and times of lines, rising
STAMP_VERY_LATE_US = 1_000_000  # a request's line may be so late that offsets alone tell to which lines it belongs


def append_lines(facts: IndexedByTenure, tenure: Tenure, placed: dict[int, Row]) -> dict[int, Row]:
    """Base offset -> the leader's own line about the append there.

    For the tenure's produces: the lines that fall into their time. For batches without a produce (a coordinator's
    records, acks=0): the lines that fit seamlessly between those of the batches before and after, so that no single
    number has to be trusted; and for a produce whose own line was stamped very late.
    """
    out: dict[int, Row] = {}
    for base, row in placed.items():
        for line in facts.append_lines.get((tenure.leader, base), ()):
            if line["last_offset"] is not None and is_within(line, row):
                out[base] = line
    joined = joined_lines(facts, tenure).items()
    return out | {
        base: line
        for base, line in joined
        if base not in placed or (base not in out and is_within(line, placed[base], STAMP_VERY_LATE_US))
    }


def is_within(line: Row, request: Row, late_us: int = 0) -> bool:
    """Whether a leader's line falls into the time in which it handled the request, whose line may be `late_us` late."""
    window = local_window(phases(request))
    return bool(window.lo - late_us <= micros(line["ts"]) <= window.hi + STAMP_LATE_US)


def joined_lines(facts: IndexedByTenure, tenure: Tenure) -> dict[int, Row]:
    """Base offset -> lines about appends while the leader led, if they fit seamlessly between their neighbours.

    A follower writes the same line. So if the broker reports no role in the epoch of the leader after it, lines from
    where that one's epoch begins count only if they are certainly older.
    """
    since, until = facts.led(tenure)
    lines = among(*facts.turns.append_lines.get(tenure.leader, ([], [])), since, until)
    if facts.turns.may_follow_unheard(tenure):
        older = least_after(facts.turns.begun, tenure.epoch) - CLOCKS_US
        end = facts.turns.least_start_after(tenure)
        lines = [line for line in lines if line["last_offset"] < end or micros(line["ts"]) < older]
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


def as_recorded(local: Window, offset: Ints, handled: Ints, lines: LineTimes | None) -> Window:
    """Windows in which a replica's fetches updated the leader's follower state; they end at its line, if any.

    The fetches are all of a tenure in their order; `handled`: how many each stands for. Where the leader has as many
    lines about an offset as it handled fetches there, they belong together in their order. Elsewhere a fetch has the
    first line that falls into its time.
    """
    if lines is None or not len(lines[0]) or not len(offset):
        return local
    offsets, times = lines
    each = np.unique(offsets)
    width = int(times.max() - times.min()) + 2
    keys = np.searchsorted(each, offsets) * width + times - times.min()
    code = np.minimum(np.searchsorted(each, offset), len(each) - 1)
    since = np.clip(local.lo - times.min(), 0, width - 1)
    place = np.minimum(np.searchsorted(keys, code * width + since), len(keys) - 1)
    found = (offsets[place] == offset) & falls_into(times[place], local)
    turn = lines_in_turn(offset, handled, offsets)
    fits = (turn >= 0) & falls_into(times[turn], local, STAMP_VERY_LATE_US)
    place, found = np.where(fits, turn, place), found | fits
    us = times[place]
    return Window(
        np.where(found, np.minimum(local.lo, us - STAMP_LATE_US), local.lo),
        np.where(found, np.minimum(local.est, us), local.est),
        np.where(found, us + STAMP_EARLY_US, local.hi),
    )


def falls_into(us: Ints, local: Window, late_us: int = 0) -> Flags:
    """At which times a handler may have written a line about a request, whose own line may be `late_us` late."""
    found: Flags = (us >= local.lo - late_us) & (us <= local.hi + STAMP_LATE_US)
    return found


def lines_in_turn(offset: Ints, handled: Ints, offsets: Ints) -> Ints:
    """For fetches in order, which of the rising `offsets` of lines is each one's; NONE where the numbers differ."""
    order = np.argsort(offset, kind="stable")
    sorted_offset = offset[order]
    begins = np.unique(sorted_offset, return_index=True)[1]
    before = np.cumsum(handled[order]) - handled[order]
    group = np.cumsum(np.diff(sorted_offset, prepend=sorted_offset[0] - 1) != 0) - 1
    rank, many = before - before[begins][group], np.add.reduceat(handled[order], begins)[group]
    left, right = (np.searchsorted(offsets, sorted_offset, side=side) for side in ("left", "right"))
    out = np.full(len(offset), NONE, np.int64)
    out[order] = np.where((many == right - left) & (handled[order] > 0), left + rank, NONE)
    return out
