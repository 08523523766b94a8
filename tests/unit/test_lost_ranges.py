"""Which records are lost where the lines do not tell all of a load, a cut or an epoch, and what is no loss at all."""

from __future__ import annotations

import pytest
from facts_builder import History, of_kind
from histories_of_losses import COMMITTED, alone, losses, replicated, slots, tail, taken_over
from without_spark import tables_of

from replay.protocol.state import CACHE_CAPACITY


def test_high_watermark_of_a_log_that_nothing_showed_to_fill_is_not_known() -> None:
    history = History()
    history.decide(0, 1, [1, 2])
    history.role(10, 1, "leader", 0, offset=500)
    history.role(10, 2, "follower", 0, offset=500, hw=480)
    rows = tables_of(history.events())["hw_timeline"].to_pylist()
    assert [(r["hw"], r["evidence"]) for r in rows if r["broker_id"] == 1 and r["step"] == "role"] == [(0, "bounded")]


def started_again(*, says_so: bool) -> History:
    """Broker 1, alone, starts again twice and loses nothing; of the role between only its produce tells."""
    history = replicated()
    alone(history)
    history.decide(400, -1, [1])
    line = {"broker_id": 1, "source_file": "server-1.log"}
    history.add("log_load", 450, name="loaded", offset=COMMITTED, hw=COMMITTED, **line)
    history.decide(460, 1, [1])
    if says_so:
        history.role(465, 1, "leader", 2, offset=COMMITTED, hw=COMMITTED)
    history.produce(470, 1, COMMITTED)
    history.decide(500, -1, [1])
    history.decide(510, 1, [1])
    history.role(515, 1, "leader", 4, offset=COMMITTED + 1, hw=COMMITTED + 1)
    return history


@pytest.mark.parametrize("says_so", [True, False])
def test_load_is_not_of_a_role_that_follows_another(*, says_so: bool) -> None:
    tables = tables_of(started_again(says_so=says_so).events())
    assert tables["data_loss_incidents"].to_pylist() == tables["log_truncations"].to_pylist() == []


def test_load_is_of_the_role_that_the_next_fetches_show() -> None:
    history = taken_over(tail(replicated()))
    line = {"broker_id": 1, "source_file": "server-1.log"}
    history.add("log_load", 1300, name="loaded", offset=COMMITTED + 3, hw=COMMITTED, **line)
    history.decide(3000, 2, [1, 2])
    history.role(3010, 1, "follower", 2, offset=COMMITTED + 1, hw=COMMITTED + 1)
    (load,) = of_kind(history.events(), "log_load")
    (role,) = (r for r in of_kind(history.events(), "role_change") if (r["broker_id"], r["leader_epoch"]) == (1, 1))
    assert load["seq"] == role["seq"] - 1


def without_fetch_lines(*, end: int) -> History:
    """Broker 2's own records were passed over by broker 1; it follows and leads again, with its log up to `end`."""
    history = History()
    history.decide(0, 2, [1, 2], replicas=[1, 2])
    history.role(10, 2, "leader", 0, offset=0, hw=0)
    history.role(11, 1, "follower", 0, offset=0, hw=0)
    for base in range(4):
        history.produce(100 + base, 2, base, acks=1)
    history.decide(1000, 1, [1, 2])
    history.role(1010, 1, "leader", 1, offset=0, hw=0)
    history.role(1011, 2, "follower", 1, offset=4, hw=0)
    for base in range(6):
        history.produce(1100 + base, 1, base, acks=1)
    history.decide(2000, 2, [1, 2])
    history.role(2010, 2, "leader", 2, offset=end, hw=0)
    history.produce(2020, 2, end, acks=1)
    return history


@pytest.mark.parametrize("end", [2, 6])
def test_what_a_follower_holds_of_whose_fetches_nothing_is_known_is_not_lost(end: int) -> None:
    """It was cut at 0 and has fetched, or has not: what it holds may be either leader's."""
    found = {(r["leader_epoch"], k) for row in losses(without_fetch_lines(end=end)) for r in row["ranges"] for k in (
        range(r["first_offset"], r["last_offset"] + 1))}  # fmt: skip
    assert found == {(0, k) for k in range(end, 4)} | {(1, k) for k in range(end, 6)}


