"""The protocol's rules, one test each, on three brokers: A leads, B and C follow."""

from __future__ import annotations

from typing import Any

import pytest
from small_partition import ALL, EPOCH, LAG, LATEST, NOW, A, B, C, apply, at, changed, event, folded, led

from replay.engine import codes as c
from replay.protocol.high_watermark import hw_candidate, is_caught_up
from replay.protocol.log import end_offset_for, epoch_at
from replay.protocol.profile import Profile, parse_version, profile_named, profile_of
from replay.protocol.role_changes import make_follower, make_leader
from replay.protocol.state import (
    DERIVED,
    NONE,
    OBSERVED,
    ROLE_FOLLOWER,
    ROLE_LEADER,
    ROLE_NONE,
    copied,
)
from replay.protocol.steps import (
    follower_advance_hw,
    follower_append,
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


# -- steps 8 and 9: the follower appends and takes the HW


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


# -- roles


def test_new_leader_forgets_remote_leos_and_counts_isr_members_as_caught_up_now() -> None:
    s = at(led(), leo=9, remote={B: 7, C: 9})
    s.remote_leo[B], s.fetched[B], s.leo_at_fetch[B] = 3, 77, 3
    make_leader(s, LATEST, B, EPOCH + 1, 0b011, NOW)
    assert s.remote_leo[B].tolist() == [NONE] * 3
    assert s.leo_at_fetch[B].tolist() == [NONE] * 3
    assert s.fetched[B].tolist() == [0] * 3
    assert s.caught_up[B].tolist() == [NOW, NOW, 0]


def test_epoch_of_a_new_leader_starts_at_its_own_leo_even_without_records() -> None:
    s = at(led(), leo=9, remote={B: 7})
    follower_append(s, A, B, 8, DERIVED)
    make_leader(s, LATEST, B, EPOCH + 1, 0b011, NOW)
    assert s.epoch_start[B] == 8
    assert end_offset_for(s, LATEST, B, EPOCH) == (EPOCH, 8)
    assert end_offset_for(s, LATEST, B, EPOCH + 1) == (EPOCH + 1, 8)


def test_leader_that_led_before_keeps_its_remote_leos() -> None:
    s = at(led(), leo=9, remote={B: 7, C: 9}, hw=7)
    make_leader(s, LATEST, A, EPOCH + 1, ALL, NOW)
    assert s.remote_leo[A].tolist() == [NONE, 7, 9]
    assert s.leo_at_fetch[A, B] == 9


def test_make_leader_attempts_to_raise_the_hw() -> None:
    s = at(led(isr=0b001), leo=9, hw=2)
    make_leader(s, LATEST, A, EPOCH + 1, 0b001, NOW)
    assert s.hw[A] == 9


def test_become_leader_drops_a_pending_isr_change() -> None:
    s = at(led(isr=0b011), leo=9, remote={C: 9})
    leader_maybe_expand_isr(s, LATEST, A, C)
    make_leader(s, LATEST, A, EPOCH + 1, 0b011, NOW)
    assert (s.maximal_isr[A], s.pending[A]) == (0b011, 0)


def test_become_follower_leaves_log_and_hw_alone() -> None:
    s = at(led(), leo=9, hw=7)
    before = copied(s)
    make_follower(s, LATEST, A, B, EPOCH + 1)
    assert (s.role[A], s.epoch[A]) == (ROLE_FOLLOWER, EPOCH + 1)
    assert changed(before, s) == {"role", "epoch", "follows", "isr", "maximal_isr"}


def test_role_line_wins_over_what_was_computed() -> None:
    s = at(led(), leo=9, hw=7)
    apply(s, c.ROLE_CHANGE, broker=A, leader_epoch=EPOCH + 1, role=ROLE_FOLLOWER, leo=8, hw=5)
    assert (s.leo[A], s.hw[A]) == (8, 5)


def test_role_without_a_stated_hw_keeps_the_one_it_had() -> None:
    s = at(led(), leo=9, hw=7)
    apply(s, c.ROLE_CHANGE, broker=A, leader_epoch=EPOCH + 1, role=ROLE_FOLLOWER, leo=9)
    assert s.hw[A] == 7


def test_started_broker_has_no_role_and_what_its_files_say() -> None:
    s = at(led(), leo=9, hw=7)
    apply(s, c.LOG_LOAD, broker=A, leo=6, hw=5)
    assert (s.role[A], s.leo[A], s.hw[A]) == (ROLE_NONE, 6, 5)


def test_replica_taken_out_of_the_assignment_starts_empty_when_it_is_back() -> None:
    s = at(led(), leo=9, remote={C: 9})
    s.hw[C] = 7
    apply(s, c.PARTITION_CHANGE, replicas=0b011, isr=0b011)
    assert (s.gone[C], s.leo[C]) == (1, 9)  # it deletes its log when it is told
    apply(s, c.PARTITION_CHANGE, replicas=ALL, isr=0b011)
    apply(s, c.ROLE_CHANGE, broker=C, leader_epoch=EPOCH, role=ROLE_FOLLOWER)
    assert (s.leo[C], s.hw[C], s.cache_len[C], s.gone[C]) == (0, 0, 0, 0)


# -- events that the rules refuse


def test_zombie_leader_ignores_commits_of_other_epochs() -> None:
    s = led()
    before = copied(s)
    assert apply(s, c.ISR_REQUEST, broker=A, leader_epoch=EPOCH + 1, isr=0b011, isr_request=c.ISR_COMMITTED) == c.OK
    assert not changed(before, s)


def test_zombie_leader_goes_on_appending_under_its_own_epoch() -> None:
    s = at(led(), leo=9)
    make_leader(s, LATEST, B, EPOCH + 1, 0b110, NOW)
    assert apply(s, c.APPEND, broker=A, leader_epoch=EPOCH, next_offset=10) == c.OK
    assert s.leo[A] == 10


BROKEN: dict[str, tuple[int, dict[str, int]]] = {
    "append below the LEO": (c.APPEND, {"broker": A, "next_offset": 5}),
    "append on a follower": (c.APPEND, {"broker": B, "next_offset": 20}),
    "append under another epoch": (c.APPEND, {"broker": A, "next_offset": 20, "leader_epoch": EPOCH + 1}),
    "answer applied by a leader": (c.FETCH_APPLY, {"broker": B, "replica": A, "next_offset": 20, "hw": 3}),
    "HW beyond the LEO": (c.FETCH_READ, {"broker": A, "replica": B, "hw": 12}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_event_changes_nothing_and_is_reported(name: str) -> None:
    kind, fields = BROKEN[name]
    s = at(led(), leo=9, remote={B: 9, C: 9}, hw=9)
    before = copied(s)
    told = folded(s, event(kind, **fields))
    assert not changed(before, s)
    assert told.check["check"][-1] == c.CHECK_RULE


def test_fetch_beyond_the_leo_is_reported_and_moves_nothing_of_the_leader() -> None:
    s = at(led(), leo=9, remote={B: 9, C: 9}, hw=9)
    before = copied(s)
    assert apply(s, c.FETCH_UPDATE, broker=A, replica=B, fetch_offset=12) == c.BROKEN
    assert not changed(before, s) & {"remote_leo", "caught_up", "hw", "isr", "maximal_isr"}


def test_duplicate_append_changes_nothing() -> None:
    s = at(led(), leo=9)
    before = copied(s)
    assert apply(s, c.APPEND, broker=A, next_offset=20, duplicate=1) == c.OK
    assert not changed(before, s)


def test_refused_fetch_states_the_followers_leo_and_moves_nothing_of_the_leader() -> None:
    s = at(led(), leo=9, remote={B: 9}, hw=3)
    assert apply(s, c.FETCH_UPDATE, broker=A, replica=B, fetch_offset=5, error_code=6) == c.MISMATCH
    assert (s.leo[B], s.remote_leo[A, B]) == (5, 9)


@pytest.mark.parametrize(("version", "remote"), [((2, 8, 0), 5), ((2, 8, 1), 9), ((2, 7, 1), 5), ((2, 7, 2), 9)])
def test_diverging_fetch_moves_the_remote_leo_up_to_2_8_0_only(version: tuple[int, int, int], remote: int) -> None:
    s = at(led(), leo=9, remote={B: 9}, hw=3)
    apply(
        s,
        c.FETCH_UPDATE,
        profile=profile_of(version),
        broker=A,
        replica=B,
        fetch_offset=5,
        diverging_epoch=4,
        diverging_end_offset=3,
    )
    assert s.remote_leo[A, B] == remote


def test_run_of_unlisted_fetches_counts_at_its_first_and_at_its_last() -> None:
    s = at(led(), leo=9, remote={B: 9})
    apply(s, c.FETCH_UPDATE, broker=A, replica=B, fetch_offset=9, ts=NOW + 5, run_until=NOW + 500)
    assert (s.caught_up[A, B], s.fetched[A, B]) == (NOW + 500, NOW + 500)


def test_hw_that_an_answer_carries_wins_where_it_is_ahead_and_never_lowers() -> None:
    s = at(led(), leo=9, remote={B: 5, C: 5}, hw=5)
    assert apply(s, c.CONSUMER_READ, broker=A, hw=7) == c.MISMATCH
    assert (s.hw[A], s.hw_evidence[A]) == (7, OBSERVED)
    assert apply(s, c.CONSUMER_READ, broker=A, hw=6) == c.MISMATCH
    assert s.hw[A] == 7


def test_configuration_and_registrations_change_what_they_name_only() -> None:
    s = led()
    before = copied(s)
    apply(s, c.CONFIG_CHANGE, min_insync_replicas=2)
    apply(s, c.BROKER_CHANGE, broker=C, fenced=1, in_controlled_shutdown=1)
    assert (s.partition[0].min_isr, s.fenced[C], s.stopping[C]) == (2, 1, 1)
    assert changed(before, s) == {"partition", "fenced", "stopping"}


# -- versions

SWITCHES: dict[str, list[tuple[str, int]]] = {
    "hw_over_maximal_isr": [("2.6.3", 0), ("2.7.0", 1), ("4.1.0", 1)],
    "hw_caught_up_by_leo": [("3.2.3", 0), ("3.3.0", 1)],
    "hw_caught_up_eligible": [("3.5.2", 0), ("3.6.0", 1)],
    "hw_needs_min_isr": [("3.6.2", 0), ("3.7.0", 1)],
    "hw_after_isr_commit": [("2.6.3", 1), ("2.7.0", 0), ("3.0.2", 0), ("3.1.0", 1)],
    "isr_change_pending": [("2.6.3", 0), ("2.7.0", 1)],
    "expiry_twice_per_lag": [("0.10.1", 0), ("0.10.2", 1)],
    "expiry_spares_equal_leo": [("2.0.1", 0), ("2.1.0", 1)],
    "expand_needs_unfenced": [("3.2.3", 0), ("3.3.0", 1)],
    "remembered_leo_max": [("3.2.3", 0), ("3.3.0", 1)],
    "hw_over_caught_up": [("0.10.1.1", 0), ("0.10.2.0", 1)],
    "caught_up_at_previous": [("0.10.1.1", 0), ("0.10.2.0", 1)],
    "caught_up_at_start": [("0.10.1.1", 0), ("0.10.2.0", 1)],
    "truncate_to_hw": [("0.8.2.2", 1), ("0.10.2.2", 1), ("0.11.0.0", 0)],
    "log_start_follows": [("0.10.2.2", 0), ("0.11.0.0", 1)],
    "answer_after_update": [
        ("0.11.0.3", 0),
        ("1.0.0", 1),
        ("1.0.1", 1),
        ("1.0.2", 0),
        ("1.1.0", 1),
        ("1.1.1", 0),
        ("2.0.0", 0),
    ],
    "epoch_end_names_epoch": [("1.1.1", 0), ("2.0.0", 1)],
    "refollow_on_missed_epoch": [("1.1.1", 0), ("2.0.0", 1), ("2.0.1", 1), ("2.1.0", 0)],
    "refollow_on_new_epoch": [("2.0.1", 0), ("2.1.0", 1)],
    "fetch_names_epoch": [("2.0.1", 0), ("2.1.0", 1)],
    "session_keeps_epoch": [("2.4.1", 0), ("2.5.0", 1)],
    "expand_needs_epoch_start": [("2.0.0", 0), ("2.0.1", 1)],
    "epoch_cached_at_start": [("2.0.0", 0), ("2.0.1", 1)],
    "hw_on_every_fetch": [("2.3.1", 1), ("2.4.0", 0)],
    "failed_read_resets": [("2.3.1", 1), ("2.4.0", 0)],
    "hw_from_log_start": [("2.3.1", 0), ("2.4.0", 1)],
    "truncation_lowers_hw": [("2.3.1", 0), ("2.4.0", 1)],
    "truncation_cleans_epochs": [("2.6.0", 0), ("2.6.1", 1)],
    "hw_told_at_once": [("2.3.1", 0), ("2.4.0", 1), ("2.5.1", 1), ("2.6.0", 0)],
    "truncate_on_fetch": [("2.7.2", 0), ("2.8.0", 1)],
    "leader_reset_by_epoch": [("3.2.3", 0), ("3.3.0", 1)],
    "update_on_diverging": [("2.7.1", 1), ("2.7.2", 0), ("2.8.0", 1), ("2.8.1", 0), ("3.0.0", 0)],
}


@pytest.mark.parametrize(("switch", "edges"), SWITCHES.items(), ids=SWITCHES)
def test_switch_turns_at_the_versions_where_kafka_changed(switch: str, edges: list[tuple[str, int]]) -> None:
    found = [(text, getattr(profile_of(parse_version(text) or (0, 0, 0)), switch)) for text, _ in edges]
    assert found == edges


@pytest.mark.parametrize(
    ("protocol", "switches"),
    [
        ("0.10.2", {"truncate_to_hw": 1, "epoch_end_names_epoch": 0, "truncate_on_fetch": 0}),
        ("1.1", {"truncate_to_hw": 0, "epoch_end_names_epoch": 0, "truncate_on_fetch": 0}),
        ("2.1-IV1", {"fetch_names_epoch": 0}),
        ("2.1-IV2", {"fetch_names_epoch": 1}),
        ("2.7-IV0", {"epoch_end_names_epoch": 1, "truncate_on_fetch": 0}),
        ("2.7-IV1", {"truncate_on_fetch": 1}),
    ],
)
def test_what_brokers_say_to_each_other_follows_the_inter_broker_protocol(
    protocol: str, switches: dict[str, int]
) -> None:
    found = profile_named("3.0.0", protocol)
    assert {name: getattr(found, name) for name in switches} == switches
    assert found.hw_over_maximal_isr == 1  # what a broker does by itself does not


@pytest.mark.parametrize(
    ("protocol", "requests"),
    [("0.10.2", 0), ("2.6", 0), ("2.7-IV1", 0), ("2.7-IV2", 1), ("2.7", 1), ("2.8-IV1", 1), (None, 1)],
)
def test_isr_changes_are_requests_from_protocol_2_7_iv2_on(protocol: str | None, requests: int) -> None:
    assert profile_named("2.7.2", protocol).isr_change_pending == requests


def test_isr_written_to_zookeeper_is_pending_too_from_2_8_on() -> None:
    assert profile_named("2.8.2", "0.10.2").isr_change_pending


@pytest.mark.parametrize(("protocol", "attempts"), [("2.6", 1), ("2.8", 0)])
def test_an_isr_written_to_zookeeper_is_followed_by_an_hw_attempt(protocol: str, attempts: int) -> None:
    assert profile_named("2.8.2", protocol).hw_after_isr_commit == attempts


def test_every_switch_has_its_versions_here() -> None:
    assert set(SWITCHES) == set(Profile._fields)


@pytest.mark.parametrize(
    ("text", "version"),
    [("4.1.0", (4, 1, 0)), ("3.9-IV0", (3, 9, 0)), ("v2.8", (2, 8, 0)), ("", None), (None, None), ("trunk", None)],
)
def test_version_is_read_as_far_as_it_is_one(text: str | None, version: Any) -> None:
    assert parse_version(text) == version


def test_every_leader_is_known_by_its_role() -> None:
    assert led().role.tolist() == [ROLE_LEADER, ROLE_FOLLOWER, ROLE_FOLLOWER]
