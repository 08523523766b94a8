"""HW lines against the engine's HW: what explains a line counts, in whatever batches lines and events come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from replay.arrays.records import blank
from replay.engine import codes as c
from replay.engine.emit import CheckRow, HwRow
from replay.engine.event_record import EventRecord
from replay.tables.conformance import EVENTS_NEAR, TOGETHER, Conformance

if TYPE_CHECKING:
    from replay.arrays.ints import Ints

LINE, HW, LEADER = 500, 42, 0
EVENTS = 1_000


def summed(cuts: list[int], explained_at: int, kind: int, line: int = LINE) -> tuple[int, int, int | None]:
    """How many lines were compared and agree, and the first that does not, of a history in which one line differs."""
    events = blank(EVENTS, EventRecord, -1)
    events["seq"], events["ts"], events["ts_lo"] = np.arange(EVENTS), 7, 7
    events["broker"][explained_at], events["kind"][explained_at] = LEADER, kind
    events["fetch_offset" if kind == c.FETCH_UPDATE else "base_offset"][explained_at] = HW
    rows = blank(1, CheckRow)
    rows["seq"], rows["check"], rows["broker"], rows["computed"], rows["stated"] = line, c.CHECK_HW_LINE, LEADER, 41, HW
    found = Conformance()
    for first, stop in zip([0, *cuts], [*cuts, EVENTS], strict=True):
        here: Ints = np.flatnonzero((rows["seq"] >= first) & (rows["seq"] < stop))
        moves = blank(0, HwRow)
        found.add(found.passed_through(rows[here], moves, events[first:stop]), [1])
    found.add(found.rest(), [1])
    (told,) = found.rows()
    return told["compared"], told["matched"], told["first_mismatch_seq"]


BATCHES = [[], [LINE + 1], [LINE], [LINE + 40], [LINE - 40], list(range(10, EVENTS, 10)), [LINE + EVENTS_NEAR - 1]]


@pytest.mark.parametrize("cuts", BATCHES)
@pytest.mark.parametrize(
    ("kind", "by", "is_near"),
    [
        (c.FETCH_UPDATE, 1, True),
        (c.FETCH_UPDATE, EVENTS_NEAR - 1, True),
        (c.FETCH_UPDATE, EVENTS_NEAR, False),
        (c.FETCH_UPDATE, -1, False),
        (c.APPEND, -1, True),
        (c.APPEND, -EVENTS_NEAR, True),
        (c.APPEND, -EVENTS_NEAR - 1, False),
    ],
)
def test_a_request_near_a_line_explains_it_in_whatever_batch_it_comes(
    cuts: list[int], kind: int, by: int, *, is_near: bool
) -> None:
    assert summed(cuts, LINE + by, kind) == (1, int(is_near), None if is_near else LINE)


@pytest.mark.parametrize("cuts", BATCHES)
def test_a_line_near_the_end_is_looked_at_when_no_more_events_come(cuts: list[int]) -> None:
    assert summed(cuts, EVENTS - 1, c.FETCH_UPDATE, line=EVENTS - 3) == (1, 1, None)
    assert summed(cuts, 0, c.FETCH_UPDATE, line=EVENTS - 3) == (1, 0, EVENTS - 3)


@pytest.mark.parametrize("cuts", BATCHES)
@pytest.mark.parametrize(
    ("by", "offset", "stated", "lo", "is_told"),
    [
        (1, HW, HW, 7, True),  # behind it, and begun by then: the HW may have been raised already
        (1, HW, HW, 8, False),  # it began later
        (1, HW - 1, HW, 7, False),  # it does not raise the HW so far
        (-1, HW + 1, HW, 7, True),  # before it, and it may have come later: the HW may have been lower
        (-1, HW, HW, 7, False),  # it does not raise the HW beyond
    ],
)
def test_the_note_on_an_answer_s_hw_says_whether_a_request_of_the_same_time_explains_it(
    cuts: list[int], by: int, offset: int, stated: int, lo: int, *, is_told: bool
) -> None:
    events = blank(EVENTS, EventRecord, -1)
    events["seq"], events["ts"], events["ts_lo"] = np.arange(EVENTS), 7, 7
    k = LINE + by
    events["broker"][k], events["kind"][k], events["fetch_offset"][k] = LEADER, c.FETCH_UPDATE, offset
    events["ts_lo"][k] = lo
    rows = blank(1, CheckRow)
    computed = stated - 1 if by > 0 else stated + 1
    rows["seq"], rows["check"], rows["broker"] = LINE, c.CHECK_RESPONSE_HW, LEADER
    rows["computed"], rows["stated"] = computed, stated
    found = Conformance()
    for first, stop in zip([0, *cuts], [*cuts, EVENTS], strict=True):
        here: Ints = np.flatnonzero((rows["seq"] >= first) & (rows["seq"] < stop))
        found.add(found.passed_through(rows[here], blank(0, HwRow), events[first:stop]), [1])
    found.add(found.rest(), [1])
    (told,) = found.rows()
    assert (told["compared"], told["matched"], told["first_mismatch_seq"]) == (1, 0, LINE)
    assert told["note"].startswith(f"broker 1: computed {computed}, stated {stated}")
    assert told["note"].endswith(TOGETHER) == is_told
