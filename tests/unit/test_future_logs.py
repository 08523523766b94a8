"""Moves between log directories: a future log is a replica of its own, and its lines are never the partition's."""

from __future__ import annotations

from typing import Any

from facts_builder import History, at
from histories_of_losses import COMMITTED, losses, replicated, tail, taken_over
from test_parse_server_log import facts_of
from without_spark import tables_of

from replay.engine.codes import FUTURE_STATES
from replay.evidence.future_logs import STEPS

HERE, THERE = "/data1", "/data2"
FOLDER = "orders-0.0123456789abcdef0123456789abcdef-future"


def line(history: History, kind: str, ms: float, name: str, broker: int = 1, **fields: Any) -> None:
    history.add(kind, ms, broker_id=broker, name=name, source_file=f"server-{broker}.log", **fields)


def begun(history: History, ms: float = 500, broker: int = 1) -> History:
    """A future log is made, and the partition takes it up."""
    line(history, "log_change", ms, "future_created", broker, log_dir=THERE)
    line(history, "log_load", ms + 1, "no_checkpoint", broker)
    line(history, "log_load", ms + 1, "loaded", broker, hw=0)
    line(history, "fetcher", ms + 2, "future_added", broker, leader_epoch=0, fetch_offset=0)
    return history


def swapped(history: History, ms: float = 600, broker: int = 1) -> History:
    line(history, "log_change", ms, "future_queued", broker)
    line(history, "log_change", ms + 1, "future_replacing", broker, log_dir=THERE)
    line(history, "log_change", ms + 2, "future_replaced", broker)
    return history


def moves(history: History, table: str, name: str) -> list[tuple[Any, ...]]:
    rows = tables_of(history.events())[table].to_pylist()
    return [(row["broker_id"], row["state_before"], row["state"], row[name]) for row in rows if row["is_future"]]


def loss_after(history: History) -> list[tuple[Any, ...]]:
    history.fence(1000, 1)
    taken_over(history)
    history.role(1490, 1, "follower", 1, offset=5, hw=2)
    return [(row["mechanism"], row["acked_one"], row["evidence"]) for row in losses(history)]


def test_a_log_made_to_move_to_is_not_the_partitions_log_made_anew() -> None:
    assert loss_after(begun(tail(replicated()))) == loss_after(tail(replicated()))
    assert loss_after(swapped(begun(tail(replicated()))))[0][0] == "acks_one_leader_failure"


def test_cuts_and_appends_of_a_future_log_are_not_the_partitions() -> None:
    history = begun(replicated())
    line(history, "truncation", 510, "log", offset=0, log_dir=THERE)
    line(history, "log_append", 520, "", base_offset=COMMITTED, last_offset=COMMITTED + 4, log_dir=THERE)
    history.produce(520, 1, COMMITTED, acks=1)
    history.produce(530, 1, COMMITTED + 1, acks=1)
    tables = tables_of(history.events())
    assert tables["log_truncations"].num_rows == 0
    leo = [row["leo"] for row in tables["leo_timeline"].to_pylist() if row["observer"] == "local"]
    assert max(leo) == COMMITTED + 2


def test_each_cut_of_a_future_log_is_told_and_its_fetcher_goes_on() -> None:
    history = begun(replicated())
    for ms in (510, 520):  # as the broker's own log is cut, to the lower of the two ends
        line(history, "log_change", ms, "future_truncating", 1, offset=0)
    told = moves(history, "follower_states", "cause")
    assert told == [(1, None, "fetching", "future_added"), *[(1, "fetching", "fetching", "cut")] * 2]
    assert tables_of(history.events())["log_truncations"].num_rows == 0


def test_lines_of_the_other_directory_are_the_partitions_once_it_was_swapped_in() -> None:
    history = swapped(begun(replicated()))
    line(history, "log_start_change", 700, "leader offset increment", log_start_offset=1, log_dir=THERE)
    starts = tables_of(history.events())["log_start_timeline"].to_pylist()
    assert [(row["broker_id"], row["log_start_offset"]) for row in starts] == [(1, 1)]


def test_the_log_start_of_a_future_log_is_not_the_partitions() -> None:
    history = begun(replicated())
    line(history, "log_start_change", 550, "leader offset increment", log_start_offset=1, log_dir=THERE)
    assert tables_of(history.events())["log_start_timeline"].num_rows == 0


def test_the_kernel_knows_every_word_that_is_told_of_a_future_log() -> None:
    assert set(STEPS.values()) == set(FUTURE_STATES)


