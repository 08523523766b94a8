"""What brokers of other versions than the newest do differently, a test for each rule."""

from __future__ import annotations

import pytest
from small_partition import ALL, EPOCH, LAG, LATEST, NOW, A, B, C, apply, at, event, events_in, folded, led

from replay.arrays.records import blank
from replay.engine import codes as c
from replay.engine.completions import Asked, hw_is_news
from replay.engine.emit import new_rows
from replay.engine.kernel import fold
from replay.engine.moves import new_moves
from replay.engine.purgatory import new_purgatory, with_room
from replay.protocol.high_watermark import hw_candidate, leader_low_watermark
from replay.protocol.log import diverging_target, end_offset_for, epoch_assign, move_log_start, truncate_to
from replay.protocol.profile import profile_of
from replay.protocol.role_changes import make_follower, make_leader
from replay.protocol.state import DERIVED, NONE, ROLE_FOLLOWER, copied
from replay.protocol.steps import (
    answered_hw,
    follower_advance_hw,
    leader_append,
    leader_handle_fetch,
    leader_maybe_expand_isr,
    leader_update_follower_leo,
)

Version = tuple[int, int, int]

# -- HW


@pytest.mark.parametrize(("version", "candidate"), [((0, 10, 1), 9), ((0, 10, 2), 4)])
def test_hw_waits_for_the_isr_alone_up_to_0_10_1(version: Version, candidate: int) -> None:
    s = at(led(isr=0b011), leo=9, remote={B: 9, C: 4})
    s.caught_up[A, C] = NOW
    assert hw_candidate(s, profile_of(version), A, NOW) == candidate


@pytest.mark.parametrize(("version", "hw"), [((2, 3, 1), 9), ((2, 4, 0), 4)])
def test_every_follower_fetch_attempts_to_raise_the_hw_up_to_2_3(version: Version, hw: int) -> None:
    s = at(led(isr=0b011), leo=9, remote={B: 9, C: 4}, hw=4)
    s.caught_up[A, C] = -10 * LAG  # no longer counted: an attempt raises the HW
    leader_handle_fetch(s, profile_of(version), A, B, 9, NOW)
    assert s.hw[A] == hw


@pytest.mark.parametrize(("version", "caught_up"), [((0, 10, 1), 7), ((0, 10, 2), NOW + 5)])
def test_leo_of_the_previous_fetch_counts_as_caught_up_from_0_10_2_on(version: Version, caught_up: int) -> None:
    profile = profile_of(version)
    s = at(led(isr=0b001), leo=9)
    s.caught_up[A, B] = 7
    leader_update_follower_leo(s, profile, A, B, 4, NOW + 5)
    s.leo[A] = 20
    leader_update_follower_leo(s, profile, A, B, 9, NOW + 50)
    assert s.caught_up[A, B] == caught_up


@pytest.mark.parametrize(("version", "times"), [((0, 10, 1), [7, 7, 7]), ((0, 10, 2), [NOW, NOW, 0])])
def test_new_leader_takes_the_isr_for_caught_up_from_0_10_2_on(version: Version, times: list[int]) -> None:
    s = at(led(), leo=9)
    s.caught_up[B] = 7
    make_leader(s, profile_of(version), B, EPOCH + 1, 0b011, NOW)
    assert s.caught_up[B].tolist() == times


@pytest.mark.parametrize(("version", "remote"), [((2, 3, 1), NONE), ((2, 4, 0), 9)])
def test_failed_read_sets_the_remote_leo_to_minus_one_up_to_2_3(version: Version, remote: int) -> None:
    s = at(led(), leo=9, remote={B: 9, C: 9}, hw=5)
    apply(s, c.FETCH_UPDATE, profile=profile_of(version), broker=A, replica=B, fetch_offset=9, error_code=1)
    assert s.remote_leo[A, B] == remote


def test_hw_stalls_after_a_failed_read_until_the_next_good_fetch_up_to_2_3() -> None:
    old = profile_of((2, 3, 1))
    s = at(led(), leo=9, remote={B: 9, C: 9}, hw=9)
    apply(s, c.FETCH_UPDATE, profile=old, broker=A, replica=B, fetch_offset=9, error_code=1)
    leader_append(s, old, A, 12, DERIVED, NOW)
    leader_handle_fetch(s, old, A, C, 12, NOW)
    assert s.hw[A] == 9
    leader_handle_fetch(s, old, A, B, 12, NOW)
    assert s.hw[A] == 12


