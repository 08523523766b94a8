"""The order of one partition's effects, on small histories: broker 1 leads epoch 0, broker 2 follows."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from facts_builder import History, at, of_kind
from without_spark import tables_of

from schemas.events import REPLICATION_EVENTS

if TYPE_CHECKING:
    import pyarrow as pa


def begun() -> History:
    """Two replicas, empty logs, the follower's first fetch parked at 40 and answered at 100 with the first batch."""
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    return history


def parked(history: History, asked: float, answered: float, offset: int, **fields: Any) -> None:
    """A fetch of broker 2 that waited in purgatory."""
    wait = round((answered - asked) * 1000)
    history.fetch(answered, 1, 2, offset, **{"total_us": wait, "remote_us": wait, **fields})


def told(events: pa.Table, *kinds: str) -> list[tuple[str, int | None]]:
    """Kinds and the offset that each turns on, in order."""
    return [
        (row["kind"], row["next_offset"] if row["kind"] == "append" else row["fetch_offset"])
        for row in of_kind(events, *kinds)
    ]


def batches(events: pa.Table) -> list[tuple[int, int, str]]:
    return [(r["base_offset"], r["next_offset"], r["next_offset_evidence"]) for r in of_kind(events, "append")]


def test_hw_that_an_answer_carries_decides_between_overlapping_requests() -> None:
    history = begun()
    parked(history, 40, 100, 0, bytes=100, hw=0)
    history.produce(100, 1, 0, acks=1)
    parked(history, 102, 600, 1, hw=1)  # raises the HW to 1
    history.fetch(101, 1, -1, 0, hw=1, connection="early stamp, saw the raise")
    history.fetch(104, 1, -1, 0, hw=0, connection="late stamp, did not")
    order = [(r["kind"], r["response_hw"]) for r in of_kind(history.events(), "consumer_read", "fetch_update")]
    assert order == [("fetch_update", None), ("consumer_read", 0), ("fetch_update", None), ("consumer_read", 1)]


def test_append_comes_before_the_fetch_that_shows_it_even_if_its_stamp_is_late() -> None:
    history = begun()
    parked(history, 40, 100, 0, bytes=100, hw=0)
    history.produce(118, 1, 0, acks=1)  # its line was written 18 ms late
    parked(history, 102, 600, 1, hw=1)
    order = told(history.events(), "append", "fetch_read", "fetch_update")
    assert order.index(("append", 1)) < order.index(("fetch_read", 0)) < order.index(("fetch_update", 1))


def test_acknowledgement_of_all_comes_after_the_fetch_that_commits_it() -> None:
    history = begun()
    parked(history, 40, 100, 0, bytes=100, hw=0)
    history.produce(101, 1, 0, acks=-1, total_us=2000, remote_us=2000)
    parked(history, 102, 600, 1, hw=1)
    kinds = [(r["kind"], r["fetch_offset"]) for r in of_kind(history.events(), "append", "ack", "fetch_update")]
    assert kinds == [("fetch_update", 0), ("append", None), ("fetch_update", 1), ("ack", None)]


def test_answer_at_once_is_read_before_its_own_update() -> None:
    history = begun()
    history.produce(100, 1, 0, acks=1)
    history.produce(200, 1, 1, acks=1)
    history.fetch(300, 1, 2, 0, bytes=200, hw=0)
    history.fetch(301, 1, 2, 2, hw=2)
    kinds = [r["kind"] for r in of_kind(history.events(), "fetch_read", "fetch_update", "fetch_apply")]
    assert kinds[:3] == ["fetch_read", "fetch_update", "fetch_apply"]


def test_answer_that_completed_inline_is_read_after_its_own_update() -> None:
    history = begun()
    history.produce(100, 1, 0, acks=1)
    history.fetch(110, 1, 2, 0, bytes=100, hw=0)
    history.produce(200, 1, 1, acks=1)
    history.fetch(201, 1, 2, 1, bytes=100, hw=1)  # 1 only once its own update had raised it
    history.fetch(202, 1, 2, 2, hw=2)
    second = [r["kind"] for r in of_kind(history.events(), "fetch_read", "fetch_update") if r["fetch_offset"] == 1]
    assert second == ["fetch_update", "fetch_read"]


