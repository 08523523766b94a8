"""A broker's lines tell in which order it stops a fetcher, cuts its log, and starts the next fetcher."""

from __future__ import annotations

from typing import Any

import pytest
from facts_builder import History, at, of_kind
from without_spark import tables_of

KAFKA = "4.1.0"


def history(*, produces: bool = False) -> History:
    """Broker 1 leads and broker 2 follows; two seconds later they change their roles."""
    told = History()
    told.decide(0, 1, [1, 2], replicas=[1, 2])
    told.role(10, 1, "leader", 0, offset=0, hw=0)
    told.role(11, 2, "follower", 0, offset=0, hw=0)
    line(told, 12, 2, "removed")
    line(told, 13, 2, "added", leader_id=1, leader_epoch=0, fetch_offset=0)
    told.fetch(500, 1, 2, 0, hw=0)
    if produces:
        told.produce(2_100, 1, 0, total_us=1_000_000, remote_us=999_000, local_us=1_000, error_code=6)
    told.decide(2_000, 2, [1, 2], leader_epoch=1, partition_epoch=1)
    return told


def line(told: History, ms: float, broker: int, name: str, **fields: Any) -> None:
    """A line of the broker's ReplicaFetcherManager."""
    told.add("fetcher", ms, name=name, broker_id=broker, source_file=f"server-{broker}.log", **fields)


def compared(told: History, version: str = KAFKA) -> tuple[int, int]:
    """How many comparisons the check made, and how many of them agree."""
    rows = tables_of(told.events(kafka_version=version))["conformance"].to_pylist()
    (row,) = (one for one in rows if one["check"] == "fetcher_steps")
    return row["compared"], row["matched"]


BEFORE = 2  # comparisons of the first role of broker 2: the order of its steps, and from where it fetches


def test_the_event_of_a_role_tells_when_its_fetchers_were_stopped_and_started() -> None:
    told = history()
    line(told, 2_009, 2, "removed")
    told.role(2_010, 2, "leader", 1, offset=0, hw=0)
    roles = [row for row in of_kind(told.events(kafka_version=KAFKA), "role_change") if row["broker_id"] == 2]
    steps = [(row["fetcher_stopped_ts"], row["fetcher_started_ts"], row["fetcher_offset"]) for row in roles]
    assert steps == [(at(12), at(13), 0), (at(2_009), at(13), 0)]


@pytest.mark.parametrize(("stopped", "agrees"), [(2_009, 1), (2_010, 1), (2_011, 0)])
def test_a_broker_stops_its_fetcher_before_it_leads(stopped: float, agrees: int) -> None:
    told = history()
    line(told, stopped, 2, "removed")
    told.role(2_010, 2, "leader", 1, offset=0, hw=0)
    assert compared(told) == (BEFORE + 1, BEFORE + agrees)


def test_a_broker_that_never_stopped_its_fetcher_before_it_led_differs_unless_it_had_started_anew() -> None:
    told = history()
    told.role(2_010, 2, "leader", 1, offset=0, hw=0)
    assert compared(told) == (BEFORE + 1, BEFORE)
    told = history()
    told.add("log_load", 1_900, name="completed", broker_id=2, source_file="server-2.log", offset=0, hw=0)
    told.role(2_010, 2, "leader", 1, offset=0, hw=0)
    assert compared(told) == (BEFORE, BEFORE)


@pytest.mark.parametrize(
    ("stopped", "started", "agrees"),
    [(2_011, 2_012, 1), (2_010, 2_010, 1), (2_009, 2_012, 0), (2_013, 2_012, 0)],
    ids=["in turn", "in one millisecond", "stopped before the role", "stopped after the start"],
)
def test_a_follower_stops_its_fetcher_and_then_starts_the_next(stopped: float, started: float, agrees: int) -> None:
    told = history()
    told.role(2_010, 1, "follower", 1, offset=0, hw=0)
    line(told, stopped, 1, "removed")
    line(told, started, 1, "added", leader_id=2, leader_epoch=1, fetch_offset=0)
    assert compared(told) == (BEFORE + 2, BEFORE + 1 + agrees)


@pytest.mark.parametrize(
    ("version", "offset", "agrees"),
    [("2.7.2", 3, 1), ("2.7.2", 7, 0), ("2.8.0", 7, 1), ("2.8.0", 3, 0)],
)
def test_a_fetcher_begins_at_the_hw_and_from_2_8_on_at_the_leo(version: str, offset: int, agrees: int) -> None:
    told = history()
    told.role(2_010, 1, "follower", 1, offset=7, hw=3)
    line(told, 2_011, 1, "removed")
    line(told, 2_012, 1, "added", leader_id=2, leader_epoch=1, fetch_offset=offset)
    assert compared(told, version) == (BEFORE + 2, BEFORE + 1 + agrees)


@pytest.mark.parametrize(
    ("version", "cut", "agrees"),
    [("0.10.2", 2_011, 1), ("0.10.2", 2_200, 0), ("1.1.0", 2_200, 1), ("1.1.0", 2_011, 0)],
)
def test_the_log_is_cut_between_two_fetchers_up_to_0_10_and_by_the_next_one_from_then_on(
    version: str, cut: float, agrees: int
) -> None:
    told = history()
    told.role(2_010, 1, "follower", 1, offset=7, hw=3)
    line(told, 2_011, 1, "removed")
    told.add("truncation", cut, name="log", broker_id=1, offset=3, source_file="server-1.log")
    line(told, 2_100, 1, "added", leader_id=2, leader_epoch=1, fetch_offset=3)
    assert compared(told, version) == (BEFORE + 3, BEFORE + 2 + agrees)


@pytest.mark.parametrize(
    ("version", "started", "agrees"),
    [("4.1.0", 2_090, 1), ("4.1.0", 2_300, 0), ("2.8.2", 2_300, 1)],
    ids=["started first", "ended before the start", "ended before the start, up to 2.8"],
)
def test_what_waits_is_ended_once_the_next_fetcher_has_started_and_up_to_2_8_before(
    version: str, started: float, agrees: int
) -> None:
    told = history(produces=True)
    told.role(2_010, 1, "follower", 1, offset=1, hw=0)
    line(told, 2_020, 1, "removed")
    offset = 1 if version >= "2.8" else 0
    line(told, started, 1, "added", leader_id=2, leader_epoch=1, fetch_offset=offset)
    assert compared(told, version) == (BEFORE + 3, BEFORE + 2 + agrees)
