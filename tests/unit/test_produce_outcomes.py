"""Whether a produce is taken, and how one that waited ended: the rules, their checks, and the events behind them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from facts_builder import History, at, of_kind
from small_partition import ALL, EPOCH, LATEST, A, B, event, folded, led
from without_spark import tables_of

from replay.arrays.ints import NEVER
from replay.arrays.records import blank
from replay.engine import codes as c
from replay.engine.emit import CheckRow
from replay.engine.event_record import EventRecord
from replay.engine.purgatory import OpenBatch
from replay.engine.stamps import CLOCK_SLACK_US, TIMER_LATE_US
from replay.evidence.controller_view import MIN_ISR_SETTING
from replay.protocol.produce import (
    ACKS_ALL,
    ACKS_OF_COORDINATOR,
    ACKS_OF_TRANSACTION,
    KAFKA_STORAGE_ERROR,
    NO_ERROR,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
    acks_outcome,
    produce_guard,
)
from replay.protocol.profile import Profile, profile_of
from replay.protocol.state import MIN_ISR_UNKNOWN, NONE, UNSET
from replay.tables.produce_outcomes import Outages, derived_errors, outcome_checks, timeout_checks
from replay.tables.rounds import BatchAnswer

BEFORE_KIP_497, BEFORE_KAFKA_15583 = profile_of((2, 6, 3)), profile_of((3, 6, 2))
TWO, ONE = 0b011, 0b001
MS = 1000


# -- the guard


@pytest.mark.parametrize(
    ("isr", "min_isr", "acks", "error"),
    [
        (TWO, 2, ACKS_ALL, NO_ERROR),
        (ONE, 2, ACKS_ALL, NOT_ENOUGH_REPLICAS),
        (ONE, 2, ACKS_OF_COORDINATOR, NOT_ENOUGH_REPLICAS),
        (ONE, 2, 1, NO_ERROR),
        (ONE, 2, 0, NO_ERROR),
        (ONE, MIN_ISR_UNKNOWN, ACKS_ALL, UNSET),
        (ONE, MIN_ISR_UNKNOWN, 1, NO_ERROR),
    ],
)
def test_acks_all_is_refused_while_the_committed_isr_is_below_the_minimum(
    isr: int, min_isr: int, acks: int, error: int
) -> None:
    s = led(isr, min_isr=min_isr)
    s.maximal_isr[A] = ALL  # what is pending does not count
    assert produce_guard(s, LATEST, A, acks) == error


def test_a_broker_that_does_not_lead_takes_nothing() -> None:
    assert produce_guard(led(), LATEST, B, 1) == NOT_LEADER_OR_FOLLOWER


def test_a_minimum_beyond_the_number_of_replicas_counts_as_that_from_3_7_on() -> None:
    s = led(min_isr=4)
    assert produce_guard(s, LATEST, A, ACKS_ALL) == NO_ERROR
    assert produce_guard(s, BEFORE_KAFKA_15583, A, ACKS_ALL) == NOT_ENOUGH_REPLICAS
    assert acks_outcome(s, BEFORE_KAFKA_15583, A) == NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_replicas_that_are_asked_for_count_after_the_append_from_2_7_on() -> None:
    s = led(ONE, min_isr=2)
    s.maximal_isr[A] = TWO
    assert acks_outcome(s, LATEST, A) == NO_ERROR
    assert acks_outcome(s, BEFORE_KIP_497, A) == NOT_ENOUGH_REPLICAS_AFTER_APPEND


def guard_checks(
    *events: EventRecord, isr: int = ALL, profile: Profile = LATEST, of: int = c.CHECK_PRODUCE_GUARD
) -> list[tuple[int, int]]:
    found = folded(led(isr, min_isr=2), *events, profile=profile).check
    rows = [found[k] for k in range(len(found))]
    return [(int(row.computed), int(row.stated)) for row in rows if row.check == of]


def test_a_replica_that_the_assignment_no_longer_names_takes_nothing() -> None:
    s = led()
    s.gone[A] = 1
    assert produce_guard(s, LATEST, A, ACKS_ALL) == NOT_LEADER_OR_FOLLOWER


def test_from_3_6_on_a_transaction_that_is_not_verified_is_answered_with_the_same_error() -> None:
    refused = event(
        c.PRODUCE_REFUSED, broker=A, leader_epoch=EPOCH, acks=ACKS_OF_TRANSACTION, error_code=NOT_ENOUGH_REPLICAS
    )
    of = c.CHECK_REFUSAL
    assert guard_checks(refused, of=of) == []
    assert guard_checks(refused, of=of, isr=ONE) == [(NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS)]
    assert guard_checks(refused, of=of, profile=profile_of((3, 5, 2))) == [(NO_ERROR, NOT_ENOUGH_REPLICAS)]


def test_every_produce_is_compared_with_the_guard() -> None:
    batch = {"broker": A, "leader_epoch": EPOCH, "base_offset": 0, "next_offset": 1}
    appended, inserted = event(c.APPEND, **batch, acks=ACKS_ALL), event(c.APPEND, **batch)
    assert guard_checks(appended) == [(NO_ERROR, NO_ERROR)]
    assert guard_checks(appended, isr=ONE) == [(NOT_ENOUGH_REPLICAS, NO_ERROR)]
    assert guard_checks(inserted, isr=ONE) == []
    for error, isr, of, computed, stated in (
        (NOT_ENOUGH_REPLICAS, ONE, c.CHECK_REFUSAL, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS),
        (NOT_ENOUGH_REPLICAS, ALL, c.CHECK_REFUSAL, NO_ERROR, NOT_ENOUGH_REPLICAS),
        (45, ALL, c.CHECK_PRODUCE_GUARD, NO_ERROR, NO_ERROR),  # out of sequence: refused behind the guard
    ):
        refused = event(c.PRODUCE_REFUSED, broker=A, leader_epoch=EPOCH, acks=ACKS_ALL, error_code=error)
        assert guard_checks(refused, isr=isr, of=of) == [(computed, stated)]


# -- the end of a wait


def waited(error: int, outages: Outages | None = None, **row: int) -> tuple[int, int]:
    """(computed, stated) of a batch of broker 1 that was answered at 1 s; times of `row` in milliseconds from then."""
    batch, answer = blank(1, OpenBatch, UNSET), blank(1, BatchAnswer)
    batch["broker"] = 0
    answer["ts"], answer["error_code"] = 1_000 * MS, error
    for name, value in row.items():
        batch[name] = value if name == "outcome" else 1_000 * MS + value * MS
    if "commit_lo" in row:
        batch["commit_seq"] = 7
        batch["commit_ts"] = batch["commit_lo"] if "commit_ts" not in row else batch["commit_ts"]
    (found,) = outcome_checks(batch, answer, derived_errors(batch, answer, outages or Outages(), [1]))
    return int(found.computed), int(found.stated)


AFTER = CLOCK_SLACK_US // MS + 1


@pytest.mark.parametrize("error", [NO_ERROR, NOT_ENOUGH_REPLICAS_AFTER_APPEND])
def test_a_batch_that_the_hw_passed_ends_as_the_isr_of_then_says(error: int) -> None:
    assert waited(error, commit_lo=-5, outcome=error) == (error, error)
    assert waited(REQUEST_TIMED_OUT, commit_lo=-AFTER, outcome=error) == (error, REQUEST_TIMED_OUT)


@pytest.mark.parametrize("committed", [{"commit_lo": -5}, {"commit_lo": -10 * AFTER, "commit_ts": -5}])
def test_a_batch_whose_time_was_up_as_it_was_committed_may_have_timed_out_first(committed: dict[str, int]) -> None:
    """The thread that ends it may be late on a loaded host; so its answer leaves behind the commit."""
    outcome = NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert waited(REQUEST_TIMED_OUT, **committed, outcome=outcome) == (REQUEST_TIMED_OUT, REQUEST_TIMED_OUT)
    assert waited(NOT_ENOUGH_REPLICAS, **committed, outcome=outcome) == (outcome, NOT_ENOUGH_REPLICAS)


@pytest.mark.parametrize("outcome", [NO_ERROR, NOT_ENOUGH_REPLICAS_AFTER_APPEND])
def test_a_batch_without_an_answer_has_the_error_of_its_commit(outcome: int) -> None:
    batch, answer = blank(2, OpenBatch, UNSET), blank(2, BatchAnswer, NONE)
    answer["ts"] = answer["error_code"] = UNSET
    batch["broker"] = 0
    batch["commit_seq"][0], batch["commit_lo"][0], batch["outcome"][0] = 7, MS, outcome
    batch["lost_ts"][1] = MS  # how long it waited until then nothing says
    assert derived_errors(batch, answer, Outages(), [1]).tolist() == [outcome, UNSET]


def test_the_error_that_follows_from_the_rules_stands_beside_the_one_answered() -> None:
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    history.produce(1_000, 1, 0, remote_us=100_000)
    history.fetch(950, 1, 2, 0, bytes=100, hw=0)
    history.fetch(960, 1, 2, 1, hw=1)
    rows = tables_of(history.events(settings={MIN_ISR_SETTING: 1}))["commit_latency"].to_pylist()
    assert [(row["error_code"], row["derived_error_code"]) for row in rows] == [(NO_ERROR, NO_ERROR)]
    rows = tables_of(history.events())["commit_latency"].to_pylist()
    assert [(row["error_code"], row["derived_error_code"]) for row in rows] == [(NO_ERROR, None)]  # no minimum is known


def test_a_batch_whose_leader_lost_its_role_first_is_answered_not_leader() -> None:
    assert waited(NOT_LEADER_OR_FOLLOWER, lost_ts=-5) == (NOT_LEADER_OR_FOLLOWER, NOT_LEADER_OR_FOLLOWER)
    assert waited(REQUEST_TIMED_OUT, lost_ts=AFTER)[0] == REQUEST_TIMED_OUT


def test_a_batch_that_nothing_ended_timed_out() -> None:
    assert waited(REQUEST_TIMED_OUT)[0] == REQUEST_TIMED_OUT
    assert waited(REQUEST_TIMED_OUT, commit_lo=AFTER, outcome=NO_ERROR)[0] == REQUEST_TIMED_OUT
    assert waited(NO_ERROR)[0] == REQUEST_TIMED_OUT  # answered without error, and never committed: a mismatch


def test_what_came_within_the_inaccuracy_of_stamps_may_have_come_in_either_order() -> None:
    for error in (NO_ERROR, REQUEST_TIMED_OUT):
        assert waited(error, commit_lo=AFTER - 2, outcome=NO_ERROR) == (error, error)


TIMEOUT = 3_000


def time_up(error: int, local: float, remote: float, **row: int) -> list[tuple[int, int]]:
    """(computed, stated) of a batch whose answer took so many milliseconds; 1: its time was up."""
    batch, answer = blank(1, OpenBatch, UNSET), blank(1, BatchAnswer, NONE)
    batch["broker"], answer["error_code"], answer["allowed_us"] = 0, error, TIMEOUT * MS
    answer["local_us"], answer["remote_us"] = int(local * MS), int(remote * MS)
    for name, value in row.items():
        answer[name] = value
    found = timeout_checks(batch, answer)
    return list(zip(found["computed"].tolist(), found["stated"].tolist(), strict=True))


LATE = TIMER_LATE_US // MS


def test_a_produce_times_out_once_its_time_is_up_and_no_sooner() -> None:
    assert time_up(REQUEST_TIMED_OUT, 1, 3_000) == [(1, 1)]
    assert time_up(REQUEST_TIMED_OUT, 2, 2_998.3) == [(1, 1)]  # the timer began while the handler was still at work
    assert time_up(REQUEST_TIMED_OUT, 1, 2_900) == [(0, 1)]
    assert time_up(REQUEST_TIMED_OUT, 1, 6_045) == [(1, 1)]  # however late: the broker may have stood still


@pytest.mark.parametrize("error", [NO_ERROR, NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS_AFTER_APPEND])
def test_any_other_answer_to_a_produce_comes_before_its_time_is_up(error: int) -> None:
    assert time_up(error, 1, 2_999) == [(0, 0)]
    assert time_up(error, 1, 3_000 + LATE) == [(0, 0)]
    assert time_up(error, 1, 3_001 + LATE) == [(1, 0)]
    assert time_up(error, 4_575, 829) == [(0, 0)]  # its handler stood still, before or after it started the timer


def test_an_answer_that_another_partition_of_its_request_held_up_came_as_the_request_timed_out() -> None:
    assert time_up(NO_ERROR, 1, 3_005, timed_out=1) == [(1, 1)]
    assert time_up(NO_ERROR, 1, 2_000, timed_out=1) == [(0, 1)]


def test_an_answer_of_a_broker_that_stood_still_may_have_come_before_what_ends_its_time() -> None:
    assert time_up(NO_ERROR, 1, 6_000, still_us=2_500 * MS) == [(0, 0)]


def test_without_a_timeout_a_time_or_a_wait_nothing_is_said_of_what_timed_out() -> None:
    assert time_up(NO_ERROR, 1, 9_000, allowed_us=NONE) == []
    assert time_up(NO_ERROR, 1, 0) == []
    assert time_up(UNSET, 1, 9_000) == []


def test_the_timeout_of_a_produce_and_its_standstill_are_in_the_event_and_the_table() -> None:
    history = History()
    history.decide(0, 1, [1, 2])
    history.role(5, 1, "leader", 0, offset=0, hw=0, isr=[1, 2], partition_epoch=0)
    for k, ms in enumerate(range(100, 3_200, 100)):  # lines are due, so that a silence is a standstill
        history.fetch(ms, 1, 2, 0, hw=0, session_epoch=k)
    history.produce(3_210, 1, 0, error_code=REQUEST_TIMED_OUT, total_us=3_003_000, remote_us=3_001_000,
                    max_wait_ms=3_000, request_timed_out=True)  # fmt: skip
    events = history.events(settings={MIN_ISR_SETTING: 2})
    (ack,) = of_kind(events, "ack")
    assert (ack["max_wait_ms"], ack["request_timed_out"], ack["stood_still_us"]) == (3_000, True, None)
    tables = tables_of(events)
    assert tables["commit_latency"]["timeout_ms"].to_pylist() == [3_000.0]
    rows = {row["check"]: row for row in tables["conformance"].to_pylist()}
    assert (rows["produce_timeout"]["compared"], rows["produce_timeout"]["matched"]) == (1, 1)


def told(kind: str, ms: int, **fields: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "seq": 1,
        "ts": datetime.fromtimestamp(ms / 1000, UTC),
        "broker_id": 1,
        "cause": None,
        **fields,
    }


def test_a_failed_directory_and_a_deleted_topic_end_a_wait() -> None:
    failed, deleted = Outages(), Outages()
    failed.take({"observation": [told("observation", 990, cause=c.STORAGE_FAILED)], "log_load": [], "topic_change": []})
    deleted.take({"observation": [], "log_load": [], "topic_change": [told("topic_change", 990)]})
    assert waited(KAFKA_STORAGE_ERROR, failed) == (KAFKA_STORAGE_ERROR, KAFKA_STORAGE_ERROR)
    assert waited(UNKNOWN_TOPIC_OR_PARTITION, deleted)[0] == UNKNOWN_TOPIC_OR_PARTITION
    failed.take({"observation": [], "log_load": [told("log_load", 995)], "topic_change": []})
    assert (failed.is_offline(1, 994 * MS), failed.is_offline(1, 996 * MS)) == (True, False)
    assert deleted.deleted == 990 * MS < NEVER


def test_a_broker_whose_directory_failed_refuses_every_produce() -> None:
    outages = Outages()
    outages.take(
        {"observation": [told("observation", 990, cause=c.STORAGE_FAILED)], "log_load": [], "topic_change": []}
    )
    rows, events = blank(2, CheckRow, c.CHECK_PRODUCE_GUARD), blank(2, EventRecord)
    rows["broker"], rows["computed"], rows["seq"] = 0, 0, np.arange(2)
    events["seq"], events["ts"] = np.arange(2), [900 * MS, 1_000 * MS]
    assert outages.refusing(rows, events, [1])["computed"].tolist() == [NO_ERROR, KAFKA_STORAGE_ERROR]
    assert rows["computed"].tolist() == [0, 0]


# -- events and tables


def refused_history() -> History:
    """Broker 1 leads, its ISR shrinks to itself, produces are refused, and broker 2 leads on."""
    history = History()
    history.decide(0, 1, [1, 2])
    history.role(5, 1, "leader", 0, offset=0, hw=0, isr=[1, 2], partition_epoch=0)
    history.role(6, 2, "follower", 0, offset=0, hw=0)
    history.fetch(50, 1, 2, 0, hw=0)
    history.produce(100, 1, 0, total_us=30_000, remote_us=29_000)
    history.fetch(99, 1, 2, 1, hw=0)
    history.decide(200, None, [1])
    history.add("isr_update", 205, name="updated", broker_id=1, isr=[1], partition_epoch=1, source_file="server-1.log")
    for ms in (203, 300):  # of the first no stamp tells whether it came before the shrink
        history.produce(ms, 1, -1, error_code=NOT_ENOUGH_REPLICAS)
    history.produce(310, 1, -1, error_code=UNKNOWN_TOPIC_OR_PARTITION)
    history.produce(315, 1, -1, error_code=NOT_ENOUGH_REPLICAS, transactional_id="t")
    history.produce(320, 2, -1, error_code=NOT_LEADER_OR_FOLLOWER)
    history.decide(400, 2, [2], leader_recovery_state=1)
    history.role(405, 2, "leader", 1, offset=1, hw=1, isr=[2], partition_epoch=2)
    history.role(406, 1, "follower", 1, offset=1, hw=1)
    history.produce(450, 1, -1, error_code=NOT_LEADER_OR_FOLLOWER)
    return history


def test_a_refused_produce_is_an_event_where_its_broker_s_state_was_such() -> None:
    events = refused_history().events(settings={MIN_ISR_SETTING: 2})
    told_ = [(r["broker_id"], r["leader_epoch"], r["error_code"]) for r in of_kind(events, "produce_refused")]
    assert told_ == [(1, 0, 19), (1, 0, 19), (1, 0, 19), (2, 0, 6), (1, 1, 6)]
    kinds = [r["kind"] for r in of_kind(events, "produce_refused", "isr_request")]
    assert kinds.index("isr_request") < kinds.index("produce_refused")
    (first, *_) = of_kind(events, "produce_refused")
    assert (first["ts"], first["acks"], first["client_id"], first["base_offset"]) == (at(203), -1, "shop", None)


def test_conformance_compares_guard_and_outcome() -> None:
    events = refused_history().events(settings={MIN_ISR_SETTING: 2})
    rows = {row["check"]: row for row in tables_of(events)["conformance"].to_pylist()}
    assert (rows["produce_guard"]["compared"], rows["produce_guard"]["matched"]) == (1, 1)
    assert (rows["produce_refusal"]["compared"], rows["produce_refusal"]["matched"]) == (5, 5)
    assert (rows["delayed_produce"]["compared"], rows["delayed_produce"]["matched"]) == (1, 1)


def answered_unknown(*produces: tuple[int, int], started: int | None = None) -> tuple[list[str | None], int, int]:
    """Causes and checks of produces (milliseconds, error) to a broker that leads from 5 ms on; deleted at 4 s."""
    history = History()
    history.decide(0, 1, [1], topic_id="abc")
    history.role(5, 1, "leader", 0, offset=0, hw=0, isr=[1], partition_epoch=0)
    if started is not None:
        history.add("broker_lifecycle", started, name="start", broker_id=1, topic=None, partition=None)
    gone = {"topic_id": "abc", "name": "remove", "partition": None, "topic": "orders"}
    history.add("topic_change", 4000, metadata_offset=900, **gone)
    for ms, error in produces:
        history.produce(ms, 1, -1, error_code=error, topic_id="abc")
    events = history.events(topic_id="abc", settings={MIN_ISR_SETTING: 2})
    rows = {row["check"]: row for row in tables_of(events)["conformance"].to_pylist()}
    told_ = [row["cause"] for row in of_kind(events, "produce_refused")]
    return told_, rows["produce_refusal"]["compared"], rows["produce_refusal"]["matched"]


def test_a_topic_is_unknown_once_its_deletion_was_decided_and_known_while_its_broker_has_a_role() -> None:
    unknown = UNKNOWN_TOPIC_OR_PARTITION
    assert answered_unknown((4050, unknown), (7000, unknown)) == (["deleted", "deleted"], 2, 2)
    assert answered_unknown((3000, unknown), (4050, unknown)) == ([None, "deleted"], 2, 1)
    assert answered_unknown((4050, NOT_ENOUGH_REPLICAS)) == ([None], 1, 1)  # it may not have heard yet
    assert answered_unknown((7000, NOT_ENOUGH_REPLICAS)) == (["deleted"], 1, 0)


def test_what_a_broker_knows_that_just_took_up_its_role_or_just_started_is_not_compared() -> None:
    unknown = UNKNOWN_TOPIC_OR_PARTITION
    assert answered_unknown((1000, unknown), (4050, unknown)) == (["deleted"], 1, 1)
    assert answered_unknown((3000, unknown), (3600, NOT_ENOUGH_REPLICAS), started=2900) == ([None], 1, 1)


def test_a_leader_that_is_removed_answers_what_waits() -> None:
    history = History()
    history.decide(0, 1, [1, 2])
    history.role(5, 1, "leader", 0, offset=0, hw=0, isr=[1, 2], partition_epoch=0)
    history.produce(140, 1, 0, error_code=NOT_LEADER_OR_FOLLOWER, total_us=40_000, remote_us=39_000)
    history.decide(120, 2, [2], replicas=[2, 3])
    history.role(125, 2, "leader", 1, offset=0, hw=0, isr=[2], partition_epoch=1)
    events = history.events(settings={MIN_ISR_SETTING: 1})
    rows = {row["check"]: row for row in tables_of(events)["conformance"].to_pylist()}
    assert (rows["delayed_produce"]["compared"], rows["delayed_produce"]["matched"]) == (1, 1)
