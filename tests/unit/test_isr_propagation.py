"""When ZooKeeper's controller hears of an ISR that a leader wrote: 5 s after it, or 60 s after the last time."""

from __future__ import annotations

from typing import Any

import pytest
from facts_builder import History, at
from without_spark import tables_of

from replay.evidence.roles import role_signs
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


def noticed(propagation: IsrPropagation, ms: float, cause: str, broker: int) -> None:
    told = {"kind": "observation", "cause": cause, "seq": int(ms), "ts": at(ms), "broker_id": broker}
    propagation.take(told | {"leader_epoch": None, "partition_epoch": None}, asks=False)


def made(propagation: IsrPropagation, ms: float, leader: int = 1) -> None:
    noticed(propagation, ms, "isr_notice_made", leader)


def read(propagation: IsrPropagation, ms: float, controller: int = 9) -> None:
    noticed(propagation, ms, "isr_notice_read", controller)


def counts(propagation: IsrPropagation) -> tuple[int, int]:
    (row,) = propagation.checks()
    return row["compared"], row["matched"]


WITHIN_THE_RULE = pytest.mark.parametrize(
    ("after", "matched"), [(4_900, 0), (5_000, 1), (7_500, 1), (62_500, 1), (64_400, 1), (64_600, 0)]
)


@WITHIN_THE_RULE
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


@WITHIN_THE_RULE
def test_a_node_is_made_no_sooner_than_5_s_after_the_last_change_and_no_later_than_a_minute(
    after: int, matched: int
) -> None:
    found = IsrPropagation()
    started(found, 0)
    committed(found, 1_000, 1)
    made(found, 1_000 + after)
    assert counts(found) == (1, matched)


def test_each_change_puts_the_node_off_until_a_minute_is_over() -> None:
    for ms, matched in ((8_900, 0), (9_000, 1), (60_100, 1)):
        found = IsrPropagation()
        started(found, 0)
        committed(found, 1_000, 1)
        committed(found, 4_000, 2)
        made(found, ms)
        assert counts(found) == (1, matched)
    for ms, matched in ((59_900, 0), (60_100, 1)):
        found = IsrPropagation()
        started(found, 0)
        committed(found, 1_000, 1)
        committed(found, 58_000, 2)
        made(found, ms)
        assert counts(found) == (1, matched)


def test_a_node_of_no_known_change_is_not_compared_and_begins_a_minute() -> None:
    found = IsrPropagation()
    made(found, 1_000)
    assert found.checks() == []
    committed(found, 30_000, 1)
    made(found, 31_000)
    assert counts(found) == (1, 0)


@pytest.mark.parametrize(("ms", "matched"), [(6_900, 0), (7_005, 1), (8_900, 1), (9_200, 0)])
def test_a_controller_reads_a_node_soon_after_it_was_made(ms: int, matched: int) -> None:
    found = IsrPropagation()
    started(found, 0)
    committed(found, 1_000, 1)
    made(found, 7_000)
    read(found, ms)
    assert counts(found) == (2, 1 + matched)


@pytest.mark.parametrize(("ms", "matched"), [(5_900, 0), (6_000, 1), (65_400, 1), (65_600, 0)])
def test_what_a_controller_read_is_compared_with_the_rule_where_no_line_tells_of_the_node(
    ms: int, matched: int
) -> None:
    found = IsrPropagation()
    started(found, 0)
    committed(found, 1_000, 1)
    read(found, ms)
    assert counts(found) == (1, matched)


def test_a_time_that_is_stated_is_what_the_sending_is_held_against() -> None:
    for ms, matched in ((7_005, 1), (6_500, 0), (9_500, 0)):
        found = IsrPropagation()
        started(found, 0)
        cached(found, 0, 0)
        committed(found, 1_000, 1)
        read(found, 7_000)
        cached(found, ms, 1)  # the rule alone would allow each
        assert counts(found) == (2, 1 + matched)
    for ms, matched in ((7_005, 1), (6_500, 0), (9_500, 0)):
        found = IsrPropagation()
        started(found, 0)
        cached(found, 0, 0)
        committed(found, 1_000, 1)
        made(found, 7_000)
        cached(found, ms, 1)
        assert counts(found) == (2, 1 + matched)


def test_what_was_written_behind_a_node_is_read_with_it_and_compared_with_nothing() -> None:
    found = IsrPropagation()
    started(found, 0)
    committed(found, 1_000, 1)
    made(found, 7_000)
    committed(found, 7_002, 2)
    read(found, 7_010)
    assert counts(found) == (2, 2)
    made(found, 14_000)
    read(found, 14_010)  # the controller knows what it reads
    assert counts(found) == (3, 3)


def test_nodes_that_a_new_controller_deletes_are_not_compared() -> None:
    found = IsrPropagation()
    started(found, 0)
    cached(found, 0, 0)
    committed(found, 1_000, 1)
    made(found, 7_000)
    cached(found, 9_000, 0, controller=8)
    committed(found, 10_000, 2)
    made(found, 17_000)
    read(found, 17_010, controller=8)
    assert counts(found) == (3, 3)


def test_what_a_controller_read_begins_a_minute_in_which_changes_wait_for_5_s_again() -> None:
    found = IsrPropagation()
    started(found, 0)
    committed(found, 61_000, 1)
    read(found, 63_500)  # after a quiet minute
    committed(found, 64_000, 2)
    read(found, 66_200)
    assert counts(found) == (2, 1)


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


def test_lines_about_notifications_are_events_and_no_signs_of_a_role() -> None:
    history = History()
    history.add("broker_lifecycle", 0, name="controller_starts", replicas=[1, 2, 9], **ALIVE)
    history.add("log_load", 5, broker_id=1, offset=4, hw=4, source_file="server-1.log")
    for broker, role in ((1, "leader"), (2, "follower")):
        state = {"isr": [1], "partition_epoch": 0, "replicas": [1, 2], "leader_id": 1}
        sent = {"broker_id": broker, "name": "received", "leader_epoch": 0, "source_file": "s.log"}
        history.add("leader_and_isr", 10, **sent, **state)
        history.role(20, broker, role, 0, offset=4, hw=4, isr=[1], partition_epoch=0)
    line = {"broker_id": 1, "source_file": "server-1.log"}
    history.add("isr_update", 3_000, name="updated", isr=[1, 2], partition_epoch=1, **line)
    history.add("isr_update", 8_500, name="propagated", **line)
    history.add("isr_update", 8_510, name="notified", broker_id=9, source_file="server-9.log")
    events = history.events(kafka_version="2.4.1")
    told = [row for row in events.to_pylist() if (row["cause"] or "").startswith("isr_notice")]
    assert [(row["cause"], row["broker_id"], row["controller_id"]) for row in told] == [
        ("isr_notice_made", 1, None),
        ("isr_notice_read", 9, 9),
    ]
    checks = {row["check"]: row for row in tables_of(events)["conformance"].to_pylist()}
    assert (checks["isr_propagation"]["compared"], checks["isr_propagation"]["matched"]) == (2, 2)
    signs = role_signs({"isr_update": history.facts().by_kind["isr_update"]}, {1, 9})
    assert {broker: len(found) for broker, found in signs.items()} == {1: 1}