@pytest.mark.parametrize(("version", "joins"), [((2, 0, 0), True), ((2, 0, 1), False)])
def test_follower_joins_without_the_start_of_the_leaders_epoch_up_to_2_0_0(version: Version, *, joins: bool) -> None:
    s = at(led(isr=0b011), leo=9, remote={C: 7}, hw=6)
    s.epoch_start[A] = 8
    assert leader_maybe_expand_isr(s, profile_of(version), A, C) is joins


def test_expansion_is_committed_at_once_up_to_2_6() -> None:
    s = at(led(isr=0b011), leo=9, remote={C: 9}, hw=6)
    leader_maybe_expand_isr(s, profile_of((2, 6, 3)), A, C)
    assert (s.isr[A], s.maximal_isr[A], s.pending[A]) == (ALL, ALL, 0)


# -- answers


@pytest.mark.parametrize(("version", "hw"), [((0, 11, 0), 3), ((1, 0, 0), 5), ((1, 0, 2), 3), ((1, 1, 0), 5)])
def test_answer_at_once_carries_the_hw_of_before_but_of_after_in_1_0_0_1_0_1_1_1_0(version: Version, hw: int) -> None:
    assert answered_hw(profile_of(version), 3, 5) == hw


@pytest.mark.parametrize(("version", "owes"), [((2, 3, 1), False), ((2, 4, 1), True), ((2, 6, 0), False)])
def test_hw_that_a_follower_was_not_told_answers_its_fetch_at_once_in_2_4_and_2_5(
    version: Version, *, owes: bool
) -> None:
    """The leader takes the HW that it read as a fetch came for told, whatever a later answer to that fetch carried."""
    profile = profile_of(version)
    s = at(led(isr=0b011), leo=9, remote={B: 8}, hw=8)
    s.caught_up[A, C], s.leo[B] = -10 * LAG, 9
    fetched = event(c.FETCH_UPDATE, broker=A, replica=B, fetch_offset=9)  # first read at HW 8, which it raises to 9
    answered = event(c.FETCH_READ, broker=A, replica=B, fetch_offset=9, hw=9)
    events = events_in(fetched, answered, answered, fetched, answered)
    g = with_room(new_purgatory(3), 3, len(events))
    fold(s, profile, events, ALL, new_moves(), new_rows(len(events)), g)
    saw = g.rounds[:3]
    assert list(zip(saw["hw"].tolist(), saw["told_hw"].tolist(), strict=True)) == [(9, 8), (9, 8), (9, 9)]
    asked = blank(1, Asked, 1)[0]
    assert [hw_is_news(profile, asked, saw[k]) for k in range(3)] == [owes, owes, False]


# -- truncation


@pytest.mark.parametrize(("version", "hw"), [((2, 3, 1), 8), ((2, 4, 0), 3)])
def test_truncation_lowers_the_hw_from_2_4_on(version: Version, hw: int) -> None:
    s = at(led(), leo=9, hw=8)
    truncate_to(s, profile_of(version), A, 3)
    assert (s.leo[A], s.hw[A]) == (3, hw)


@pytest.mark.parametrize(("version", "leo"), [((0, 10, 2), 6), ((0, 11, 0), 9)])
def test_become_follower_cuts_to_the_hw_up_to_0_10(version: Version, leo: int) -> None:
    s = at(led(), leo=9, hw=6)
    make_follower(s, profile_of(version), A, B, EPOCH + 1)
    assert (s.leo[A], s.hw[A]) == (leo, 6)


def test_cut_of_a_new_follower_to_its_hw_is_told_with_its_cause() -> None:
    s = at(led(), leo=9, hw=6)
    e = event(c.ROLE_CHANGE, broker=A, leader=B, leader_epoch=EPOCH + 1, role=ROLE_FOLLOWER)
    cut = folded(s, e, profile=profile_of((0, 10, 2))).cut[0]
    assert (cut.before, cut.after, cut.cause) == (9, 6, c.CAUSE_HIGH_WATERMARK)


@pytest.mark.parametrize(
    ("version", "epoch", "cuts"),
    [
        ((1, 1, 1), EPOCH + 3, False),  # the same leader: never anew
        ((2, 0, 0), EPOCH + 1, False),  # anew only where an epoch was missed
        ((2, 0, 0), EPOCH + 2, True),
        ((2, 1, 0), EPOCH + 1, True),
        ((2, 1, 0), EPOCH, False),
    ],
)
def test_follower_of_the_same_leader_follows_anew_by_its_epochs_from_2_0_on(
    version: Version, epoch: int, *, cuts: bool
) -> None:
    profile = profile_of(version, (0, 10, 99))
    s = at(led(profile=profile), leo=9, remote={B: 9})
    s.hw[B] = 6
    make_follower(s, profile, B, A, epoch)
    assert (s.leo[B] == 6) == cuts


