"""Records that only the remote tier still has (KIP-405): how a follower that asks for them goes on."""

from __future__ import annotations

from typing import Any

from facts_builder import History, of_kind
from small_partition import LATEST, A, B, at, folded, led
from small_partition import event as record
from without_spark import tables_of

from replay.engine import codes as c
from replay.protocol.log import epoch_assign, epoch_at
from replay.protocol.state import OBSERVED

IN_TIER, LOCAL_START = c.OFFSET_MOVED_TO_TIERED_STORAGE, 40


def moved_to_tier() -> History:
    """Broker 2 asks for offset 0, of which its leader has nothing but the tier any more, and then for offset 40."""
    history = History()
    history.decide(0, 1, [1], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=LOCAL_START, hw=LOCAL_START)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    history.fetch(100, 1, 2, 0, error_code=IN_TIER)
    history.fetch(200, 1, 2, LOCAL_START, hw=LOCAL_START)
    history.fetch(300, 1, 2, LOCAL_START, hw=LOCAL_START)
    return history


def restarts(**settings: Any) -> list[tuple[int, int, str]]:
    cuts = of_kind(moved_to_tier().events(**settings), "truncation")
    return [(row["broker_id"], row["truncate_to"], row["cause"]) for row in cuts]


def test_a_follower_below_its_leaders_local_log_begins_its_log_anew_behind_the_tier() -> None:
    assert restarts() == [(2, LOCAL_START, "tiered_storage")]


def test_up_to_3_4_no_follower_builds_a_tier_state() -> None:
    assert restarts(kafka_version="3.4.1") == []


def test_the_fetch_after_it_comes_from_where_the_log_is_known_to_end() -> None:
    checks = {row["check"]: row for row in tables_of(moved_to_tier().events())["conformance"].to_pylist()}
    assert checks["fetch_offset_is_leo"]["compared"] == checks["fetch_offset_is_leo"]["matched"] > 0


def test_its_epochs_are_those_of_its_leader_and_its_log_start_stays() -> None:
    s = at(led(), leo=60, remote={B: 7})
    s.cache_len[A] = s.cache_len[B] = 0
    for epoch, start in ((2, 0), (3, 20), (5, 50)):
        epoch_assign(s, A, epoch, start)
    rows = folded(s, record(c.TRUNCATION, broker=B, replica=A, truncate_to=LOCAL_START, cause=c.CAUSE_TIERED_STORAGE))
    assert (s.leo[B], s.hw[B], s.log_start[B], s.leo_evidence[B]) == (LOCAL_START, LOCAL_START, 0, OBSERVED)
    assert [epoch_at(s, B, offset) for offset in (0, 19, 20, 39)] == [2, 2, 3, 3]
    assert s.cache_len[B] == 2
    assert len(rows.cut) == 0  # nothing of the partition is gone: the tier has it
    assert LATEST.builds_tier_state
