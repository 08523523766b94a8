"""What a follower's own lines say of its fetcher: requests that failed, dead leaders, threads that ended."""

from __future__ import annotations

from typing import Any

import pytest
from facts_builder import History, of_kind
from without_spark import tables_of

from replay.order.fetcher_lines import fetcher_named

LATER = {"source_file": "server-2.log", "broker_id": 2}
WHOLE = {"topic": None, "partition": None}


def followed(version: str = "4.1.0", *said: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the fetch states of broker 2, which follows broker 1 and says this of its fetcher in second 1."""
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    history.fetch(500, 1, 2, 0, hw=0)
    for number, fields in enumerate(said):
        history.add(**{"kind": "fetcher", "ms": 1_000 + number, "leader_id": 1, **LATER, **fields})
    history.fetch(9_000, 1, 2, 0, hw=0)
    return list(tables_of(history.events(kafka_version=version))["follower_states"].to_pylist())


def told(version: str, *said: dict[str, Any]) -> list[tuple[str | None, str, str]]:
    rows = [row for row in followed(version, *said) if row["broker_id"] == 2]
    return [(row["state"], row["cause"], row["evidence"]) for row in rows]


FAILED = {"name": "request_failed", "fetch_offset": 0}
BACKOFF = {"kind": "config_change", "ms": 1, **WHOLE, "name": "replica.fetch.backoff.ms", "value": "400"}


@pytest.mark.parametrize(("version", "wait_ms"), [("3.1.0", 400), ("3.0.2", 800)])
def test_after_a_failed_request_a_backoff_passes_and_up_to_3_0_two(version: str, wait_ms: int) -> None:
    states = followed(version, BACKOFF, FAILED)
    assert [(row["state"], row["cause"], row["wait_ms"]) for row in states[-2:]] == [
        ("delayed", "request_failed", wait_ms),
        ("fetching", "fetched", None),
    ]


def test_a_backoff_that_no_source_states_is_a_second() -> None:
    assert followed("4.1.0", FAILED)[-2]["wait_ms"] == 1_000


@pytest.mark.parametrize(("gap", "matched"), [(1_000, 1), (900, 0)])
def test_a_thread_does_not_ask_again_before_its_backoff_is_over(gap: int, matched: int) -> None:
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    for ms in (1_000, 1_000 + gap):
        history.add("fetcher", ms, leader_id=1, **LATER, **FAILED)
    checks = {row["check"]: row for row in tables_of(history.events())["conformance"].to_pylist()}
    assert (checks["fetch_backoff"]["compared"], checks["fetch_backoff"]["matched"]) == (1, matched)


NOT_STARTED = {"name": "not_started", "leader_id": 1}


@pytest.mark.parametrize(
    ("version", "line", "state"),
    [
        ("3.3.0", NOT_STARTED, None),
        ("3.2.3", NOT_STARTED, "fetching"),
        ("3.9.0", {**NOT_STARTED, "correlation_id": 7}, "fetching"),
    ],
    ids=["KRaft from 3.3 on", "KRaft up to 3.2", "ZooKeeper"],
)
def test_a_leader_that_is_not_alive_is_not_fetched_from(version: str, line: dict[str, Any], state: str | None) -> None:
    assert (state, "leader_not_alive", "observed") in told(version, line)


@pytest.mark.parametrize(
    ("version", "told_by", "states"),
    [
        ("4.1.0", {}, [(None, "leader_not_alive")]),
        ("3.2.3", {}, [("fetching", "leader_not_alive")]),
        ("3.9.0", {"connection": "c", "correlation_id": 5}, [("fetching", "leader_not_alive")]),
    ],
    ids=["KRaft from 3.3 on", "KRaft up to 3.2", "ZooKeeper"],
)
def test_without_a_leader_a_follower_has_no_fetcher_or_keeps_the_one_it_had(
    version: str, told_by: dict[str, Any], states: list[tuple[str | None, str]]
) -> None:
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    history.decide(100, -1, leader_epoch=1, partition_epoch=1)
    history.role(110, 2, "follower", 1, offset=0, hw=0, **told_by)
    found = tables_of(history.events(kafka_version=version))["follower_states"].to_pylist()
    assert [(row["state"], row["cause"]) for row in found][1:] == states


@pytest.mark.parametrize(
    ("before", "named", "epochs"),
    [
        (1, -1, [1]),  # as brokers of 2.4 write it
        (1, 1, [0, 1]),  # of a request before, which named a leader
        (2_500, -1, [0, 1]),  # of a request long before
    ],
)
def test_role_without_a_leader_and_the_line_about_the_same_request_are_told_once(
    before: float, named: int, epochs: list[int]
) -> None:
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    line = {"name": "not_started", "leader_id": named, "correlation_id": 5}
    history.add("fetcher", 5_000 - before, **LATER, **line)
    history.decide(4_990, -1, leader_epoch=1, partition_epoch=1)
    history.role(5_000, 2, "follower", 1, offset=0, hw=0, connection="c", correlation_id=5)
    found = tables_of(history.events(kafka_version="3.9.0"))["follower_states"].to_pylist()
    assert [row["leader_epoch"] for row in found if row["cause"] == "leader_not_alive"] == epochs


@pytest.mark.parametrize(("version", "state"), [("2.3.0", "failed"), ("2.2.2", None)])
def test_an_error_that_nobody_expected_fails_the_partition_and_up_to_2_2_ends_the_thread(
    version: str, state: str | None
) -> None:
    assert (state, "unexpected_error", "observed") in told(version, {"name": "unexpected_error", "fetch_offset": 0})


def test_records_that_cannot_be_read_are_asked_for_again_after_a_backoff() -> None:
    assert ("delayed", "corrupt_records", "observed") in told("4.1.0", {"name": "corrupt_records", "fetch_offset": 0})


END = {"kind": "broker_lifecycle", "name": "fetcher_ended", **WHOLE}


def test_a_thread_that_ends_leaves_the_partitions_that_it_may_have_fetched() -> None:
    assert told("2.2.2", END)[-2:] == [(None, "thread_ended", "bounded"), ("fetching", "fetched", "observed")]
    assert told("2.2.2", {**END, "leader_id": 3}) == told("2.2.2")


def thread(number: int) -> dict[str, Any]:
    """A thread of that number for broker 1 ended."""
    return {**END, "text": f"[ReplicaFetcher replicaId=2, leaderId=1, fetcherId={number}] Error due to"}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("[ReplicaFetcher replicaId=2, leaderId=1, fetcherId=3] Error due to", 3),
        ("[ReplicaFetcherThread-3-1]: Error due to", 3),
        ("[ReplicaFetcherThread-3-1], Error due to", 3),
        ("Error due to", None),
        (None, None),
    ],
)
def test_a_thread_s_name_has_the_number_of_its_fetcher(text: str | None, number: int | None) -> None:
    assert fetcher_named(text) == number


def ended(number: int, *later: tuple[str, dict[str, Any]], client: str = "broker-2-fetcher-1") -> History:
    """Broker 2 follows broker 1 with this client id; that thread ends; what comes later, each a second behind."""
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    history.fetch(500, 1, 2, 0, hw=0, client_id=client)
    history.add(**{"ms": 1_000, "leader_id": 1, **LATER, **thread(number)})
    for k, (method, fields) in enumerate(later, 2):
        getattr(history, method)(ms=1_000 * k, **fields)
    return history


def states_of(history: History) -> list[tuple[str | None, str, str]]:
    rows = tables_of(history.events(kafka_version="2.2.2"))["follower_states"].to_pylist()
    return [(row["state"], row["cause"], row["evidence"]) for row in rows if row["broker_id"] == 2][1:]


def test_only_the_partitions_of_the_fetcher_whose_thread_ended_are_left() -> None:
    assert states_of(ended(1)) == [("fetching", "fetched", "observed"), (None, "thread_ended", "derived")]
    assert states_of(ended(0)) == [("fetching", "fetched", "observed")]


def test_under_a_client_id_that_names_no_fetcher_it_is_not_certain_whose_thread_ended() -> None:
    assert states_of(ended(0, client="client-7"))[-1] == (None, "thread_ended", "bounded")


AGAIN: dict[str, Any] = {"leader": 1, "leader_epoch": 1, "partition_epoch": 1}
FOLLOWS: dict[str, Any] = {"broker": 2, "name": "follower", "epoch": 1, "offset": 0, "hw": 0}


def test_a_thread_that_has_ended_is_given_its_partitions_again_and_fetches_none() -> None:
    told = ended(1, ("decide", AGAIN), ("role", FOLLOWS))
    assert states_of(told)[-2:] == [(None, "thread_ended", "derived"), (None, "thread_ended", "derived")]
    elsewhere = ended(1, ("decide", {**AGAIN, "leader": 3}), ("role", FOLLOWS))
    assert states_of(elsewhere)[-1][:2] == ("truncating", "became_follower")


def test_a_broker_that_starts_again_or_fetches_has_a_thread_that_lives() -> None:
    loads = {"kind": "log_load", **LATER, "offset": 0, "hw": 0}
    told = ended(1, ("decide", AGAIN), ("add", loads), ("role", FOLLOWS))
    assert states_of(told)[-1][:2] == ("truncating", "became_follower")
    fetch = {"broker": 1, "replica": 2, "offset": 0, "hw": 0, "client_id": "broker-2-fetcher-1"}
    told = ended(1, ("fetch", fetch), ("decide", AGAIN), ("role", FOLLOWS))
    assert states_of(told)[-1][:2] == ("truncating", "became_follower")


def test_up_to_2_0_a_broker_stops_rather_than_cut_what_no_unclean_election_may_take() -> None:
    line = {"name": "truncation_forbidden", "fetch_offset": 7, "offset": 3}
    assert (None, "truncation_forbidden", "observed") in told("1.1.0", line)


def test_such_lines_move_no_offset() -> None:
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=7, hw=7)
    history.role(11, 2, "follower", 0, offset=7, hw=7)
    history.add("fetcher", 1_000, leader_id=1, **LATER, **FAILED)
    events = history.events()
    (line,) = of_kind(events, "observation")
    assert (line["cause"], line["leader_id"], line["hw"], line["leo"]) == ("request_failed", 1, None, None)
    tables = tables_of(events)
    moved = [row for name in ("leo_timeline", "hw_timeline") for row in tables[name].to_pylist()]
    assert all(row["seq"] != line["seq"] for row in moved)


def test_an_empty_log_that_begins_with_a_straddling_batch_says_so_in_the_event_that_appends_it() -> None:
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=9, hw=9)
    history.role(11, 2, "follower", 0, offset=5, hw=5)
    history.fetch(1_000, 1, 2, 5, bytes=50, hw=9, log_start_offset=5)
    history.add("fetcher", 1_001, **LATER, name="batch_start", log_start_offset=5, offset=3)
    history.fetch(2_000, 1, 2, 9, hw=9, log_start_offset=5)
    first, second = of_kind(history.events(), "fetch_apply")
    assert (first["base_offset"], first["next_offset"], second["base_offset"]) == (3, 9, None)
    tables = tables_of(history.events())
    ends = [row["leo"] for row in tables["leo_timeline"].to_pylist() if row["broker_id"] == 2]
    assert (ends[-1], len(tables["log_truncations"])) == (9, 0)