def test_records_fetched_of_nobody_knows_whom_may_be_those_that_were_lost() -> None:
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    for base in range(3):
        history.produce(100 + base, 1, base, acks=1)
    line = {"broker_id": 1, "source_file": "server-1.log"}
    history.decide(900, -1, [1])
    history.add("log_load", 990, name="loaded", offset=0, hw=0, **line)
    history.decide(1000, 1, [1])
    history.role(1010, 1, "leader", 2, offset=0, hw=0)  # its disk had none of them
    history.decide(2000, 2, [2], leader_recovery_state=1)
    history.role(2010, 2, "leader", 3, offset=2, hw=0)  # it had fetched two
    assert [slots(row) for row in losses(history)] == [[(0, 2, 2)]]


def test_leader_epoch_without_a_record_starts_where_nothing_says() -> None:
    """That a follower at 2 has no record of the epoch says only that it starts at 2 or later."""
    history = tail(replicated())
    for k in range(3):
        history.fetch(320 + k, 1, 2, COMMITTED + k, bytes=100, hw=COMMITTED)
    history.fetch(330, 1, 2, COMMITTED + 3, hw=COMMITTED)
    history.decide(1000, 2, [1, 2])
    asks = {"current_leader_epoch": 1, "last_fetched_epoch": 0}
    history.fetch(1500, 2, 3, COMMITTED, bytes=300, hw=COMMITTED, **asks)
    assert losses(history) == []


def test_end_of_a_batch_is_not_where_its_leader_stood_after_another_led() -> None:
    """Broker 1 has one record of its own, and one that it fetched while broker 2 led."""
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.produce(100, 1, 0, acks=1)
    history.decide(1000, 2, [1, 2])
    history.produce(1100, 2, 1, acks=1)
    history.decide(2000, 1, [1, 2])
    history.produce(2100, 1, 2, acks=1)
    assert losses(history) == []
    assert next(r for r in of_kind(history.events(), "append"))["next_offset"] == 1


def test_clean_move_loses_nothing() -> None:
    history = replicated()
    history.decide(1000, 2, [1, 2])
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED)
    assert losses(history) == []


def test_records_deleted_on_purpose_are_no_loss() -> None:
    history = replicated()
    for broker in (1, 2):
        fields = {"broker_id": broker, "log_start_offset": 2, "source_file": f"server-{broker}.log"}
        history.add("log_start_change", 400, **fields)
    history.decide(1000, 2, [1, 2])
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED)
    assert losses(history) == []


def test_hw_waits_for_the_followers_that_fetch_where_no_source_names_the_assignment() -> None:
    history = History()
    history.fetch(100, 1, 2, 0, bytes=100, hw=0, last_fetched_epoch=-1, total_us=50_000, remote_us=50_000)
    history.produce(99, 1, 0, acks=1)
    history.fetch(200, 1, 2, 1, hw=1, total_us=98_000, remote_us=98_000)
    history.produce(300, 1, 1, acks=1)  # nobody fetches it
    rows = tables_of(history.events())["hw_timeline"].to_pylist()
    assert max(row["hw"] for row in rows) == 1


def test_epoch_without_a_record_is_forgotten_when_the_log_is_loaded() -> None:
    """Broker 2 led epoch 1 without a record and starts again: what it fetches then is of epoch 0, and is no other."""
    history = tail(replicated(), ms=500)
    history.decide(1000, 2, [2])
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED)
    history.decide(2000, 1, [1], leader_recovery_state=1)
    history.role(2010, 1, "leader", 2, offset=COMMITTED + 3, hw=COMMITTED)
    line = {"broker_id": 2, "source_file": "server-2.log"}
    history.add("log_load", 2500, name="loaded", offset=COMMITTED, hw=COMMITTED, **line)
    history.role(2510, 2, "follower", 2, offset=COMMITTED, hw=COMMITTED)
    asks = {"current_leader_epoch": 2, "last_fetched_epoch": 0}
    history.fetch(2600, 1, 2, COMMITTED, bytes=300, hw=COMMITTED, **asks)
    history.fetch(2700, 1, 2, COMMITTED + 3, hw=COMMITTED + 3, **asks)
    history.decide(2800, None, [1, 2])
    history.decide(3000, 2, [1, 2])
    history.role(3010, 2, "leader", 3, offset=COMMITTED + 3, hw=COMMITTED + 3)
    assert losses(history) == []


def test_more_epochs_than_the_cache_holds_lose_nothing() -> None:
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(1, 1, "leader", 0, offset=0, hw=0)
    history.produce(2, 1, 0, acks=1)
    for epoch in range(1, CACHE_CAPACITY + 1):
        history.decide(epoch * 100, 1, [1, 2])
        history.role(epoch * 100 + 10, 1, "leader", epoch, offset=epoch, hw=epoch)
        history.produce(epoch * 100 + 20, 1, epoch, acks=1)
    assert losses(history) == []
