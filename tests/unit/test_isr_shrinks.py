"""Replicas that leave the ISR: the reason of each, and when the leader learns of it."""

from __future__ import annotations

from typing import Any

import pytest
from facts_builder import START, at, of_kind
from isr_histories import alive, begun, isr_line, isr_rows, late_history, replayed, shrink_line


@pytest.mark.parametrize(("version", "ms"), [("2.4.1", 10_000), ("2.5.0", 30_000), (None, 30_000)])
def test_lag_is_ten_seconds_by_default_up_to_2_4_and_thirty_from_2_5_on(version: str | None, ms: int) -> None:
    first = of_kind(begun().events(kafka_version=version), "config_change")[0]
    assert first["replica_lag_time_max_us"] == ms * 1000


def test_replica_that_sent_no_fetch_in_the_lag_time_left_for_that() -> None:
    pending, committed = (isr_rows(late_history(), state)[0] for state in ("pending_shrink", "committed"))
    assert (pending["reason"], pending["outcome"], pending["broker_id"]) == ("no_fetches", "committed", 3)
    assert (pending["remote_leo"], pending["leo_gap"], pending["fetches_in_lag_time"]) == (0, 2, 0)
    assert pending["last_fetch_ts"] == at(23)
    assert (committed["reason"], committed["change"]) == ("no_fetches", "shrink")


def test_without_a_log_of_requests_nothing_tells_whether_a_replica_fetched() -> None:
    """Server logs at INFO: the leader's line says that it left, and how far it had been."""
    history = late_history()
    history.rows = [row for row in history.rows if row["kind"] not in ("fetch", "produce")]
    pending, committed = (isr_rows(history, state)[0] for state in ("pending_shrink", "committed"))
    assert (pending["reason"], committed["reason"]) == ("unknown", "unknown")
    assert (pending["fetches_in_lag_time"], pending["last_fetch_ts"]) == (None, None)
    asked = {"isr_expiry", "overdue_shrink"}
    assert asked <= {row["check"] for row in replayed(late_history())["conformance"]}
    left = replayed(history)["conformance"]
    assert not asked & {row["check"] for row in left}
    assert all(row["compared"] == row["matched"] for row in left)


def test_requests_after_a_shrink_do_not_tell_of_the_fetches_before_it() -> None:
    history = late_history()
    history.rows = [row for row in history.rows if row["kind"] not in ("fetch", "produce")]
    history.fetch(1800, 1, 2, 2, hw=0)
    assert isr_rows(history, "pending_shrink")[0]["reason"] == "unknown"


def test_a_replica_that_joins_by_the_first_request_that_is_known_had_not_fetched_before() -> None:
    history = late_history()
    history.rows = [row for row in history.rows if row["kind"] not in ("fetch", "produce")]
    history.fetch(1800, 1, 3, 2, hw=2)
    isr_line(history, 1800, "pending_expand", [1, 2, 3], replica_id=3, partition_epoch=1)
    (row,) = isr_rows(history, "pending_expand")
    assert (row["reason"], row["fetches_in_lag_time"]) == ("first_fetch", 0)


def test_replica_that_fetched_and_did_not_catch_up_left_behind() -> None:
    row = isr_rows(late_history(offset=1), "pending_shrink")[0]
    assert (row["reason"], row["fetches_in_lag_time"], row["leo_gap"]) == ("fetching_but_behind", 10, 1)


def test_replica_whose_fetches_were_refused_left_for_errors() -> None:
    assert isr_rows(late_history(error_code=74), "pending_shrink")[0]["reason"] == "fetch_errors"


def test_replica_that_took_the_partition_out_of_its_fetches_because_of_its_quota_was_throttled() -> None:
    history = late_history()
    lists = {"name": "follower.replication.throttled.replicas", "value": "0:3"}
    history.add("config_change", 90, partition=None, **lists, metadata_offset=90)
    history.fetch(200, 1, 3, None, in_request=False, in_response=False, forgotten=True, current_leader_epoch=None)
    assert isr_rows(history, "pending_shrink")[0]["reason"] == "throttled"


def test_leader_that_stood_still_is_the_reason_where_nobody_was_late_without_it() -> None:
    begin = int(START.timestamp()) * 1_000_000
    spans = {1: [(begin + 150_000, begin + 1_690_000)]}
    assert isr_rows(late_history(), "pending_shrink", standstills=spans)[0]["reason"] == "leader_stood_still"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"fenced": True}, "fenced"), ({"fenced": None, "in_controlled_shutdown": True}, "stopped")],
)
def test_controller_takes_out_who_is_fenced_or_shuts_down(fields: dict[str, Any], reason: str) -> None:
    history = begun()
    alive(history, 300, 3)
    history.decide(400, None, [1, 2])
    history.fence(400, 3, **fields)
    row = isr_rows(history, "committed")[0]
    assert (row["reason"], row["remote_leo"], row["leo_gap"]) == (reason, 0, 0)
    assert row["ms_since_caught_up"] == 177


def test_leader_that_learns_of_a_fenced_members_removal_does_not_wait_for_it_any_more() -> None:
    history = begun()
    alive(history, 300, 3)
    history.produce(301, 1, 0, acks=1)
    history.fetch(350, 1, 2, 1, hw=0)
    history.decide(400, None, [1, 2])
    history.fence(400, 3)
    rows = replayed(history)["hw_timeline"]
    assert [(row["hw"], row["cause"]) for row in rows if row["role"] == "leader" and row["hw"]] == [(1, "isr_request")]


def test_replica_out_of_the_assignment_left_by_the_reassignment() -> None:
    history = begun()
    history.decide(400, None, [1, 2], replicas=[1, 2])
    assert isr_rows(history, "committed")[0]["reason"] == "reassigning"


def test_several_that_leave_have_a_reason_each_and_the_latest_of_them_stands_for_all() -> None:
    history = late_history()
    history.rows = [row for row in history.rows if row["kind"] != "isr_update" and row["ts"] != at(1705)]
    shrink_line(history, 1700, [1], {2: 2, 3: 0}, 2)
    row = isr_rows(history, "pending_shrink")[0]
    assert row["broker_id"] is None
    assert [(m["broker_id"], m["reason"]) for m in row["movers"]] == [(2, "fetching_but_behind"), (3, "no_fetches")]
    assert row["reason"] == "no_fetches"


def test_leader_that_stood_still_learns_of_decisions_once_it_is_awake() -> None:
    history = begun()
    history.decide(400, None, [1, 2])
    begin = int(START.timestamp()) * 1_000_000
    events = history.events(standstills={1: [(begin + 300_000, begin + 3_000_000)]})
    assert [row["ts"] for row in of_kind(events, "isr_request")] == [at(3030)]
