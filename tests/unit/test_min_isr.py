"""min.insync.replicas: as the metadata states it, or as brokers' lines tell it, from when they tell it on."""

from __future__ import annotations

import pytest
from facts_builder import History, of_kind
from histories_of_losses import replicated, tail
from isr_histories import begun, isr_rows
from without_spark import tables_of

ZOOKEEPER = {"kafka_version": "3.9.0"}


def set_min_isr(history: History, ms: float, value: int, broker: int = 1) -> None:
    told = {"name": "min.insync.replicas", "value": str(value), "source_file": f"server-{broker}.log"}
    history.add("config_change", ms, broker_id=broker, **told)


def unclean(*changes: tuple[float, int]) -> History:
    """Broker 1 alone acknowledges three records; broker 2, which lacks them, leads from second 1 on."""
    history = replicated()
    history.rows = [row for row in history.rows if row["kind"] != "partition_change"]
    history.role(10, 1, "leader", 0, offset=0, hw=0, isr=[1, 2], replicas=[1, 2], partition_epoch=0)
    history.add("isr_update", 305, name="updated", broker_id=1, isr=[1], partition_epoch=1, source_file="server-1.log")
    tail(history, acks=-1)
    history.role(1010, 2, "leader", 2, offset=2, hw=2, isr=[2], replicas=[1, 2], partition_epoch=3)
    for ms, value in changes:
        set_min_isr(history, ms, value)
    return history


@pytest.mark.parametrize("changes", [((1, 1),), ((1, 1), (9000, 2))])
def test_setting_changed_after_an_incident_does_not_rewrite_it(changes: tuple[tuple[float, int], ...]) -> None:
    (row,) = tables_of(unclean(*changes).events(**ZOOKEEPER))["data_loss_incidents"].to_pylist()
    assert row["prevention"] == ["unclean.leader.election.enable=false", "min.insync.replicas=2"]


def test_each_change_holds_from_when_a_broker_tells_of_it() -> None:
    history = unclean((1, 1), (2600, 2), (2601, 2))
    told = [
        (row["min_insync_replicas"], row["source_line"])
        for row in of_kind(history.events(**ZOOKEEPER), "config_change")
    ]
    assert told == [(1, None), (2, len(history.rows) - 1)]


def test_a_change_does_not_tell_what_held_before_it() -> None:
    own = unclean().events(**ZOOKEEPER)
    changed = unclean((9000, 2)).events(**ZOOKEEPER)
    first, then = (of_kind(events, "config_change")[0]["min_insync_replicas"] for events in (own, changed))
    assert first == then


def test_min_insync_replicas_follows_the_metadata() -> None:
    history = begun()
    history.decide(400, None, [1, 2])
    setting = {"partition": None, "name": "min.insync.replicas"}
    history.add("config_change", 500, value="3", metadata_offset=500, **setting)
    history.decide(600, None, [1], metadata_offset=600)
    history.add("config_change", 700, value=None, metadata_offset=700, **setting)
    history.decide(800, None, [1, 2], metadata_offset=800)
    rows = isr_rows(history, "committed")
    assert [(row["isr"], row["under_min_isr"]) for row in rows] == [([1, 2], None), ([1], True), ([1, 2], None)]
