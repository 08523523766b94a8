"""What a recording can answer, from the counts of its files."""

from __future__ import annotations

from typing import Any

from pipelines.intake.inputs import inputs_of
from pipelines.intake.inspection import findings, silences
from pipelines.recording.recording import Manifest

SECOND = 1_000_000


def entry(**other: object) -> dict[str, Any]:
    return {
        "path": "logs/node-1/server.log",
        "broker_id": 1,
        "content": "log",
        "layout": "apache",
        "first_line": 1,
        "bytes": 10,
        "lines": 5,
        "facts": 3,
        "rejected": 0,
        "repeated": 0,
        "first_ts": 0,
        "last_ts": 100 * SECOND,
        "silences": [],
        "no_interest": {"INFO": {"kafka.cluster.Partition": 2}},
        "kinds": {"role_change": {"INFO": 3}},
        "notes": [("version", "4.1.0", 0, 0)],
        **other,
    }


def test_a_broker_is_silent_only_when_all_its_logs_are() -> None:
    one = entry(silences=[(10 * SECOND, 40 * SECOND), (60 * SECOND, 70 * SECOND)])
    other = entry(first_ts=5 * SECOND, last_ts=30 * SECOND)
    assert silences([one, other]) == [(30 * SECOND, 40 * SECOND), (60 * SECOND, 70 * SECOND)]


def test_info_logs_alone_cannot_tell_acknowledgements() -> None:
    found = findings([entry()], Manifest())
    assert found["brokers"][0]["server log"] == "INFO"
    assert any("acknowledgements are not known" in sentence for sentence in found["answers"])
    assert any("no metadata dump" in sentence for sentence in found["answers"])


def test_each_brokers_releases_are_told_from_when_on() -> None:
    upgraded = [("version", "3.5.2", 0, 10 * SECOND), ("version", "3.9.1", 20 * SECOND, 30 * SECOND)]
    found = findings([entry(notes=upgraded), entry(broker_id=2, notes=upgraded[:1])], Manifest(kafka="3.5.2"))
    assert [(row["broker"], row["version"], (row["from"] or "")[17:19]) for row in found["versions"]] == [
        (1, "3.5.2", "00"),
        (1, "3.9.1", "20"),
        (2, "3.5.2", "00"),
    ]


def test_releases_before_the_first_known_one_are_named() -> None:
    found = findings([entry(notes=[("version", "2.3.0", 0, 0)])], Manifest())
    assert any("Kafka 2.3.0 is older than 2.4" in sentence for sentence in found["answers"])


def test_logs_of_two_clusters_are_told_of() -> None:
    found = findings([entry(notes=[("cluster_id", "one", 0, 0), ("cluster_id", "two", 9, 9)])], Manifest())
    assert found["cluster_ids"] == ["one", "two"]
    assert any("2 clusters" in sentence for sentence in found["answers"])


def test_ranges_of_a_file_are_one_input() -> None:
    parts = [
        entry(first_line=6, first_ts=120 * SECOND, last_ts=130 * SECOND, kinds={"role_change": {"INFO": 1, "WARN": 1}}),
        entry(),
    ]
    (whole,) = inputs_of(parts)
    assert (whole["lines"], whole["facts"], whole["first_ts"], whole["last_ts"]) == (10, 6, 0, 130 * SECOND)
    assert whole["kinds"] == {"role_change": {"INFO": 4, "WARN": 1}}
    assert whole["silences"] == [(100 * SECOND, 120 * SECOND)]
