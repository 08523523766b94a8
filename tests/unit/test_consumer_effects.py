"""What consumers saw: records read and lost, positions refused, reads from followers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from facts_builder import History, at
from histories_of_losses import COMMITTED, acks_one_failure, alone, replicated, tail, taken_over_from
from without_spark import tables_of

from replay.tables import consumer_effects
from replay.tables.consumer_effects import ReadRun, Reads

OUT_OF_RANGE = 1
DEBUG_CONSUMER = -2  # replica id with which kafka-replica-verification fetches


def read(history: History, ms: float, offset: int, hw: int, *, broker: int = 1, **fields: Any) -> None:
    """A consumer reads from `offset`, handed records unless told otherwise."""
    given = {"client_id": "billing", "bytes": 100, "connection": f"c{broker}", **fields}
    history.fetch(ms, broker, given.pop("replica", -1), offset, hw=hw, **given)


def consumed(**fields: Any) -> History:
    """Broker 1 alone commits three records, billing reads one of them, then two; broker 2 leads without them."""
    history = replicated()
    alone(history)
    tail(history, acks=-1)
    read(history, 330, 0, 5, bytes=200, **fields)
    read(history, 340, COMMITTED, 5, **fields)
    read(history, 350, COMMITTED + 1, 5, bytes=200, **fields)
    read(history, 360, COMMITTED + 3, 5, bytes=0, **fields)
    history.decide(900, -1, [1])
    return taken_over_from(history, epoch=2)


def effects(history: History, *, size: int = 1000) -> list[dict[str, Any]]:
    return tables_of(history.events(), size=size)["consumer_effects"].to_pylist()


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_records_read_and_lost(size: int) -> None:
    tables = tables_of(consumed().events(), size=size)
    (incident,) = tables["data_loss_incidents"].to_pylist()
    (row,) = tables["consumer_effects"].to_pylist()
    assert (row["effect"], row["client_id"], row["broker_id"], row["slot_epoch"]) == ("read_then_lost", "billing", 1, 0)
    assert (row["first_offset"], row["last_offset"], row["records"], row["fetches"]) == (2, 4, 3, 2)
    assert (row["first_ts"], row["last_ts"]) == (at(340), at(350))
    assert (row["incident_id"], incident["consumed"]) == (incident["incident_id"], 3)
    assert (row["replaced_by_epoch"], row["resumed_offset"]) == (2, None)
    assert row["evidence"] == incident["evidence"] == "bounded"  # where broker 1's log ended is not known


def test_where_the_consumer_went_on_tells_what_it_has_not_read() -> None:
    history = consumed()
    read(history, 1100, COMMITTED + 1, 4, broker=2, bytes=0)
    (row,) = effects(history)
    assert (row["resumed_offset"], row["resumed_ts"]) == (COMMITTED + 1, at(1100))


def test_records_that_a_consumer_seeks_over_are_not_read() -> None:
    """One batch was handed out, and the next fetch is from the end: what lies between was never sent."""
    history = replicated()
    alone(history)
    tail(history, acks=-1)
    read(history, 340, COMMITTED, 5, bytes=100)
    read(history, 350, COMMITTED + 3, 5, bytes=0)
    history.decide(900, -1, [1])
    tables = tables_of(taken_over_from(history, epoch=2).events())
    (row,) = tables["consumer_effects"].to_pylist()
    assert (row["first_offset"], row["last_offset"], row["records"]) == (COMMITTED, COMMITTED, 1)
    assert [row["consumed"] for row in tables["data_loss_incidents"].to_pylist()] == [1]


def test_what_was_read_last_is_bounded() -> None:
    history = replicated()
    alone(history)
    tail(history, acks=-1)
    read(history, 340, COMMITTED, 5)
    history.decide(900, -1, [1])
    (row,) = effects(taken_over_from(history, epoch=2))
    assert (row["first_offset"], row["last_offset"], row["evidence"]) == (COMMITTED, COMMITTED, "bounded")


def test_a_fetch_without_records_hands_out_nothing() -> None:
    history = replicated()
    alone(history)
    tail(history, acks=-1)
    read(history, 340, COMMITTED, 5, bytes=0)
    history.decide(900, -1, [1])
    assert effects(taken_over_from(history, epoch=2)) == []


def test_records_read_and_kept_are_no_effect() -> None:
    history = replicated()
    read(history, 330, 0, 2)
    read(history, 340, COMMITTED, 2, bytes=0)
    assert effects(history) == []
    assert effects(acks_one_failure()) == []


def test_reads_of_the_new_leaders_records_are_not_of_the_lost_ones() -> None:
    history = consumed()
    history.produce(1030, 2, COMMITTED + 1, acks=1)
    read(history, 1100, COMMITTED, 4, broker=2)
    read(history, 1110, COMMITTED + 2, 4, broker=2, bytes=0)
    assert [(row["broker_id"], row["effect"]) for row in effects(history)] == [(1, "read_then_lost")]


def test_positions_out_of_range_are_told_once_with_their_count() -> None:
    history = consumed()
    for k in range(3):
        read(history, 1100 + k, COMMITTED + 3, -1, broker=2, bytes=0, error_code=OUT_OF_RANGE)
    lost, refused = effects(history)
    assert (refused["effect"], refused["first_offset"], refused["fetches"]) == ("out_of_range", COMMITTED + 3, 3)
    assert (refused["first_ts"], refused["last_ts"], refused["log_end"]) == (at(1100), at(1102), COMMITTED + 1)
    assert (refused["incident_id"], refused["records"], refused["evidence"]) == (lost["incident_id"], None, "observed")


def ask(history: History, ms: float, end: int, *, broker: int = 2) -> None:
    """billing asks the broker where epoch 0 ends."""
    fields = {"replica_id": -1, "client_id": "billing", "last_fetched_epoch": 0, "leader_epoch": 0, "offset": end}
    history.request("epoch_end_offset", ms, f"c{broker}", broker_id=broker, current_leader_epoch=2, **fields)


def test_a_consumer_that_asks_finds_its_position_cut_away() -> None:
    history = consumed()
    ask(history, 1100, COMMITTED)
    lost, found = effects(history)
    assert (found["effect"], found["first_offset"], found["log_end"]) == (
        "truncation_detected",
        COMMITTED + 3,
        COMMITTED,
    )
    assert (found["incident_id"], found["evidence"]) == (lost["incident_id"], "derived")


def test_a_position_that_the_epoch_reaches_is_not_cut_away() -> None:
    history = consumed()
    ask(history, 1100, COMMITTED + 3)
    assert [row["effect"] for row in effects(history)] == ["read_then_lost"]


def test_what_a_debug_consumer_reads_nobody_has_consumed() -> None:
    (incident,) = tables_of(consumed(replica=DEBUG_CONSUMER).events())["data_loss_incidents"].to_pylist()
    assert not incident["consumed"]
    assert effects(consumed(replica=DEBUG_CONSUMER)) == []


def test_reads_from_a_follower_are_one_row() -> None:
    history = replicated()
    for k in range(COMMITTED):
        read(history, 330 + k, k, 2, broker=2, current_leader_epoch=0)
    read(history, 340, COMMITTED, 2, broker=2, current_leader_epoch=0, bytes=0)
    (row,) = effects(history)
    assert (row["effect"], row["broker_id"], row["leader_epoch"]) == ("read_from_follower", 2, 0)
    assert (row["first_offset"], row["last_offset"], row["records"], row["fetches"]) == (0, 1, 2, 3)


def test_what_a_follower_handed_out_may_be_lost_too() -> None:
    history = replicated()
    history.fetch(312, 1, 3, COMMITTED, bytes=0, hw=COMMITTED)
    alone(history)
    tail(history, acks=-1)
    read(history, 340, COMMITTED, 5, broker=3, current_leader_epoch=0, bytes=300)
    read(history, 350, COMMITTED + 3, 5, broker=3, current_leader_epoch=0, bytes=0)
    history.decide(900, -1, [1])
    rows = effects(taken_over_from(history, epoch=2))
    (lost,) = (row for row in rows if row["effect"] == "read_then_lost")
    assert (lost["broker_id"], lost["first_offset"], lost["last_offset"]) == (3, 2, 4)


def test_the_leader_of_an_older_epoch_is_no_follower() -> None:
    history = consumed()
    assert all(row["effect"] != "read_from_follower" for row in effects(history))


@pytest.mark.parametrize("together", [1, 2, 3, 10])
def test_of_very_many_reads_the_times_are_kept_of_what_may_still_be_lost(
    monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(consumer_effects, "READS_TOGETHER", together)
    run = ReadRun(0, 0)
    ends = np.arange(10, 70, 10)
    for some in (slice(0, 1), slice(1, 4), slice(4, 6)):
        count = len(ends[some])
        same = np.zeros(count, np.int64)
        run.extend(Reads(ends[some] // 10, ends[some] + 100, *[same] * 4, ends[some], np.ones(count, bool)))
    assert (run.end, run.count) == (60, 6)
    assert run.reads_of(20, 31) == [(3, 130), (4, 140)]
    run.prune(5)
    assert (run.count, run.known_from) == (6, 0)
    for floor, count, known_from in ((20, 5, 10), (29, 5, 10), (50, 2, 40), (90, 1, 50)):
        run.prune(floor)
        assert (run.count, run.known_from) == (count, known_from)
        assert run.reads_of(known_from - 5, 15) == []
    assert run.reads_of(50, 60) == [(6, 160)]
