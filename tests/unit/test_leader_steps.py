"""Steps 1 to 6, one test per rule, on three brokers: A leads, B and C follow."""

from __future__ import annotations

import pytest
from small_partition import ALL, LAG, LATEST, NOW, A, B, C, apply, at, changed, led

from replay.engine import codes as c
from replay.protocol.high_watermark import hw_candidate, is_caught_up
from replay.protocol.profile import profile_of
from replay.protocol.state import DERIVED, NONE, copied
from replay.protocol.steps import (
    leader_append,
    leader_commit_isr,
    leader_handle_fetch,
    leader_maybe_expand_isr,
    leader_maybe_increment_hw,
    leader_update_follower_leo,
)

# -- steps 1 and 2: the leader appends


def test_append_moves_the_leaders_leo_to_the_end_of_the_batch() -> None:
    s = led()
    assert leader_append(s, LATEST, A, 3, DERIVED, NOW)
    assert s.leo.tolist() == [3, 0, 0]


def test_append_leaves_remote_leos_and_the_isr_alone() -> None:
    s = at(led(), leo=4, remote={B: 4, C: 4}, hw=4)
    before = copied(s)
    leader_append(s, LATEST, A, 7, DERIVED, NOW)
    assert changed(before, s) == {"leo", "leo_evidence"}


def test_append_attempts_to_raise_the_hw_which_a_lone_replica_reaches_at_once() -> None:
    s = led(isr=0b001)
    s.partition[0].assigned = 0b001
    leader_append(s, LATEST, A, 3, DERIVED, NOW)
    assert s.hw[A] == 3


def test_append_at_or_below_the_leo_is_no_append() -> None:
    s = at(led(), leo=4)
    assert not leader_append(s, LATEST, A, 4, DERIVED, NOW)
    assert s.leo[A] == 4


# -- steps 3 and 4: the leader records the follower's LEO


def test_remote_leo_is_the_fetch_offset() -> None:
    s = at(led(), leo=9)
    assert leader_update_follower_leo(s, LATEST, A, B, 6, NOW)
    assert s.remote_leo[A].tolist() == [NONE, 6, NONE]


def test_remote_leo_is_an_assignment_and_may_fall() -> None:
    s = at(led(), leo=9, remote={B: 9})
    assert leader_update_follower_leo(s, LATEST, A, B, 2, NOW)
    assert s.remote_leo[A, B] == 2


def test_remote_leo_leaves_the_leaders_own_leo_and_hw_alone() -> None:
    s = at(led(), leo=9, remote={B: 3, C: 9}, hw=3)
    before = copied(s)
    leader_update_follower_leo(s, LATEST, A, B, 9, NOW)
    assert not changed(before, s) & {"leo", "hw", "isr", "maximal_isr"}


def test_caught_up_now_when_the_fetch_reaches_the_leaders_leo() -> None:
    s = at(led(), leo=9)
    leader_update_follower_leo(s, LATEST, A, B, 9, NOW + 5)
    assert s.caught_up[A, B] == NOW + 5


def test_caught_up_at_the_previous_fetch_when_the_fetch_reaches_the_leo_of_then() -> None:
    s = at(led(isr=0b001), leo=9)
    leader_update_follower_leo(s, LATEST, A, B, 4, NOW + 5)
    s.leo[A] = 20
    leader_update_follower_leo(s, LATEST, A, B, 9, NOW + 50)
    assert s.caught_up[A, B] == NOW + 5


def test_caught_up_stays_when_the_fetch_is_behind_the_leo_of_the_previous_one() -> None:
    s = at(led(isr=0b001), leo=9)
    leader_update_follower_leo(s, LATEST, A, B, 4, NOW + 5)
    leader_update_follower_leo(s, LATEST, A, B, 8, NOW + 50)
    assert s.caught_up[A, B] == 0


def test_caught_up_never_goes_back() -> None:
    s = at(led(), leo=9)
    s.caught_up[A, B] = NOW + 90
    leader_update_follower_leo(s, LATEST, A, B, 9, NOW + 50)
    assert s.caught_up[A, B] == NOW + 90


