"""How long a partition was one failure away from a loss, and how it ended."""

from __future__ import annotations

from typing import Any

import pytest
from facts_builder import History, at
from histories_of_losses import COMMITTED, alone, replicated, tail, taken_over, taken_over_from
from without_spark import tables_of


def spans(history: History, *, size: int = 1000, **settings: Any) -> list[dict[str, Any]]:
    return tables_of(history.events(**settings), size=size)["partition_risk"].to_pylist()


def told(history: History, **settings: Any) -> list[tuple[str, str | None]]:
    """(state, ended_by) of each span."""
    return [(row["state"], row["ended_by"]) for row in spans(history, **settings)]


def test_a_partition_with_its_replicas_in_sync_is_not_at_risk() -> None:
    assert spans(tail(replicated())) == []


def test_a_topic_with_one_replica_is_at_risk_by_choice() -> None:
    history = History()
    history.decide(0, 1, [1], replicas=[1])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.produce(20, 1, 0)
    assert spans(history) == []


def test_leaderless_from_one_election_to_the_next() -> None:
    history = replicated()
    history.decide(900, -1, [1])
    history.decide(950, None, [1], leader_epoch=None)
    history.decide(1500, 2, [2])
    found = [row for row in spans(history) if row["state"] == "leaderless"]
    (row,) = found
    assert (row["start_ts"], row["end_ts"], row["seconds"], row["ended_by"]) == (at(900), at(1500), 0.6, "elected")
    assert (row["leader_id"], row["records_at_risk"], row["evidence"]) == (None, None, "observed")


def test_isr_of_one_until_another_joins() -> None:
    history = replicated()
    history.decide(305, None, [1])
    history.decide(2305, None, [1, 2])
    (row,) = spans(history)
    assert (row["state"], row["seconds"], row["ended_by"], row["isr"]) == ("isr_one", 2.0, "expanded", [1])
    assert (row["leader_id"], row["leader_epoch"], row["min_isr"]) == (1, 0, None)
    assert (row["acked_all"], row["acked_one"], row["records_at_risk"]) == (0, 0, 0)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_records_that_only_the_leader_had_were_at_risk(size: int) -> None:
    history = replicated()
    history.decide(305, None, [1])
    tail(history, ms=600)
    for k in range(2):
        history.produce(620 + k, 1, COMMITTED + 3 + k)
    history.fetch(700, 1, 2, COMMITTED, bytes=500, hw=COMMITTED + 5)
    history.fetch(710, 1, 2, COMMITTED + 5, hw=COMMITTED + 5)
    history.decide(2305, None, [1, 2])
    alone_, by_one = sorted(spans(history, size=size), key=lambda row: row["state"] != "isr_one")
    assert (alone_["records_at_risk"], alone_["acked_all"], alone_["acked_one"]) == (5, 2, 3)
    assert (alone_["ended_by"], alone_["incident_id"]) == ("expanded", None)
    assert (by_one["state"], by_one["start_ts"], by_one["end_ts"]) == ("acknowledged_by_one", at(620), at(2305))
    assert by_one["seq"] > alone_["seq"]


def test_records_that_a_follower_already_had_were_not_at_risk() -> None:
    history = tail(replicated(), ms=301)
    history.fetch(305, 1, 2, COMMITTED, bytes=300, hw=COMMITTED)
    history.fetch(306, 1, 2, COMMITTED + 3, hw=COMMITTED + 3)
    history.decide(400, None, [1])
    (row,) = spans(history)
    assert row["records_at_risk"] == 0


def test_under_min_isr_ends_as_the_setting_is_lowered() -> None:
    history = replicated()
    lower = {"name": "min.insync.replicas", "resource_type": 2, "partition": None}
    history.add("config_change", 0, value="2", metadata_offset=100, **lower)
    history.decide(305, None, [1])
    history.add("config_change", 1305, value="1", metadata_offset=100 + len(history.rows), **lower)
    found = {row["state"]: row for row in spans(history)}
    under = found["under_min_isr"]
    assert (under["min_isr"], under["seconds"], under["ended_by"]) == (2, 1.0, "min_isr_lowered")
    assert (found["isr_one"]["end_ts"], found["isr_one"]["ended_by"]) == (None, None)


def test_min_isr_beyond_the_number_of_replicas_asks_for_all_of_them() -> None:
    history = replicated()
    setting = {"name": "min.insync.replicas", "value": "5", "metadata_offset": 100, "partition": None}
    history.add("config_change", 0, **setting)
    assert spans(history) == []


def test_a_span_that_ends_in_a_loss_names_it() -> None:
    history = replicated()
    alone(history)
    tail(history, acks=-1)
    history.decide(900, -1, [1])
    tables = tables_of(taken_over_from(history, epoch=2).events())
    (incident,) = tables["data_loss_incidents"].to_pylist()
    rows = {row["state"]: row for row in tables["partition_risk"].to_pylist() if row["leader_epoch"] < 2}
    assert {state: row["incident_id"] for state, row in rows.items()} == dict.fromkeys(
        ("isr_one", "acknowledged_by_one", "leaderless"), incident["incident_id"]
    )
    assert rows["isr_one"]["ended_by"] == "leader_lost"
    assert rows["isr_one"]["records_at_risk"] == incident["records"]


def test_a_new_leader_begins_a_new_span() -> None:
    found = told(taken_over(tail(replicated(isr=[1]))))
    assert [one for one in found if one[0] == "isr_one"] == [("isr_one", "leader_changed"), ("isr_one", None)]


def test_what_is_not_known_is_null() -> None:
    history = History()
    history.decide(0, 1, [1], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=7, hw=7)
    (row,) = spans(history)
    assert (row["acked_all"], row["acked_one"], row["records_at_risk"], row["end_ts"]) == (None, None, None, None)


def test_a_topic_that_is_deleted_is_at_risk_no_more() -> None:
    history = replicated()
    history.decide(305, None, [1], topic_id="abc")
    gone = {"topic_id": "abc", "name": "remove", "partition": None, "topic": "orders"}
    history.add("topic_change", 1305, metadata_offset=900, **gone)
    assert told(history, topic_id="abc") == [("isr_one", "topic_deleted")]


@pytest.mark.parametrize(("told_ms", "seconds", "evidence"), [(None, 0.0, "bounded"), (300_000, 900.0, "observed")])
def test_time_in_which_nobody_told_anything_is_no_time_at_risk(
    told_ms: float | None, seconds: float, evidence: str
) -> None:
    history = replicated()
    history.decide(1000, None, [1])
    for k in range(1, 3 if told_ms else 0):
        history.produce(1000 + k * told_ms, 1, COMMITTED + k - 1, acks=1)
    history.decide(901_000, None, [1, 2])
    (row,) = spans(history)
    assert (row["state"], row["evidence"]) == ("isr_one", evidence)
    assert row["seconds"] == pytest.approx(seconds, abs=0.1)
