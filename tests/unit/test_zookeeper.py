"""ZooKeeper clusters: no metadata log, so LeaderAndIsr requests and the brokers' own lines make the tenures."""

from __future__ import annotations

from typing import Any

import pytest
from facts_builder import History, at, of_kind
from histories_of_losses import slots
from without_spark import tables_of

from replay.engine.codes import BROKER_EPOCH, INELIGIBLE_REPLICA
from replay.evidence.tenures import Vote
from replay.evidence.zookeeper_view import doubted
from replay.protocol.alter_partition import STALE_BROKER_EPOCH
from replay.protocol.election_rules import Ballot, choose, election_rules_of
from replay.protocol.produce import NO_ERROR

OLD = {"kafka_version": "2.8.2"}  # with an inter-broker protocol before 0.11: fetches name no leader epoch


def tell(history: History, ms: float, broker: int, state: tuple[int, int, int], isr: list[int]) -> None:
    """A LeaderAndIsr request that the controller sent to `broker`: leader, leader epoch, version."""
    leader, epoch, version = state
    told = {"leader_id": leader, "leader_epoch": epoch, "partition_epoch": version, "isr": isr, "replicas": [1, 2, 3]}
    history.request("leader_and_isr", ms, f"controller-{broker}", broker_id=broker, **told)


def committed(history: History, **settings: Any) -> list[tuple[int | None, int, int, list[int]]]:
    rows = tables_of(history.events(**{**OLD, **settings}))["isr_timeline"].to_pylist()
    states = [row for row in rows if row["state"] == "committed"]
    return [(row["leader_id"], row["leader_epoch"], row["partition_epoch"], row["isr"]) for row in states]


def cut_to_hw() -> History:
    """KIP-101's first scenario: broker 2 leads, broker 1 cuts to its HW when 3 is elected, and then leads itself."""
    history = History()
    asks = {"current_leader_epoch": -1, "last_fetched_epoch": None, "in_request": True}
    for broker in (1, 2, 3):
        tell(history, 20 + broker, broker, (2, 0, 0), [1, 2, 3])
        history.role(10 + broker, broker, "leader" if broker == 2 else "follower", 0, offset=0, hw=0)
    for replica in (1, 3):
        history.fetch(100 + replica, 2, replica, 0, bytes=100, hw=0, **asks)
    history.produce(90, 2, 0, acks=-1, total_us=30_000, remote_us=29_000)
    for replica in (1, 3):
        history.fetch(110 + replica, 2, replica, 1, hw=0, total_us=500, **asks)
    tell(history, 1020, 1, (3, 1, 1), [1, 3])
    history.role(1010, 1, "follower", 1, offset=1, hw=0)
    history.add("truncation", 1012, broker_id=1, name="high_watermark", offset=0, source_file="server-1.log")
    history.add("truncation", 1013, broker_id=1, name="log", offset=0, source_file="server-1.log")
    tell(history, 2020, 1, (1, 2, 2), [1])
    history.role(2010, 1, "leader", 2, offset=0, hw=0)
    history.produce(2100, 1, 0, acks=1)
    return history


def test_leader_and_isr_requests_make_the_tenures_whichever_broker_got_them() -> None:
    history = History()
    tell(history, 10, 1, (1, 0, 0), [1, 2, 3])
    tell(history, 12, 2, (1, 0, 0), [1, 2, 3])
    tell(history, 500, 3, (2, 1, 1), [2, 3])
    tell(history, 490, 2, (2, 1, 1), [2, 3])
    assert committed(history) == [(1, 0, 0, [1, 2, 3]), (2, 1, 1, [2, 3])]


