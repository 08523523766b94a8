"""The expiry task as an actor: when it runs, and whether it made the shrinks that happened."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from facts_builder import START, History, at
from small_partition import LAG, LATEST, NOW, A, C, behind, event, folded
from without_spark import tables_of

from replay.engine import codes as c
from replay.evidence.cluster import Cluster
from replay.evidence.cluster_digest import ToldOfCluster
from replay.evidence.expiry_runs import ExpiryMark, run_before, starts_in
from replay.evidence.partition_facts import LAG_SETTING
from replay.protocol.isr import out_of_sync_since
from replay.protocol.profile import profile_of
from replay.protocol.state import OBSERVED
from replay.tables.isr_expiry import RUN_LATE_US, Timing, expected_of, next_run

SECOND = 1_000_000
PERIOD = 5 * SECOND


def test_the_task_runs_at_a_fixed_rate() -> None:
    assert [next_run(since, 12, 5) for since in (7, 8, 12, 13, 17, 18)] == [7, 12, 12, 17, 17, 22]


def agrees(since: int, asked: int, timing: Timing) -> int:
    """How much later than `asked`, in seconds, the run was that the rule says; 0: it was this one."""
    computed = expected_of(since, asked, timing, PERIOD).agreed(asked, timing.still_us)
    return (computed - asked) // SECOND


def test_as_long_as_no_run_is_known_the_two_extremes_bound_it() -> None:
    for after, differs in ((0, False), (PERIOD, False), (PERIOD + RUN_LATE_US + 1, True), (-SECOND, True)):
        assert bool(agrees(NOW, NOW + after, Timing())) is differs


@pytest.mark.parametrize(("asked", "run"), [(2, 2), (2.1, 2.1), (4, 2), (7, 2), (1, 2)])
def test_a_run_tells_when_the_broker_s_other_runs_are(asked: float, run: float) -> None:
    """A run was at second 2 of some period; a member is out of sync from second 101 on, so it leaves at 102."""
    at = NOW + int((100 + asked) * SECOND)
    expected = expected_of(NOW + 101 * SECOND, at, Timing(since_run_us=at - NOW - 2 * SECOND), PERIOD)
    assert expected.agreed(at, 0) == NOW + int((100 + run) * SECOND)


def test_a_member_that_falls_out_of_sync_as_the_task_runs_leaves_at_that_run_or_the_next() -> None:
    for asked in (100 * SECOND, 105 * SECOND):
        expected = expected_of(NOW + 100 * SECOND + 5_000, NOW + asked, Timing(since_run_us=asked), PERIOD)
        assert (expected.first, expected.last) == (NOW + 100 * SECOND, NOW + 105 * SECOND)
        assert expected.agreed(NOW + asked, 0) == NOW + asked
    assert expected.agreed(NOW + 102 * SECOND, 0) == NOW + 100 * SECOND  # but at no time between the two


def test_a_run_that_a_standstill_held_up_comes_as_it_ends() -> None:
    assert agrees(NOW, NOW + 8 * SECOND, Timing(still_us=7 * SECOND, since_run_us=19 * SECOND)) == 0
    assert agrees(NOW, NOW + 8 * SECOND, Timing(since_run_us=19 * SECOND)) == -4
    # One that was due before the member fell out of sync may come after it.
    assert agrees(NOW, NOW + SECOND, Timing(still_us=3 * SECOND, since_run_us=12 * SECOND)) == 0
    assert agrees(NOW, NOW + SECOND, Timing(since_run_us=12 * SECOND)) == 3


def lived(*told: tuple[float, str]) -> list[tuple[float, bool]]:
    return [(us / SECOND, is_run) for us, is_run in starts_in([(int(s * SECOND), name) for s, name in told])]


def test_the_replica_manager_s_start_is_a_run_and_the_broker_s_start_ends_what_earlier_ones_tell() -> None:
    first = (1, "start"), (2, "clean_start"), (3, "replica_manager_started"), (4, "version")
    assert lived(*first) == [(1, False), (2, False), (3, True)]
    assert lived(*first, (9, "version")) == [(1, False), (2, False), (3, True), (9, False)]  # all else is missing
    assert lived((4, "version"), (9, "shutdown")) == [(4, False)]


def test_the_last_run_of_the_same_life_is_taken_unless_it_is_the_same_run() -> None:
    marks = {1: [ExpiryMark(us, is_run=us != 30) for us in (10, 20, 30, 40)]}
    found = [run_before(marks, 1, us, 5) for us in (9, 10, 15, 24, 25, 29, 30, 44, 45)]
    assert found == [None, None, 10, 10, 20, 20, None, None, 40]
    assert run_before(marks, 2, 50, 5) is None


@pytest.mark.parametrize(("us", "is_news"), [(90, True), (100, True), (101, False)])
def test_a_run_behind_a_partition_s_last_line_is_no_news_to_it(us: int, *, is_news: bool) -> None:
    known = Cluster("small", [], {}, {}, {}, {}, {}, frozenset(), None, {}, expiry={1: [ExpiryMark(7, is_run=True)]})
    more = replace(known, expiry={1: [*known.expiry[1], ExpiryMark(us, is_run=True)]})
    before, after = (ToldOfCluster(cluster).partition("orders", 100, -1) for cluster in (known, more))
    assert (before != after) is is_news


def shrinking(*others: tuple[float, str]) -> History:
    """Broker 1 leads; broker 2 stops fetching at 1 s, and leaves after a lag of 10 s, at 14 s. `others`: shrinks."""
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    for broker, name in ((1, "leader"), (2, "follower")):
        history.role(10 + broker, broker, name, 0, offset=0, hw=0)
    history.fetch(1000, 1, 2, 0, hw=0)
    history.produce(1001, 1, 0, acks=1)
    line = {"broker_id": 1, "source_file": "server-1.log", "name": "shrink"}
    for ms, topic in others:
        history.add("isr_update", ms, **line, topic=topic, partition=None, isr=[1])  # not of the partition itself
    history.add("isr_update", 14_000, **line, isr=[1], offset=1, value="2:0")
    return history


def runs(history: History, **settings: Any) -> tuple[tuple[float, float], tuple[int, int]]:
    """The earliest and the latest run at which broker 2 left, in seconds, and how many were compared and agree."""
    tables = tables_of(history.events(kafka_version="2.8.2", settings={LAG_SETTING: 10_000}, **settings))
    (row,) = (r for r in tables["isr_timeline"].to_pylist() if r["state"] == "pending_shrink")
    (check,) = (r for r in tables["conformance"].to_pylist() if r["check"] == "isr_expiry")
    told = [(row[name] - START).total_seconds() for name in ("earliest_expiry_ts", "latest_expiry_ts")]
    return (round(told[0], 1), round(told[1], 1)), (check["compared"], check["matched"])


def started(history: History, ms: float) -> History:
    about = {"broker_id": 1, "topic": None, "partition": None, "source_file": "server-1.log"}
    history.add("broker_lifecycle", ms, **about, name="replica_manager_started")
    return history


def test_the_runs_at_which_a_member_could_leave_stand_beside_its_shrink() -> None:
    assert runs(shrinking()) == ((11.0, 16.0), (1, 1))
    assert runs(started(shrinking(), -21_000)) == ((13.5, 14.0), (1, 1))
    assert runs(started(shrinking(), -20_600)) == ((13.9, 14.4), (1, 1))  # a start's line may come late
    assert runs(started(shrinking(), -22_000)) == ((12.5, 13.0), (1, 0))


def test_a_shrink_of_another_partition_tells_the_runs_of_the_same_broker() -> None:
    assert runs(shrinking((4000, "other"))) == ((13.5, 14.0), (1, 1))
    assert runs(shrinking((3000, "other"))) == ((12.5, 13.0), (1, 0))
    assert runs(shrinking((13_990, "other"))) == ((11.0, 16.0), (1, 1))  # this is the same run
    still = {1: [tuple(round(ms.timestamp() * 1e6) for ms in (at(500), at(2900)))]}
    assert runs(shrinking((3000, "other")), standstills=still) == ((11.0, 16.0), (1, 1))


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
