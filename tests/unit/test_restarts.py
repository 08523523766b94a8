"""Followers that restart within a leader epoch: where that stands, and what is known of their logs before it."""

from __future__ import annotations

import pytest
from facts_builder import History, at, of_kind

from replay.evidence.tenures import micros
from replay.order.marks import ground_of


def restarted_within_the_epoch(skew_ms: int) -> History:
    """Follower 2 restarts within the epoch and fetches on from 2; its clock is `skew_ms` off."""
    history = History()
    history.decide(0, 1, [1, 2])
    history.role(5, 1, "leader", 0, offset=0, hw=0)
    history.role(5 + skew_ms, 2, "follower", 0, offset=0, hw=0)
    for base in range(8):
        history.produce(100 + 100 * base, 1, base, acks=1)
    for offset, ms in ((0, 110), (1, 210), (2, 310)):
        history.fetch(ms, 1, 2, offset, bytes=100, hw=offset)
    line = {"source_file": "server-2.log", "broker_id": 2}
    history.add("log_load", 500 + skew_ms, offset=2, hw=1, **line)
    history.role(505 + skew_ms, 2, "follower", 0, offset=2, hw=1)
    for offset, ms in ((2, 510), (5, 620), (6, 720)):
        history.fetch(ms, 1, 2, offset, bytes=100, hw=offset, connection="r2-1-again")
    return history


@pytest.mark.parametrize("skew_ms", [0, -300, 1700])
def test_restart_stands_by_the_connection_and_offset_that_it_goes_on_with_whatever_its_clock(skew_ms: int) -> None:
    events = of_kind(restarted_within_the_epoch(skew_ms).events(), "log_load", "fetch_update")
    assert [(row["kind"], row["leo"] if row["kind"] == "log_load" else row["fetch_offset"]) for row in events] == [
        ("fetch_update", 0), ("fetch_update", 1), ("fetch_update", 2), ("log_load", 2),
        ("fetch_update", 2), ("fetch_update", 5), ("fetch_update", 6),
    ]  # fmt: skip


@pytest.mark.parametrize("skew_ms", [0, 1700, 7000])
def test_how_far_a_replica_came_before_a_restart_is_unknown_without_its_first_fetch_after_it(skew_ms: int) -> None:
    """Whatever its clock: as restarts say that it began with less, it would seem to have cut its log."""
    history = restarted_within_the_epoch(skew_ms)
    history.fetch(20_000, 1, 2, 7, hw=7, connection="r2-1-again")
    first = ("r2-1-again", 2)
    rows = [row for row in history.rows if (row.get("connection"), row.get("fetch_offset")) != first]
    brought = {row["fetch_offset"]: row["next_offset_evidence"] for row in of_kind(history.events(rows), "fetch_apply")}
    assert brought[2] != "derived"


def test_what_a_fetch_brought_is_bounded_where_the_next_one_is_missing() -> None:
    history = restarted_within_the_epoch(0)
    missing = next(row for row in history.rows if row["kind"] == "fetch" and row["fetch_offset"] == 1)
    whole, holed = (
        {row["fetch_offset"]: row["next_offset_evidence"] for row in of_kind(events, "fetch_apply")}
        for events in (history.events(), history.events([row for row in history.rows if row is not missing]))
    )
    assert (whole[0], holed[0]) == ("derived", "bounded")
    assert whole[5] == holed[5] == "derived"


def test_what_came_before_a_restart_stands_whatever_other_restarts_there_are_in_the_epoch() -> None:
    """So an order goes on between them, and a connection that changed long before did so for other reasons."""
    history = restarted_within_the_epoch(0)
    history.fetch(20_000, 1, 2, 7, hw=7, connection="r2-1-again")
    history.fetch(20_300, 1, 2, 8, hw=8, connection="r2-1-third")
    history.fetch(35_000, 1, 2, 8, hw=8, connection="r2-1-third")
    once = history.facts()
    history.add("log_load", 40_000, offset=8, hw=8, source_file="server-2.log", broker_id=2)
    history.role(40_005, 2, "follower", 0, offset=8, hw=8)
    history.fetch(41_000, 1, 2, 8, hw=8, connection="r2-1-fourth")
    twice = history.facts()
    grounds = [ground_of(facts, 0) for facts in (once, twice)]
    moments = [micros(at(ms)) for ms in (450, 600, 30_000, 50_000)]
    told = [[ground.at(us) for us in moments] for ground in grounds if ground is not None]
    assert [one == other for one, other in zip(*told, strict=True)] == [True, True, True, False]
    assert len({*told[1]}) == 3
    known = [fetch.after for fetch in twice.sequence_of(2)]
    assert known == [1, 2, 2, 5, 6, 7, 8, 8, 8, None]