def test_restarted_follower_follows_anew() -> None:
    old = profile_of((0, 10, 2))
    s = at(led(profile=old), leo=9, remote={B: 9})
    s.hw[B] = 6
    apply(s, c.LOG_LOAD, profile=old, broker=B, leo=9, hw=6)
    apply(s, c.ROLE_CHANGE, profile=old, broker=B, leader=A, role=ROLE_FOLLOWER)
    assert s.leo[B] == 6


def test_epoch_whose_end_is_unknown_cuts_to_the_hw() -> None:
    s = at(led(), leo=20, remote={B: 9})
    s.hw[B] = 4
    assert diverging_target(s, LATEST, B, NONE, NONE) == (4, True)


@pytest.mark.parametrize(("version", "target"), [((1, 1, 1), 8), ((2, 0, 0), 6)])
def test_answer_names_no_epoch_before_2_0_so_the_follower_cuts_to_its_end(version: Version, target: int) -> None:
    s = at(led(), leo=20, remote={B: 9})
    epoch_assign(s, B, 5, 0)
    epoch_assign(s, B, 7, 6)
    assert diverging_target(s, profile_of(version), B, 5, 8) == (target, True)


@pytest.mark.parametrize(("version", "epochs"), [((2, 6, 0), [5, 7]), ((2, 6, 1), [5])])
def test_cut_of_nothing_drops_an_epoch_without_records_from_2_6_1_on(version: Version, epochs: list[int]) -> None:
    s = at(led(), leo=9)
    epoch_assign(s, A, 7, 9)
    assert truncate_to(s, profile_of(version), A, 9) == 0
    assert s.cache_epoch[A, : s.cache_len[A]].tolist() == epochs


def test_follower_that_lacks_the_epoch_cuts_to_the_end_of_its_next_lower_one_and_is_not_done() -> None:
    s = at(led(), leo=20, remote={B: 9})
    epoch_assign(s, B, 5, 0)
    epoch_assign(s, B, 8, 7)
    assert diverging_target(s, LATEST, B, 6, 3) == (7, False)  # 3 is the end of an epoch that it does not have
    assert diverging_target(s, LATEST, B, 5, 3) == (3, True)


@pytest.mark.parametrize(("version", "spans"), [((2, 0, 0), [(5, 4)]), ((2, 0, 1), [(5, 4), (6, 4)])])
def test_epoch_begins_as_it_is_taken_up_from_2_0_1_on_and_with_its_first_batch_before(
    version: Version, spans: list[tuple[int, int]]
) -> None:
    profile = profile_of(version)
    s = at(led(profile=profile), leo=0)
    leader_append(s, profile, A, 4, DERIVED, NOW)
    make_leader(s, profile, A, EPOCH + 1, ALL, NOW)
    assert [end_offset_for(s, profile, A, e) for e, _ in spans] == spans
    leader_append(s, profile, A, 6, DERIVED, NOW)
    assert end_offset_for(s, profile, A, EPOCH + 1) == (EPOCH + 1, 6)


@pytest.mark.parametrize(("version", "epoch"), [((2, 7, 2), EPOCH), ((2, 8, 0), EPOCH + 1)])
def test_accepted_fetch_says_that_the_logs_match_from_2_8_on(version: Version, epoch: int) -> None:
    s = at(led(), leo=9, remote={B: 6})
    epoch_assign(s, A, EPOCH + 1, 4)
    epoch_assign(s, B, EPOCH, 0)
    apply(s, c.FETCH_UPDATE, profile=profile_of(version), broker=A, replica=B, fetch_offset=6)
    assert end_offset_for(s, LATEST, B, epoch) == (epoch, 6)
    assert s.cache_len[B] == 1 + (epoch > EPOCH)


# -- log start


@pytest.mark.parametrize(("version", "hw"), [((2, 3, 1), 2), ((2, 4, 0), 4)])
def test_follower_hw_is_not_below_its_log_start_from_2_4_on(version: Version, hw: int) -> None:
    s = at(led(), leo=9, remote={B: 6})
    s.log_start[B] = 4
    follower_advance_hw(s, profile_of(version), B, 2)
    assert s.hw[B] == hw


