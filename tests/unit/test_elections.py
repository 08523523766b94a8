"""Elections on small histories: what the controller knew, which rule chose, what was at risk, what is said of it."""

from __future__ import annotations

from typing import Any

import pytest
from facts_builder import TOPIC, History
from without_spark import tables_of

from replay.evidence.controller_view import UNCLEAN_SETTING

OLD = {"kafka_version": "3.9.1"}
REGISTERED = {"record_type": "REGISTER_BROKER_RECORD"}


def cluster(*brokers: int) -> History:
    """Brokers that registered and were unfenced; the others of 1, 2, 3 stay fenced."""
    history = History()
    for broker in (1, 2, 3):
        history.fence(0, broker, in_controlled_shutdown=False, **REGISTERED)
    for broker in brokers or (1, 2, 3):
        history.fence(1, broker, fenced=False)
    return history


def record(history: History, ms: float, kind: str, **fields: Any) -> None:
    """Any other record of the metadata log."""
    history.add(kind, ms, partition=None, metadata_offset=100 + len(history.rows), **fields)


def set_topic(history: History, ms: float, name: str, value: str | None) -> None:
    record(history, ms, "config_change", resource_type=2, name=name, value=value, topic=TOPIC)


def with_eligible_replicas(history: History, min_isr: str) -> History:
    """The feature is on, as in a new cluster of 4.1."""
    record(history, 2, "feature_change", name="eligible.leader.replicas.version", value="1", topic=None)
    set_topic(history, 2, "min.insync.replicas", min_isr)
    return history


def leaderships(history: History, **settings: Any) -> list[dict[str, Any]]:
    return tables_of(history.events(**settings))["leadership_timeline"].to_pylist()


def chosen(history: History, **settings: Any) -> list[tuple[str, str | None, int | None, int | None]]:
    """Each election: how it is called, the rule, the rule's leader, the chosen one."""
    return [
        (row["election"], row["rule"], row["predicted_leader_id"], row["leader_id"])
        for row in leaderships(history, **settings)
    ]


def conformance(history: History, **settings: Any) -> dict[str, tuple[int, int]]:
    rows = tables_of(history.events(**settings))["conformance"].to_pylist()
    return {row["check"]: (row["compared"], row["matched"]) for row in rows}


def test_brokers_that_are_fenced_are_no_members_of_a_new_partition() -> None:
    history = cluster(2, 3)
    history.decide(10, 2, [2, 3])
    row = leaderships(history)[0]
    assert (row["rule"], row["candidates"], row["live"]) == ("first_live", [2, 3], [2, 3])
    assert conformance(history)["election_isr"] == (1, 1)


def test_the_broker_whose_fencing_stands_behind_the_decision_is_gone_when_it_is_made() -> None:
    history = cluster()
    history.decide(10, 1, [1, 2, 3])
    history.decide(50, 2, [2, 3])
    history.fence(50, 1)
    row = leaderships(history)[1]
    assert (row["election"], row["rule"], row["candidates"], row["live"]) == ("clean", "first_in_sync", [2, 3], [2, 3])
    assert row["trigger"] == "broker 1 was fenced"


def test_a_fencing_of_another_time_does_not_count_for_the_decision_before_it() -> None:
    history = cluster()
    history.decide(10, 1, [1, 2, 3])
    history.decide(50, 2, [2, 3])
    history.fence(51, 1)
    assert leaderships(history)[1]["live"] == [1, 2, 3]


def test_the_broker_that_begins_to_shut_down_stands_before_the_decision_and_is_not_asked() -> None:
    history = cluster()
    history.decide(10, 1, [1, 2, 3])
    history.fence(50, 1, fenced=None, in_controlled_shutdown=True)
    history.decide(50, 2, [2, 3])
    assert chosen(history)[1] == ("controlled_shutdown", "first_in_sync", 2, 2)


def test_a_preferred_election_is_one_where_the_leader_could_have_stayed() -> None:
    history = cluster()
    history.decide(10, 2, [1, 2, 3])
    history.decide(50, 1)
    assert chosen(history)[1] == ("preferred", "preferred_in_sync", 1, 1)


