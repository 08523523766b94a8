"""Steps 8 and 9, one test per rule: the follower appends what it fetched and takes the leader's HW."""

from __future__ import annotations

import pytest
from small_partition import EPOCH, LATEST, A, B, apply, at, led

from replay.engine import codes as c
from replay.protocol.log import epoch_at
from replay.protocol.state import DERIVED, UNSET
from replay.protocol.steps import follower_advance_hw, follower_append, follower_begin_at_batch


def test_follower_appends_what_it_fetched_and_takes_the_epochs_along() -> None:
    s = at(led(), leo=9)
    assert follower_append(s, A, B, 6, DERIVED)
    assert s.leo[B] == 6
    assert epoch_at(s, B, 5) == EPOCH


def test_records_beyond_the_known_leo_of_the_leader_are_of_its_own_epoch() -> None:
    s = at(led(), leo=4)
    s.epoch[A] = EPOCH + 1
    follower_append(s, A, B, 6, DERIVED)
    assert (epoch_at(s, B, 3), epoch_at(s, B, 4)) == (EPOCH, EPOCH + 1)


@pytest.mark.parametrize(("start", "base", "begins"), [(5, 3, True), (5, 5, False), (4, 3, False)])
def test_an_empty_log_begins_with_the_batch_that_straddles_its_end(start: int, base: int, begins: bool) -> None:  # noqa: FBT001
    s = at(led(), leo=9)
    s.leo[B], s.log_start[B], s.hw[B] = 5, start, 5
    assert follower_begin_at_batch(s, LATEST, B, base) is begins
    assert (s.leo[B], s.log_start[B]) == ((base, base) if begins else (5, start))


@pytest.mark.parametrize(
    ("fetched", "end", "hw"), [(6, UNSET, 6), (8, UNSET, 4), (8, 9, 6)], ids=["its end", "elsewhere", "appended"]
)
def test_an_answer_to_a_fetch_from_elsewhere_is_dropped(fetched: int, end: int, hw: int) -> None:
    s = at(led(), leo=9)
    s.leo[B], s.hw[B] = 6, 4
    apply(s, c.FETCH_APPLY, broker=A, replica=B, fetch_offset=fetched, next_offset=end, hw=6)
    assert (s.hw[B], s.leo[B]) == (hw, 9 if end == 9 else 6)


@pytest.mark.parametrize(("leader_hw", "hw"), [(4, 4), (9, 6)])
def test_follower_hw_is_the_least_of_its_leo_and_the_leaders_hw(leader_hw: int, hw: int) -> None:
    s = at(led(), leo=9, remote={B: 6})
    follower_advance_hw(s, LATEST, B, leader_hw)
    assert s.hw[B] == hw


def test_follower_hw_may_fall() -> None:
    s = at(led(), leo=9, remote={B: 6})
    s.hw[B] = 5
    assert follower_advance_hw(s, LATEST, B, 2)
    assert s.hw[B] == 2


def test_follower_hw_is_never_below_its_log_start() -> None:
    s = at(led(), leo=9, remote={B: 6})
    s.log_start[B] = 4
    follower_advance_hw(s, LATEST, B, 2)
    assert s.hw[B] == 4


def test_answer_moves_leo_and_hw_of_the_follower() -> None:
    s = at(led(), leo=9)
    assert apply(s, c.FETCH_APPLY, broker=A, replica=B, next_offset=6, hw=3) == c.OK
    assert (s.leo[B], s.hw[B]) == (6, 3)
