"""Where a leader wrote TRACE, its own lines say when its appends and its followers' fetches took effect."""

from __future__ import annotations

from typing import Any

from facts_builder import History, at, of_kind
from without_spark import tables_of


def led() -> History:
    """Broker 1 leads epoch 0 from offset 0, broker 2 follows."""
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    return history


def appended(history: History, ms: float, base: int, last: int) -> None:
    line = {"source_file": "server-1.log", "broker_id": 1, "base_offset": base, "last_offset": last}
    history.add("log_append", ms, offset=last + 1, **line)


def recorded(history: History, ms: float, offset: int) -> None:
    line = {"source_file": "server-1.log", "broker_id": 1, "replica_id": 2, "offset": offset}
    history.add("remote_leo_update", ms, **line)


def batches(history: History) -> list[tuple[Any, ...]]:
    rows = of_kind(history.events(), "append")
    return [(r["base_offset"], r["next_offset"], r["next_offset_evidence"], r["acks"], r["ts"]) for r in rows]


def test_an_append_takes_effect_when_the_leaders_own_line_says() -> None:
    history = led()
    history.produce(140, 1, 0, total_us=40_000, local_us=39_000, acks=1)
    appended(history, 102, 0, 0)
    assert batches(history) == [(0, 1, "observed", 1, at(102))]


def test_a_line_of_another_time_says_nothing_of_an_append() -> None:
    history = led()
    history.produce(140, 1, 0, total_us=40_000, local_us=39_000, acks=1)
    appended(history, 900, 0, 4)
    ((*batch, ts),) = batches(history)
    assert (batch, ts < at(200)) == ([0, 1, "bounded", 1], True)


def test_a_fetch_moves_what_the_leader_remembers_before_its_line_about_it() -> None:
    history = led()
    history.produce(101, 1, 0, total_us=1000, local_us=1000, acks=1)
    history.fetch(160, 1, 2, 1, hw=0, total_us=50_000, local_us=49_000)
    recorded(history, 112, 1)
    (update,) = of_kind(history.events(), "fetch_update")
    assert update["ts"] <= at(112) <= update["ts_hi"] < at(160)


def test_a_batch_without_a_produce_is_where_lines_join_and_a_number_that_does_not_fit_is_not_believed() -> None:
    history = led()
    for ms, base, last in ((100, 0, 2), (110, 3, 3), (120, 4, 9), (130, 90, 99)):
        appended(history, ms, base, last)
    history.fetch(200, 1, 2, 4, hw=0, last_fetched_epoch=0)
    assert [row[:2] for row in batches(history)] == [(0, 3), (3, 4)]


def test_an_unanswered_produce_is_the_batch_whose_line_stands_in_its_time() -> None:
    history = led()
    history.produce(101, 1, 0, total_us=1000, local_us=1000, acks=1)
    history.produce(110, 1, -1, total_us=1000, local_us=1000, acks=0, error_code=None)  # never reached the log
    history.produce(301, 1, -1, total_us=1000, local_us=1000, acks=0, error_code=None, bytes=70)
    history.produce(401, 1, 2, total_us=1000, local_us=1000, acks=1)
    for ms, offset in ((101, 0), (300, 1), (400, 2)):
        appended(history, ms, offset, offset)
    (_, row, _) = of_kind(history.events(), "append")
    assert (row["base_offset"], row["acks"], row["bytes"]) == (1, 0, 70)


def followed_unheard(*, start: int = 3) -> History:
    """Broker 2 leads epoch 1 from `start`; broker 1 follows it, and no line tells of that."""
    history = led()
    for k in range(3):
        appended(history, 100 + k, k, k)
        history.fetch(110 + k, 1, 2, k, hw=0, bytes=100, total_us=1000, last_fetched_epoch=0)
    history.fetch(120, 1, 2, 3, hw=2, total_us=1000, last_fetched_epoch=0)
    history.decide(200, 2, [1, 2])
    history.role(205, 2, "leader", 1, offset=start, hw=2)
    return history


def ends_of(history: History) -> list[tuple[int, int]]:
    """Leader epoch of each append, and its end."""
    return [(r["leader_epoch"], r["next_offset"]) for r in of_kind(history.events(), "append")]


def test_what_a_broker_appended_may_be_its_leaders_where_no_line_says_that_it_follows() -> None:
    """As at the end of logs of which one, that tells of roles, reaches less far than the others."""
    history = followed_unheard()
    for k in range(3, 9):
        appended(history, 300 + k, k, k)
    assert ends_of(history) == [(0, 1), (0, 2), (0, 3)]
    assert not len(tables_of(history.events())["data_loss_incidents"])


