"""The partition's and its replicas' state machines, one test per rule; sources in docs/protocol.md, State machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from test_elections import ZOOKEEPER, cluster, lives, record, stops, tell, zookeeper
from without_spark import tables_of

from replay.protocol.state_machines import MOVES, Machines, is_valid

if TYPE_CHECKING:
    from facts_builder import History

TOPIC_ID = "AAAA"


def moves(history: History, machine: int | None, **settings: Any) -> list[tuple[str, str]]:
    """(state, reason) of a replica's moves by broker, or of the partition's."""
    rows = tables_of(history.events(**settings))["state_transitions"].to_pylist()
    for before, after in zip([None, *rows], rows, strict=False):
        assert before is None or (before["seq"], before["place"]) < (after["seq"], after["place"])
    return [(row["state"], row["reason"]) for row in rows if row["broker_id"] == machine]


def test_a_new_partition_is_online_when_it_has_a_leader() -> None:
    history = cluster(1, 2)
    history.decide(10, 1, [1, 2])
    assert moves(history, None) == [("New", "created"), ("Online", "initial")]
    assert moves(history, 1) == [("New", "created"), ("Online", "created")]
    assert moves(history, 3) == [("New", "created"), ("Offline", "fenced")]


def test_a_broker_takes_its_replicas_offline_and_brings_them_back() -> None:
    history = cluster()
    history.decide(10, 1, [1, 2, 3])
    history.decide(50, None, [1, 2])
    history.fence(50, 3)
    history.fence(90, 3, fenced=False)
    assert moves(history, 3)[2:] == [("Offline", "fenced"), ("Online", "broker_back")]
    assert moves(history, None)[2:] == []


def test_an_election_leaves_the_partition_online_in_kraft_and_without_a_leader_it_is_offline() -> None:
    history = cluster()
    history.decide(10, 1, [1, 2])
    history.fence(50, 1, fenced=None, in_controlled_shutdown=True)
    history.decide(50, 2, [2])
    history.decide(60, -1)
    history.fence(60, 2)
    history.fence(90, 2, fenced=False)
    history.decide(90, 2)
    assert moves(history, None)[2:] == [("Online", "controlled_shutdown"), ("Offline", "offline"), ("Online", "clean")]
    assert moves(history, 1)[2:] == [("Offline", "controlled_shutdown")]


def test_a_lost_log_directory_takes_one_replica_offline_though_its_broker_lives() -> None:
    history = cluster()
    history.decide(10, 1, [1, 2, 3])
    history.decide(50, 2, [2, 3])
    history.fence(50, 1, fenced=None)
    assert moves(history, 1)[2:] == [("Offline", "log_directory")]


def test_an_added_replica_is_new_until_it_joins_the_isr_and_a_removed_one_is_deleted() -> None:
    history = cluster()
    history.decide(10, 1, [1, 2], replicas=[1, 2])
    history.decide(50, None, replicas=[3, 2, 1], adding_replicas=[3], removing_replicas=[1])
    history.decide(60, 3, [2, 3], replicas=[3, 2], adding_replicas=[], removing_replicas=[])
    assert moves(history, 3) == [("New", "reassignment"), ("Online", "joined_isr")]
    assert [state for state, _ in moves(history, 1)[2:]] == [
        "Offline",
        "DeletionStarted",
        "DeletionSuccessful",
        "NonExistent",
    ]


def test_a_deleted_topic_ends_its_machines_but_a_replica_that_is_away_cannot_be_deleted_yet() -> None:
    history = cluster(1, 2)
    history.decide(10, 1, [1, 2], topic_id=TOPIC_ID)
    record(history, 50, "topic_change", name="remove", topic=None, topic_id=TOPIC_ID)
    history.fence(70, 2)
    told = {"topic_id": TOPIC_ID}
    assert moves(history, None, **told)[2:] == [("Offline", "topic_deleted"), ("NonExistent", "topic_deleted")]
    assert moves(history, 2, **told)[-1] == ("NonExistent", "topic_deleted")
    assert moves(history, 3, **told)[-1] == ("DeletionIneligible", "topic_deleted")


def test_zookeeper_s_partition_is_offline_between_a_leader_s_loss_and_the_election() -> None:
    history = zookeeper()
    lives(history, 50, 2, 3)
    tell(history, 55, 2, 1, 1, [2, 3])
    assert moves(history, None, **ZOOKEEPER)[2:] == [("Offline", "leader_away"), ("Online", "clean")]
    assert moves(history, 1, **ZOOKEEPER)[2:] == [("Offline", "broker_away")]


def test_zookeeper_s_controlled_shutdown_takes_followers_offline_and_leaders_only_when_they_are_gone() -> None:
    history = zookeeper()
    stops(history, 50, 3)
    tell(history, 52, 1, 1, 1, [1, 2])
    stops(history, 60, 1)
    tell(history, 62, 2, 2, 2, [2])
    lives(history, 80, 2)
    tell(history, 82, 2, 3, 3, [2])
    assert moves(history, 3, **ZOOKEEPER)[2:] == [("Offline", "controlled_shutdown")]
    assert moves(history, 1, **ZOOKEEPER)[2:] == [("Offline", "broker_away")]
    assert moves(history, None, **ZOOKEEPER)[2:] == [("Online", "controlled_shutdown")]


@pytest.mark.parametrize(
    ("machine", "before", "after"),
    [
        ("partition", "NonExistent", "Online"),
        ("partition", "Online", "New"),
        ("partition", "Online", "NonExistent"),
        ("replica", "NonExistent", "Online"),
        ("replica", "Online", "DeletionStarted"),
        ("replica", "Offline", "NonExistent"),
        ("replica", "DeletionStarted", "Online"),
    ],
)
def test_what_no_machine_does(machine: str, before: str, after: str) -> None:
    assert not is_valid(machine, before, after)


def test_every_state_can_be_reached_and_left() -> None:
    for states in MOVES.values():
        assert {before for allowed in states.values() for before in allowed} == set(states)


def test_a_move_that_the_machine_does_not_have_is_refused_and_reported() -> None:
    machines = Machines()
    machines.move({"seq": 7, "ts": None, "evidence": "observed"}, 1, "Online", "created")
    assert machines.replicas == {}
    assert machines.moves == []
    (row,) = machines.checks()
    assert (row["compared"], row["matched"], row["first_mismatch_seq"]) == (1, 0, 7)
    assert row["note"] == "replica 1: NonExistent to Online"


def wrote(history: History, ms: float, before: str, after: str, replica: int | None = None) -> None:
    """A controller's TRACE line."""
    name = "partition" if replica is None else "replica"
    fields = {"state_before": before, "state_after": after, "replica_id": replica, "broker_id": 1}
    history.add("state_change", ms, name=name, **fields)


