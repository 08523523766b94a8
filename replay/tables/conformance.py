"""Rows of `conformance`: how often computed values equal those that sources state, summed up by check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from replay.engine import codes as c
from replay.protocol.state import ROLE_LEADER
from replay.tables.check_notes import note_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from replay.arrays.ints import Ints
    from replay.arrays.records import Records
    from replay.engine.emit import CheckRow, HwRow
    from replay.engine.event_record import EventRecord

EVENTS_NEAR = 200  # how many events before or after a line may have been handled at the same time
HW_MOVES_KEPT = 1000  # how many HW moves of a broker its line about one of them may lag behind


class Conformance:
    """The checks of one partition, summed up as they come."""

    def __init__(self) -> None:
        """Start with nothing compared."""
        self.checks: dict[str, dict[str, Any]] = {}
        self.taken = np.zeros((0, 3), np.int64)  # the last HW moves of leaders: broker, seq, HW

    def add(self, rows: Records[CheckRow], brokers: Sequence[int]) -> None:
        """Compare computed with stated values. `brokers`: the broker ids by index."""
        for code in np.unique(rows["check"]).tolist():
            name = c.CHECKS[code]
            here = rows["check"] == code
            equal = here & (rows["computed"] == rows["stated"]) & (code != c.CHECK_RULE)
            entry = self.checks.setdefault(
                name, {"check": name, "compared": 0, "matched": 0, "first_mismatch_seq": None, "note": None}
            )
            entry["compared"] += int(here.sum())
            entry["matched"] += int(equal.sum())
            wrong = np.flatnonzero(here & ~equal)
            if len(wrong) and entry["first_mismatch_seq"] is None:
                first = rows[int(wrong[0])]
                entry["first_mismatch_seq"] = int(first.seq)
                entry["note"] = note_of(code, int(first.broker), (int(first.computed), int(first.stated)), brokers)

    def put(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add checks that were summed up elsewhere; they replace those of the same name."""
        self.checks.update({row["check"]: row for row in rows})

    def rows(self) -> list[dict[str, Any]]:
        """Return all checks, sorted by name."""
        return [self.checks[name] for name in sorted(self.checks)]

    def passed_through(
        self, rows: Records[CheckRow], moves: Records[HwRow], events: Records[EventRecord]
    ) -> Records[CheckRow]:
        """Return the checks; an HW line counts as equal if the engine's HW had its value then or shortly before.

        Values that the HW took from an observation do not count.
        """
        own = (moves["role"] == ROLE_LEADER) & (moves["step"] != c.STEP_OBSERVATION)
        taken = np.stack([moves["broker"][own], moves["seq"][own], moves["hw"][own]], axis=1)
        out = rows.copy()
        for b in np.unique(np.concatenate([self.taken[:, 0], taken[:, 0]])).tolist():
            mine = np.concatenate([self.taken[self.taken[:, 0] == b], taken[taken[:, 0] == b]])
            lines = np.flatnonzero((rows["check"] == c.CHECK_HW_LINE) & (rows["broker"] == b))
            stated = rows["stated"][lines]
            before = np.searchsorted(mine[:, 1], rows["seq"][lines], side="right")
            order = np.lexsort((np.arange(len(mine)), mine[:, 2]))
            width = len(mine) + 1
            last = np.searchsorted(mine[order, 2] * width + order, stated * width + before) - 1
            found = order[np.maximum(last, 0)]
            passed = (last >= 0) & (mine[found, 2] == stated) & (before - found <= HW_MOVES_KEPT)
            for k in np.flatnonzero(~passed).tolist():
                passed[k] = was_under_way(events, int(rows["seq"][lines[k]]), b, int(stated[k]))
            out["computed"][lines[passed]] = stated[passed]
            self.taken = np.concatenate([self.taken[self.taken[:, 0] != b], mine[-HW_MOVES_KEPT:]])
        return out


def was_under_way(events: Records[EventRecord], seq: int, leader: int, hw: int) -> bool:
    """Whether a leader's HW line agrees with the engine if one request near it were on the other side of the line.

    There are two such cases: a fetch after the line that had begun by then and raises the HW to the value; and an
    append before the line whose base offset is the stated HW, and which may have come after it. Both orders are
    equally likely.
    """
    place = int(np.searchsorted(events["seq"], seq))
    if place >= len(events) or events["seq"][place] != seq:
        return False
    at = events["ts"][place]
    later = events[place + 1 : place + EVENTS_NEAR]
    fetched = (later["kind"] == c.FETCH_UPDATE) & (later["fetch_offset"] >= hw) & (later["ts_lo"] <= at)
    earlier = events[max(place - EVENTS_NEAR, 0) : place]
    appended = (earlier["kind"] == c.APPEND) & (earlier["base_offset"] == hw)
    appended &= (earlier["ts_lo"] <= at) & (at <= earlier["ts"])
    mine: Ints = (later["broker"] == leader) & fetched
    return bool(mine.any() or (appended & (earlier["broker"] == leader)).any())