@pytest.mark.parametrize(("version", "remembered"), [((3, 2, 3), 5), ((3, 3, 0), 9)])
def test_leo_at_the_previous_fetch_may_fall_before_3_3_only(version: tuple[int, int, int], remembered: int) -> None:
    s = at(led(), leo=9)
    leader_update_follower_leo(s, profile_of(version), A, B, 3, NOW)
    s.leo[A] = 5
    leader_update_follower_leo(s, profile_of(version), A, B, 3, NOW + 1)
    assert s.leo_at_fetch[A, B] == remembered


# -- step 5: the ISR grows


def test_follower_joins_isr_when_it_has_the_hw() -> None:
    s = at(led(isr=0b011), leo=9, remote={C: 6}, hw=6)
    assert leader_maybe_expand_isr(s, LATEST, A, C)


def test_follower_does_not_join_isr_until_it_has_the_hw() -> None:
    s = at(led(isr=0b011), leo=9, remote={C: 5}, hw=6)
    assert not leader_maybe_expand_isr(s, LATEST, A, C)


def test_follower_does_not_join_isr_until_it_has_the_start_of_the_leaders_epoch() -> None:
    s = at(led(isr=0b011), leo=9, remote={C: 7}, hw=6)
    s.epoch_start[A] = 8
    assert not leader_maybe_expand_isr(s, LATEST, A, C)
    s.remote_leo[A, C] = 8
    assert leader_maybe_expand_isr(s, LATEST, A, C)


def test_follower_does_not_join_isr_while_a_change_is_in_flight() -> None:
    s = at(led(isr=0b011), leo=9, remote={C: 9}, hw=6)
    s.pending[A] = 1
    assert not leader_maybe_expand_isr(s, LATEST, A, C)


def test_member_of_the_isr_does_not_join_again() -> None:
    assert not leader_maybe_expand_isr(at(led(), leo=9, remote={C: 9}), LATEST, A, C)


def test_follower_out_of_the_assignment_does_not_join_isr() -> None:
    s = at(led(isr=0b011), leo=9, remote={C: 9})
    s.partition[0].assigned = 0b011
    assert not leader_maybe_expand_isr(s, LATEST, A, C)


@pytest.mark.parametrize("column", ["fenced", "stopping"])
@pytest.mark.parametrize(("version", "joins"), [((3, 2, 3), True), ((3, 3, 0), False)])
def test_fenced_or_stopping_follower_joins_isr_before_3_3_only(
    column: str, version: tuple[int, int, int], *, joins: bool
) -> None:
    s = at(led(isr=0b011), leo=9, remote={C: 9})
    getattr(s, column)[C] = 1
    assert leader_maybe_expand_isr(s, profile_of(version), A, C) is joins


def test_expansion_is_pending_so_the_maximal_isr_grows_and_the_committed_one_does_not() -> None:
    s = at(led(isr=0b011), leo=9, remote={B: 9, C: 9})
    leader_maybe_expand_isr(s, LATEST, A, C)
    assert (s.isr[A], s.maximal_isr[A], s.pending[A]) == (0b011, 0b111, 1)


def test_commit_makes_the_maximal_isr_the_committed_one() -> None:
    s = at(led(isr=0b011), leo=9, remote={B: 9, C: 9})
    leader_maybe_expand_isr(s, LATEST, A, C)
    leader_commit_isr(s, LATEST, A, 0b111, NOW)
    assert (s.isr[A], s.maximal_isr[A], s.pending[A]) == (0b111, 0b111, 0)


# -- step 6: the leader's HW


def test_hw_is_the_least_leo_of_leader_and_isr() -> None:
    s = at(led(), leo=9, remote={B: 7, C: 8})
    assert leader_maybe_increment_hw(s, LATEST, A, NOW)
    assert s.hw[A] == 7


def test_hw_waits_for_every_member_to_fetch_once_from_a_new_leader() -> None:
    s = at(led(), leo=9, remote={B: 9})
    assert not leader_maybe_increment_hw(s, LATEST, A, NOW)
    assert s.hw[A] == 0


def test_hw_waits_for_a_follower_that_is_pending_to_join_from_2_7_on() -> None:
    s = at(led(isr=0b011), leo=9, remote={B: 9, C: 4}, hw=2)
    s.caught_up[A, C] = -10 * LAG
    s.maximal_isr[A] = ALL
    assert hw_candidate(s, profile_of((2, 6, 0)), A, NOW) == 9
    assert hw_candidate(s, profile_of((2, 7, 0)), A, NOW) == 4


