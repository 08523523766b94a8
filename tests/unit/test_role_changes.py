"""Roles, one test per rule: what a broker keeps and forgets that begins to lead, to follow, or to run."""

from __future__ import annotations

from small_partition import ALL, EPOCH, LATEST, NOW, A, B, C, apply, at, changed, led

from replay.engine import codes as c
from replay.protocol.log import end_offset_for
from replay.protocol.role_changes import make_follower, make_leader
from replay.protocol.state import DERIVED, NONE, ROLE_FOLLOWER, ROLE_LEADER, ROLE_NONE, copied
from replay.protocol.steps import follower_append, leader_maybe_expand_isr


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


def test_every_leader_is_known_by_its_role() -> None:
    assert led().role.tolist() == [ROLE_LEADER, ROLE_FOLLOWER, ROLE_FOLLOWER]