def test_the_assignments_order_is_what_the_controller_printed_when_it_made_the_partition() -> None:
    history = History()
    line = {"broker_id": 1, "source_file": "state-change-1.log", "replicas": [3, 1, 2]}
    history.add(
        "state_change", 5, name="partition", state_before="NonExistentPartition", state_after="NewPartition", **line
    )
    history.role(20, 3, "leader", 0, offset=0, hw=0, isr=[1, 2, 3])
    history.role(500, 1, "leader", 1, offset=0, hw=0, isr=[1, 2])
    assert [(d.replicas, d.in_order) for d in history.facts(**OLD).decisions] == [((3, 1, 2), True)] * 2


def test_a_new_partitions_isr_stands_in_the_assignments_order() -> None:
    history = History()
    history.role(20, 3, "leader", 0, offset=0, hw=0, isr=[3, 1, 2])
    history.role(500, 1, "leader", 1, offset=0, hw=0, isr=[1, 2])
    assert [(d.replicas, d.in_order) for d in history.facts(**OLD).decisions] == [((3, 1, 2), True)] * 2


def test_an_assignment_without_a_later_leader_is_that_leaders_no_more() -> None:
    history = History()
    history.role(20, 3, "leader", 0, offset=0, hw=0, isr=[3, 1])
    history.role(500, 4, "leader", 5, offset=0, hw=0, isr=[1, 4])
    assert [(d.replicas, d.in_order) for d in history.facts(**OLD).decisions] == [((3, 1), True), ((1, 3, 4), False)]


def test_no_rule_is_held_against_a_choice_among_replicas_whose_order_is_not_known() -> None:
    history = History()
    history.role(500, 3, "leader", 7, offset=0, hw=0, isr=[2, 3])
    (decision,) = history.facts(**OLD).decisions
    assert (decision.replicas, decision.in_order) == ((2, 3), False)
    ballot = Ballot("initial", decision.replicas, (), frozenset({2, 3}))
    vote = Vote(ballot, choose(ballot, election_rules_of((2, 8), zookeeper=True, eligible_replicas=False)))
    assert (vote.choice.leader, doubted(vote, decision, None).choice.rule) == (2, "not_known")
    decision.in_order = True
    assert doubted(vote, decision, None) == vote


def test_partition_without_a_leader_is_offline() -> None:
    history = History()
    tell(history, 10, 1, (1, 0, 0), [1])
    tell(history, 500, 2, (-1, 1, 1), [1])
    rows = tables_of(history.events(**OLD))["leadership_timeline"].to_pylist()
    assert [(row["leader_epoch"], row["leader_id"], row["election"]) for row in rows] == [
        (0, 1, "initial"),
        (1, None, "offline"),
    ]


def test_isr_line_of_the_leader_belongs_to_the_epoch_whose_version_it_follows() -> None:
    history = History()
    tell(history, 10, 1, (1, 0, 0), [1, 2, 3])
    tell(history, 500, 1, (1, 1, 2), [1, 2])
    line = {"broker_id": 1, "name": "updated", "source_file": "server-1.log"}
    history.add("isr_update", 700, isr=[1, 2, 3], partition_epoch=3, **line)
    history.add("isr_update", 400, isr=[1, 2], partition_epoch=1, **line)
    assert committed(history) == [(1, 0, 0, [1, 2, 3]), (1, 0, 1, [1, 2]), (1, 1, 2, [1, 2]), (1, 1, 3, [1, 2, 3])]


@pytest.mark.parametrize(("error", "isr"), [(0, [1, 2]), (39, [1, 2, 3])])
def test_answered_isr_request_commits_the_next_version_and_a_refused_one_nothing(error: int, isr: list[int]) -> None:
    history = History()
    tell(history, 10, 1, (1, 0, 4), [1, 2, 3])
    asked = {"replica_id": 1, "leader_epoch": 0, "partition_epoch": 4, "isr": [1, 2], "error_code": error}
    history.request("isr_request", 300, "broker-1", broker_id=2, **asked)
    assert committed(history)[-1][3] == isr


