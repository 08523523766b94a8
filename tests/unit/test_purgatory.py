"""What completes a fetch, a rule each; whose fetch commits a batch; and both on small histories, to their rows."""

from __future__ import annotations

from typing import Any, TypeVar

import pyarrow as pa
import pytest
from facts_builder import History, at, of_kind
from without_spark import tables_of

from replay.arrays.records import blank
from replay.engine import completions as w
from replay.engine.completions import Asked
from replay.engine.purgatory import Held
from replay.evidence.sessions import rebuild_sessions
from replay.protocol.profile import profile_of
from replay.protocol.state import NONE, UNSET
from schemas.model import EVIDENCE
from schemas.rounds import COMPLETIONS

R = TypeVar("R")
LATEST, BEFORE_KAFKA_9952 = profile_of((4, 1, 0)), profile_of((2, 5, 1))
MS = 1000
NOW, WAIT, FULL = 10_000 * MS, 40 * MS, 500 * MS


def one(of: type[R], values: dict[str, int]) -> R:
    """A record with these values."""
    found = blank(1, of)
    for name, value in values.items():
        found[name] = value
    return found[0]


def fetch(**fields: int) -> Asked:
    """A follower's fetch at 100, ready to wait 500 ms for a byte, that was answered at once with nothing."""
    asked = {
        "is_follower": 1, "offset": 100, "bytes": 0, "request_bytes": 0, "request_forced": 0, "max_wait_us": FULL,
        "min_bytes": 1, "local_us": 100, "wait_us": 0, "throttle_us": 0, "error_code": 0,
        "is_diverging": 0, "preferred_replica": NONE,
        "run_count": UNSET, "run_timeouts": UNSET, "is_left_out": 0, "remote_storage": 0, "leader_throttled": 1,
        "older_segment": 0, "later_segment": 0, "stable": UNSET,
        "ts": NOW, "read_from": UNSET, **fields,
    }  # fmt: skip
    asked["request_bytes"] = max(asked["request_bytes"], asked["bytes"])
    return one(Asked, asked)


def parked(**fields: int) -> Asked:
    """The same, answered after 40 ms."""
    return fetch(**{"wait_us": WAIT, **fields})


def held(**fields: int) -> Held:
    """A leader whose log and HW end at 100, and who has told so; the follower is in the ISR."""
    saw = {"seq": 1, "leo": 100, "hw": 100, "settled_leo": 100, "told_hw": 100, "raised": 0, "in_isr": 1, **fields}
    return one(Held, saw)


def why(asked: Asked, saw: Held | None = None, profile: Any = LATEST) -> str:
    """What completed it."""
    return COMPLETIONS[w.completion(profile, asked, held() if saw is None else saw)[0]]


def known(asked: Asked, saw: Held | None = None, profile: Any = LATEST) -> str:
    """How that is known."""
    return EVIDENCE[w.completion(profile, asked, held() if saw is None else saw)[1]]


def test_fetch_that_asks_for_no_wait_is_answered_at_once() -> None:
    assert why(fetch(max_wait_us=0)) == "no_wait"


def test_fetch_with_enough_bytes_is_answered_at_once() -> None:
    assert why(fetch(bytes=70), held(leo=101)) == "enough_bytes"
    assert why(fetch(bytes=70, min_bytes=100)) == "unknown"
    assert why(fetch(min_bytes=0)) == "enough_bytes"


def test_fetch_with_an_error_is_answered_at_once() -> None:
    assert (why(fetch(error_code=74)), known(fetch(error_code=74))) == ("error", "observed")


def test_fetch_that_diverges_is_answered_at_once_or_as_soon_as_it_does() -> None:
    assert why(fetch(is_diverging=1)) == "diverging_epoch"
    assert why(parked(is_diverging=1)) == "diverging_epoch"


def test_fetch_that_should_go_to_another_replica_is_answered_at_once() -> None:
    assert why(fetch(is_follower=0, preferred_replica=3)) == "preferred_replica"


def test_hw_not_told_yet_answers_a_follower_at_once_in_2_4_and_2_5_only() -> None:
    news = held(hw=100, told_hw=90)
    assert why(fetch(), news, BEFORE_KAFKA_9952) == "hw_not_told"
    assert why(parked(), news, BEFORE_KAFKA_9952) == "hw_moved"
    assert why(fetch(is_follower=0), news, BEFORE_KAFKA_9952) == "unknown"
    assert why(fetch(), news, profile_of((2, 6, 0))) == "unknown"
    assert why(fetch(), news, profile_of((2, 3, 1))) == "unknown"


