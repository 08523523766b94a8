"""To which leader epoch an append belongs, and where an epoch starts: small histories and what they come to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from facts_builder import History, of_kind
from histories_of_losses import COMMITTED, losses, replicated, slots, tail
from without_spark import tables_of

from replay.engine.codes import LOG_CREATED

MOVES = ((1000, 2), (2000, 1), (5000, 2), (9000, 1))  # when, to whom the lead is moved; nothing is lost by it


def moved(*, set_back: int = 0, roles: bool = True) -> History:
    """Leadership is moved on purpose, every record reaches both; broker 2's clock is set back as it leads epoch 3."""
    history = replicated()
    leo = COMMITTED
    for epoch, (ms, leader) in enumerate(MOVES, start=1):
        follower = 3 - leader
        step = set_back if epoch == 3 else 0
        history.decide(ms, leader, [1, 2])
        if roles:
            history.role(ms + 10, leader, "leader", epoch, offset=leo, hw=leo)
            late = set_back if epoch > 3 and follower == 2 else 0
            history.role(ms + 11 - late, follower, "follower", epoch, offset=leo, hw=leo)
        at = ms + 100 - step
        asks = {"current_leader_epoch": epoch, "last_fetched_epoch": epoch - 1}
        for _ in range(2):
            history.produce(at + 1, leader, leo, total_us=2000, remote_us=2000)
            history.fetch(at, leader, follower, leo, bytes=100, hw=leo, total_us=5000, remote_us=5000, **asks)
            asks, leo, at = {**asks, "last_fetched_epoch": epoch}, leo + 1, at + 10
        history.fetch(at + 200, leader, follower, leo, hw=leo, total_us=100_000, remote_us=100_000, **asks)
    return history


def controller_ahead(history: History, ms: int) -> History:
    """The controller's clock is ahead of the brokers'."""
    for row in history.rows:
        if row["kind"] in ("partition_change", "broker_change"):
            row["ts"] += timedelta(milliseconds=ms)
    return history


def appended(history: History) -> dict[int, list[int]]:
    """By epoch, the base offsets of what produces appended."""
    out: dict[int, list[int]] = {}
    for row in of_kind(history.events(), "append"):
        if row["source_line"] is not None:
            out.setdefault(row["leader_epoch"], []).append(row["base_offset"])
    return out


def test_appends_of_leaders_that_follow_each_other() -> None:
    assert appended(moved()) == {0: [0, 1], 1: [2, 3], 2: [4, 5], 3: [6, 7], 4: [8, 9]}


@pytest.mark.parametrize("set_back", [0, 600, 2000, 4500])
def test_a_clock_that_is_set_back_loses_nothing(set_back: int) -> None:
    history = moved(set_back=set_back)
    assert losses(history) == []
    assert {1: [2, 3], 2: [4, 5]}.items() <= appended(history).items()


@pytest.mark.parametrize("ahead", [-600, 0, 600, 3000])
def test_offsets_decide_where_the_controllers_clock_contradicts_the_brokers(ahead: int) -> None:
    history = controller_ahead(moved(roles=False), ahead)
    assert losses(history) == []
    for epoch, bases in appended(history).items():
        assert set(bases) <= {2 * epoch, 2 * epoch + 1}


def without_beginning() -> History:
    """Broker 1 led before the recording begins, and its request log is older than what else tells of its epochs."""
    history = History()
    for base in range(3):
        history.produce(10 + base, 1, base, acks=1)
    history.role(20_000, 1, "leader", 5)
    history.produce(20_010, 1, 3, acks=1)
    history.role(30_000, 2, "leader", 6, offset=3, hw=3)
    return history


def test_no_later_epoch_stands_in_for_an_earlier_one_that_is_not_known() -> None:
    history = without_beginning()
    assert appended(history) == {5: [3]}
    assert [slots(row) for row in losses(history)] == [[(5, 3, 3)]]


def retried(*, fetched: bool) -> History:
    """Broker 2 leads epoch 1 and first answers two retries of batches that it had fetched in epoch 0."""
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    for base in range(5):
        ms = 100 + 10 * base
        history.produce(ms + 1, 1, base, total_us=2000, remote_us=2000)
        history.fetch(ms, 1, 2, base, bytes=100, hw=base, total_us=5000, remote_us=5000)
    if fetched:
        history.fetch(300, 1, 2, 5, hw=5, total_us=100_000, remote_us=100_000)
    history.fence(1000, 1)
    history.decide(1000, 2, [2])
    for base in (3, 4, 5):
        history.produce(1020 + base, 2, base)
    return history


