"""Which lost records were acknowledged: answers that are missing, that nobody may have got, and retries."""

from __future__ import annotations

from facts_builder import START, History, at
from histories_of_losses import (
    COMMITTED,
    acks_one_failure,
    alone,
    loss,
    losses,
    replicated,
    tail,
    taken_over,
    taken_over_from,
)

SILENT_FROM, SILENT_UNTIL = 500, 5000  # when a zombie stood still


def test_what_was_lost_may_be_back_where_nothing_tells_who_led_the_last_epoch() -> None:
    """A third broker, of which there are no logs, may have had them."""
    history = acks_one_failure()
    history.role(9000, 1, "follower", 2, offset=COMMITTED, hw=COMMITTED)
    row = loss(history)
    assert (row["evidence"], row["acked_one"], row["acked_one_possible"]) == ("bounded", 0, 3)


def test_answer_to_what_came_before_the_logs_begin_may_have_reached_nobody() -> None:
    """Nothing tells how long the broker had stood still by then; a client that goes on had its answer."""
    begin = int(at(312).timestamp() * 1_000_000)
    row = loss(acks_one_failure(), begins={1: begin})
    assert (row["acked_one"], row["acked_one_possible"], row["evidence"]) == (2, 1, "derived")
    assert loss(acks_one_failure(), begins={1: begin - 60_000})["acked_one"] == 3


def test_unacknowledged_tail_is_no_loss() -> None:
    failed = {"acks": -1, "error_code": 7, "total_us": 100_000, "remote_us": 100_000}
    assert losses(taken_over(tail(replicated(), **failed))) == []


def test_fire_and_forget_tail_is_no_loss() -> None:
    assert losses(taken_over(tail(replicated(), acks=0, error_code=None))) == []


def test_without_produce_lines_acknowledgements_are_null_and_not_zero() -> None:
    history = acks_one_failure()
    history.rows = [row for row in history.rows if row["kind"] not in ("produce", "fetch")]
    history.role(1500, 1, "follower", 1, offset=5, hw=2)
    history.add("truncation", 1510, broker_id=1, name="log", offset=2, source_file="server-1.log")
    row = loss(history)
    unknown = ("acked_all", "acked_one", "unacked", "acked_all_possible", "acked_one_possible", "acked_unconfirmed")
    assert {row[name] for name in (*unknown, "producers", "consumed")} == {None}
    assert row["first_offset"] == 2


def test_batch_without_a_produce_line_is_possibly_acknowledged() -> None:
    history = taken_over(tail(replicated()))
    history.rows = [r for r in history.rows if not (r["kind"] == "produce" and r["base_offset"] == 3)]
    row = loss(history)
    assert (row["records"], row["acked_one"], row["acked_one_possible"], row["unacked"]) == (3, 2, 1, 0)


def test_log_that_lost_lines_may_have_lost_the_last_of_a_connection_too() -> None:
    history = taken_over(tail(replicated()))
    history.rows = [r for r in history.rows if not (r["kind"] == "produce" and r["base_offset"] in (1, 4))]
    row = loss(history)
    assert (row["records"], row["acked_one"], row["acked_one_possible"], row["unacked"]) == (3, 2, 1, 0)


def test_lines_of_the_leader_about_its_appends_stand_in_for_missing_produce_lines() -> None:
    history = taken_over(tail(replicated()))
    for produce in [r for r in history.rows if r["kind"] == "produce" and r["base_offset"] >= 2]:
        base = produce["base_offset"]
        line = {"base_offset": base, "last_offset": base, "offset": base + 1, "source_file": "server-1.log"}
        history.add("log_append", 0, broker_id=1, **line)
        history.rows[-1]["ts"] = produce["ts"]
    history.rows = [r for r in history.rows if not (r["kind"] == "produce" and r["base_offset"] == 3)]
    row = loss(history)
    assert (row["acked_one"], row["acked_one_possible"], row["evidence"]) == (2, 1, "derived")


def test_answer_of_a_leader_that_had_stood_still_is_unconfirmed() -> None:
    history = tail(replicated(), ms=SILENT_UNTIL + 1)
    start = round(START.timestamp() * 1_000_000)
    silent = {1: [(start + SILENT_FROM * 1000, start + SILENT_UNTIL * 1000)]}
    row = loss(taken_over(history, ms=4000), standstills=silent)
    assert (row["acked_one"], row["acked_unconfirmed"], row["records"]) == (0, 3, 3)