def test_append_completes_a_parked_follower() -> None:
    assert why(parked(bytes=70), held(leo=101)) == "bytes"


def test_rise_of_the_hw_completes_a_parked_consumer() -> None:
    assert why(parked(is_follower=0, bytes=70), held(leo=101, hw=101, raised=NOW)) == "hw_moved"


def test_fetch_that_nothing_completes_waits_until_its_time_is_up() -> None:
    assert why(parked(wait_us=FULL)) == "timeout"
    assert why(parked(wait_us=FULL - 10 * MS, local_us=9 * MS)) == "timeout"  # the timer starts within the local time
    assert why(parked(wait_us=FULL - 10 * MS)) == "unknown"
    assert why(parked(wait_us=FULL, bytes=70, min_bytes=100)) == "timeout"


def test_segment_roll_completes_a_fetch_with_fewer_bytes_than_it_asked_for() -> None:
    rolled = parked(bytes=70, min_bytes=100)
    assert (why(rolled, held(leo=101)), known(rolled, held(leo=101))) == ("segment_roll", "bounded")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (6, "not_leader"),
        (74, "fenced_epoch"),
        (56, "log_dir_offline"),
        (3, "replica_removed"),
        (100, "replica_removed"),
        (1, "truncated_leader"),
        (76, "error"),
    ],
)
def test_error_of_a_parked_fetch_says_what_completed_it(error: int, reason: str) -> None:
    assert (why(parked(error_code=error)), known(parked(error_code=error))) == (reason, "observed")


def test_fetch_beyond_the_leaders_end_is_completed_even_as_it_is_parked() -> None:
    assert why(parked(offset=100), held(leo=90, hw=90)) == "truncated_leader"
    assert why(fetch(is_follower=0, offset=100), held(leo=101, hw=99)) == "truncated_leader"
    assert why(fetch(is_follower=1, offset=100), held(leo=101, hw=99)) == "unknown"


def test_fetch_beyond_the_end_may_wait_up_to_3_7_since_no_source_states_the_segment_of_the_end() -> None:
    before, beyond = profile_of((3, 7, 1)), held(leo=90, hw=90)
    assert (known(parked(), beyond), known(parked(), beyond, before)) == ("derived", "bounded")
    waited_in_full = parked(wait_us=FULL)
    assert w.expected_wait(LATEST, waited_in_full, beyond) == w.EARLY
    assert w.expected_wait(before, waited_in_full, beyond) == w.IN_FULL


def test_records_of_a_remote_tier_make_a_consumer_wait_for_what_it_may_read() -> None:
    readable = held(leo=300, hw=300, raised=NOW - 10_000 * MS)
    tiered = parked(is_follower=0, bytes=70, remote_storage=1)
    assert (why(tiered, readable), known(tiered, readable)) == ("remote_storage", "bounded")
    assert why(tiered, held(leo=300, hw=300, raised=NOW - MS)) == "hw_moved"
    assert why(parked(is_follower=0, bytes=70), readable) == "hw_moved"


def test_a_read_committed_consumer_waits_for_the_lso_though_the_hw_is_beyond_its_offset() -> None:
    readable = held(leo=300, hw=300, raised=NOW - 10_000 * MS)
    reader = {"is_follower": 0}
    assert expected(parked(wait_us=FULL, **reader), readable) == w.AT_ONCE  # of what is read uncommitted
    assert expected(parked(wait_us=FULL, stable=100, **reader), readable) == w.IN_FULL  # the LSO never came
    assert expected(parked(stable=120, bytes=70, **reader), readable) == w.EARLY  # it came while the fetch waited
    assert expected(parked(wait_us=FULL, stable=120, **reader), readable) == w.AT_ONCE  # it would have ended the wait


def test_a_read_from_the_remote_tier_ends_before_time_is_up() -> None:
    readable = held(leo=300, hw=300, raised=NOW - 10_000 * MS)
    tier = {"is_follower": 0, "bytes": 70, "remote_storage": 1}
    assert expected(parked(**tier), readable) == w.EARLY
    assert expected(parked(wait_us=FULL, **tier), readable) == w.EARLY
    assert expected(fetch(**tier), readable) == w.AT_ONCE  # from the local log
    assert expected(parked(is_follower=0, bytes=70), readable) == w.AT_ONCE
    there = held(leo=300, settled_leo=300)
    assert expected(parked(bytes=70, remote_storage=1), there) == w.AT_ONCE  # no follower reads from the tier


