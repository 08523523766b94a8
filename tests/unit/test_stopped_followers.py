"""Followers that are away for long, while no leader epoch begins: the order goes on without them."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import hourly_runs
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from carrying_runs import CarryingRuns
from facts_builder import History, at
from hourly_runs import HourlyRuns, steps_of
from made_recording import MadeCluster
from made_shape import Shape
from test_carried import seconds
from test_hourly_runs import facts_of, make_what_one_run_makes, went_on

from replay.evidence.tenures import micros
from replay.order.marks import ground_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["seconds", "went_on"]

AWAY = 500  # milliseconds: follower 2 fetches for the last time
MOMENTS = (AWAY - 100, AWAY + 1_000)  # before and behind that


def stopped() -> History:
    """Follower 2 leaves the ISR in the midst of a leader epoch; follower 3 goes on."""
    history = History()
    history.decide(0, 1, [1, 2, 3], replicas=[1, 2, 3])
    history.role(5, 1, "leader", 0, offset=0, hw=0)
    for ms in range(100, 2_000, 100):
        offset = ms // 100 - 1
        history.produce(ms, 1, offset, acks=-1 if ms < AWAY else 1)
        for replica in (2, 3) if ms <= AWAY else (3,):
            history.fetch(ms + 10, 1, replica, offset, bytes=100, hw=offset)
    return history


def leaves(history: History) -> None:
    history.decide(1_000, None, [1, 3], partition_epoch=1)


def others_go_on(history: History) -> None:
    history.produce(10_000, 1, 19, acks=-1)
    history.fetch(10_010, 1, 3, 19, bytes=100, hw=19)


def comes_back(history: History) -> None:
    history.fetch(10_000, 1, 2, 5, bytes=100, hw=19)


def follows_the_next_leader(history: History) -> None:
    history.decide(9_000, 3, [1, 3], replicas=[1, 2, 3], leader_epoch=1, partition_epoch=2)
    history.role(9_005, 3, "leader", 1, offset=19, hw=19)
    history.fetch(10_000, 3, 2, 5, bytes=100, hw=19, current_leader_epoch=1)


@pytest.mark.parametrize(
    ("is_out", "news", "stands"),
    [
        pytest.param(True, others_go_on, True, id="the others go on"),
        pytest.param(False, others_go_on, False, id="it has what is acknowledged while it is in the ISR"),
        pytest.param(True, comes_back, False, id="it comes back"),
        pytest.param(True, follows_the_next_leader, False, id="it follows the next leader"),
    ],
)
def test_a_mark_rests_on_how_far_a_follower_that_stopped_had_come(
    is_out: bool,  # noqa: FBT001
    news: Callable[[History], None],
    stands: bool,  # noqa: FBT001
) -> None:
    history = stopped()
    if is_out:
        leaves(history)
    facts = history.facts()
    assert len(facts.tenures) == 1
    before = ground_of(facts, 0)
    news(history)
    after = ground_of(history.facts(), 0)
    assert before is not None
    assert after is not None
    us = [micros(at(ms)) for ms in MOMENTS]
    assert [before.at(one) == after.at(one) for one in us] == [True, stands]


def test_orders_go_on_while_a_broker_is_away_for_long(tmp_path: Path, seconds: list[bool]) -> None:
    """Two of three partitions keep their leader and epoch while it is."""
    shape = Shape(events=1_500, partitions=3, elections=1, away_ticks=600, tick_ms=40, flaps=0, seed=1)
    MadeCluster(shape, tmp_path / "made").write()
    facts, stated = facts_of(tmp_path / "made")
    stepwise = CarryingRuns()
    steps = steps_of(facts, len(facts) // 2, Random(1), 6, 0)  # noqa: S311 - nothing secret
    make_what_one_run_makes(stepwise, steps, facts, stated)
    assert stepwise.lean >= 2
    assert sum(seconds) >= 2 * 3


def requests(history: History, since: int, until: int, followers: tuple[int, ...], **fields: Any) -> None:
    """Each tenth of a second a batch, which followers and a consumer fetch; offsets are tenths of seconds."""
    for ms in range(since, until, 100):
        offset = ms // 100 - 1
        history.produce(ms, 1, offset, acks=1)
        for replica in (*followers, -1):
            history.fetch(ms + 10, 1, replica, offset, bytes=100, hw=offset, connection=f"of {replica}", **fields)


def joins_without_a_fetch() -> History:
    """Decisions have come already that its leader's request log has not got to."""
    history = History()
    history.decide(0, 1, [1, 2, 3])
    history.role(5, 1, "leader", 0, offset=0, hw=0)
    requests(history, 100, 3_100, (2, 3))
    unlisted = {
        "in_request": False,
        "in_response": False,
        "run_count": 5,
        "run_until": at(3_800),
        "run_gap_us": 200_000,
    }
    history.fetch(3_100, 1, 2, 30, hw=None, run_timeouts=0, hw_implied=True, connection="of 2", **unlisted)
    requests(history, 4_000, 20_000, (3,))
    history.decide(5_000, None, [1, 3], partition_epoch=1)
    history.decide(19_900, None, [1, 2, 3], partition_epoch=2)
    return history


def comes_back_after_an_epoch_without_it() -> History:
    """Its log is stated as it follows the next leader, whose request log has not come."""
    history = History()
    history.decide(0, 1, [1, 2, 3])
    for broker in (1, 2, 3):
        history.role(4 + broker, broker, "leader" if broker == 1 else "follower", 0, offset=0, hw=0)
    requests(history, 100, 3_000, (2, 3))
    history.decide(3_000, 1, [1, 3], leader_epoch=1, partition_epoch=1)
    history.role(3_005, 1, "leader", 1, offset=29, hw=29)
    history.role(3_006, 3, "follower", 1, offset=29, hw=29)
    requests(history, 3_100, 21_800, (3,), current_leader_epoch=1, last_fetched_epoch=1)
    history.decide(21_800, 3, [3, 1], leader_epoch=2, partition_epoch=2)
    history.role(21_805, 3, "leader", 2, offset=217, hw=217)
    history.role(21_810, 2, "follower", 2, offset=29, hw=29)
    return history


@pytest.mark.parametrize("made", [joins_without_a_fetch, comes_back_after_an_epoch_without_it])
def test_what_is_said_long_after_a_follower_s_last_fetch_is_put_to_it(
    monkeypatch: pytest.MonkeyPatch, seconds: list[bool], made: Callable[[], History]
) -> None:
    """Its fetches are of before any mark, and nothing but its own later fetches tells as much of them."""
    monkeypatch.setattr(hourly_runs, "with_sessions", lambda tables, _: tables)
    facts = made().table()
    ends = pa.array([at(ms) for ms in (15_000, 17_500, 19_500, 30_000)], facts.schema.field("ts").type)
    steps = (facts.filter(pc.less(facts["ts"], end)) for end in ends)
    make_what_one_run_makes(HourlyRuns(), steps, facts, {"kafka_version": "4.1.0"})
    assert any(seconds)
    assert not seconds[-1]