def test_without_the_brokers_own_log_such_an_answer_is_possible() -> None:
    history = tail(replicated(), ms=SILENT_UNTIL + 1)
    start = round(START.timestamp() * 1_000_000)
    silent = {1: [(start + SILENT_FROM * 1000, start + SILENT_UNTIL * 1000)]}
    row = loss(taken_over(history, ms=4000), standstills=silent, own_logs=frozenset({2}))
    assert (row["acked_one"], row["acked_one_possible"], row["acked_all_possible"]) == (0, 3, 0)
    assert (row["acked_possible"], row["acked_unconfirmed"], row["unacked"], row["records"]) == (3, 0, 0, 3)


def test_answer_that_waited_for_followers_long_after_the_standstill_counts() -> None:
    waited = {"acks": -1, "total_us": 1_500_000, "remote_us": 1_500_000}
    history = tail(replicated(), ms=SILENT_UNTIL + 1501, **waited)
    start = round(START.timestamp() * 1_000_000)
    silent = {1: [(start + SILENT_FROM * 1000, start + SILENT_UNTIL * 1000)]}
    row = loss(taken_over(history, ms=4000), standstills=silent)
    assert (row["acked_all"], row["acked_unconfirmed"]) == (3, 0)


def test_answer_that_waits_for_nobody_is_unconfirmed_however_long_after_the_standstill_it_came() -> None:
    held_up = {"acks": 1, "total_us": 4_600_000, "queue_us": 4_580_000, "local_us": 10_000}
    history = tail(replicated(), ms=SILENT_UNTIL + 80, **held_up)
    start = round(START.timestamp() * 1_000_000)
    silent = {1: [(start + SILENT_FROM * 1000, start + SILENT_UNTIL * 1000)]}
    row = loss(taken_over(history, ms=6000), standstills=silent)
    assert (row["acked_one"], row["acked_unconfirmed"]) == (0, 3)


def test_answer_counts_if_its_connection_goes_on() -> None:
    history = tail(replicated(), ms=SILENT_UNTIL + 1)
    start = round(START.timestamp() * 1_000_000)
    silent = {1: [(start + SILENT_FROM * 1000, start + SILENT_UNTIL * 1000)]}
    went_on = {(1, "p1"): start + (SILENT_UNTIL + 900) * 1000}
    row = loss(taken_over(history, ms=4000), standstills=silent, connection_ends=went_on)
    assert (row["acked_one"], row["acked_unconfirmed"]) == (3, 0)


def test_record_whose_retry_was_answered_well_is_acknowledged() -> None:
    history = replicated()
    failed = {"error_code": 7, "total_us": 100_000, "remote_us": 100_000}
    alone(history)
    history.produce(420, 1, COMMITTED, **failed)
    history.produce(430, 1, COMMITTED)  # the same again: error 0, the old base
    assert loss(taken_over_from(history, epoch=1))["acked_all"] == 1


def answered_by_the_next_leader(*, says_from_where: bool) -> History:
    """A batch that failed at broker 1; broker 2 has it, leads, answers the retry well; then broker 1 leads again."""
    history = replicated()
    history.produce(420, 1, COMMITTED, error_code=7, total_us=100_000, remote_us=100_000)
    history.fetch(430, 1, 2, COMMITTED, bytes=100, hw=COMMITTED)
    history.fetch(431, 1, 2, COMMITTED + 1, hw=COMMITTED)
    history.fence(1000, 1)
    history.decide(1000, 2, [2])
    if says_from_where:
        history.role(1010, 2, "leader", 1, offset=COMMITTED + 1, hw=COMMITTED)
    history.produce(1020, 2, COMMITTED)  # from the producer's state: nothing appended
    history.decide(1900, -1, [2])
    history.decide(2000, 1, [1], leader_recovery_state=1)
    history.role(2010, 1, "leader", 3, offset=COMMITTED, hw=COMMITTED)
    return history


def test_record_whose_retry_the_next_leader_answered_well_is_acknowledged() -> None:
    assert loss(answered_by_the_next_leader(says_from_where=True))["acked_all"] == 1


def test_retry_answered_by_a_leader_of_whom_nothing_says_from_where_it_led_acknowledges_nothing_older() -> None:
    rows = losses(answered_by_the_next_leader(says_from_where=False))
    assert not any(row["acked_all"] for row in rows if row["old_leader_epoch"] == 0)