def test_what_a_broker_appended_before_it_says_that_it_follows_is_its_own() -> None:
    history = followed_unheard()
    for k in range(3, 6):
        appended(history, 300 + k, k, k)
    history.role(400, 1, "follower", 1, offset=6, hw=2)
    for k in range(3, 9):
        appended(history, 500 + k, k, k)
    assert (0, 6) in ends_of(history)
    assert (0, 9) not in ends_of(history)
    (row,) = tables_of(history.events())["data_loss_incidents"].to_pylist()
    assert (row["first_offset"], row["last_offset"]) == (3, 5)


def test_what_a_leader_appended_long_before_another_was_elected_is_its_own() -> None:
    history = led()
    for k in range(6):
        appended(history, 100 + k, k, k)
    history.fetch(120, 1, 2, 3, hw=2, total_us=1000, last_fetched_epoch=0)
    history.decide(9_000, 2, [2])
    history.role(9_005, 2, "leader", 1, offset=3, hw=2)
    for k in range(3, 9):
        appended(history, 9_300 + k, k, k)
    assert max(ends_of(history)) == (0, 6)


def test_a_role_of_a_later_epoch_does_not_say_when_a_broker_began_to_follow() -> None:
    history = followed_unheard()
    for k in range(3, 9):
        appended(history, 300 + k, k, k)
    history.decide(400, 1, [1, 2])
    history.role(405, 1, "leader", 2, offset=9, hw=9)
    assert max(end for epoch, end in ends_of(history) if epoch == 0) == 3


def conformance(history: History) -> dict[str, tuple[int, int]]:
    rows = tables_of(history.events())["conformance"].to_pylist()
    return {row["check"]: (row["compared"], row["matched"]) for row in rows}


def line_of_hw(history: History, ms: float, hw: int) -> None:
    history.add("hw_update", ms, source_file="server-1.log", broker_id=1, name="leader", hw=hw, hw_before=0)


def test_an_hw_line_agrees_while_the_fetch_that_raises_it_is_under_way() -> None:
    history = led()
    history.produce(101, 1, 0, total_us=1000, local_us=1000, acks=1)
    history.produce(140, 1, 1, total_us=1000, local_us=1000, acks=1)
    line_of_hw(history, 120, 1)  # its read waited until the second batch was there, its update had come before
    history.fetch(150, 1, 2, 1, hw=1, bytes=100, total_us=40_000, local_us=39_000)
    history.fetch(300, 1, 2, 2, hw=1, total_us=100_000, remote_us=100_000)
    assert conformance(history)["leader_hw_line"] == (1, 1)


def test_an_hw_line_that_no_fetch_of_its_time_brings_differs() -> None:
    history = led()
    history.produce(101, 1, 0, total_us=1000, local_us=1000, acks=1)
    line_of_hw(history, 120, 1)
    history.fetch(900, 1, 2, 1, hw=1, total_us=1000)
    assert conformance(history)["leader_hw_line"] == (1, 0)


def test_a_role_may_come_before_the_last_answer_is_taken() -> None:
    for stated, matched in ((1, 1), (2, 1), (0, 0)):
        history = led()
        history.role(11, 2, "follower", 0, offset=0, hw=0)
        for base in range(2):
            history.produce(101 + 100 * base, 1, base, total_us=1000, local_us=1000, acks=1)
            history.fetch(150 + 100 * base, 1, 2, base, hw=base, bytes=100, total_us=1000)
        history.fetch(350, 1, 2, 2, hw=1, total_us=1000)
        history.fetch(450, 1, 2, 2, hw=2, total_us=1000)
        history.decide(500, 2, [2])
        history.role(510, 2, "leader", 1, offset=2, hw=stated)
        found = conformance(history)["role_hw"]
        assert found == (1, matched), stated


def told_to_follow(*, next_offset: int) -> History:
    """Broker 2 is told of epoch 1 while the answer to its fetch at 1 is on its way: its line still has LEO 1."""
    history = led()
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    for base in range(3):
        history.produce(101 + base, 1, base, total_us=1000, local_us=1000, acks=1)
    history.fetch(150, 1, 2, 0, hw=0, bytes=100, total_us=1000)
    history.fetch(250, 1, 2, 1, hw=0, bytes=200, total_us=60_000, local_us=59_000)
    history.fetch(270, 1, 2, 3, hw=1, total_us=1000)
    history.decide(200, 1, [1, 2])
    history.role(205, 1, "leader", 1, offset=3, hw=1)
    history.role(210, 2, "follower", 1, offset=1, hw=0)
    history.fetch(300, 1, 2, next_offset, hw=1, current_leader_epoch=1, last_fetched_epoch=0)
    return history


def test_a_followers_line_of_before_its_last_answer_cuts_nothing() -> None:
    assert not len(tables_of(told_to_follow(next_offset=3).events())["log_truncations"])


def test_a_follower_that_goes_on_from_less_was_cut() -> None:
    (cut,) = tables_of(told_to_follow(next_offset=1).events())["log_truncations"].to_pylist()
    assert (cut["broker_id"], cut["leo_before"], cut["leo_after"]) == (2, 3, 1)