def test_fetch_that_raises_the_hw_is_read_again_at_once_in_2_4_and_2_5() -> None:
    history = begun()
    parked(history, 40, 100, 0, bytes=100, hw=0)
    history.produce(100, 1, 0, acks=1)
    history.produce(102, 1, 1, acks=1)  # stamped before it, appended after it: the fetch found nothing
    history.fetch(103, 1, 2, 1, hw=1, total_us=2000, local_us=2000)
    events = history.events(kafka_version="2.5.1")
    order = told(events, "append", "fetch_read", "fetch_update")
    assert order[2:] == [("fetch_read", 0), ("fetch_update", 1), ("fetch_read", 1), ("append", 2)]


@pytest.mark.parametrize(("version", "order"), [("1.1.0", ["update", "read"]), ("1.1.1", ["read", "update"])])
def test_answer_that_carries_the_hw_of_after_its_own_update_is_read_after_it(version: str, order: list[str]) -> None:
    history = begun()
    history.produce(100, 1, 0, acks=1)
    history.fetch(110, 1, 2, 0, bytes=100, hw=0)
    history.produce(200, 1, 1, acks=1)
    history.fetch(201, 1, 2, 1, bytes=100, hw=1 if version == "1.1.0" else 0)
    history.fetch(202, 1, 2, 2, hw=2 if version == "1.1.0" else 1)
    events = of_kind(history.events(kafka_version=version), "fetch_read", "fetch_update")
    for offset in (1, 2):
        assert [r["kind"].removeprefix("fetch_") for r in events if r["fetch_offset"] == offset] == order


def test_idempotent_retry_answered_with_an_old_base_is_a_duplicate_and_no_append() -> None:
    history = begun()
    history.produce(100, 1, 0)
    history.produce(105, 1, 1)
    history.produce(150, 1, 0)
    events = history.events()
    assert [base for base, _, _ in batches(events)] == [0, 1]
    assert [(r["base_offset"], r["duplicate"]) for r in of_kind(events, "ack") if r["duplicate"]] == [(0, True)]


def test_retry_that_a_new_leader_answers_from_its_producer_state_is_a_duplicate() -> None:
    history = begun()
    history.produce(100, 1, 0)
    history.fetch(110, 1, 2, 0, bytes=100, hw=0)
    history.fetch(111, 1, 2, 1, hw=1)
    history.decide(1000, 2, [2])
    history.role(1010, 2, "leader", 1, offset=1, hw=1)
    history.produce(1020, 2, 0)
    history.produce(1030, 2, 1)
    events = history.events()
    assert [(r["leader_epoch"], r["base_offset"]) for r in of_kind(events, "append")] == [(0, 0), (1, 1)]


def test_unanswered_produce_is_placed_in_the_gap_of_the_offsets() -> None:
    history = begun()
    history.produce(100, 1, 0, acks=1)
    floating = history.produce(110, 1, -1, acks=0, error_code=None)
    history.produce(120, 1, 2, acks=1)
    appends = of_kind(history.events(), "append")
    assert [(r["base_offset"], r["next_offset"]) for r in appends][:2] == [(0, 1), (1, 2)]
    assert appends[1]["source_line"] == floating["source_line"]
    assert appends[1]["acks"] == 0


def test_produce_that_failed_after_waiting_was_appended() -> None:
    history = begun()
    history.produce(100, 1, 0, acks=1)
    history.produce(1110, 1, -1, error_code=7, total_us=1_000_000, remote_us=1_000_000)
    history.produce(1120, 1, 2, acks=1)
    assert [(r["base_offset"], r["error_code"]) for r in of_kind(history.events(), "append")] == [
        (0, 0),
        (1, 7),
        (2, 0),
    ]


