"""Events meet the rules: which are refused and reported, and what the others leave as it was."""

from __future__ import annotations

import pytest
from small_partition import EPOCH, LATEST, NOW, A, B, C, apply, at, changed, event, folded, led

from replay.engine import codes as c
from replay.protocol.profile import profile_of
from replay.protocol.role_changes import make_leader
from replay.protocol.state import OBSERVED, copied


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
    assert changed(before, s) == {"partition", "fenced", "stopping", "blocked"}