def test_hw_still_waits_for_a_follower_that_is_pending_to_leave() -> None:
    s = at(led(), leo=9, remote={B: 9, C: 4})
    s.caught_up[A, C] = -10 * LAG
    apply(s, c.ISR_REQUEST, broker=A, isr=0b011, isr_request=c.ISR_PENDING_SHRINK)
    assert hw_candidate(s, LATEST, A, NOW) == 4


def test_hw_waits_for_the_isr_where_no_source_tells_the_assignment() -> None:
    s = at(led(), leo=9, remote={B: 9, C: 4})
    s.caught_up[A, C] = -10 * LAG
    apply(s, c.ISR_REQUEST, broker=A, isr=0b011, isr_request=c.ISR_PENDING_SHRINK)
    s.partition[0].assigned = 0
    assert hw_candidate(s, LATEST, A, NOW) == 4


def test_hw_waits_for_a_caught_up_follower_outside_the_isr() -> None:
    s = at(led(isr=0b011), leo=9, remote={B: 9, C: 4})
    s.caught_up[A, C] = NOW - LAG
    assert hw_candidate(s, LATEST, A, NOW) == 4
    assert hw_candidate(s, LATEST, A, NOW + 1) == 9


def test_hw_waits_for_a_caught_up_follower_only_if_it_may_join_from_3_6_on() -> None:
    s = at(led(isr=0b011), leo=9, remote={B: 9, C: 4})
    s.caught_up[A, C], s.fenced[C] = NOW, 1
    assert hw_candidate(s, profile_of((3, 5, 0)), A, NOW) == 4
    assert hw_candidate(s, profile_of((3, 6, 0)), A, NOW) == 9


def test_follower_at_the_leaders_leo_is_caught_up_whatever_the_time_from_3_3_on() -> None:
    s = at(led(isr=0b011), leo=9, remote={C: 9})
    s.caught_up[A, C] = NOW - 2 * LAG
    assert not is_caught_up(s, profile_of((3, 2, 0)), A, C, NOW)
    assert is_caught_up(s, profile_of((3, 3, 0)), A, C, NOW)


def test_hw_never_falls_on_the_leader() -> None:
    s = at(led(), leo=9, remote={B: 3, C: 9}, hw=7)
    assert not leader_maybe_increment_hw(s, LATEST, A, NOW)
    assert s.hw[A] == 7


def test_hw_is_not_raised_below_min_isr_from_3_7_on() -> None:
    s = at(led(isr=0b001, min_isr=2), leo=9)
    assert not leader_maybe_increment_hw(s, profile_of((3, 7, 0)), A, NOW)
    assert leader_maybe_increment_hw(s, profile_of((3, 6, 2)), A, NOW)


def test_min_isr_is_at_most_the_replica_count() -> None:
    s = at(led(isr=0b001, min_isr=2), leo=9)
    s.partition[0].assigned = 0b001
    assert leader_maybe_increment_hw(s, LATEST, A, NOW)


@pytest.mark.parametrize(
    ("version", "hw"), [((2, 6, 3), 9), ((2, 7, 0), 4), ((3, 0, 2), 4), ((3, 1, 0), 9), ((4, 1, 0), 9)]
)
def test_hw_is_attempted_after_an_isr_commit_up_to_2_6_and_from_3_1_on(version: tuple[int, int, int], hw: int) -> None:
    s = at(led(), leo=9, remote={B: 9, C: 4}, hw=4)
    s.caught_up[A, C] = -10 * LAG
    leader_commit_isr(s, profile_of(version), A, 0b011, NOW)
    assert s.hw[A] == hw


def test_fetch_tries_to_raise_the_hw_only_if_it_changed_the_remote_leo() -> None:
    s = at(led(isr=0b011), leo=9, remote={B: 9, C: 4}, hw=4)
    s.caught_up[A, C] = -10 * LAG  # no longer counted: an attempt would raise the HW
    assert leader_handle_fetch(s, LATEST, A, B, 9, NOW) == (False, False)
    assert s.hw[A] == 4