def compared(history: History) -> dict[str, tuple[int, int, str | None]]:
    rows = tables_of(history.events(**ZOOKEEPER))["conformance"].to_pylist()
    return {row["check"]: (row["compared"], row["matched"], row["note"]) for row in rows if "state" in row["check"]}


def lines_of_a_loss() -> History:
    """Broker 3 goes, then the leader 1 together with the controller; the next controller elects 2."""
    history = zookeeper()
    wrote(history, 5, "NonExistentPartition", "NewPartition")
    wrote(history, 7, "NewPartition", "OnlinePartition")
    for replica in (1, 2, 3):
        wrote(history, 6, "NonExistentReplica", "NewReplica", replica)
        wrote(history, 8, "NewReplica", "OnlineReplica", replica)
    lives(history, 50, 1, 2)
    wrote(history, 51, "OnlineReplica", "OfflineReplica", 3)
    tell(history, 55, 1, 1, 1, [1, 2])
    lives(history, 80, 2, name="controller_starts")
    wrote(history, 81, "OnlineReplica", "OnlineReplica", 2)
    wrote(history, 82, "ReplicaDeletionIneligible", "OfflineReplica", 1)
    wrote(history, 82, "ReplicaDeletionIneligible", "OfflineReplica", 3)
    tell(history, 84, -1, 2, 2, [2])
    wrote(history, 83, "OfflinePartition", "OnlinePartition")
    tell(history, 86, 2, 3, 3, [2])
    return history


