"""That nothing was lost is said only where the logs could have shown a loss."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.intake.inspection import in_turn, versions_seen
from pipelines.intake.releases import too_new
from pipelines.stages.verdict import Seen, verdict

ENOUGH: dict[str, Any] = {
    "kinds": frozenset({"produce", "role_change"}),
    "events": 1,
    "leaders": frozenset({1, 2}),
    "with_requests": frozenset({1, 2}),
    "versions": ["4.1.0"],
}
INCIDENT: dict[str, Any] = {
    "topic": "a", "incarnation": 0, "partition": 0, "acked_all": 0, "acked_one": 0, "acked_possible": 0,
    "acked_unconfirmed": 0,
}  # fmt: skip


def said(*incidents: dict[str, Any], **seen: Any) -> tuple[str, str]:
    found = verdict(incidents, Seen(**{**ENOUGH, **seen}))
    return found["verdict"], found["headline"]


def test_nothing_was_lost_where_everything_could_be_seen() -> None:
    assert said() == ("nothing_lost", "Nothing acknowledged was lost")
    assert said(complete=False) == ("nothing_lost", "Nothing acknowledged was lost as far as the logs tell")


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"events": 0, "kinds": frozenset()}, "holds nothing about replication"),
        ({"kinds": frozenset({"topic_change", "broker_lifecycle", "produce"})}, "no line that tells of leaders"),
        ({"with_requests": frozenset()}, "no request log was read, so what was acknowledged is unknown"),
        ({"with_requests": frozenset({0})}, "no request log of a broker that led was read"),
        ({"versions": ["0.10.2.1"]}, "Kafka 0.10.2.1 is older than 2.4"),
        ({"versions": ["2.3.1", "2.5.0"]}, "Kafka 2.3.1 is older than 2.4"),
        ({"versions": ["5.3.1-ccs"]}, "Kafka 5.3.1-ccs is older than 2.4"),
    ],
)
def test_what_could_not_be_seen_is_never_told_as_not_lost(seen: dict[str, Any], words: str) -> None:
    word, headline = said(**seen)
    assert word == "unknown"
    assert headline.startswith("Cannot tell: ")
    assert words in headline
    word, headline = said(INCIDENT, **seen)
    assert (word, "Nothing" in headline) == ("unknown", False), "nor beside a loss of records that nobody was promised"


def test_a_loss_that_was_seen_is_told_whatever_else_could_not_be() -> None:
    lost = {**INCIDENT, "acked_one": 3}
    assert said(lost, versions=["2.3.1"], complete=False) == ("lost", "3 acknowledged records lost in 1 partition")


def test_records_lost_that_nobody_was_promised_are_told_as_far_as_the_logs_tell() -> None:
    words = "Nothing acknowledged was lost as far as the logs tell, but committed or consumed records in 1 partition"
    assert said(INCIDENT, complete=False) == ("unacknowledged", words)


def test_releases_of_confluent_are_counted_as_those_of_kafka_in_them() -> None:
    assert said(versions=["5.4.0-ccs", "7.9.1-ce"])[0] == "nothing_lost"
    assert too_new(["7.9.1-ccs", "8.0.0-ccs"]) is None
    assert too_new(["4.5.0"]) == "Kafka 4.5.0 is newer than 4.4, the last release whose logs are known."


def test_versions_are_told_in_turn() -> None:
    stated = [(3, "3.9.1"), (1, "3.5.2"), (2, "3.5.2"), (None, "3.5.2"), (5, "3.5.2")]
    assert in_turn(stated) == [(None, "3.5.2"), (3, "3.9.1"), (5, "3.5.2")]


def test_releases_of_brokers_and_levels_of_the_cluster_are_told_from_when_on() -> None:
    server_log = {"broker_id": 1, "notes": [["version", "3.5.2", 0, 0], ["version", "3.9.1", 2_000_000, 2_000_000]]}
    dump = {
        "broker_id": None,
        "notes": [["metadata.version", "11", 0, 0], ["metadata.version", "21", 3_000_000, 3_000_000]],
    }
    second = "1970-01-01T00:00:0{}.000+00:00".format
    assert versions_seen([server_log, dump]) == [
        {"broker": 1, "version": "3.5.2", "from": second(0)},
        {"broker": 1, "version": "3.9.1", "from": second(2)},
        {"metadata.version": "11 (Kafka 3.5)", "from": second(0)},
        {"metadata.version": "21 (Kafka 3.9)", "from": second(3)},
    ]