@pytest.mark.parametrize("error", [3, 6, 7, 20, 56, 999])
def test_produce_answered_with_a_base_offset_was_appended_whatever_the_error(error: int) -> None:
    history = begun()
    history.produce(100, 1, 0, acks=1)
    history.produce(110, 1, 1, error_code=error)
    history.produce(120, 1, 4, acks=1)
    assert batches(history.events()) == [(0, 1, "derived"), (1, 4, "derived"), (4, 5, "bounded")]


def test_produce_that_failed_at_once_was_not_appended() -> None:
    history = begun()
    history.produce(100, 1, 0, acks=1)
    history.produce(110, 1, -1, error_code=6)
    history.produce(120, 1, 1, acks=1)
    assert [base for base, _, _ in batches(history.events())] == [0, 1]


def test_batch_ends_where_the_next_one_begins() -> None:
    history = begun()
    history.produce(100, 1, 0, acks=1)
    history.produce(110, 1, 5, acks=1)
    assert batches(history.events())[0] == (0, 5, "derived")


def test_last_batch_ends_at_least_one_further_and_that_is_bounded() -> None:
    history = begun()
    history.produce(100, 1, 0, acks=1)
    assert batches(history.events()) == [(0, 1, "bounded")]


def test_last_batch_ends_where_a_follower_fetches_next() -> None:
    history = begun()
    parked(history, 40, 100, 0, bytes=100, hw=0)
    history.produce(100, 1, 0, acks=1)
    parked(history, 102, 600, 4, hw=4)
    assert batches(history.events()) == [(0, 4, "derived")]


def test_batch_ends_where_a_segment_says() -> None:
    history = begun()
    history.produce(100, 1, 0, acks=1)
    history.add("segment_batch", 100, broker_id=1, leader_epoch=0, base_offset=0, last_offset=2, source_file="0.log")
    assert batches(history.events()) == [(0, 3, "observed")]


def test_last_batch_ends_at_most_where_the_leader_next_states_its_leo() -> None:
    """Behind it there may be one that was not answered, and has no line."""
    history = begun()
    history.produce(100, 1, 0, acks=1)
    history.decide(1000, 2, [2])
    history.role(1010, 2, "leader", 1, offset=0, hw=0)
    history.role(1020, 1, "follower", 1, offset=3, hw=0)
    assert batches(history.events()) == [(0, 3, "bounded")]


def test_last_batch_surely_reaches_the_end_of_a_fetch_of_just_its_bytes() -> None:
    history = begun()
    history.produce(100, 1, 0, acks=1, bytes=300)
    history.fetch(110, 1, 2, 0, bytes=300, hw=0)
    history.fetch(700, 1, 2, 3, hw=0)
    history.decide(1000, 2, [2])
    history.role(1010, 2, "leader", 1, offset=3, hw=0)
    assert batches(history.events()) == [(0, 3, "derived")]


def test_missing_append_that_a_fetch_shows_is_inserted_without_a_source() -> None:
    history = begun()
    parked(history, 40, 100, 0, bytes=100, hw=0)
    parked(history, 102, 600, 3, hw=3)
    (append,) = of_kind(history.events(), "append")
    assert (append["base_offset"], append["next_offset"], append["evidence"]) == (0, 3, "derived")
    assert append["source_line"] is None
    assert append["ts_hi"] <= at(110)


def test_diverging_fetch_shows_what_the_old_leader_had_and_nothing_of_the_new_one() -> None:
    history = begun()
    history.produce(100, 1, 0, acks=1)
    history.decide(1000, 2, [2])
    history.role(1010, 2, "leader", 1, offset=0, hw=0)
    history.produce(1020, 2, 0, acks=1)
    asking = {"current_leader_epoch": 1, "last_fetched_epoch": 0}
    history.fetch(1200, 2, 1, 4, hw=-1, diverging_epoch=-1, diverging_end_offset=0, **asking)
    history.fetch(1210, 2, 1, 0, bytes=100, hw=0, current_leader_epoch=1, last_fetched_epoch=-1)
    history.fetch(1220, 2, 1, 1, hw=1, current_leader_epoch=1, last_fetched_epoch=1)
    events = history.events()
    assert batches(events) == [(0, 4, "bounded"), (0, 1, "derived")]
    (cut,) = of_kind(events, "truncation")
    assert (cut["broker_id"], cut["truncate_to"], cut["cause"]) == (1, 0, "diverging_fetch")


