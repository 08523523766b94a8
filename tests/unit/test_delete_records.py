"""DeleteRecords: what a leader refuses, how long a request waits, and how its answer is compared."""

from __future__ import annotations

from typing import Any

import pytest
from facts_builder import History, at, of_kind
from histories_of_losses import COMMITTED, replicated
from small_partition import LATEST, A, B, C, event, folded, led
from small_partition import at as placed
from test_parse_request_log import line, parsed
from test_parse_request_text import line as text_line
from test_parse_request_text import parsed as text_parsed
from without_spark import tables_of

from pipelines.lookup.event_words import event_words
from replay.arrays.records import blank
from replay.engine import codes as c
from replay.engine.emit import CheckRow, StartRow
from replay.order.deletions import CLEANUP_SETTING
from replay.protocol.deletion import (
    AT_HIGH_WATERMARK,
    COMPACTS_ONLY,
    DELETES,
    INVALID_TOPIC,
    NO_POLICY,
    OFFSET_OUT_OF_RANGE,
    POLICY_VIOLATION,
    deletion_guard,
    deletion_target,
)
from replay.protocol.produce import (
    KAFKA_STORAGE_ERROR,
    NO_ERROR,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from replay.protocol.profile import profile_of
from replay.protocol.state import BOUNDED, UNSET, State
from replay.tables.delete_requests import DeleteRequests

# -- the guard


def committed() -> State:
    """A leads: LEO 9, HW 7; both followers have fetched at 9, and begin where A does."""
    s = placed(led(), leo=9, remote={B: 9, C: 9}, hw=7)
    s.remote_start[A, B] = s.remote_start[A, C] = 0
    return s


@pytest.mark.parametrize(
    ("requested", "policy", "error"),
    [
        (7, DELETES, NO_ERROR),
        (8, DELETES, OFFSET_OUT_OF_RANGE),
        (AT_HIGH_WATERMARK, DELETES, NO_ERROR),
        (-2, DELETES, OFFSET_OUT_OF_RANGE),
        (3, COMPACTS_ONLY, POLICY_VIOLATION),
        (8, COMPACTS_ONLY, POLICY_VIOLATION),
        (3, UNSET, UNSET),
    ],
)
def test_a_leader_deletes_up_to_its_hw_where_the_policy_lets_it(requested: int, policy: int, error: int) -> None:
    assert deletion_guard(committed(), LATEST, A, requested, policy) == error


def test_a_request_for_all_that_is_committed_ends_at_the_hw() -> None:
    assert deletion_target(committed(), A, AT_HIGH_WATERMARK) == 7
    assert deletion_target(committed(), A, 3) == 3


def test_a_broker_that_does_not_lead_deletes_nothing() -> None:
    assert deletion_guard(committed(), LATEST, B, 3, DELETES) == NOT_LEADER_OR_FOLLOWER


def test_a_topic_without_any_policy_takes_requests_from_4_2_on() -> None:
    assert deletion_guard(committed(), profile_of((4, 2, 0)), A, 3, NO_POLICY) == NO_ERROR
    assert deletion_guard(committed(), LATEST, A, 3, NO_POLICY) == POLICY_VIOLATION


def test_where_the_hw_is_only_known_within_bounds_nothing_is_out_of_range() -> None:
    s = committed()
    s.hw_evidence[A] = BOUNDED
    assert deletion_guard(s, LATEST, A, 8, DELETES) == UNSET


# -- what it moves


def test_the_log_starts_where_the_deleted_records_end_and_a_refused_request_moves_nothing() -> None:
    for error, start in ((NO_ERROR, 3), (REQUEST_TIMED_OUT, 3), (OFFSET_OUT_OF_RANGE, 0)):
        s = committed()
        folded(s, event(c.DELETE_RECORDS, broker=A, requested_offset=3, cause=DELETES, error_code=error))
        assert s.log_start[A] == start


def test_the_low_watermark_rises_as_a_replica_is_fenced_or_removed() -> None:
    for change in (
        {"kind": c.BROKER_CHANGE, "broker": C, "fenced": 1},
        {"kind": c.PARTITION_CHANGE, "replicas": 0b011},
    ):
        s = committed()
        s.remote_start[A, B] = 3
        asked = event(c.DELETE_RECORDS, broker=A, requested_offset=3, cause=DELETES, seq=1)
        rows = folded(s, asked, event(**change, seq=2)).start
        assert list(zip(rows["seq"].tolist(), rows["low"].tolist(), strict=True)) == [(1, 0), (2, 3)]


# -- lines


REQUEST = {"topics": [{"name": "orders", "partitions": [{"partitionIndex": 0, "offset": 200}]}], "timeoutMs": 60000}
RESPONSE = {
    "throttleTimeMs": 0,
    "topics": [{"name": "orders", "partitions": [{"partitionIndex": 0, "lowWatermark": 200, "errorCode": 0}]}],
}
OLD = (
    "{topics=[{topic=orders,partitions=[{partition=0,offset=200}]}],timeout=60000}",
    "{throttle_time_ms=0,topics=[{topic=orders,partitions=[{partition=0,low_watermark=200,error_code=0}]}]}",
)
NONE = "_tagged_fields={}"
TAGGED = (
    f"{{topics=[{{name=orders,partitions=[{{partition_index=0,offset=200,{NONE}}}],{NONE}}}],timeout_ms=60000,{NONE}}}",
    OLD[1].replace("topic=", "name=").replace("{partition=", "{partition_index="),
)


def test_a_request_has_a_row_for_each_partition_in_every_form() -> None:
    told = [
        parsed(line(21, 2, REQUEST, RESPONSE)),
        *(text_parsed(text_line(*bodies, api="DELETE_RECORDS", version=1)) for bodies in (OLD, TAGGED)),
    ]
    names = ("kind", "topic", "partition", "offset", "max_wait_ms", "error_code", "low_watermark")
    for facts, rejected in told:
        assert rejected == []
        assert [tuple(fact[name] for name in names) for fact in facts] == [
            ("delete_records", "orders", 0, 200, 60000, 0, 200)
        ]


def test_a_request_without_partitions_still_counts_among_its_clients_requests() -> None:
    facts, _ = parsed(line(21, 2, {"topics": [], "timeoutMs": 1}, {"throttleTimeMs": 0, "topics": []}))
    assert [fact["kind"] for fact in facts] == ["api"]


# -- events, and how a request must have ended


def asked(history: History, ms: float, offset: int, low: int, **fields: Any) -> History:
    """A request that is taken up `waited` milliseconds before `ms`, when it is answered."""
    waited = round(fields.get("waited", 0) * 1000)
    waits = {"total_us": waited, "remote_us": waited, "max_wait_ms": 200}
    about = {"broker_id": fields.get("broker", 1), "error_code": fields.get("error", 0), "client_id": "admin"}
    told = {**about, "offset": offset, "low_watermark": low}
    history.request("delete_records", ms, "admin-1", **told, **waits)
    return history


def followed(history: History, *starts: tuple[float, int]) -> History:
    """Fetches of broker 2 that tell where its log starts, and take over the leader's."""
    for ms, start in starts:
        told = {"follower_log_start_offset": start, "log_start_offset": int(ms > 400)}
        history.fetch(ms, 1, 2, COMMITTED, hw=COMMITTED, **told)
    return history


def deleted(**fields: Any) -> History:
    """Of two committed records the first goes at 400 ms; broker 2 tells at 500 ms that its log starts behind it."""
    history = followed(replicated(), (350, 0))
    return followed(asked(history, **{"ms": 500, "offset": 1, "low": 1, "waited": 100, **fields}), (450, 0), (500, 1))


def compared(history: History, **settings: Any) -> dict[str, tuple[int, int]]:
    rows = tables_of(history.events(**settings))["conformance"].to_pylist()
    told = ("delete_records", "low_watermark")
    return {row["check"]: (row["compared"], row["matched"]) for row in rows if row["check"] in told}


def test_a_request_is_an_event_where_its_leader_took_it_up() -> None:
    (row,) = of_kind(deleted().events(), "delete_records")
    assert (row["ts"], row["broker_id"], row["leader_epoch"], row["remote_us"]) == (at(400), 1, 0, 100_000)
    assert (row["requested_offset"], row["log_start_offset"], row["low_watermark"], row["cause"]) == (1, 1, 1, "delete")


def test_the_log_start_moves_with_the_request_and_the_low_watermark_with_the_followers_fetch() -> None:
    rows = tables_of(deleted().events())["log_start_timeline"].to_pylist()
    assert [(r["broker_id"], r["log_start_offset"], r["low_watermark"], r["cause"]) for r in rows] == [
        (1, 1, 0, "client_delete_records_request"),
        (2, 1, None, "leader_answer"),
        (1, 1, 1, "follower_fetch"),
    ]


def test_a_request_waits_until_every_live_replica_has_the_log_start() -> None:
    assert compared(deleted()) == {"delete_records": (1, 1), "low_watermark": (1, 1)}


def test_a_request_that_nobody_followed_times_out_with_the_low_watermark_of_its_beginning() -> None:
    late = deleted(ms=440, waited=50, error=REQUEST_TIMED_OUT, low=0)
    assert compared(late) == {"delete_records": (1, 1), "low_watermark": (1, 1)}


def test_a_leader_that_loses_its_role_leaves_what_waits_to_its_time() -> None:
    history = deleted(ms=1400, waited=1000, error=REQUEST_TIMED_OUT, low=0)
    history.rows = [row for row in history.rows if row["kind"] != "fetch" or row["ts"] < at(440)]
    history.decide(600, 2, [1, 2])
    history.role(610, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED)
    history.role(611, 1, "follower", 1, offset=COMMITTED, hw=COMMITTED)
    asks = {"current_leader_epoch": 1, "last_fetched_epoch": 0, "follower_log_start_offset": 1}
    history.fetch(700, 2, 1, COMMITTED, hw=COMMITTED, **asks)
    assert compared(history) == {"delete_records": (1, 1), "low_watermark": (1, 1)}


def test_an_answer_that_does_not_follow_is_told() -> None:
    early = deleted(ms=410, waited=10)  # nobody had followed by then
    assert compared(early) == {"delete_records": (1, 0)}
    (row,) = [r for r in tables_of(early.events())["conformance"].to_pylist() if r["check"] == "delete_records"]
    assert row["note"] == "broker 1: computed REQUEST_TIMED_OUT, stated no error"
    wrong = deleted(low=0)
    assert compared(wrong) == {"delete_records": (1, 1), "low_watermark": (1, 0)}


def test_all_that_is_committed_is_deleted_up_to_where_the_leaders_line_says() -> None:
    history = followed(replicated(), (350, 0))
    history.add(
        "log_start_change", 400, broker_id=1, name="client delete records request", log_start_offset=2,
        source_file="server-1.log",
    )  # fmt: skip
    asked(history, 600, AT_HIGH_WATERMARK, 0, waited=200, error=REQUEST_TIMED_OUT)
    (row,) = of_kind(history.events(), "delete_records")
    assert row["log_start_offset"] == 2
    assert compared(history) == {"delete_records": (1, 1), "low_watermark": (1, 1)}


@pytest.mark.parametrize("low", [1, 2])
def test_an_answer_that_itself_tells_where_the_log_starts_is_not_compared_with_it(low: int) -> None:
    """No line of the leader's tells how far a request for all that is committed went."""
    history = deleted(offset=AT_HIGH_WATERMARK, low=low)
    (row,) = of_kind(history.events(), "delete_records")
    assert (row["log_start_offset"], row["evidence"]) == (low, "derived")
    assert "low_watermark" not in compared(history)
    assert compared(history).keys() == {"delete_records"}


def test_refusals_are_compared_with_what_the_leader_was() -> None:
    history = followed(replicated(), (350, 0))
    for ms, offset, error in ((400, 3, OFFSET_OUT_OF_RANGE), (410, -2, OFFSET_OUT_OF_RANGE)):
        asked(history, ms, offset, -1, error=error)
    asked(history, 420, 1, -1, error=NOT_LEADER_OR_FOLLOWER, broker=2)
    asked(history, 430, 1, -1, error=UNKNOWN_TOPIC_OR_PARTITION)  # of the metadata cache: no event
    assert compared(history) == {"delete_records": (3, 3)}
    asked(history, 440, 1, -1, error=OFFSET_OUT_OF_RANGE)
    assert compared(history) == {"delete_records": (4, 3)}


def test_what_the_topics_policy_was_decides_at_each_time() -> None:
    history = followed(replicated(), (350, 0))
    for ms, value in ((1, "compact"), (500, "delete,compact"), (700, "compact")):
        history.add("config_change", ms, name=CLEANUP_SETTING, value=value, source_file="server-1.log")
    for ms, error in ((400, POLICY_VIOLATION), (800, POLICY_VIOLATION)):
        asked(history, ms, 0, -1, error=error)
    asked(history, 600, 0, 0)
    assert [row["cause"] for row in of_kind(history.events(), "delete_records")] == [
        "compact",
        "compact,delete",
        "compact",
    ]
    assert compared(history)["delete_records"] == (3, 3)


def test_a_policy_that_no_source_states_is_unknown_where_a_leader_refuses_for_it() -> None:
    history = asked(followed(replicated(), (350, 0)), 400, 1, -1, error=POLICY_VIOLATION)
    (row,) = of_kind(history.events(), "delete_records")
    assert row["cause"] is None
    assert compared(history) == {}


def test_records_of_kafkas_own_topics_and_of_failed_directories_stay() -> None:
    own = DeleteRequests(internal=True)
    refused, starts = blank(1, CheckRow, c.CHECK_DELETION), blank(0, StartRow)
    refused["computed"], refused["stated"], refused["seq"] = NO_ERROR, INVALID_TOPIC, 1
    assert len(own.taken([{"seq": 1, "broker_id": 1}], starts, refused, [1])) == 0
    assert [(row["compared"], row["matched"]) for row in own.checks()] == [(1, 1)]
    failed = followed(replicated(), (350, 0))
    failed.add("storage_failure", 380, name="directory_failed", broker_id=1, source_file="server-1.log")
    asked(failed, 400, 1, -1, error=KAFKA_STORAGE_ERROR)
    assert compared(failed) == {"delete_records": (1, 1)}


def test_deleted_records_are_no_loss_though_no_line_of_the_leader_tells_of_them() -> None:
    history = deleted()
    history.decide(1000, 2, [2])
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED)
    history.produce(1020, 2, COMMITTED, acks=1)
    assert tables_of(history.events())["data_loss_incidents"].to_pylist() == []


def test_a_request_is_told_in_words() -> None:
    (row,) = of_kind(deleted().events(), "delete_records")
    told = {name: row[name] for name in ("kind", "client_id", "broker_id", "requested_offset", "low_watermark")}
    assert event_words({**told, "error_code": 0}) == (
        "client admin asks broker 1 to delete records before 1; the answer: all live replicas start at 1 or later"
    )
    assert event_words({**told, "error_code": REQUEST_TIMED_OUT, "requested_offset": -1}) == (
        "client admin asks broker 1 to delete all that is committed: REQUEST_TIMED_OUT"
    )
