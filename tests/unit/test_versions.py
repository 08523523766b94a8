"""Which Kafka wrote the evidence, where nobody says."""

from __future__ import annotations

import pytest

from replay.rows import Row
from replay.versions import protocol_told, version_told


def by_follower(version: int | None) -> Row:
    return Row({"kind": "fetch", "replica_id": 2, "api_version": version})


def by_consumer(version: int) -> Row:
    return Row({"kind": "fetch", "replica_id": -1, "api_version": version})


def level(value: str) -> Row:
    return Row({"kind": "feature_change", "name": "metadata.version", "value": value})


def test_what_a_broker_says_of_itself_wins() -> None:
    says = Row({"kind": "broker_lifecycle", "name": "version", "value": "3.9.1"})
    assert version_told([level("27"), says], [by_follower(18)]) == "3.9.1"


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
    assert version_told(cluster, fetches) == version


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
    assert protocol_told(fetches, version) == protocol
