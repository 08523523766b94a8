"""The ISR: what the leader should have asked for, by the rules, against what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from facts_builder import of_kind
from isr_histories import isr_line, isr_rows, replayed, returning
from small_partition import LAG, LATEST, NOW, A, B, C, behind, event, folded, led
from small_partition import at as with_offsets

from pipelines.parse.wordings.isr_words import joining_in
from replay.engine import codes as c
from replay.protocol.isr import AWAKE_US, OVERDUE_SLACK_US
from replay.protocol.state import NONE, UNSET, State

if TYPE_CHECKING:
    from replay.arrays.ints import Ints
    from replay.engine.event_record import EventRecord
    from replay.protocol.profile import Profile


def checks(s: State, *events: EventRecord, profile: Profile = LATEST) -> list[tuple[str, int, int]]:
    """(check, computed, stated) of the life cycle's own checks."""
    own = (c.CHECK_SHRINK, c.CHECK_EXPANSION, c.CHECK_OVERDUE)
    found = folded(s, *events, profile=profile).check
    rows = [found[k] for k in range(len(found))]
    return [(c.CHECKS[row.check], int(row.computed), int(row.stated)) for row in rows if row.check in own]


LATE = NOW + LAG + 1
SHRINKS = {"broker": A, "isr": 0b011, "isr_request": c.ISR_PENDING_SHRINK, "ts": LATE, "leo": 9}


def of_check(found: list[tuple[str, int, int]], name: str) -> list[tuple[int, int]]:
    return [(computed, stated) for check, computed, stated in found if check == name]


@pytest.mark.parametrize("stated", [4, 3])
def test_predicted_shrink_compares_the_replica_and_its_leo(stated: int) -> None:
    line = event(c.OBSERVATION, broker=A, replica=C, fetch_offset=stated, ts=LATE)
    found = checks(behind(), line, event(c.ISR_REQUEST, **SHRINKS))
    assert of_check(found, "predicted_shrink") == [(4, stated)]


def test_shrink_of_a_replica_that_was_in_sync_is_a_mismatch() -> None:
    found = checks(behind(), event(c.ISR_REQUEST, **{**SHRINKS, "isr": 0b001}))
    assert of_check(found, "predicted_shrink") == [(NONE, 9)]


def test_replica_that_was_out_of_sync_and_was_kept_is_a_mismatch() -> None:
    s = behind()
    s.remote_leo[A, B] = 8
    found = checks(s, event(c.ISR_REQUEST, **SHRINKS))
    assert of_check(found, "predicted_shrink") == [(8, NONE)]