def test_the_derived_states_are_those_that_zookeeper_s_controllers_wrote() -> None:
    found = compared(lines_of_a_loss())
    assert found["partition_state"] == (4, 4, None)
    assert found["replica_state"] == (8, 8, None)


def test_a_new_controller_begins_with_the_brokers_that_live_whatever_they_did_before() -> None:
    history = zookeeper()
    stops(history, 50, 2)
    tell(history, 55, 1, 1, 1, [1, 3])
    lives(history, 5000, 1, 2, 3, name="controller_starts")
    assert moves(history, 2, **ZOOKEEPER)[2:] == [("Offline", "controlled_shutdown"), ("Online", "broker_back")]


def found(history: History, ms: float, state: str, replica: int | None = None) -> None:
    """A controller's line about what its machines begin with."""
    name = "partition_found" if replica is None else "replica_found"
    history.add("state_change", ms, name=name, state_after=state, replica_id=replica, broker_id=1)


def test_a_machine_begins_with_what_the_controller_that_starts_found() -> None:
    """What led there, under the controller before, no line tells."""
    history = zookeeper()
    lives(history, 5000, 1, 2, 3, name="controller_starts")
    found(history, 5001, "OnlinePartition")
    found(history, 5001, "OfflineReplica", 2)
    found(history, 5001, "OnlineReplica", 3)
    told = moves(history, 2, **ZOOKEEPER)
    assert told[-1] == ("Offline", "controller_started")
    assert [reason for _, reason in moves(history, None, **ZOOKEEPER) + moves(history, 3, **ZOOKEEPER)].count(
        "controller_started"
    ) == 0
    rows = tables_of(history.events(**ZOOKEEPER))["state_transitions"].to_pylist()
    assert [row["evidence"] for row in rows if row["reason"] == "controller_started"] == ["observed"]


def test_a_partition_that_a_controller_found_is_not_made_by_its_next_election() -> None:
    history = zookeeper()
    found(history, -10, "OnlinePartition")
    for replica in (1, 2, 3):
        found(history, -10, "OnlineReplica", replica)
    assert moves(history, None, **ZOOKEEPER)[0] == ("Online", "controller_started")
    assert {one for broker in (1, 2, 3) for one in moves(history, broker, **ZOOKEEPER)} == {
        ("Online", "controller_started")
    }


def test_a_deleted_topic_is_gone_where_its_controller_says_so() -> None:
    history = zookeeper()
    wrote(history, 90, "OnlinePartition", "OfflinePartition")
    wrote(history, 91, "OfflinePartition", "NonExistentPartition")
    assert moves(history, None, **ZOOKEEPER)[2:] == [("Offline", "topic_deleted"), ("NonExistent", "topic_deleted")]
    assert moves(history, 1, **ZOOKEEPER)[-1] == ("NonExistent", "topic_deleted")


def test_what_becomes_of_brokers_after_a_topic_was_deleted_moves_none_of_its_replicas() -> None:
    history = zookeeper()
    wrote(history, 90, "OnlinePartition", "OfflinePartition")
    wrote(history, 91, "OfflinePartition", "NonExistentPartition")
    for at, before, after in ((92, "Online", "Offline"), (93, "Offline", "ReplicaDeletionStarted")):
        wrote(history, at, f"{before}Replica", after if after.startswith("R") else f"{after}Replica", 2)
    stops(history, 5000, 2)
    assert [state for state, _ in moves(history, 2, **ZOOKEEPER)[2:]] == [
        "Offline", "DeletionStarted", "DeletionSuccessful", "NonExistent"
    ]  # fmt: skip
    assert compared(history)["replica_state"] == (3, 3, None)


def test_a_stated_move_that_was_not_derived_is_reported() -> None:
    history = lines_of_a_loss()
    wrote(history, 90, "OnlineReplica", "OfflineReplica", 2)
    assert compared(history)["replica_state"] == (9, 8, "replica 2: Offline, not derived")


def test_without_a_controller_s_lines_no_states_are_compared() -> None:
    assert set(compared(zookeeper())) == {"state_moves"}