def test_a_completed_reassignment_elects_by_the_new_order() -> None:
    history = cluster()
    history.decide(10, 1, [1, 2], replicas=[1, 2])
    history.decide(50, None, replicas=[3, 2, 1], adding_replicas=[3], removing_replicas=[1])
    history.decide(60, 3, [2, 3], replicas=[3, 2], adding_replicas=[], removing_replicas=[])
    assert chosen(history)[1] == ("reassignment", "first_in_sync", 3, 3)
    assert conformance(history)["leader_stays"] == (1, 1)


def test_an_unclean_election_follows_from_the_topic_s_setting_at_that_moment() -> None:
    history = cluster()
    history.decide(10, 1, [1])
    history.decide(50, -1)
    history.fence(50, 1)
    set_topic(history, 90, UNCLEAN_SETTING, "true")
    history.decide(91, 2, [2], leader_recovery_state=1)
    assert chosen(history, **OLD)[1:] == [
        ("offline", "no_candidate", None, None),
        ("unclean", "first_live_unclean", 2, 2),
    ]
    assert "operator" not in leaderships(history, **OLD)[2]["trigger"]


def test_a_removed_override_leaves_the_cluster_s_default() -> None:
    history = cluster()
    record(history, 5, "config_change", resource_type=4, name=UNCLEAN_SETTING, value="true", topic=None)
    set_topic(history, 6, UNCLEAN_SETTING, "false")
    history.decide(10, 1, [1])
    set_topic(history, 20, UNCLEAN_SETTING, None)
    history.decide(50, 2, [2], leader_recovery_state=1)
    history.fence(50, 1)
    assert chosen(history, **OLD)[1] == ("unclean", "first_live_unclean", 2, 2)


def test_an_unclean_election_against_the_setting_was_asked_for_by_an_operator() -> None:
    history = cluster()
    history.decide(10, 1, [1])
    history.decide(50, -1)
    history.fence(50, 1)
    history.decide(91, 2, [2], leader_recovery_state=1)
    row = leaderships(history, **OLD)[2]
    assert (row["rule"], row["predicted_leader_id"]) == ("first_live_unclean", 2)
    assert row["trigger"] == "an operator asked for an unclean election"


def test_up_to_3_8_the_unclean_setting_elects_nobody() -> None:
    history = cluster()
    set_topic(history, 5, UNCLEAN_SETTING, "true")
    history.decide(10, 1, [1])
    history.decide(50, -1)
    history.fence(50, 1)
    assert chosen(history, kafka_version="3.8.0")[1] == ("offline", "no_candidate", None, None)
    assert conformance(history, kafka_version="3.8.0")["election_choice"] == (2, 2)
    assert conformance(history, **OLD)["election_choice"] == (2, 1)


def test_whoever_leaves_the_isr_below_min_isr_stays_eligible() -> None:
    history = with_eligible_replicas(cluster(), "2")
    history.decide(10, 1, [1, 2, 3])
    history.decide(20, None, [1], elr=[2, 3])
    history.decide(50, 3, [3], elr=[1, 2])
    history.fence(50, 1)
    row = leaderships(history)[1]
    assert (row["rule"], row["candidates"], row["in_sync"]) == ("first_eligible", [2, 3], [])
    assert row["predicted_leader_id"] == 2  # and not 3: the assignment's order decides
    assert conformance(history)["election_choice"] == (2, 1)


def test_at_min_isr_nobody_outside_is_eligible() -> None:
    history = with_eligible_replicas(cluster(), "1")
    history.decide(10, 1, [1, 2, 3])
    history.decide(20, None, [1])
    history.decide(50, -1, [], elr=[1], last_known_elr=[1])
    history.fence(50, 1)
    assert chosen(history)[1] == ("offline", "no_candidate", None, None)


def test_after_a_shutdown_that_was_not_clean_only_the_memory_of_the_last_leader_is_left() -> None:
    history = with_eligible_replicas(cluster(), "2")
    history.decide(10, 1, [1])
    history.decide(50, -1, [], elr=[1], last_known_elr=[1])
    history.fence(50, 1)
    history.decide(80, None, elr=[])
    history.fence(80, 1, in_controlled_shutdown=False, **REGISTERED)
    history.fence(90, 1, fenced=False)
    history.decide(90, 1, [1], last_known_elr=[], leader_recovery_state=1)
    assert chosen(history)[2] == ("unclean", "last_known_leader", 1, 1)
    assert conformance(history)["leader_stays"] == (1, 1)  # the fenced broker is not elected at 80


