"""What a recording can answer, from the counts of its files."""

from __future__ import annotations

from typing import Any

from pipelines.inputs import inputs_of
from pipelines.inspection import findings, silences
from pipelines.recording import Manifest

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
        "notes": [("version", "4.1.0")],
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


def test_ranges_of_a_file_are_one_input() -> None:
    parts = [
        entry(first_line=6, first_ts=120 * SECOND, last_ts=130 * SECOND, kinds={"role_change": {"INFO": 1, "WARN": 1}}),
        entry(),
    ]
    (whole,) = inputs_of(parts)
    assert (whole["lines"], whole["facts"], whole["first_ts"], whole["last_ts"]) == (10, 6, 0, 130 * SECOND)
    assert whole["kinds"] == {"role_change": {"INFO": 4, "WARN": 1}}
    assert whole["silences"] == [(100 * SECOND, 120 * SECOND)]
