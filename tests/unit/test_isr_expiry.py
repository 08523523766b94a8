"""The expiry task as an actor: when it runs, and whether it made the shrinks that happened."""

from __future__ import annotations

import pytest
from small_partition import LAG, LATEST, NOW, A, C, behind, event, folded

from replay.engine import codes as c
from replay.protocol.isr import out_of_sync_since
from replay.protocol.profile import profile_of
from replay.protocol.state import OBSERVED
from replay.tables.isr_expiry import RUN_LATE_US, IsrExpiry, next_run

SECOND = 1_000_000
PERIOD = 5 * SECOND


def test_the_task_runs_at_a_fixed_rate() -> None:
    assert [next_run(since, 12, 5) for since in (7, 8, 12, 13, 17, 18)] == [7, 12, 12, 17, 17, 22]


def test_before_any_run_is_known_the_two_extremes_bound_it() -> None:
    for after, agrees in ((0, True), (PERIOD, True), (PERIOD + RUN_LATE_US + 1, False), (-SECOND, False)):
        asked = NOW + after
        assert (IsrExpiry().run_of(1, NOW, asked, (PERIOD, 0)) == asked) is agrees


@pytest.mark.parametrize(("asked", "run"), [(2, 2), (2.1, 2.1), (4, 2), (7, 2), (1, 2)])
def test_a_shrink_tells_when_the_broker_s_other_runs_are(asked: float, run: float) -> None:
    """A run was at second 2 of some period; a member is out of sync from second 101 on, so it leaves at 102."""
    expiry = IsrExpiry()
    assert expiry.run_of(1, NOW, NOW + 2 * SECOND, (PERIOD, 0)) == NOW + 2 * SECOND
    found = expiry.run_of(1, NOW + 101 * SECOND, NOW + int((100 + asked) * SECOND), (PERIOD, 0))
    assert found == NOW + int((100 + run) * SECOND)


def test_a_member_that_falls_out_of_sync_as_the_task_runs_leaves_at_that_run_or_the_next() -> None:
    for asked in (100 * SECOND, 105 * SECOND):
        expiry = IsrExpiry(runs={1: NOW})
        assert expiry.run_of(1, NOW + 100 * SECOND + 5_000, NOW + asked, (PERIOD, 0)) == NOW + asked


def test_a_run_that_a_standstill_held_up_tells_nothing_of_the_others() -> None:
    expiry = IsrExpiry()
    asked = NOW + 8 * SECOND
    assert expiry.run_of(1, NOW, asked, (PERIOD, 7 * SECOND)) == asked
    assert expiry.runs == {}


def test_a_broker_that_starts_again_has_other_runs() -> None:
    expiry = IsrExpiry(runs={1: NOW, 2: NOW})
    expiry.begin([], [{"seq": 5, "broker_id": 1}])
    expiry.forget(5)
    assert expiry.runs == {1: NOW, 2: NOW}
    expiry.forget(6)
    assert expiry.runs == {2: NOW}


def test_a_member_is_out_of_sync_from_the_end_of_the_lag_on_or_from_when_its_leader_went_on_without_it() -> None:
    s = behind()
    assert out_of_sync_since(s, A, C, NOW, NOW + LAG + SECOND) == NOW + LAG
    assert out_of_sync_since(s, A, C, NOW + LAG + 5, NOW + LAG + SECOND) == NOW + LAG + 5
    s.settled[A] = NOW + LAG + 9
    assert out_of_sync_since(s, A, C, NOW, NOW + LAG + SECOND) == NOW + LAG + 9


@pytest.mark.parametrize("profile", [LATEST, profile_of((2, 6, 3))])
def test_a_requested_shrink_states_since_when_its_first_member_was_out_of_sync(profile: object) -> None:
    asked = NOW + LAG + 2 * SECOND
    request = event(c.ISR_REQUEST, broker=A, isr=0b011, isr_request=c.ISR_PENDING_SHRINK, ts=asked, evidence=OBSERVED)
    found = folded(behind(), request, profile=profile).check  # type: ignore[arg-type]
    rows = [found[k] for k in range(len(found))]
    assert [(row.computed, row.stated) for row in rows if row.check == c.CHECK_EXPIRY] == [(NOW + LAG, asked)]