def test_eligible_replicas_are_forgotten_when_min_isr_is_set_anew() -> None:
    history = with_eligible_replicas(cluster(), "2")
    history.decide(10, 1, [1, 2, 3])
    history.decide(20, None, [1], elr=[2, 3])
    record(history, 30, "feature_change", name="clear_elr", value=None, topic=TOPIC)
    history.decide(50, -1, [], elr=[1], last_known_elr=[1])
    history.fence(50, 1)
    assert chosen(history)[1] == ("offline", "no_candidate", None, None)


def test_a_broker_without_the_log_directory_may_not_lead_though_it_lives() -> None:
    history = cluster()
    history.decide(10, 1, [1, 2, 3])
    history.decide(50, 2, [2, 3])
    history.fence(50, 1, fenced=None)  # its change lists the directories that are left
    row = leaderships(history)[1]
    assert (row["trigger"], row["live"]) == ("broker 1 lost the log directory", [2, 3])
    assert conformance(history)["election_choice"] == (2, 2)


def test_without_registrations_nothing_is_claimed() -> None:
    history = History()
    history.decide(10, 1, [1, 2, 3])
    row = leaderships(history)[0]
    assert (row["rule"], row["live"], row["predicted_leader_id"]) == ("not_known", None, None)
    assert conformance(history)["election_choice"] == (0, 0)


def test_at_risk_is_what_the_leader_before_had_beyond_the_new_one_s_log() -> None:
    history = cluster()
    history.decide(10, 1, [1, 2])
    history.role(11, 1, "leader", 0, offset=0, hw=0)
    for base in range(4):
        history.produce(20 + base, 1, base, acks=1)
    history.fetch(30, 1, 2, 3)
    history.decide(50, 2, [2])
    history.fence(50, 1)
    history.role(52, 2, "leader", 1, offset=1, hw=1)
    row = leaderships(history)[1]
    assert (row["previous_leo"], row["previous_hw"], row["start_offset"]) == (4, 3, 1)
    assert (row["records_at_risk"], row["committed_at_risk"]) == (3, 2)


def test_nothing_is_said_of_the_risk_where_no_source_tells_from_where_the_new_leader_led() -> None:
    history = cluster()
    history.decide(10, 1, [1, 2])
    history.produce(20, 1, 0)
    history.decide(50, 2, [2])
    history.fence(50, 1)
    assert leaderships(history)[1]["records_at_risk"] is None


# -- ZooKeeper


def lives(history: History, ms: float, *brokers: int, name: str = "live_brokers") -> None:
    """The controller's line about whom it sees alive."""
    history.add(
        "broker_lifecycle", ms, name=name, replicas=list(brokers), broker_id=1, topic=None, partition=None
    )  # fmt: skip


def stops(history: History, ms: float, broker: int) -> None:
    where = {"broker_id": 1, "topic": None, "partition": None}
    history.add("broker_lifecycle", ms, name="stopping_broker", subject_broker_id=broker, **where)


def tell(history: History, ms: float, leader: int, epoch: int, version: int, isr: list[int]) -> None:
    """A LeaderAndIsr request."""
    told = {"leader_id": leader, "leader_epoch": epoch, "partition_epoch": version, "isr": isr, "replicas": [1, 2, 3]}
    history.request("leader_and_isr", ms, "controller", broker_id=3, **told)


ZOOKEEPER = {"kafka_version": "2.8.2"}


def zookeeper() -> History:
    history = History()
    lives(history, 1, 1, 2, 3, name="controller_starts")
    tell(history, 10, 1, 0, 0, [1, 2, 3])
    return history


def test_zookeeper_s_election_after_a_broker_s_loss_is_seen_with_the_controller_s_eyes() -> None:
    history = zookeeper()
    lives(history, 50, 2, 3)
    tell(history, 55, 2, 1, 1, [2, 3])
    row = leaderships(history, **ZOOKEEPER)[1]
    assert (row["election"], row["rule"], row["candidates"], row["live"]) == ("clean", "first_in_sync", [2, 3], [2, 3])
    assert row["trigger"] == "broker 1 was gone"


