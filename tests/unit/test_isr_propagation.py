"""When ZooKeeper's controller hears of an ISR that a leader wrote: 5 s after it, or 60 s after the last time."""

from __future__ import annotations

from typing import Any

import pytest
from facts_builder import History, at
from without_spark import tables_of

from replay.tables.isr_propagation import IsrPropagation

ALIVE = {"source_file": "server-9.log", "topic": None, "partition": None, "broker_id": 9}


def cached(propagation: IsrPropagation, ms: float, version: int, *, controller: int = 9, epoch: int = 0) -> None:
    event = {"kind": "observation", "cause": "metadata_cached", "seq": int(ms), "ts": at(ms), "broker_id": 2}
    state = {"leader_epoch": epoch, "partition_epoch": version, "controller_id": controller}
    propagation.take(event | state, asks=False)


def started(propagation: IsrPropagation, ms: float, leo: int = 7) -> None:
    event = {"kind": "log_load", "cause": None, "ts": at(ms), "broker_id": 1, "leo": leo}
    propagation.take(event | {"leader_epoch": None, "partition_epoch": None}, asks=False)


def committed(
    propagation: IsrPropagation, ms: float, version: int, *, asks: bool = False, state: str = "updated"
) -> None:
    event = {"kind": "isr_request", "cause": "committed", "seq": int(ms), "ts": at(ms), "broker_id": 1, "state": state}
    propagation.take(event | {"leader_epoch": 0, "partition_epoch": version}, asks=asks)


def counts(propagation: IsrPropagation) -> tuple[int, int]:
    (row,) = propagation.checks()
    return row["compared"], row["matched"]


@pytest.mark.parametrize(
    ("after", "matched"), [(4_900, 0), (5_000, 1), (7_500, 1), (62_500, 1), (64_400, 1), (64_600, 0)]
)
def test_the_controller_hears_no_sooner_than_5_s_after_a_change_and_no_later_than_a_minute(
    after: int, matched: int
) -> None:
    found = IsrPropagation()
    started(found, 0)
    cached(found, 0, 0)
    committed(found, 1_000, 1)
    cached(found, 1_000 + after, 1)
    cached(found, 2_000 + after, 1)  # sent again: nothing new
    assert counts(found) == (1, matched)


def test_after_a_quiet_minute_the_controller_hears_at_the_next_run() -> None:
    for change, matched in ((55_000, 0), (61_000, 1)):
        found = IsrPropagation()
        started(found, 0)
        cached(found, 10, 0)
        committed(found, change, 1)
        cached(found, change + 1_000, 1)
        assert counts(found) == (1, matched)


def test_a_node_begins_a_minute_in_which_changes_wait_for_5_s_again() -> None:
    for change, matched in ((90_000, 0), (125_000, 1)):
        found = IsrPropagation()
        started(found, 0)
        cached(found, 10, 0)
        committed(found, 61_000, 1)
        cached(found, 62_000, 1)
        committed(found, change, 2)
        cached(found, change + 1_000, 2)
        assert counts(found) == (2, 1 + matched)


def test_each_change_begins_the_5_s_anew() -> None:
    for after, matched in ((7_900, 0), (8_100, 1)):
        found = IsrPropagation()
        started(found, 0)
        cached(found, 10, 0)
        committed(found, 1_000, 1)
        committed(found, 4_000, 2)
        cached(found, 1_000 + after, 1)
        assert counts(found) == (1, matched)


def test_without_the_start_of_the_leader_nothing_tells_whether_a_minute_was_quiet() -> None:
    for leo in (None, 0):  # an empty log may have been made by a broker that was there already
        found = IsrPropagation()
        if leo is not None:
            started(found, 0, leo)
        cached(found, 0, 0)
        committed(found, 1_000, 1)
        cached(found, 1_200, 1)
        assert counts(found) == (1, 1)


@pytest.mark.parametrize(("after", "matched"), [(30, 1), (2_100, 0)])
def test_an_isr_that_the_controller_wrote_itself_is_sent_at_once(after: int, matched: int) -> None:
    found = IsrPropagation()
    cached(found, 0, 0)
    committed(found, 1_000, 1, asks=True)
    cached(found, 1_000 + after, 1)
    assert counts(found) == (1, matched)


def test_what_a_controller_sends_first_was_read_when_it_took_over() -> None:
    found = IsrPropagation()
    cached(found, 0, 0)
    committed(found, 1_000, 1)
    cached(found, 1_500, 1, controller=8)
    assert found.checks() == []
    committed(found, 3_000, 2)
    cached(found, 9_000, 2, controller=8)
    assert counts(found) == (1, 1)


def test_what_a_controller_sends_after_a_broker_came_or_went_it_may_have_read_for_that() -> None:
    found = IsrPropagation()
    cached(found, 0, 0)
    committed(found, 1_000, 1)
    gone = {"kind": "broker_change", "ts": at(1_200), "leader_epoch": None, "partition_epoch": None}
    found.take(gone, asks=False)
    cached(found, 1_500, 1)
    assert found.checks() == []


def test_a_version_that_no_leader_wrote_or_that_came_by_metadata_is_not_compared() -> None:
    found = IsrPropagation()
    cached(found, 0, 0)
    cached(found, 1_000, 1)
    committed(found, 900, 2, state="applied")
    cached(found, 1_100, 2)
    assert found.checks() == []


def history(version: str, sent: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A leader takes a replica into the ISR at 3 s; a broker's cache has it at `sent`. Events, and the check's row."""
    history = History()
    history.add("broker_lifecycle", 0, name="controller_starts", replicas=[1, 2, 9], **ALIVE)
    history.add("log_load", 5, broker_id=1, offset=4, hw=4, source_file="server-1.log")
    for broker, role in ((1, "leader"), (2, "follower")):
        state = {"isr": [1], "partition_epoch": 0, "replicas": [1, 2], "leader_id": 1}
        history.add(
            "leader_and_isr", 10, broker_id=broker, name="received", leader_epoch=0, source_file="s.log", **state
        )
        history.role(20, broker, role, 0, offset=4, hw=4, isr=[1], partition_epoch=0)
    line = {"broker_id": 1, "source_file": "server-1.log"}
    history.add("isr_update", 3_000, name="updated", isr=[1, 2], partition_epoch=1, **line)
    for ms, epoch in ((30, 0), (sent, 1)):
        state = {"leader_epoch": 0, "partition_epoch": epoch, "leader_id": 1, "isr": [1], "replicas": [1, 2]}
        cache = {"broker_id": 2, "subject_broker_id": 9, "controller_epoch": 1, "source_file": "state-2.log"}
        history.add("state_change", ms, name="metadata_cached", **state, **cache)
    events = history.events(kafka_version=version)
    checks = tables_of(events)["conformance"].to_pylist()
    told = [row for row in events.to_pylist() if row["cause"] == "metadata_cached"]
    return told, [row for row in checks if row["check"] == "isr_propagation"]


def test_what_a_broker_cached_is_an_event_and_is_compared() -> None:
    told, (row,) = history("2.4.1", 9_000)
    assert [(one["broker_id"], one["controller_id"], one["partition_epoch"]) for one in told] == [(2, 9, 0), (2, 9, 1)]
    assert (row["compared"], row["matched"]) == (1, 1)
    _, (row,) = history("2.4.1", 3_500)
    assert (row["matched"], row["note"]) == (0, "controller 9: computed 5 to 64.5 s, stated 0.500 s")