@pytest.mark.parametrize(
    ("until", "found"),
    [
        (LATE + LAG // 2, [(0, 0)]),
        (LATE + LAG // 2 + OVERDUE_SLACK_US + AWAKE_US, [(1 << C, 0)]),  # overdue since B's last fetch
        (LATE + LAG, [(1 << C, 0), (1 << C, 0)]),  # and once more when it was overdue
    ],
)
def test_a_shrink_that_comes_later_than_a_run_of_the_task_is_a_mismatch(until: int, found: Any) -> None:
    """C is out of sync from LATE on, and B goes on fetching every half second."""
    times = range(LATE, until - AWAKE_US // 2, AWAKE_US // 2)
    fetches = [event(c.FETCH_UPDATE, broker=A, replica=B, fetch_offset=9, ts=ts, ts_lo=ts) for ts in times]
    told = checks(behind(), *fetches, event(c.ISR_REQUEST, **{**SHRINKS, "ts": until}))
    assert of_check(told, "overdue_shrink") == found


def test_a_shrink_by_a_leader_that_stood_still_is_not_overdue() -> None:
    fetches = [event(c.FETCH_UPDATE, broker=A, replica=B, fetch_offset=9, ts=ts, ts_lo=ts) for ts in (LATE, LATE + 5)]
    told = checks(behind(), *fetches, event(c.ISR_REQUEST, **{**SHRINKS, "ts": LATE + 5 * LAG}))
    assert of_check(told, "overdue_shrink") == [(0, 0)]


def fetch_of_c(ts: int, lo: int) -> Ints:
    return event(c.FETCH_UPDATE, broker=A, replica=C, fetch_offset=9, ts=ts, ts_lo=lo)


def asks_for(replica: int, isr: int, ts: int) -> Ints:
    return event(c.ISR_REQUEST, broker=A, replica=replica, isr=isr, isr_request=c.ISR_PENDING_EXPAND, ts=ts)


def commits(isr: int, ts: int) -> Ints:
    return event(c.ISR_REQUEST, broker=A, isr=isr, isr_request=c.ISR_COMMITTED, ts=ts)


def alone() -> State:
    return with_offsets(led(isr=0b001), leo=9, hw=9)


def test_expansion_asked_for_with_the_fetch_that_the_engine_expands_at_is_a_match() -> None:
    found = checks(alone(), fetch_of_c(NOW + 9, NOW + 5), asks_for(C, 0b101, NOW + 9), commits(0b101, NOW + 20))
    assert found == [("predicted_expansion", C, C)]


def test_expansion_without_a_request_in_any_log_is_compared_when_it_is_committed() -> None:
    assert checks(alone(), fetch_of_c(NOW + 9, NOW + 5), commits(0b101, NOW + 20)) == [("predicted_expansion", C, C)]


def test_expansion_asked_for_without_a_reason_is_a_mismatch() -> None:
    state = alone()
    state.remote_leo[A, C] = 0
    assert checks(state, asks_for(C, 0b101, NOW + 9)) == [("predicted_expansion", NONE, C)]


def test_expansion_of_a_replica_whose_fetches_no_line_told_is_not_compared() -> None:
    state = alone()
    state.remote_leo[A, C] = UNSET
    assert checks(state, asks_for(C, 0b101, NOW + 9)) == []
    assert checks(state, commits(0b101, NOW + 20)) == []


def test_expansion_that_never_came_is_a_mismatch() -> None:
    assert checks(alone(), fetch_of_c(NOW + 9, NOW + 5), commits(0b001, NOW + 20)) == [("predicted_expansion", C, NONE)]


def test_expansion_that_never_came_does_not_count_where_a_change_may_have_been_in_flight() -> None:
    assert not checks(alone(), commits(0b001, NOW + 7), fetch_of_c(NOW + 9, NOW + 5), commits(0b001, NOW + 20))


@pytest.mark.parametrize(("apart", "found"), [(20_000, [(C, C)]), (40_000, [(B, NONE), (NONE, C)])])
def test_which_of_two_replicas_that_fetch_almost_at_once_was_asked_for_first_is_unknown(
    apart: int, found: list[tuple[int, int]]
) -> None:
    of_b = event(c.FETCH_UPDATE, broker=A, replica=B, fetch_offset=9, ts=NOW + 9, ts_lo=NOW + 5)
    of_c = fetch_of_c(NOW + apart, NOW + apart)
    told = of_check(checks(alone(), of_b, of_c, commits(0b101, NOW + apart + 5)), "predicted_expansion")
    assert told == found


def test_replica_that_something_else_kept_out_did_not_lose_a_race() -> None:
    of_b = event(c.FETCH_UPDATE, broker=A, replica=B, fetch_offset=9, ts=NOW + 9, ts_lo=NOW + 5)
    of_c = event(c.FETCH_UPDATE, broker=A, replica=C, fetch_offset=8, ts=NOW + 15, ts_lo=NOW + 11)
    assert checks(alone(), of_b, of_c, commits(0b101, NOW + 20)) == [
        ("predicted_expansion", B, NONE),
        ("predicted_expansion", NONE, C),
    ]


def test_expansion_written_to_zookeeper_at_once_is_compared_with_its_line_and_has_its_reason() -> None:
    history = returning(asked_at=None)
    isr_line(history, 1800, "expand", [1, 2, 3], replica_id=joining_in("1,2 to 1,2,3"), leader_epoch=None)
    history.decide(1805, None, [1, 2, 3])
    tables = replayed(history, kafka_version="2.6.3")
    found = [(r["compared"], r["matched"]) for r in tables["conformance"] if r["check"] == "predicted_expansion"]
    assert found == [(1, 1)]
    assert [r["reason"] for r in tables["isr_timeline"] if r["movers"]][-1] == "leo_reached_hw"


def test_conditional_update_that_lost_is_told_by_its_line_and_leaves_the_committed_isr() -> None:
    history = returning(asked_at=None)
    isr_line(history, 1802, "zookeeper_conflict", None, leader_epoch=None)
    row = isr_rows(history, "pending_expand", kafka_version="2.6.3")[0]
    assert (row["isr"], row["outcome"], row["error_code"]) == ([1, 2, 3], "rejected", 55)
    (undone,) = [r for r in of_kind(history.events(kafka_version="2.6.3"), "isr_request") if r["cause"] == "reset"]
    assert undone["isr"] == [1, 2]