def test_zombies_requests_stay_in_its_epoch() -> None:
    history = begun()
    history.produce(100, 1, 0, acks=1)
    history.decide(1000, 2, [2])
    history.role(1010, 2, "leader", 1, offset=0, hw=0)
    history.produce(1100, 1, 1, acks=1)  # broker 1 has not heard
    history.produce(1200, 2, 0, acks=1)
    found = [(r["broker_id"], r["leader_epoch"], r["base_offset"]) for r in of_kind(history.events(), "append")]
    assert found == [(1, 0, 0), (1, 0, 1), (2, 1, 0)]


def test_seq_rises_and_every_time_lies_in_its_interval() -> None:
    events = long_history().events()
    assert events["seq"].to_pylist() == list(range(len(events)))
    for row in events.to_pylist():
        assert row["ts_lo"] <= row["ts"] <= row["ts_hi"]
    assert len(set(events["event_id"].to_pylist())) == len(events)
    required = [f.name for f in REPLICATION_EVENTS.arrow_schema if not f.nullable and f.name != "recording_id"]
    assert not any(events[name].null_count for name in required)


def long_history() -> History:
    """Two tenures with everything in them: retries, unanswered produces, overlapping reads, a cut."""
    history = begun()
    parked(history, 40, 100, 0, bytes=100, hw=0)
    for k in range(12):
        ms = 100 + 10 * k
        history.produce(ms, 1, 2 * k, acks=(-1, 1)[k % 2], total_us=1000, remote_us=1000 * (k % 2 == 0))
        history.produce(ms, 1, -1, acks=0, error_code=None)
        history.fetch(ms + 1, 1, 2, 2 * k + 1, bytes=100, hw=2 * k)
        history.fetch(ms + 1, 1, -1, 2 * k, bytes=100, hw=2 * k, connection=f"c{k % 3}")
    history.fence(900, 1)
    history.decide(900, 2, [2])
    history.role(1010, 2, "leader", 1, offset=23, hw=22)
    history.produce(1020, 2, 23, acks=1)
    history.fetch(1500, 2, 1, 24, hw=-1, current_leader_epoch=1, diverging_epoch=0, diverging_end_offset=23)
    history.fetch(1510, 2, 1, 23, bytes=100, hw=23, current_leader_epoch=1, last_fetched_epoch=0)
    return history


@pytest.mark.parametrize("seed", range(6))
def test_order_does_not_depend_on_the_order_of_the_facts(seed: int) -> None:
    history = long_history()
    shuffled = list(history.rows)
    random.Random(seed).shuffle(shuffled)  # noqa: S311 - a test's choice, not a secret
    assert history.events(shuffled).equals(history.events())


def test_follower_with_broker_id_0_is_a_follower_too() -> None:
    history = History()
    history.fetch(100, 1, 0, 0, bytes=100, hw=0, current_leader_epoch=4, last_fetched_epoch=-1)
    history.fetch(110, 1, 0, 1, hw=1, current_leader_epoch=4)
    assert {r["leader_epoch"] for r in of_kind(history.events(), "fetch_update")} == {4}