def test_fetch_that_names_no_epoch_belongs_to_the_leader_epoch_of_its_time() -> None:
    events = cut_to_hw().events(**OLD)
    assert {(row["leader_epoch"], row["replica_id"]) for row in of_kind(events, "fetch_update")} == {(0, 1), (0, 3)}


def test_cut_to_the_hw_is_told_by_the_followers_own_lines() -> None:
    (cut,) = tables_of(cut_to_hw().events(**OLD))["log_truncations"].to_pylist()
    assert (cut["broker_id"], cut["leader_epoch"], cut["leo_before"], cut["leo_after"]) == (1, 1, 1, 0)
    assert cut["cause"] == "high_watermark"


def test_record_that_the_next_leader_cut_to_its_hw_is_an_hw_truncation() -> None:
    (row,) = tables_of(cut_to_hw().events(**OLD))["data_loss_incidents"].to_pylist()
    assert (row["mechanism"], row["severity"], slots(row), row["acked_all"]) == ("hw_truncation", "S0", [(0, 0, 0)], 1)
    assert [link["what"].split()[2] for link in row["chain"]] == ["acknowledged", "elected", "cut", "elected", "led"]


def test_follower_without_a_line_takes_its_role_up_while_it_handles_the_request() -> None:
    history = History()
    tell(history, 20, 1, (1, 0, 0), [1, 2])
    tell(history, 20, 2, (1, 0, 0), [1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.produce(100, 1, 0, acks=1)
    history.fetch(110, 1, 2, 0, bytes=100, hw=0)
    history.fetch(150, 1, 2, 1, hw=1)
    line = {"broker_id": 2, "source_file": "server-2.log"}
    history.add("log_load", 990, name="completed", offset=1, **line)
    history.add("log_load", 1000, name="loaded", hw=1, **line)
    state = {"leader_id": 1, "leader_epoch": 1, "partition_epoch": 1, "isr": [1], "replicas": [1, 2, 3]}
    history.request("leader_and_isr", 1020, "controller-2b", broker_id=2, total_us=50_000, local_us=45_000, **state)
    roles = of_kind(history.events(kafka_version="2.4.1"), "role_change", "log_load")
    mine = [(row["kind"], row["leader_epoch"], row["leo"]) for row in roles if row["broker_id"] == 2]
    assert mine == [("role_change", 0, None), ("log_load", None, 1), ("role_change", 1, 1)]


def alone_without_role_lines() -> History:
    """Broker 1 fetches a record that nothing shows it to have appended, leads alone, and states an HW behind it."""
    history = History()
    tell(history, 20, 2, (2, 0, 0), [1, 2])
    history.role(10, 2, "leader", 0, offset=0, hw=0)
    for offset in (0, 1):
        history.produce(100 + offset, 2, offset, acks=1)
    history.fetch(110, 2, 1, 0, bytes=100, hw=0)
    history.fetch(150, 2, 1, 1, hw=1)
    state = {"leader_id": 1, "leader_epoch": 1, "partition_epoch": 1, "isr": [1], "replicas": [1, 2, 3]}
    history.request("leader_and_isr", 1020, "controller-1b", broker_id=1, total_us=50_000, local_us=45_000, **state)
    history.add("hw_update", 1000, name="leader", broker_id=1, hw_before=1, hw=2, source_file="server-1.log")
    return history


def test_leader_without_a_line_takes_its_role_up_while_it_handles_the_request() -> None:
    roles = of_kind(alone_without_role_lines().events(kafka_version="2.8.2"), "role_change")
    assert [(row["role"], row["ts"]) for row in roles if row["broker_id"] == 1][-1] == ("leader", at(970))


def test_leader_has_the_log_up_to_the_hw_that_it_states_before_anybody_fetches() -> None:
    tables = tables_of(alone_without_role_lines().events(kafka_version="2.8.2"))
    leads = [(row["leader_epoch"], row["start_offset"]) for row in tables["leadership_timeline"].to_pylist()]
    assert leads[-1] == (1, 2)
    assert [row["hw"] for row in tables["hw_timeline"].to_pylist() if row["leader_epoch"] == 1][-1] == 2
    assert not [row for row in tables["conformance"].to_pylist() if row["check"] == "rule"]


def test_follower_told_the_same_epoch_again_after_a_restart_loads_its_log_within_it() -> None:
    history = History()
    state = {"leader_id": 1, "leader_epoch": 0, "partition_epoch": 0, "isr": [1, 2], "replicas": [1, 2, 3]}
    tell(history, 20, 1, (1, 0, 0), [1, 2])
    tell(history, 20, 2, (1, 0, 0), [1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    line = {"broker_id": 2, "source_file": "server-2.log"}
    history.produce(100, 1, 0, acks=1)
    history.fetch(110, 1, 2, 0, bytes=100, hw=0)
    history.fetch(150, 1, 2, 1, hw=1)
    history.add("log_load", 990, name="completed", offset=1, **line)
    history.add("log_load", 1000, name="loaded", hw=1, **line)
    history.request("leader_and_isr", 1020, "controller-2b", broker_id=2, total_us=50_000, local_us=45_000, **state)
    history.produce(1100, 1, 1, acks=1)
    history.fetch(1110, 1, 2, 1, bytes=100, hw=1, connection="r2-1b")
    history.fetch(1150, 1, 2, 2, hw=2, connection="r2-1b")
    tell(history, 2020, 2, (2, 1, 1), [1, 2])
    history.role(2010, 2, "leader", 1, offset=2, hw=2)
    events = history.events(kafka_version="2.5.1")
    assert [(row["leo"], row["hw"]) for row in of_kind(events, "log_load")] == [(1, 1)]
    tables = tables_of(events)
    assert tables["log_truncations"].num_rows == 0
    leads = [(row["leader_epoch"], row["start_offset"]) for row in tables["leadership_timeline"].to_pylist()]
    assert leads == [(0, 0), (1, 2)]


def stopping(version: str, *, by_metadata: bool = False) -> dict[str, list[dict[str, Any]]]:
    """Broker 3, outside the ISR and about to shut down, catches up; broker 1 asks for it, and is refused."""
    history = History()
    if by_metadata:
        history.decide(0, 1, [1, 2])
        history.fence(50, 3, fenced=None, in_controlled_shutdown=True)
    else:
        controller = {"broker_id": 2, "source_file": "server-2.log", "topic": None, "partition": None}
        history.add("broker_lifecycle", 0, name="live_brokers", replicas=[1, 2, 3], **controller)
        tell(history, 5, 1, (1, 0, 0), [1, 2])
        history.add("broker_lifecycle", 50, name="stopping_broker", subject_broker_id=3, **controller)
    for broker in (1, 2, 3):
        history.role(5 + broker, broker, "leader" if broker == 1 else "follower", 0, offset=0, hw=0)
    history.fetch(2_100, 1, 2, 0, hw=0)
    history.fetch(2_140, 1, 3, 0, hw=0)
    line = {"broker_id": 1, "leader_epoch": 0, "isr": [1, 2, 3], "source_file": "server-1.log"}
    history.add("isr_update", 2_140, name="pending_expand", replica_id=3, **line)
    history.add("isr_update", 2_160, name="failed", error_code=INELIGIBLE_REPLICA, **line)
    tables = tables_of(history.events(kafka_version=version))
    return {name: rows.to_pylist() for name, rows in tables.items()}


def agreed(tables: dict[str, list[dict[str, Any]]], check: str) -> list[tuple[int, int]]:
    return [(row["compared"], row["matched"]) for row in tables["conformance"] if row["check"] == check]


def test_a_leader_asks_for_a_replica_that_is_shutting_down_and_zookeeper_s_controller_refuses_it() -> None:
    tables = stopping("3.6.1")
    assert agreed(tables, "alter_partition") == [(1, 1)]
    (asked,) = (row for row in tables["isr_timeline"] if row["state"] == "pending_expand")
    assert (asked["outcome"], asked["error_code"], asked["reason"]) == ("rejected", INELIGIBLE_REPLICA, "first_fetch")
    assert agreed(tables, "predicted_expansion") == [(1, 1)]


def test_a_leader_that_reads_metadata_does_not_ask_for_a_replica_that_is_shutting_down() -> None:
    assert agreed(stopping("3.6.1", by_metadata=True), "predicted_expansion") == [(1, 0)]


def answered(*requests: tuple[float, int, int]) -> tuple[int, str | None]:
    """Requests (milliseconds, broker epoch, error) of broker 1, away from 10 to 20 s; how many answers differ."""
    history = history_of()
    for ms, epoch, error in requests:
        asked = {"leader_epoch": 0, "partition_epoch": 0, "isr": [1], "replica_id": 1, "broker_epoch": epoch}
        where = {"broker_id": 2, "source_file": "request-2.log", "error_code": error}
        history.request("isr_request", ms, "c2", **asked, **where)
    rows = tables_of(history.events(kafka_version="2.8.2"))["conformance"].to_pylist()
    (row,) = (row for row in rows if row["check"] == "alter_partition")
    assert row["compared"] >= len(requests)
    return row["compared"] - row["matched"], row["note"]


def history_of() -> History:
    """Broker 1 leads, is away from 10 to 20 s, and is back with another epoch; broker 2 is the controller."""
    history = History()
    controller = {"broker_id": 2, "source_file": "server-2.log", "topic": None, "partition": None}
    history.add("broker_lifecycle", 0, name="controller_elected", **controller)
    tell(history, 5, 1, (1, 0, 0), [1, 2])
    for ms, alive in ((1, [1, 2, 3]), (10_000, [2, 3]), (20_000, [1, 2, 3])):
        history.add("broker_lifecycle", ms, name="live_brokers", replicas=alive, **controller)
    for ms, epochs in ((2, {1: 25, 2: 46}), (10_001, {2: 46}), (20_001, {1: 90, 2: 46})):
        for broker, epoch in epochs.items():
            told = {"subject_broker_id": broker, "broker_epoch": epoch}
            history.add("broker_lifecycle", ms, name="broker_epoch", **told, **controller)
    history.role(6, 1, "leader", 0, offset=0, hw=0)
    return history


def test_a_request_is_held_against_the_broker_epoch_that_zookeeper_s_controller_has() -> None:
    assert answered((5_000, 25, NO_ERROR), (15_000, 25, STALE_BROKER_EPOCH), (25_000, 90, NO_ERROR)) == (0, None)
    assert answered((25_000, 25, STALE_BROKER_EPOCH), (20_500, 25, STALE_BROKER_EPOCH)) == (0, None)
    note = "broker 1 asks under broker epoch 90: computed no 77, stated 77"
    assert answered((25_000, 90, STALE_BROKER_EPOCH)) == (1, note)


@pytest.mark.parametrize(("protocol", "count"), [("2.8", 3), ("2.6", 0)])
def test_broker_epochs_are_events_where_leaders_ask_the_controller(protocol: str, count: int) -> None:
    events = history_of().events(kafka_version="2.8.2", inter_broker_protocol=protocol)
    told = [row for row in of_kind(events, "observation") if row["cause"] == BROKER_EPOCH]
    assert [(row["broker_id"], row["broker_epoch"], row["controller_id"]) for row in told] == [
        (1, 25, 2),
        (2, 46, 2),
        (1, 90, 2),
    ][:count]


@pytest.mark.parametrize("ms", [15_000, 25_000])
def test_a_broker_that_is_away_or_came_back_as_another_is_not_served_by_zookeeper_s_controller(ms: float) -> None:
    assert answered((ms, 25, NO_ERROR)) == (1, "broker 1 asks under broker epoch 25: computed 77, stated 0")
