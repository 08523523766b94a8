"""Rows of `conformance`: how often computed values equal those that sources state, summed up by check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from replay.arrays.records import blank, fields_of, together
from replay.engine import codes as c
from replay.engine.emit import CheckRow
from replay.protocol.state import NONE, ROLE_LEADER
from replay.tables.check_notes import note_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from replay.arrays.ints import Flags, Ints
    from replay.arrays.records import Records
    from replay.engine.emit import HwRow
    from replay.engine.event_record import EventRecord

EVENTS_NEAR = 200  # how many events before or after a line may have been handled at the same time
HW_MOVES_KEPT = 1000  # how many HW moves of a broker its line about one of them may lag behind


TOGETHER = "a request that was handled at the same time may have come on the other side of it"


class NearEvent:
    """What is asked of an event near a line."""

    seq: int
    kind: int
    broker: int
    ts: int
    ts_lo: int
    fetch_offset: int
    base_offset: int


class Conformance:
    """The checks of one partition, summed up as they come; the sums do not depend on the batches that these come in."""

    def __init__(self) -> None:
        """Start with nothing compared."""
        self.checks: dict[str, dict[str, Any]] = {}
        self.taken = np.zeros((0, 3), np.int64)  # the last HW moves of leaders: broker, seq, HW
        self.near = blank(0, NearEvent)  # the last events
        self.open = blank(0, CheckRow)  # stated HWs that differ, as far as is known: what comes next may tell why
        self.causes: dict[tuple[int, int], str] = {}  # of those that do, by check and seq, until they are added

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
            causes = [self.causes.pop((code, int(seq)), "") for seq in rows["seq"][wrong]]
            if len(wrong) and entry["first_mismatch_seq"] is None:
                first = rows[int(wrong[0])]
                entry["first_mismatch_seq"] = int(first.seq)
                note = note_of(code, int(first.broker), (int(first.computed), int(first.stated)), brokers)
                entry["note"] = f"{note}; {causes[0]}" if causes[0] else note

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

        Values that the HW took from an observation do not count. A line or an answer that differs is returned once all
        events near it have come.
        """
        self.near = together([self.near, near_of(events)])
        differs = np.isin(rows["check"], (c.CHECK_HW_LINE, c.CHECK_RESPONSE_HW)) & (rows["computed"] != rows["stated"])
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
            out["computed"][lines[passed]] = stated[passed]
            differs[lines[passed]] = False
            self.taken = np.concatenate([self.taken[self.taken[:, 0] != b], mine[-HW_MOVES_KEPT:]])
        self.open = together([self.open, out[differs]])
        surrounded = int(self.near["seq"][-EVENTS_NEAR]) if len(self.near) >= EVENTS_NEAR else NONE
        decided = self.looked_at(self.open["seq"] <= surrounded)
        self.near = self.near[-2 * EVENTS_NEAR :]
        return together([decided, out[~differs]])

    def rest(self) -> Records[CheckRow]:
        """Return the checks that have waited for events to come. Call once, after the last batch."""
        return self.looked_at(np.ones(len(self.open), np.bool_))

    def looked_at(self, which: Flags) -> Records[CheckRow]:
        """Return some of those that differ, lines as equal if a request near them tells why; they are open no more."""
        out, self.open = self.open[which].copy(), self.open[~which]
        for k in range(len(out)):
            row = out[k]
            if row.check == c.CHECK_HW_LINE and was_under_way(self.near, row.seq, row.broker, row.stated):
                out["computed"][k] = out["stated"][k]
            elif was_handled_together(self.near, row):
                self.causes[int(row.check), int(row.seq)] = TOGETHER
        return out


def near_of(events: Records[EventRecord]) -> Records[NearEvent]:
    """Return what is asked of events near a line."""
    out = blank(len(events), NearEvent)
    for name in fields_of(NearEvent):
        out[name] = events[name]
    return out


def was_under_way(events: Records[NearEvent], seq: int, leader: int, hw: int) -> bool:
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


def was_handled_together(events: Records[NearEvent], row: CheckRow) -> bool:
    """Whether a stated HW that differs may be that of before or after a fetch whose time overlaps with its own.

    If the stated HW is higher, that is a fetch behind it which raises the HW that far and may have come before; if it
    is lower, a fetch before it which raised the HW beyond and may have come behind.
    """
    place = int(np.searchsorted(events["seq"], row.seq))
    if place >= len(events) or events["seq"][place] != row.seq:
        return False
    at = events[place]
    near = events[max(place - EVENTS_NEAR, 0) : place + EVENTS_NEAR]
    fetched = (near["kind"] == c.FETCH_UPDATE) & (near["broker"] == row.broker)
    behind = (near["seq"] > row.seq) & (near["fetch_offset"] >= row.stated) & (near["ts_lo"] <= at.ts)
    before = (near["seq"] < row.seq) & (near["fetch_offset"] > row.stated) & (near["ts"] >= at.ts_lo)
    return bool((fetched & (behind if row.stated > row.computed else before)).any())