def test_epoch_starts_where_a_follower_of_older_records_waited_for_nothing() -> None:
    history = History()
    history.decide(0, 1, [1, 2])
    history.role(5, 1, "leader", 0, offset=0, hw=0)
    history.produce(100, 1, 0, acks=1)
    history.produce(200, 1, 1, acks=1)
    history.decide(1000, 1, [1], leader_recovery_state=1)
    empty = {"request_bytes": 0, "remote_us": 500_000, "total_us": 500_000}
    asks = {"current_leader_epoch": 1, "last_fetched_epoch": 0}
    history.fetch(2000, 1, 2, 1, hw=1, **asks, **empty)
    facts = history.facts()
    assert facts.starts[1] == (1, "derived")
    assert 1 not in History.facts(history, [{**row, "request_bytes": None} for row in history.rows]).starts


def test_appends_of_a_leader_that_nothing_is_heard_of_are_bounded() -> None:
    """Its segments tell of its batches, but neither when they came nor how its HW moved."""
    history = History()
    history.decide(0, 1, [1, 2])
    for base in (0, 3):
        history.add("segment_batch", 0, broker_id=2, leader_epoch=0, base_offset=base, last_offset=base + 2, ts=None)
    evidence = {row["next_offset_evidence"] for row in of_kind(history.events(), "append")}
    assert evidence == {"bounded"}
    history.fetch(500, 1, 2, 6, hw=6)
    assert {row["next_offset_evidence"] for row in of_kind(history.events(), "append")} == {"observed"}


def test_fetch_whose_bytes_are_those_of_the_produces_it_brought_shows_that_none_is_missing() -> None:
    """The log loses lines elsewhere: so without it the batch would be sure of its first record only."""
    history = History()
    history.decide(0, 1, [1, 2])
    history.role(5, 1, "leader", 0, offset=0, hw=0)
    for base in (0, 3, 6, 9):
        history.produce(100 + 100 * base, 1, base, acks=1, bytes=300)
    history.fetch(150, 1, 2, 0, bytes=300, hw=0)
    history.fetch(450, 1, 2, 3, bytes=300, hw=3)
    history.fetch(1400, 1, 2, 6, bytes=600, hw=6)
    history.fetch(1500, 1, 2, 12, hw=12)
    rows = [row for row in history.rows if not (row["kind"] == "produce" and row["base_offset"] == 6)]
    assert batches(history.events(rows)) == [
        (0, 3, "derived"), (3, 6, "derived"), (6, 9, "derived"), (9, 12, "bounded"),
    ]  # fmt: skip


@pytest.mark.parametrize(("connection", "evidence"), [("r2-1", "derived"), ("r2-1-again", "bounded")])
def test_replica_that_comes_back_with_less_within_an_epoch_may_have_a_log_made_anew(
    connection: str, evidence: str
) -> None:
    history = History()
    history.decide(0, 1, [1, 2])
    history.role(5, 1, "leader", 0, offset=0, hw=0)
    for base in (0, 1, 2):
        history.produce(100 + 100 * base, 1, base, acks=1)
    history.fetch(410, 1, 2, 3, hw=3)
    history.fetch(900, 1, 2, 1, bytes=200, hw=3, connection=connection)
    (cut,) = of_kind(history.events(), "truncation")
    assert (cut["truncate_to"], cut["evidence"]) == (1, evidence)


def test_hw_of_an_empty_answer_decides_though_a_quota_kept_back_what_there_was() -> None:
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2, 3])
    for broker, role, end in ((1, "leader", 50), (2, "follower", 50), (3, "follower", 0)):
        history.role(10, broker, role, 0, offset=end, hw=end)
    step = 16
    for k in range(20):  # broker 2 follows at once; broker 3 is throttled, and all its answers are empty
        now, end = 200 + step * k, 50 + k
        history.produce(now, 1, end, acks=1, total_us=200, local_us=200)
        parked(history, now - 1, now + 1, end, hw=end, bytes=100)
        parked(history, now + 1, now + step - 2, end + 1, hw=end + 1)
        history.fetch(now + step - 1, 1, 3, 0, hw=end + 1, total_us=16_000, remote_us=16_000)
    checks = tables_of(history.events())["conformance"].to_pylist()
    assert [(row["compared"], row["matched"]) for row in checks if row["check"] == "response_hw"] == [(60, 60)]