def delete_first(history: History) -> None:
    """Leader 1 deletes the first record, and both followers follow."""
    history.produce(800, 1, COMMITTED, acks=1)
    line(history, "log_start_change", 810, "client delete records request", log_start_offset=1)
    for replica in (2, 3):
        fetched = {"log_start_offset": 1, "follower_log_start_offset": 1}
        history.fetch(820 + replica, 1, replica, COMMITTED, **fetched)


def low_watermarks(history: History) -> list[tuple[int, str]]:
    """Leader 1 deletes the first record, and both followers follow: its low watermarks, and what moved each."""
    delete_first(history)
    rows = tables_of(history.events())["log_start_timeline"].to_pylist()
    return [(row["low_watermark"], row["cause"]) for row in rows if row["low_watermark"]]


def test_the_low_watermark_waits_for_the_leaders_future_log() -> None:
    assert low_watermarks(replicated()) == [(1, "follower_fetch")]
    assert low_watermarks(begun(replicated())) == []
    assert low_watermarks(begun(replicated(), broker=2)) == [(1, "follower_fetch")]
    assert low_watermarks(swapped(begun(replicated()))) == [(1, "follower_fetch")]


def test_the_low_watermark_rises_with_the_future_logs_start_or_as_it_is_swapped_in() -> None:
    moved = begun(replicated())
    line(moved, "log_start_change", 830, "leader offset increment", log_start_offset=1, log_dir=THERE)
    assert low_watermarks(moved) == [(1, "future_log")]
    assert low_watermarks(swapped(begun(replicated()), 830)) == [(1, "future_log")]


def test_a_move_whose_beginning_no_line_tells_is_known_by_its_swap() -> None:
    history = replicated()
    line(history, "truncation", 510, "log", offset=0, log_dir=THERE)
    swapped(history)
    assert tables_of(history.events())["log_truncations"].num_rows == 0


def test_a_broker_that_starts_takes_up_its_own_log_first() -> None:
    """Both logs are read; the first line that names no directory is about the partition's own, the next is not."""
    history = begun(tail(replicated()))
    line(history, "log_load", 700, "completed", offset=3, log_dir=None)
    line(history, "log_change", 701, "future_loaded", offset=1, log_dir=THERE)
    line(history, "log_load", 710, "loaded", hw=2)
    history.role(711, 1, "leader", 0, offset=3, hw=2)
    line(history, "log_load", 712, "loaded", hw=0)
    assert [(load["offset"], load["hw"]) for load, _ in history.facts().rejoins[1, 0]] == [(3, 2)]
    assert moves(history, "follower_states", "cause")[-1] == (1, "fetching", None, "started")


def test_a_move_is_told_from_the_making_of_the_future_log_to_the_swap() -> None:
    history = swapped(begun(replicated()))
    assert moves(history, "state_transitions", "reason") == [
        (1, "NonExistent", "New", "future_created"),
        (1, "New", "Online", "future_caught_up"),
        (1, "Online", "NonExistent", "future_replaced"),
    ]
    assert moves(history, "follower_states", "cause") == [
        (1, None, "fetching", "future_added"),
        (1, "fetching", None, "future_replaced"),
    ]
    times = [row["ts"] for row in tables_of(history.events())["state_transitions"].to_pylist() if row["is_future"]]
    assert times == [at(500), at(600), at(602)]


def test_a_move_that_fails_leaves_the_future_replica_offline() -> None:
    history = begun(replicated())
    line(history, "log_change", 600, "future_failed")
    assert moves(history, "state_transitions", "reason")[-1] == (1, "New", "Offline", "log_directory")
    assert moves(history, "follower_states", "cause")[-1] == (1, "fetching", "failed", "storage_error")


def test_a_move_that_is_given_up_deletes_the_future_log() -> None:
    history = begun(replicated())
    line(history, "log_change", 600, "renamed_for_deletion", value=f"{THERE}/orders-0.aa-delete")
    assert moves(history, "state_transitions", "reason")[-1] == (1, "New", "NonExistent", "future_deleted")


def test_a_future_log_is_told_by_its_folder() -> None:
    found, _ = facts_of(
        f"[2024-05-01 03:00:00,400] INFO Created log for partition orders-0 in /data2/{FOLDER} with properties {{}} "
        "(kafka.log.LogManager)"
    )
    assert [(f["kind"], f["name"], f["log_dir"]) for f in found] == [("log_change", "future_created", THERE)]


def test_a_future_log_that_is_begun_again_starts_where_its_line_says() -> None:
    history = begun(replicated())
    line(history, "truncation", 900, "full", offset=1, log_dir=THERE)
    assert low_watermarks(history) == [(1, "future_log")]
    assert tables_of(history.events())["log_truncations"].num_rows == 0
