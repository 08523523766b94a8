"""Which Kafka each broker ran when, and what tells where nobody says."""

from __future__ import annotations

import pytest
from facts_builder import History, at, of_kind
from without_spark import tables_of

from replay.evidence.rows import Row, standing_together
from replay.evidence.tenures import micros
from replay.evidence.versions import PROTOCOL_SETTING, UNTOLD, Spoken, protocol_told, version_told, versions_of


def by_follower(version: int | None) -> Row:
    return Row({"kind": "fetch", "replica_id": 2, "api_version": version})


def by_consumer(version: int) -> Row:
    return Row({"kind": "fetch", "replica_id": -1, "api_version": version})


def in_columns(fetches: list[Row]) -> list[Row]:
    """The same in columns that they share, as a partition's fetches are."""
    columns = standing_together(fetches, ("kind", "replica_id", "api_version"))
    return [Row.at(columns, k) for k in range(len(fetches))]


def level(value: str) -> Row:
    return Row({"kind": "feature_change", "name": "metadata.version", "value": value})


def started(broker: int, ms: float, version: str, fact: str = "") -> Row:
    said = {"kind": "broker_lifecycle", "name": "version", "value": version}
    return Row({**said, "broker_id": broker, "ts": micros(at(ms)), "fact_id": fact})


def spoke(broker: int, ms: float, protocol: str) -> Row:
    said = {"kind": "config_change", "name": PROTOCOL_SETTING, "value": protocol, "topic": None}
    return Row({**said, "broker_id": broker, "ts": micros(at(ms))})


def us(ms: float) -> int:
    return micros(at(ms))


def test_a_version_is_a_brokers_from_one_of_its_starts_to_the_next() -> None:
    found = versions_of([started(1, 0, "3.5.2"), started(1, 500, "3.9.1"), started(2, 10, "3.5.2")], [], UNTOLD)
    assert [found.at(1, us(ms)).version for ms in (-9, 0, 499, 500)] == ["3.5.2", "3.5.2", "3.5.2", "3.9.1"]
    assert found.at(2, us(900)).version == "3.5.2"
    assert found.seen == ["3.5.2", "3.9.1"]
    assert found.differ


def test_which_version_holds_does_not_hang_on_the_names_or_the_order_of_facts() -> None:
    for names in (("aa", "bb"), ("bb", "aa")):
        rows = [started(1, 100, "3.7.1", names[0]), started(1, 0, "3.6.2", names[1])]
        assert [versions_of(told, [], UNTOLD).at(1, us(50)).version for told in (rows, rows[::-1])] == ["3.6.2"] * 2
        assert version_told(rows, []) == version_told(rows[::-1], []) == "3.6.2"


def test_a_manifest_names_the_first_version_only() -> None:
    found = versions_of([started(1, 500, "3.9.1")], [], Spoken("3.5.2", None))
    assert [found.at(1, us(ms)).version for ms in (0, 500)] == ["3.5.2", "3.9.1"]
    assert found.at(2, us(900)).version == "3.5.2"


def test_what_a_broker_says_of_itself_wins_over_what_is_told_by_use() -> None:
    found = versions_of([level("27"), started(1, 0, "3.9.1")], [by_follower(18)], UNTOLD)
    assert found.at(1, us(5)).version == "3.9.1"


def test_a_broker_that_says_nothing_ran_what_the_others_did() -> None:
    found = versions_of([started(1, 0, "3.5.2"), started(1, 500, "3.9.1")], [], UNTOLD)
    assert [found.at(7, us(ms)).version for ms in (-5, 100, 600)] == ["3.5.2", "3.5.2", "3.9.1"]


def test_a_protocol_is_a_brokers_too() -> None:
    found = versions_of([started(1, 0, "2.8.2"), spoke(1, 0, "2.4-IV1"), spoke(1, 500, "2.8-IV1")], [], UNTOLD)
    assert [found.at(1, us(ms)) for ms in (10, 600)] == [Spoken("2.8.2", "2.4-IV1"), Spoken("2.8.2", "2.8-IV1")]


SETTINGS = {"min.insync.replicas": 2}


def upgraded(*, first: str, later: str) -> History:
    """Broker 1 leads an ISR of its own, below min.insync.replicas; it started anew with another version."""
    history = History()
    for ms, version in ((-100, first), (400, later)):
        said = {"name": "version", "value": version, "broker_id": 1, "topic": None, "partition": None}
        history.add("broker_lifecycle", ms, source_file="server-1.log", **said)
    history.decide(2, 1, [1], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.produce(20, 1, 0, acks=1)
    history.decide(300, -1)
    history.decide(500, 1, [1])
    history.role(510, 1, "leader", 2, offset=1, hw=0)
    history.produce(520, 1, 1, acks=1)
    return history


def highest_hw(history: History, epoch: int) -> int:
    rows = tables_of(history.events(kafka_version=None, settings=SETTINGS))["hw_timeline"].to_pylist()
    return max((row["hw"] for row in rows if row["leader_epoch"] == epoch), default=0)


def test_the_rules_of_a_leader_are_those_of_the_version_that_it_started_with() -> None:
    history = upgraded(first="3.6.2", later="3.7.1")
    assert (highest_hw(history, 0), highest_hw(history, 2)) == (1, 0)
    history = upgraded(first="3.7.1", later="3.6.2")
    assert (highest_hw(history, 0), highest_hw(history, 2)) == (0, 2)


def test_events_say_from_where_on_which_version_holds_for_which_broker() -> None:
    events = upgraded(first="3.6.2", later="3.7.1").events(kafka_version=None)
    told = [(row["broker_id"], row["kafka_version"]) for row in of_kind(events, "config_change")]
    assert told == [(None, "3.6.2"), (1, "3.7.1"), (2, "3.7.1")]


@pytest.mark.parametrize(
    ("cluster", "fetches", "version"),
    [
        ([], [], None),
        ([], [by_follower(None)], None),
        ([], [by_follower(11)], "2.6.3"),
        ([], [by_follower(12)], "3.0.2"),
        ([], [by_follower(3), by_consumer(12)], "3.0.2"),
        ([level("21")], [by_follower(17)], "4.0.0"),
        ([level("19")], [], "3.7"),
        ([level("7"), level("20")], [by_follower(15)], "3.8"),
        ([level("27")], [by_follower(18)], "4.1"),
        ([], [by_follower(18)], None),  # as new as the newest, or newer
        ([level("0"), level("nonsense")], [], None),
    ],
)
def test_a_version_is_told_by_what_is_used(cluster: list[Row], fetches: list[Row], version: str | None) -> None:
    assert version_told(cluster, in_columns(fetches)) == version


@pytest.mark.parametrize(
    ("fetches", "version", "protocol"),
    [
        ([by_follower(3), by_consumer(12)], "2.8.2", "0.10.2"),
        ([by_follower(11)], "2.4.1", None),
        ([by_follower(11)], "3.3.2", "2.7-IV0"),
        ([by_follower(12)], "2.8.2", None),
        ([by_follower(17)], "3.9.1", None),
        ([by_follower(18)], "4.1.0", None),
        ([by_consumer(4)], "3.9.1", None),
        ([by_follower(3)], None, None),
    ],
)
def test_followers_tell_a_protocol_below_the_brokers_version(
    fetches: list[Row], version: str | None, protocol: str | None
) -> None:
    assert protocol_told(in_columns(fetches), version) == protocol