def test_client_quota_answers_with_a_throttle_time() -> None:
    throttled = fetch(is_follower=0, throttle_us=300 * MS)
    assert (why(throttled), known(throttled)) == ("throttled", "observed")


def test_leaders_quota_keeps_records_from_a_follower_outside_the_isr() -> None:
    behind = held(leo=300, settled_leo=290, in_isr=0)
    assert (why(parked(wait_us=FULL), behind), known(parked(wait_us=FULL), behind)) == ("throttled", "bounded")
    assert why(fetch(request_bytes=70), behind) == "throttled"
    assert why(parked(wait_us=FULL, bytes=70), behind) == "throttled"  # the quota was free again once time was up
    assert why(fetch(bytes=70), behind) == "enough_bytes"
    assert why(parked(wait_us=FULL), held(leo=300, settled_leo=290, in_isr=1)) == "timeout"
    assert why(parked(wait_us=FULL, leader_throttled=0), behind) == "timeout"
    assert why(parked(wait_us=FULL), held(leo=101, settled_leo=100, in_isr=0)) == "timeout"  # it came while it waited


def test_followers_quota_leaves_the_partition_out_of_the_request() -> None:
    assert why(parked(is_left_out=1, run_count=5)) == "throttled"
    assert known(parked(is_left_out=1, run_count=5)) == "bounded"


def test_follower_with_nothing_to_ask_for_is_answered_at_once() -> None:
    assert why(fetch(is_left_out=1, run_count=1)) == "no_partitions"


def test_another_partition_of_the_request_completes_it() -> None:
    assert why(fetch(request_bytes=70)) == "other_partition"
    assert why(parked(request_bytes=70)) == "other_partition"
    assert why(parked(request_forced=1)) == "other_partition"
    assert why(fetch(request_forced=1)) == "other_partition"


def test_run_of_unlisted_fetches_timed_out_if_each_of_them_did() -> None:
    assert why(parked(run_count=4, run_timeouts=4)) == "timeout"
    assert why(parked(run_count=4, run_timeouts=3)) == "other_partition"


def test_what_nothing_explains_is_unknown() -> None:
    assert (why(parked()), known(parked())) == ("unknown", "unknown")
    assert (why(fetch()), known(fetch())) == ("unknown", "unknown")


def expected(asked: Asked, saw: Held) -> int:
    return w.expected_wait(LATEST, asked, saw)


def test_state_says_how_long_a_fetch_may_wait_whatever_it_did() -> None:
    here = held(leo=300, settled_leo=290)
    assert expected(parked(bytes=70), here) == w.AT_ONCE
    assert expected(fetch(bytes=70), held(leo=100)) == w.EARLY
    assert expected(parked(), held()) == w.IN_FULL
    assert expected(fetch(), held()) == w.IN_FULL
    assert expected(parked(wait_us=FULL, request_forced=1), held()) == w.EARLY
    assert expected(parked(error_code=6), held()) == UNSET


# -- histories


def led() -> History:
    """Broker 1 leads epoch 0, broker 2 follows, both in the ISR; empty logs."""
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    return history


def waited(history: History, asked: float, answered: float, offset: int, **fields: Any) -> None:
    """A fetch of broker 2 from broker 1 that was parked."""
    us = round((answered - asked) * 1000)
    history.fetch(
        answered, 1, 2, offset, **{"total_us": us, "remote_us": us, "max_wait_ms": 500, "min_bytes": 1, **fields}
    )


def tables(history: History, size: int = 1000) -> dict[str, list[dict[str, Any]]]:
    """The replay's rows, fetches completed from their sessions; events are fed `size` at a time."""
    fetches = pa.concat_tables(rebuild_sessions(history.table("fetch"))).to_pylist()
    others = [row for row in history.rows if row["kind"] != "fetch"]
    events = history.events([*others, *fetches])
    return {name: rows.to_pylist() for name, rows in tables_of(events, size).items()}


def produced(history: History, appended: float, answered: float, base: int, **fields: Any) -> None:
    """An acks=all produce that was appended and answered then."""
    us = round((answered - appended) * 1000)
    phases = {"total_us": us + 300, "queue_us": 100, "remote_us": us, "response_queue_us": 150, "send_us": 50}
    history.produce(answered + 0.2, 1, base, **{**phases, **fields})


def committed() -> History:
    """One batch: appended at 100, fetched by broker 2, committed by its next fetch at 150, answered."""
    history = led()
    waited(history, 40, 101, 0, bytes=100, hw=0)
    produced(history, 100, 150, 0)
    waited(history, 150, 649, 1, hw=1)
    return history


