"""The ISR, a test per rule of its leader: who is out of sync, who may join, how a change that was asked for ends."""

from __future__ import annotations

from typing import Any

import pytest
from small_partition import ALL, LAG, LATEST, NOW, A, B, C, apply, behind, led
from small_partition import at as with_offsets

from replay.engine import codes as c
from replay.engine.stamps import STAMP_LATE_US
from replay.order.isr_requests import outcome_of
from replay.protocol.isr import (
    AWAKE_US,
    BELOW_EPOCH_START,
    BELOW_HW,
    FENCED,
    IN_FLIGHT,
    NEVER_FETCHED,
    NOT_ASSIGNED,
    OVERDUE_SLACK_US,
    STOPPING,
    blocks_expansion,
    expiry_period,
    is_out_of_sync,
    note_expiry,
    who_knows,
)
from replay.protocol.profile import Profile, profile_named, profile_of
from replay.protocol.state import NONE, STOPPING_REGISTERED, STOPPING_UNTOLD, State

ZOOKEEPER = profile_named("2.6.0", None)


# -- expiry


@pytest.mark.parametrize(("later", "out"), [(LAG, False), (LAG + 1, True)])
def test_member_is_out_of_sync_once_it_was_not_caught_up_for_longer_than_the_lag(later: int, *, out: bool) -> None:
    assert is_out_of_sync(behind(), LATEST, A, C, NOW + later) is out


@pytest.mark.parametrize(("version", "out"), [((2, 0, 1), True), ((2, 1, 0), False)])
def test_member_at_the_leaders_leo_is_in_sync_whatever_the_time_from_2_1_on(version: Any, *, out: bool) -> None:
    assert is_out_of_sync(behind(), profile_of(version), A, B, NOW + 2 * LAG) is out


def test_nobody_is_out_of_sync_while_a_change_is_in_flight() -> None:
    s = behind()
    apply(s, c.ISR_REQUEST, broker=A, isr=0b011, isr_request=c.ISR_PENDING_SHRINK)
    assert not is_out_of_sync(s, LATEST, A, C, NOW + 2 * LAG)


def test_the_leader_and_replicas_outside_the_isr_are_never_out_of_sync() -> None:
    s = behind()
    s.isr[A] = 0b011
    assert not is_out_of_sync(s, LATEST, A, A, NOW + 2 * LAG)
    assert not is_out_of_sync(s, LATEST, A, C, NOW + 2 * LAG)


