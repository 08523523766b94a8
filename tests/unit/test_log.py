"""Truncation and the leader epoch cache, a test for each rule."""

from __future__ import annotations

import pytest
from small_partition import EPOCH, LATEST, A, B, apply, at, led

from replay.engine import codes as c
from replay.protocol.log import copy_epochs, diverging_target, end_offset_for, epoch_assign, epoch_at, truncate_to
from replay.protocol.state import CACHE_CAPACITY, NONE

# -- truncation and the epoch cache


def test_truncation_never_raises_the_leo() -> None:
    s = at(led(), leo=9)
    assert truncate_to(s, LATEST, A, 12) == 0
    assert s.leo[A] == 9


def test_hw_comes_down_with_the_leo() -> None:
    s = at(led(), leo=9, hw=8)
    assert truncate_to(s, LATEST, A, 3) == 6
    assert (s.leo[A], s.hw[A]) == (3, 3)


def test_truncation_takes_the_epochs_that_begin_at_or_above_it() -> None:
    s = at(led(), leo=9)
    epoch_assign(s, A, 6, 4)
    epoch_assign(s, A, 7, 6)
    truncate_to(s, LATEST, A, 6)
    assert s.cache_epoch[A, : s.cache_len[A]].tolist() == [5, 6]


def test_epoch_ends_where_the_next_one_starts_and_the_last_one_at_the_leo() -> None:
    s = at(led(), leo=9)
    epoch_assign(s, A, 7, 4)
    assert end_offset_for(s, LATEST, A, 5) == (5, 4)
    assert end_offset_for(s, LATEST, A, 7) == (7, 9)


def test_end_of_an_unknown_epoch_is_that_of_the_next_lower_one() -> None:
    s = at(led(), leo=9)
    epoch_assign(s, A, 7, 4)
    assert end_offset_for(s, LATEST, A, 6) == (5, 4)
    assert end_offset_for(s, LATEST, A, 8) == (NONE, NONE)


def test_epoch_below_all_ends_where_the_log_begins_if_its_epochs_are_known_back_to_there() -> None:
    s = at(led(), leo=9)
    assert end_offset_for(s, LATEST, A, 4) == (4, 0)
    s.cache_start[A, 0] = 3  # the recording begins in the middle of the log
    assert end_offset_for(s, LATEST, A, 4) == (NONE, NONE)


@pytest.mark.parametrize(
    ("told_epoch", "told_end", "target"),
    [
        (5, 8, 6),  # its own epoch 5 ends before the leader's
        (5, 3, 3),  # the leader's ends before its own
        (6, 6, 6),  # it has nothing of epoch 6: where its next lower epoch ends
        (4, 7, 0),  # nothing at or below epoch 4: all that it has is of later epochs
        (7, 20, 9),  # never beyond its own LEO
    ],
)
def test_follower_cuts_to_the_least_of_the_epochs_end_there_and_here_and_its_leo(
    told_epoch: int, told_end: int, target: int
) -> None:
    s = at(led(), leo=20, remote={B: 9})
    epoch_assign(s, B, 5, 0)
    epoch_assign(s, B, 7, 6)
    assert diverging_target(s, LATEST, B, told_epoch, told_end)[0] == target
    assert apply(s, c.TRUNCATION, broker=B, diverging_epoch=told_epoch, diverging_end_offset=told_end) == c.OK
    assert s.leo[B] == target


def test_stated_target_of_a_truncation_wins_over_the_computed_one() -> None:
    s = at(led(), leo=20, remote={B: 9})
    apply(s, c.TRUNCATION, broker=B, truncate_to=2, diverging_epoch=5, diverging_end_offset=7)
    assert s.leo[B] == 2


def test_stated_target_beyond_the_end_that_was_told_is_a_later_state() -> None:
    s = at(led(), leo=20, remote={B: 9})
    epoch_assign(s, B, 5, 0)
    apply(s, c.TRUNCATION, broker=B, truncate_to=8, diverging_epoch=5, diverging_end_offset=7)
    assert s.leo[B] == 7


def test_known_epoch_keeps_its_start() -> None:
    s = at(led(), leo=9)
    epoch_assign(s, A, EPOCH, 4)
    epoch_assign(s, A, EPOCH - 1, 4)
    assert (s.cache_len[A], s.cache_start[A, 0]) == (1, 0)


def test_newer_epoch_replaces_one_of_the_same_start_that_has_no_records() -> None:
    s = at(led(), leo=0)
    epoch_assign(s, A, 8, 0)
    assert s.cache_epoch[A, : s.cache_len[A]].tolist() == [8]


def test_older_epoch_replaces_one_of_the_same_start_that_has_no_records() -> None:
    """A broker led epoch 8 without a record, and now gets records of an older epoch from its next leader (2.0.1+)."""
    s = at(led(), leo=3)
    epoch_assign(s, A, 8, 3)
    epoch_assign(s, A, EPOCH, 3)
    assert s.cache_epoch[A, : s.cache_len[A]].tolist() == [EPOCH]


def test_follower_copies_only_the_epochs_of_what_it_fetched() -> None:
    s = at(led(), leo=9)
    epoch_assign(s, A, 6, 4)
    epoch_assign(s, A, 8, 7)
    copy_epochs(s, A, B, 5, 7)
    assert s.cache_epoch[B, : s.cache_len[B]].tolist() == [6]
    assert s.cache_start[B, 0] == 5


def test_full_epoch_cache_forgets_its_oldest_half() -> None:
    s = at(led(), leo=CACHE_CAPACITY + 1)
    for k in range(1, CACHE_CAPACITY + 1):
        epoch_assign(s, A, EPOCH + k, k)
    assert s.cache_len[A] == CACHE_CAPACITY // 2 + 1
    assert epoch_at(s, A, 0) == NONE
    assert epoch_at(s, A, CACHE_CAPACITY) == EPOCH + CACHE_CAPACITY


def test_a_log_is_loaded_without_epochs_of_which_it_has_no_record() -> None:
    s = at(led(), leo=6)
    epoch_assign(s, A, 7, 4)
    epoch_assign(s, A, 9, 6)  # it led epoch 9, and nothing was appended
    apply(s, c.LOG_LOAD, broker=A, leo=6, hw=5)
    assert [int(epoch) for epoch in s.cache_epoch[A, : s.cache_len[A]]] == [EPOCH, 7]
    copied = at(led(), leo=8)
    epoch_assign(copied, A, 7, 4)
    copied.cache_epoch[B], copied.cache_start[B], copied.cache_len[B] = s.cache_epoch[A], s.cache_start[A], 2
    copied.leo[B] = 6
    copy_epochs(copied, A, B, 6, 8)  # so what it fetches is of the epoch that its leader's records are of
    assert epoch_at(copied, B, 6) == 7