def test_each_fetch_has_a_row_with_its_wait() -> None:
    first, second = tables(committed())["fetch_rounds"]
    assert (first["completed_by"], first["bytes"], first["wait_ms"], first["leader_leo"]) == ("bytes", 100, 61.0, 1)
    assert (second["completed_by"], second["response_hw"], second["delayed"]) == ("timeout", 1, True)


def test_batch_is_committed_by_the_fetch_that_was_waited_for() -> None:
    (row,) = tables(committed())["commit_latency"]
    assert (row["committed_by"], row["last_replica_id"], row["isr"], row["isr_size"]) == ("fetch", 2, [1, 2], 2)
    assert (row["append_ts"], row["commit_ts"]) == (at(100), at(150))
    assert (row["base_offset"], row["last_offset"], row["commit_ms"], row["evidence"]) == (0, 0, 50.0, "derived")
    assert (row["queue_ms"], row["remote_ms"], row["response_queue_ms"], row["send_ms"]) == (0.1, 50.0, 0.15, 0.05)
    assert row["total_ms"] == pytest.approx(50.3)


def test_rows_do_not_depend_on_how_many_events_come_at_a_time() -> None:
    whole = tables(committed())
    for size in (1, 2, 3):
        assert tables(committed(), size) == whole


def test_batch_of_a_lone_leader_is_committed_by_its_append() -> None:
    history = History()
    history.decide(0, 1, [1], replicas=[1])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    produced(history, 100, 100, 0)
    (row,) = tables(history)["commit_latency"]
    assert (row["committed_by"], row["last_replica_id"], row["commit_ms"], row["isr_size"]) == ("append", None, 0, 1)


def test_batch_that_waited_for_a_dead_replica_is_committed_by_the_shrink() -> None:
    history = led()
    produced(history, 100, 30_000, 0, error_code=7)
    history.decide(31_000, None, [1])
    (row,) = tables(history)["commit_latency"]
    assert (row["committed_by"], row["isr"], row["error_code"]) == ("isr_change", [1], 7)
    assert row["ack_ts"] < row["commit_ts"]


def test_batch_never_committed_while_its_leader_led_has_no_commit() -> None:
    history = led()
    produced(history, 100, 30_000, 0, error_code=7)
    history.decide(31_000, 2, [2], leader_epoch=1, partition_epoch=1)
    history.role(31_010, 2, "leader", 1, offset=0, hw=0)
    history.role(31_020, 1, "follower", 1, offset=1, hw=0)
    (row,) = tables(history)["commit_latency"]
    assert (row["commit_ts"], row["committed_by"], row["isr"], row["error_code"]) == (None, None, None, 7)


def test_acks_one_and_retries_have_no_commit_latency() -> None:
    history = committed()
    history.produce(200, 1, 1, acks=1)
    history.produce(700, 1, 0, total_us=1000)
    assert [row["base_offset"] for row in tables(history)["commit_latency"]] == [0]


def test_consumer_that_may_read_only_committed_records_is_told_the_last_stable_offset() -> None:
    """An open transaction from 0 on: the HW passes it, the LSO does not, and the consumer waits for the marker at 1."""
    history = committed()
    consumer = {"max_wait_ms": 500, "min_bytes": 1, "isolation_level": 1}
    wait = {"total_us": 500_000, "remote_us": 500_000}
    history.fetch(700, 1, -1, 0, hw=1, last_stable_offset=0, **consumer, **wait)
    history.produce(705, 1, 1, acks=1)
    waited(history, 651, 706, 1, bytes=100, hw=1)
    waited(history, 720, 1200, 2, hw=2)
    history.fetch(721, 1, -1, 0, hw=2, last_stable_offset=2, bytes=170, total_us=20_000, remote_us=20_000, **consumer)
    first, second = (row for row in tables(history)["fetch_rounds"] if row["replica_id"] == -1)
    assert (first["isolation"], first["completed_by"]) == ("read_committed", "timeout")
    assert (first["response_hw"], first["last_stable_offset"]) == (1, 0)
    assert (second["completed_by"], second["response_hw"], second["last_stable_offset"]) == ("hw_moved", 2, 2)