@pytest.mark.parametrize(("version", "start"), [((0, 10, 2), 0), ((0, 11, 0), 3)])
def test_follower_takes_the_log_start_of_its_leader_from_0_11_on(version: Version, start: int) -> None:
    s = at(led(), leo=9, remote={B: 6})
    apply(s, c.FETCH_APPLY, profile=profile_of(version), broker=A, replica=B, next_offset=6, hw=5, log_start_offset=3)
    assert s.log_start[B] == start


def test_follower_does_not_take_a_log_start_above_its_hw() -> None:
    s = at(led(), leo=9, remote={B: 6})
    apply(s, c.FETCH_APPLY, broker=A, replica=B, next_offset=6, hw=2, log_start_offset=3)
    assert s.log_start[B] == 0


def test_log_start_never_goes_back_and_lifts_the_hw() -> None:
    s = at(led(), leo=9, hw=3)
    assert move_log_start(s, A, 5)
    assert (s.log_start[A], s.hw[A], s.leo[A]) == (5, 5, 9)
    assert not move_log_start(s, A, 4)


def test_log_start_takes_the_epochs_that_end_below_it_and_the_one_it_lies_in_begins_there() -> None:
    s = at(led(), leo=9)
    epoch_assign(s, A, 6, 4)
    epoch_assign(s, A, 8, 7)
    move_log_start(s, A, 5)
    spans = [(int(e), int(o)) for e, o in zip(s.cache_epoch[A], s.cache_start[A], strict=True)][: s.cache_len[A]]
    assert spans == [(6, 5), (8, 7)]


def test_records_are_deleted_once_every_live_replica_has_the_log_start() -> None:
    s = at(led(), leo=9, remote={B: 9, C: 9}, hw=9)
    apply(s, c.LOG_START_CHANGE, broker=A, log_start_offset=5)
    apply(s, c.FETCH_UPDATE, broker=A, replica=B, fetch_offset=9, follower_log_start_offset=5)
    apply(s, c.FETCH_UPDATE, broker=A, replica=C, fetch_offset=9, follower_log_start_offset=2)
    assert leader_low_watermark(s, A) == 2
    s.fenced[C] = 1
    assert leader_low_watermark(s, A) == 5


def test_follower_below_its_leaders_log_start_drops_its_log_and_starts_there() -> None:
    s = at(led(), leo=20, remote={B: 4})
    epoch_assign(s, B, EPOCH, 0)
    apply(s, c.TRUNCATION, broker=B, truncate_to=12, cause=c.CAUSE_OUT_OF_RANGE)
    assert (s.leo[B], s.hw[B], s.log_start[B], s.cache_len[B]) == (12, 12, 12, 0)


# -- the same epoch told again


@pytest.mark.parametrize(("version", "start", "fetched"), [((3, 2, 3), 9, NOW + 7), ((3, 3, 0), 0, NOW)])
def test_same_epoch_told_again_changes_only_isr_and_hw_from_3_3_on(version: Version, start: int, fetched: int) -> None:
    profile = profile_of(version)
    s = at(led(profile=profile), leo=9, remote={B: 9, C: 4}, hw=4)
    s.fetched[A, B] = NOW
    make_leader(s, profile, A, EPOCH, 0b011, NOW + 7)
    assert (s.epoch_start[A], s.fetched[A, B], s.isr[A]) == (start, fetched, 0b011)
    assert s.remote_leo[A].tolist() == [NONE, 9, 4]


def test_same_epoch_told_again_attempts_to_raise_the_hw() -> None:
    s = at(led(), leo=9, remote={B: 9, C: 4}, hw=4)
    s.caught_up[A, C] = -10 * LAG
    make_leader(s, LATEST, A, EPOCH, 0b011, NOW)
    assert s.hw[A] == 9


@pytest.mark.parametrize(("version", "fetched"), [((3, 2, 3), NOW), ((3, 3, 0), 0)])
def test_leader_that_led_before_forgets_when_those_outside_the_isr_fetched_from_3_3_on(
    version: Version, fetched: int
) -> None:
    s = at(led(), leo=9, remote={B: 9, C: 4}, hw=4)
    make_leader(s, profile_of(version), A, EPOCH + 1, 0b011, NOW)
    assert s.fetched[A].tolist() == [NOW, NOW, fetched]


def test_newest_version_leaves_the_state_of_a_refused_fetch_alone() -> None:
    s = at(led(), leo=9, remote={B: 9}, hw=5)
    before = copied(s)
    apply(s, c.FETCH_UPDATE, broker=A, replica=B, fetch_offset=9, error_code=76)
    assert all((x == y).all() for x, y in zip(before, s, strict=True))
