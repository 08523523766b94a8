"""Replicas that join the ISR under a leader that does not log that it asks for them, as none does at INFO."""

from __future__ import annotations

import pytest
from facts_builder import History, at
from isr_histories import alive, begun, isr_line, isr_rows, late_history, replayed

STOPPED, FENCED, UNFENCED, BACK = 1000, 7000, 14_700, 14_756  # ms


def expansions(history: History, **settings: str) -> tuple[int, int]:
    """How many were compared, and how many were predicted."""
    rows = [row for row in replayed(history, **settings)["conformance"] if row["check"] == "predicted_expansion"]
    return sum(row["compared"] for row in rows), sum(row["matched"] for row in rows)


def unlisted(history: History, replica: int, offset: int, since: float, until: float) -> None:
    """Fetches of a session that list the partition on neither side: it is idle."""
    count = int(until - since) // 80
    fields = {"run_count": count, "run_until": at(until), "run_gap_us": 80_000, "run_timeouts": 0, "hw_implied": True}
    history.fetch(since, 1, replica, offset, in_request=False, in_response=False, hw=offset, **fields)


def fenced_and_back(*, back: int = BACK) -> History:
    """3 is fenced and comes back; the leader tells only what it took over. Times as in a cluster of 4.1."""
    history = begun()
    alive(history, STOPPED)
    alive(history, STOPPED, 3)
    history.decide(FENCED, None, [1, 2])
    history.fence(FENCED, 3)
    isr_line(history, FENCED + 51, "applied", [1, 2], partition_epoch=1)
    history.fence(UNFENCED, 3, fenced=False)
    history.decide(back, None, [1, 2, 3])
    isr_line(history, back + 31, "applied", [1, 2, 3], partition_epoch=2)
    return history


def test_follower_of_an_idle_partition_joins_at_one_of_its_unlisted_fetches_once_it_is_not_fenced_any_more() -> None:
    history = fenced_and_back()
    unlisted(history, 2, 0, STOPPED, BACK + 2000)
    unlisted(history, 3, 0, STOPPED, BACK + 2000)
    assert expansions(history) == (1, 1)
    (pending,) = isr_rows(history, "pending_expand")
    assert (pending["isr"], pending["evidence"], pending["outcome"]) == ([1, 2, 3], "derived", "committed")
    assert at(UNFENCED) <= pending["ts"] <= at(BACK)
    assert pending["reason"] == "unfenced"
    runs = [row for row in history.events(lag_us=0).to_pylist() if row["run_count"] and row["replica_id"] == 3]
    assert sum(row["run_count"] for row in runs) == int(BACK + 2000 - STOPPED) // 80


@pytest.mark.parametrize("fetched", [8, 20, 40])
def test_follower_that_joins_at_a_fetch_soon_after_its_unfencing_was_not_fenced_then(fetched: int) -> None:
    history = fenced_and_back()
    history.fetch(UNFENCED + fetched, 1, 3, 0, hw=0)
    history.fetch(BACK + 300, 1, 3, 0, hw=0)
    assert expansions(history) == (1, 1)


def test_replicas_that_join_one_right_after_the_other_did_not_wait_for_each_other_s_change() -> None:
    history = begun()
    alive(history, STOPPED)
    alive(history, STOPPED, 3)
    history.decide(FENCED, None, [1])
    history.fence(FENCED, 2)
    history.fence(FENCED, 3)
    for replica in (2, 3):
        history.fence(UNFENCED, replica, fenced=False)
        unlisted(history, replica, 0, STOPPED, BACK + 2000)
    history.decide(BACK, None, [1, 2])
    history.decide(BACK + 12, None, [1, 2, 3])
    assert expansions(history) == (2, 2)


def test_replica_that_is_let_in_although_it_is_behind_the_hw_is_still_a_difference() -> None:
    history = late_history()
    unlisted(history, 3, 0, 1750, 2200)
    history.decide(2000, None, [1, 2, 3])
    isr_line(history, 2010, "updated", [1, 2, 3], partition_epoch=2, leader_epoch=None)
    assert expansions(history) == (1, 0)


def test_what_the_leader_logs_of_its_request_goes_before_what_the_controller_decided() -> None:
    history = fenced_and_back()
    unlisted(history, 3, 0, STOPPED, BACK + 2000)
    isr_line(history, UNFENCED + 40, "pending_expand", [1, 2, 3], replica_id=3, partition_epoch=1)
    (pending,) = isr_rows(history, "pending_expand")
    assert (pending["ts"], pending["evidence"]) == (at(UNFENCED + 40), "observed")
    assert expansions(history) == (1, 1)


def test_replica_that_was_late_and_had_the_hw_all_the_same_joins_at_its_first_fetch() -> None:
    history = late_history()
    history.fetch(1800, 1, 3, 2, hw=2)
    isr_line(history, 1800, "pending_expand", [1, 2, 3], replica_id=3, partition_epoch=1)
    assert isr_rows(history, "pending_expand")[0]["reason"] == "first_fetch"