def session(history: History, ms: float, epoch: int, wait: float, **fields: Any) -> dict[str, Any]:
    """A request of broker 2's session with broker 1, answered at `ms` after `wait`."""
    us = round(wait * 1000)
    named = {"session_epoch": epoch, "session_id": 7 if epoch else 0, "response_session_id": 0 if epoch else 7}
    timing = {"total_us": us, "remote_us": us, "max_wait_ms": 500, "min_bytes": 1}
    return history.fetch(ms, 1, 2, fields.pop("offset", 0), **{**named, **timing, **fields})


def test_unlisted_fetches_of_a_session_are_one_round() -> None:
    history = led()
    session(history, 540, 0, 500, hw=0)
    for epoch in (1, 2, 3):
        session(history, 540 + 501 * epoch, epoch, 500, topic=None, partition=None, in_request=False, hw=None)
    first, run = tables(history)["fetch_rounds"]
    assert (first["run_count"], first["completed_by"]) == (None, "timeout")
    assert (run["run_count"], run["run_timeouts"], run["completed_by"], run["wait_ms"]) == (3, 3, "timeout", 500.0)


def left_out(back: int, *, listed: str = "0:2", **fields: Any) -> list[dict[str, Any]]:
    """Broker 2 leaves the partition out of two requests and comes back to it at offset `back`."""
    history = led()
    history.add("config_change", 12, name="follower.replication.throttled.replicas", value=listed, metadata_offset=12)
    history.produce(20, 1, 0, acks=1)
    session(history, 40, 0, 0, bytes=100, hw=0, offset=0, **fields)
    session(history, 540, 1, 480, forgotten=True, in_request=False, in_response=False, offset=None)
    session(history, 1040, 2, 490, topic=None, partition=None, in_request=False, offset=None)
    session(history, 1540, 3, 490, hw=1, offset=back)
    return tables(history)["fetch_rounds"]


def test_partition_that_the_follower_left_out_and_came_back_to_was_throttled() -> None:
    _, out, _ = left_out(1)
    assert (out["completed_by"], out["quota"], out["run_count"]) == ("throttled", "follower", 2)
    assert (out["fetch_offset"], out["bytes"], out["evidence"]) == (1, None, "bounded")


def test_partition_that_is_not_listed_for_a_quota_was_not_throttled() -> None:
    assert [row["quota"] for row in left_out(1, listed="1:2,2:2")] == [None, None]


def test_partition_that_came_back_after_an_error_was_not_throttled() -> None:
    assert [row["quota"] for row in left_out(0, error_code=75)] == [None, None]


def test_fetch_of_two_partitions_is_completed_by_either() -> None:
    history = led()
    elsewhere = {"partition": 1, "bytes": 70}
    row = session(history, 100, 0, 50, hw=0)
    history.rows.append({**row, "fact_id": "elsewhere", **elsewhere})
    (found,) = (one for one in tables_of_partition_0(history) if one["replica_id"] == 2)
    assert (found["completed_by"], found["request_bytes"], found["bytes"]) == ("other_partition", 70, 0)


def tables_of_partition_0(history: History) -> list[dict[str, Any]]:
    """The rounds of the first partition of requests that name several."""
    fetches = [r for r in pa.concat_tables(rebuild_sessions(history.table("fetch"))).to_pylist() if r["partition"] == 0]
    events = history.events([*(r for r in history.rows if r["kind"] != "fetch"), *fetches])
    return list(tables_of(events)["fetch_rounds"].to_pylist())


def test_conformance_tells_of_a_fetch_that_waited_though_records_were_there() -> None:
    history = led()
    history.produce(100, 1, 0, acks=1)
    waited(history, 300, 340, 0, bytes=100, hw=0, request_bytes=100)
    waited(history, 341, 841, 1, hw=1, request_bytes=0)
    (check,) = (row for row in tables(history)["conformance"] if row["check"] == "fetch_completion")
    assert (check["compared"], check["matched"]) == (2, 1)


def test_conformance_tells_of_an_answer_without_a_commit() -> None:
    history = led()
    produced(history, 100, 150, 0)
    (check,) = (row for row in tables(history)["conformance"] if row["check"] == "commit_before_ack")
    assert (check["compared"], check["matched"]) == (1, 0)


def test_events_carry_what_a_round_is_decided_from() -> None:
    events = of_kind(committed().events(), "fetch_read", "ack")
    assert {row["kind"]: row["remote_us"] for row in events} == {"fetch_read": 499_000, "ack": 50_000}


def test_table_of_completions_has_the_kernels_order() -> None:
    for code, name in enumerate(COMPLETIONS):
        constant = "NOT_KNOWN" if name == "unknown" else name.upper()
        assert getattr(w, constant) == code