def test_zookeeper_s_controlled_shutdown_moves_leadership_from_a_broker_that_lives() -> None:
    history = zookeeper()
    stops(history, 50, 1)
    tell(history, 55, 2, 1, 1, [2, 3])
    assert chosen(history, **ZOOKEEPER)[1] == ("controlled_shutdown", "first_in_sync", 2, 2)
    assert conformance(history, **ZOOKEEPER)["election_isr"] == (2, 2)


@pytest.mark.parametrize(
    ("ms", "by", "asked"),
    [(150, "AutoTriggered", False), (150, "AdminClientTriggered", True), (150, "ZkTriggered", True), (9_000, "", None)],
)
def test_zookeeper_s_controller_says_whether_a_preferred_election_was_asked_for(
    ms: float, by: str, *, asked: bool | None
) -> None:
    history = zookeeper()
    tell(history, 60, 2, 1, 1, [1, 2, 3])
    text = f"Starting replica leader election (PREFERRED) for partitions orders-0 triggered by {by}"
    history.add("state_change", ms, name="election_started", value="PREFERRED", text=text, broker_id=1)
    tell(history, 160, 1, 2, 2, [1, 2, 3])
    row = leaderships(history, **ZOOKEEPER)[2]
    assert (row["election"], row["asked_for"]) == ("preferred", asked)
    assert [row["asked_for"] for row in leaderships(history, **ZOOKEEPER)[:2]] == [None, None]


def test_a_follower_s_loss_makes_an_epoch_in_zookeeper_but_no_election() -> None:
    history = zookeeper()
    lives(history, 50, 1, 3)
    tell(history, 55, 1, 1, 1, [1, 3])
    assert chosen(history, **ZOOKEEPER)[1] == ("clean", "leader_kept", 1, 1)
    assert conformance(history, **ZOOKEEPER)["election_isr"] == (2, 2)


def test_zookeeper_s_controller_decides_with_what_it_wrote_before_though_brokers_hear_of_it_later() -> None:
    history = zookeeper()
    stops(history, 50, 2)
    history.add("state_change", 51, name="replica_removed", broker_id=1, leader_epoch=1, isr=[1, 3], replica_id=2)
    stops(history, 53, 3)
    history.add("state_change", 54, name="replica_removed", broker_id=1, leader_epoch=2, isr=[1], replica_id=3)
    tell(history, 90, 1, 1, 1, [1, 3])
    tell(history, 91, 1, 2, 2, [1])
    assert conformance(history, **ZOOKEEPER)["election_isr"] == (3, 3)


def test_whom_no_line_shows_in_sync_is_neither_unclean_nor_compared_where_versions_are_missing() -> None:
    history = zookeeper()
    lives(history, 30, 1, 3)
    tell(history, 35, 1, 1, 1, [1, 3])
    lives(history, 40, 1, 2, 3)  # 2 came back and joined the ISR, version 2, of which no line is left
    stops(history, 50, 1)
    tell(history, 55, 2, 2, 3, [2, 3])
    rows = chosen(history, **ZOOKEEPER)
    assert rows[2][:2] == ("controlled_shutdown", "not_known")
    assert conformance(history, **ZOOKEEPER)["election_choice"] == (2, 2)


def test_a_new_controller_knows_nobody_that_shuts_down() -> None:
    history = zookeeper()
    stops(history, 40, 2)
    lives(history, 50, 2, 3, name="controller_starts")
    tell(history, 55, 2, 1, 1, [2, 3])
    assert chosen(history, **ZOOKEEPER)[1][1:] == ("first_in_sync", 2, 2)


def test_zookeeper_s_unclean_election_follows_from_the_topic_s_setting() -> None:
    history = zookeeper()
    history.add("config_change", 12, name=UNCLEAN_SETTING, value="true", resource_type=2, broker_id=1)
    lives(history, 20, 1)
    tell(history, 25, 1, 1, 1, [1])
    lives(history, 50, 2, 3, name="controller_starts")
    tell(history, 55, 2, 3, 3, [2])
    row = leaderships(history, **ZOOKEEPER)[2]
    assert (row["election"], row["rule"], row["predicted_leader_id"]) == ("unclean", "first_live_unclean", 2)