def test_an_epoch_starts_no_lower_than_what_its_leader_had_fetched() -> None:
    """A retry is answered with its old base; nobody fetches in the new epoch, and no line says from where it led."""
    history = retried(fetched=True)
    assert losses(history) == []
    (role,) = (r for r in of_kind(history.events(), "role_change") if r["leader_epoch"] == 1 and r["role"] == "leader")
    assert role["leo"] == 5


def replaced(**checkpoint: Any) -> History:
    """Three records that only broker 1 had; broker 2 leads on from before them, and no line says from where."""
    history = tail(replicated())
    history.fence(1000, 1)
    history.decide(1000, 2, [2])
    for name, offset in checkpoint.items():
        epoch = int(name.removeprefix("epoch_"))
        line = {"broker_id": 2, "source_file": "leader-epoch-checkpoint"}
        history.add("checkpoint", 99_999, leader_epoch=epoch, offset=offset, **line)
    for base in range(COMMITTED, 60):
        history.produce(1020 + base, 2, base, acks=1)
    return history


def test_the_first_entry_of_an_epoch_checkpoint_is_no_start_for_retention_moves_it() -> None:
    assert [slots(row) for row in losses(replaced(epoch_1=50))] == [[(0, 2, 4)]]


def test_later_entries_of_an_epoch_checkpoint_are_starts() -> None:
    assert losses(replaced(epoch_0=0, epoch_1=5)) == []


def test_what_a_dumped_log_begins_with_is_no_start_of_its_epoch() -> None:
    history = replaced()
    batch = {"broker_id": 2, "leader_epoch": 1, "source_file": "00000000000000000050.log"}
    history.add("segment_batch", 99_999, base_offset=50, last_offset=59, **batch)
    assert [slots(row)[0] for row in losses(history)] == [(0, 2, 4)]


def test_without_role_lines_a_load_is_of_the_role_that_fetches_show_next() -> None:
    """Broker 2 had lost its log directory, made its log anew and goes on in the same epoch: it cut nothing."""
    history = replicated()
    history.rows = [row for row in history.rows if row["kind"] != "role_change"]
    line = {"broker_id": 2, "source_file": "server-2.log"}
    history.add("log_load", 1000, name="created", offset=0, **line)
    history.add("log_load", 1001, name="loaded", offset=0, hw=0, **line)
    history.fetch(1200, 1, 2, 0, bytes=200, hw=2, connection="again", last_fetched_epoch=-1)
    history.fetch(1300, 1, 2, COMMITTED, hw=2, connection="again")
    assert tables_of(history.events())["log_truncations"].to_pylist() == []
    (load,) = of_kind(history.events(), "log_load")
    assert (load["broker_id"], load["leo"], load["cause"]) == (2, 0, LOG_CREATED)


def test_without_role_lines_and_metadata_a_produce_between_signs_of_two_epochs_is_of_neither_for_sure() -> None:
    """Broker 1 led epoch 0, started again, and serves epoch 2; when that began nothing tells."""
    history = History()
    history.produce(100, 1, 0, acks=1)
    history.fetch(200, 1, 3, 1, hw=1, current_leader_epoch=0, last_fetched_epoch=0)
    line = {"broker_id": 1, "source_file": "server-1.log"}
    history.add("log_load", 1000, name="loaded", offset=1, hw=1, **line)
    history.produce(2000, 1, 1, acks=1)
    history.fetch(3000, 1, 3, 2, hw=1, diverging_epoch=0, diverging_end_offset=1, current_leader_epoch=2,
                  last_fetched_epoch=0)  # fmt: skip
    history.fetch(3100, 1, 3, 1, bytes=100, hw=1, current_leader_epoch=2, last_fetched_epoch=0)
    history.fetch(3200, 1, 3, 2, hw=2, current_leader_epoch=2, last_fetched_epoch=2)
    assert [row for row in losses(history) if row["evidence"] == "derived" or row["acked_one"]] == []