@pytest.mark.parametrize(("version", "period"), [((0, 10, 1), LAG), ((0, 10, 2), LAG // 2), ((4, 1, 0), LAG // 2)])
def test_expiry_task_runs_twice_per_lag_from_0_10_2_on(version: Any, period: int) -> None:
    assert expiry_period(behind(), profile_of(version)) == period


def test_member_out_of_sync_for_longer_than_a_period_of_the_task_is_overdue() -> None:
    s = behind()
    limit = LAG // 2 + OVERDUE_SLACK_US
    times = range(NOW + LAG + 1, NOW + LAG + limit + 2 * AWAKE_US, AWAKE_US // 2)
    assert [mask for now in times if (mask := note_expiry(s, LATEST, A, now))] == [1 << C]


def test_standstill_of_the_leader_makes_nobody_overdue() -> None:
    s = behind()
    found = [note_expiry(s, LATEST, A, now) for now in (NOW + LAG + 1, NOW + 3 * LAG, NOW + 3 * LAG + 1)]
    assert found == [0, 0, 0]


def test_member_that_catches_up_is_not_overdue() -> None:
    s = behind()
    for now in range(NOW + LAG + 1, NOW + LAG + LAG // 2, AWAKE_US // 2):
        note_expiry(s, LATEST, A, now)
    s.remote_leo[A, C] = 9
    assert not note_expiry(s, LATEST, A, NOW + 2 * LAG)
    assert s.out_for[A, C] == NONE


# -- expansion


def test_nothing_keeps_out_a_replica_that_has_the_hw_and_the_epochs_start() -> None:
    assert blocks_expansion(with_offsets(led(isr=0b011), leo=9, remote={C: 4}, hw=4), LATEST, A, C) == 0


@pytest.mark.parametrize(
    ("field", "value", "found"),
    [
        ("hw", 5, BELOW_HW),
        ("epoch_start", 5, BELOW_EPOCH_START),
        ("pending", 1, IN_FLIGHT),
    ],
)
def test_what_the_leader_holds_keeps_a_replica_out(field: str, value: int, found: int) -> None:
    s = with_offsets(led(isr=0b011), leo=9, remote={C: 4}, hw=4)
    getattr(s, field)[A] = value
    assert blocks_expansion(s, LATEST, A, C) == found


@pytest.mark.parametrize(("field", "found"), [("fenced", FENCED), ("stopping", STOPPING)])
def test_fenced_or_stopping_broker_stays_out_from_3_3_on(field: str, found: int) -> None:
    s = with_offsets(led(isr=0b011), leo=9, remote={C: 4}, hw=4)
    getattr(s, field)[C] = 1
    assert blocks_expansion(s, LATEST, A, C) == found
    assert blocks_expansion(s, profile_of((3, 2, 0)), A, C) == 0


@pytest.mark.parametrize("version", [(3, 3, 0), (3, 6, 0), (3, 9, 0)])
def test_with_zookeeper_only_a_broker_that_is_away_stays_out(version: Any) -> None:
    s = with_offsets(led(isr=0b011), leo=9, remote={C: 4}, hw=4)
    s.stopping[C] = STOPPING_UNTOLD
    assert blocks_expansion(s, profile_of(version), A, C) == 0
    s.stopping[C] = STOPPING_REGISTERED
    assert blocks_expansion(s, profile_of(version), A, C) == STOPPING
    s.fenced[C] = 1
    s.stopping[C] = STOPPING_UNTOLD
    assert blocks_expansion(s, profile_of(version), A, C) == FENCED


def test_replica_out_of_the_assignment_stays_out() -> None:
    s = with_offsets(led(isr=0b011), leo=9, remote={C: 4}, hw=4)
    s.partition[0].assigned = 0b011
    assert blocks_expansion(s, LATEST, A, C) == NOT_ASSIGNED


def test_what_kept_a_replica_out_is_remembered_until_it_fetches_again() -> None:
    s = with_offsets(led(isr=0b011), leo=9, hw=4)
    assert s.blocked[A, C] == NEVER_FETCHED
    apply(s, c.FETCH_UPDATE, broker=A, replica=C, fetch_offset=3)
    assert s.blocked[A, C] == BELOW_HW
    apply(s, c.FETCH_UPDATE, broker=A, replica=C, fetch_offset=4)
    assert s.blocked[A, C] == 0
    assert s.maximal_isr[A] == ALL


def test_leader_notes_the_time_before_it_read_of_a_fetch_that_a_standstill_held_up() -> None:
    s = with_offsets(led(), leo=9, hw=4)
    apply(s, c.FETCH_UPDATE, broker=A, replica=C, fetch_offset=9, ts=NOW + LAG, ts_lo=NOW)
    assert s.caught_up[A, C] == NOW + STAMP_LATE_US


# -- requests and their ends


def asked(profile: Profile = LATEST) -> State:
    """A has asked for C to join B and itself."""
    s = with_offsets(led(isr=0b011, profile=profile), leo=9, remote={B: 9}, hw=4)
    apply(s, c.FETCH_UPDATE, profile=profile, broker=A, replica=C, fetch_offset=9)
    apply(s, c.ISR_REQUEST, profile=profile, broker=A, replica=C, isr=ALL, isr_request=c.ISR_PENDING_EXPAND)
    return s


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (55, "reset"),  # OPERATION_NOT_ATTEMPTED
        (107, "reset"),  # INELIGIBLE_REPLICA
        (74, "refused"),  # FENCED_LEADER_EPOCH
        (95, "refused"),  # INVALID_UPDATE_VERSION
        (108, "refused"),  # NEW_LEADER_ELECTED
        (3, "refused"),  # UNKNOWN_TOPIC_OR_PARTITION
        (-1, "retried"),  # UNKNOWN_SERVER_ERROR
        (41, "retried"),  # NOT_CONTROLLER
    ],
)
def test_answer_decides_whether_a_change_is_undone_waits_or_is_tried_again(error: int, outcome: str) -> None:
    assert outcome_of(error) == outcome


def test_reset_goes_back_to_the_last_committed_isr_and_frees_the_way() -> None:
    s = asked()
    apply(s, c.ISR_REQUEST, broker=A, isr_request=c.REQUEST_RESET)
    assert (s.isr[A], s.maximal_isr[A], s.pending[A]) == (0b011, 0b011, 0)


@pytest.mark.parametrize("value", [c.REQUEST_REFUSED, c.REQUEST_RETRIED])
def test_refused_and_retried_changes_stay_pending(value: int) -> None:
    s = asked()
    apply(s, c.ISR_REQUEST, broker=A, isr_request=value)
    assert s.maximal_isr[A] == ALL
    assert s.pending[A]


def test_metadata_of_the_same_partition_epoch_ends_what_is_pending() -> None:
    s = asked()
    apply(s, c.ISR_REQUEST, broker=A, isr=0b011, isr_request=c.ISR_COMMITTED)
    assert (s.isr[A], s.maximal_isr[A], s.pending[A]) == (0b011, 0b011, 0)


def test_isr_is_written_to_zookeeper_at_once_up_to_2_6() -> None:
    s = asked(ZOOKEEPER)
    assert (s.isr[A], s.pending[A]) == (ALL, 0)


def test_conditional_update_that_loses_leaves_the_isr_as_it_was() -> None:
    s = asked(ZOOKEEPER)
    apply(s, c.ISR_REQUEST, profile=ZOOKEEPER, broker=A, isr_request=c.REQUEST_RESET, isr=0b011)
    assert (s.isr[A], s.maximal_isr[A]) == (0b011, 0b011)


def test_the_leader_of_the_newest_epoch_knows_how_far_the_others_were() -> None:
    s = led()
    assert who_knows(s, 6) == A
    apply(s, c.ROLE_CHANGE, broker=B, leader_epoch=6, role=2, isr=ALL, leo=0)
    assert (who_knows(s, 6), who_knows(s, 5)) == (B, A)