def test_a_leader_that_no_line_shows_alive_is_not_compared() -> None:
    history = History()
    lives(history, 1, 2, 3, name="controller_starts")
    tell(history, 10, 1, 0, 0, [1, 2, 3])
    assert chosen(history, **ZOOKEEPER)[0][1:] == ("not_known", None, 1)
    assert conformance(history, **ZOOKEEPER)["election_choice"] == (0, 0)


def test_without_the_controller_s_lines_nothing_is_claimed_in_zookeeper() -> None:
    history = History()
    tell(history, 10, 1, 0, 0, [1, 2, 3])
    assert chosen(history, **ZOOKEEPER)[0][1:] == (None, None, 1)
    assert "election_choice" not in conformance(history, **ZOOKEEPER)


# -- why the controller took a replica out of the ISR


def left(history: History, **settings: Any) -> list[tuple[int | None, str]]:
    rows = tables_of(history.events(**settings))["isr_timeline"].to_pylist()
    return [(row["broker_id"], row["reason"]) for row in rows if len(row["isr"]) < len(row["isr_before"] or ())]


def test_a_replica_whose_log_directory_is_lost_left_for_that_though_its_broker_lives() -> None:
    history = cluster()
    history.decide(10, 1, [1, 2, 3])
    history.decide(50, 2, [2, 3])
    history.fence(50, 1, fenced=None)
    assert left(history) == [(1, "log_directory")]


def test_zookeeper_s_controller_takes_out_who_is_gone_or_shuts_down() -> None:
    history = zookeeper()
    lives(history, 50, 1, 2)
    tell(history, 55, 1, 1, 1, [1, 2])
    stops(history, 60, 2)
    tell(history, 65, 1, 2, 2, [1])
    assert left(history, **ZOOKEEPER) == [(3, "broker_away"), (2, "stopped")]


def led_by(history: History, epoch: int, node: int, version: str, unclean: str) -> None:
    """A node is the active controller of an epoch, and says what it runs and how it is set."""
    line = {"topic": None, "partition": None, "broker_id": node, "source_file": f"server-{node}.log"}
    history.add("broker_lifecycle", 0, name="active_controller", controller_epoch=epoch, **line)
    history.add("broker_lifecycle", 300, name="version", value=version, **line)
    history.add("config_change", 301, name=UNCLEAN_SETTING, value=unclean, **line)


def nobody_in_sync_is_left(active: int, *, stated: tuple[tuple[str, str], tuple[str, str]]) -> History:
    """Nodes 100 and 101 run and are set as `stated`, 101 after 100; one is active as the last of the ISR goes."""
    history = cluster(1, 2)
    for epoch, (node, told) in enumerate(zip((100, 101), stated, strict=True), start=1):
        led_by(history, epoch, node, *told)
    history.decide(10, 1, [1], replicas=[1, 2])
    history.decide(500, 2, [2], leader_recovery_state=1)
    history.fence(500, 1)
    for row in history.rows:
        if row.get("metadata_offset") is not None:
            row["controller_epoch"] = active
    return history


def test_the_active_controllers_own_setting_makes_an_unclean_election() -> None:
    stated = (("4.1.0", "false"), ("4.1.0", "true"))
    rows = {active: leaderships(nobody_in_sync_is_left(active, stated=stated))[-1] for active in (1, 2)}
    assert {active: row["trigger"].startswith("an operator") for active, row in rows.items()} == {1: True, 2: False}


def test_the_active_controllers_own_release_decides_which_rule_holds() -> None:
    """Before 3.9 no setting makes a KRaft controller elect so: an operator asked."""
    stated = (("3.8.1", "true"), ("3.9.1", "true"))
    rows = {active: leaderships(nobody_in_sync_is_left(active, stated=stated))[-1] for active in (1, 2)}
    assert {active: row["trigger"].startswith("an operator") for active, row in rows.items()} == {1: True, 2: False}
