"""The ISR life cycle, a test per rule: expiry, expansion, requests and their ends, reasons, flaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from facts_builder import START, History, at, of_kind
from small_partition import ALL, LAG, LATEST, NOW, A, B, C, apply, event, folded, led
from small_partition import at as with_offsets
from without_spark import tables_of

from pipelines.parse.wordings.isr_words import error_in, joining_in, leos_in
from replay.engine import codes as c
from replay.engine.stamps import STAMP_LATE_US
from replay.evidence.request_times import Window
from replay.evidence.rows import Row
from replay.evidence.tenures import Tenure
from replay.order.isr_requests import Change, outcome_of, split_run
from replay.order.merge import OP_UPDATE
from replay.order.operations import Draft, Operation
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
from replay.protocol.state import NONE, UNSET, State

if TYPE_CHECKING:
    from replay.arrays.ints import Ints
    from replay.engine.event_record import EventRecord

ZOOKEEPER = profile_named("2.6.0", None)


def behind(profile: Profile = LATEST) -> State:
    """A leads at 9; C is a member at 4 that was caught up at NOW, B is at 9."""
    s = with_offsets(led(profile=profile), leo=9, remote={B: 9, C: 4}, hw=4)
    s.caught_up[A, B] = s.caught_up[A, C] = NOW
    return s


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


# -- what was predicted against what was done


def checks(s: State, *events: EventRecord, profile: Profile = LATEST) -> list[tuple[str, int, int]]:
    """(check, computed, stated) of the life cycle's own checks."""
    own = (c.CHECK_SHRINK, c.CHECK_EXPANSION, c.CHECK_OVERDUE)
    found = folded(s, *events, profile=profile).check
    rows = [found[k] for k in range(len(found))]
    return [(c.CHECKS[row.check], int(row.computed), int(row.stated)) for row in rows if row.check in own]


LATE = NOW + LAG + 1
SHRINKS = {"broker": A, "isr": 0b011, "isr_request": c.ISR_PENDING_SHRINK, "ts": LATE, "leo": 9}


def of_check(found: list[tuple[str, int, int]], name: str) -> list[tuple[int, int]]:
    return [(computed, stated) for check, computed, stated in found if check == name]


@pytest.mark.parametrize("stated", [4, 3])
def test_predicted_shrink_compares_the_replica_and_its_leo(stated: int) -> None:
    line = event(c.OBSERVATION, broker=A, replica=C, fetch_offset=stated, ts=LATE)
    found = checks(behind(), line, event(c.ISR_REQUEST, **SHRINKS))
    assert of_check(found, "predicted_shrink") == [(4, stated)]


def test_shrink_of_a_replica_that_was_in_sync_is_a_mismatch() -> None:
    found = checks(behind(), event(c.ISR_REQUEST, **{**SHRINKS, "isr": 0b001}))
    assert of_check(found, "predicted_shrink") == [(NONE, 9)]


def test_replica_that_was_out_of_sync_and_was_kept_is_a_mismatch() -> None:
    s = behind()
    s.remote_leo[A, B] = 8
    found = checks(s, event(c.ISR_REQUEST, **SHRINKS))
    assert of_check(found, "predicted_shrink") == [(8, NONE)]


def fetch_of_c(ts: int, lo: int) -> Ints:
    return event(c.FETCH_UPDATE, broker=A, replica=C, fetch_offset=9, ts=ts, ts_lo=lo)


def asks_for(replica: int, isr: int, ts: int) -> Ints:
    return event(c.ISR_REQUEST, broker=A, replica=replica, isr=isr, isr_request=c.ISR_PENDING_EXPAND, ts=ts)


def commits(isr: int, ts: int) -> Ints:
    return event(c.ISR_REQUEST, broker=A, isr=isr, isr_request=c.ISR_COMMITTED, ts=ts)


def alone() -> State:
    return with_offsets(led(isr=0b001), leo=9, hw=9)


def test_expansion_asked_for_with_the_fetch_that_the_engine_expands_at_is_a_match() -> None:
    found = checks(alone(), fetch_of_c(NOW + 9, NOW + 5), asks_for(C, 0b101, NOW + 9), commits(0b101, NOW + 20))
    assert found == [("predicted_expansion", C, C)]


def test_expansion_without_a_request_in_any_log_is_compared_when_it_is_committed() -> None:
    assert checks(alone(), fetch_of_c(NOW + 9, NOW + 5), commits(0b101, NOW + 20)) == [("predicted_expansion", C, C)]


def test_expansion_asked_for_without_a_reason_is_a_mismatch() -> None:
    state = alone()
    state.remote_leo[A, C] = 0
    assert checks(state, asks_for(C, 0b101, NOW + 9)) == [("predicted_expansion", NONE, C)]


def test_expansion_of_a_replica_whose_fetches_no_line_told_is_not_compared() -> None:
    state = alone()
    state.remote_leo[A, C] = UNSET
    assert checks(state, asks_for(C, 0b101, NOW + 9)) == []
    assert checks(state, commits(0b101, NOW + 20)) == []


def test_expansion_that_never_came_is_a_mismatch() -> None:
    assert checks(alone(), fetch_of_c(NOW + 9, NOW + 5), commits(0b001, NOW + 20)) == [("predicted_expansion", C, NONE)]


def test_expansion_that_never_came_does_not_count_where_a_change_may_have_been_in_flight() -> None:
    assert not checks(alone(), commits(0b001, NOW + 7), fetch_of_c(NOW + 9, NOW + 5), commits(0b001, NOW + 20))


def test_expansion_written_to_zookeeper_at_once_is_compared_with_its_line_and_has_its_reason() -> None:
    history = returning(asked_at=None)
    isr_line(history, 1800, "expand", [1, 2, 3], replica_id=joining_in("1,2 to 1,2,3"), leader_epoch=None)
    history.decide(1805, None, [1, 2, 3])
    tables = replayed(history, kafka_version="2.6.3")
    found = [(r["compared"], r["matched"]) for r in tables["conformance"] if r["check"] == "predicted_expansion"]
    assert found == [(1, 1)]
    assert [r["reason"] for r in tables["isr_timeline"] if r["movers"]][-1] == "leo_reached_hw"


def test_conditional_update_that_lost_is_told_by_its_line_and_leaves_the_committed_isr() -> None:
    history = returning(asked_at=None)
    isr_line(history, 1802, "zookeeper_conflict", None, leader_epoch=None)
    row = isr_rows(history, "pending_expand", kafka_version="2.6.3")[0]
    assert (row["isr"], row["outcome"], row["error_code"]) == ([1, 2, 3], "rejected", 55)
    (undone,) = [r for r in of_kind(history.events(kafka_version="2.6.3"), "isr_request") if r["cause"] == "reset"]
    assert undone["isr"] == [1, 2]


# -- from facts to rows


def begun() -> History:
    """Broker 1 leads three replicas from 10 ms on, in the ISR all."""
    history = History()
    history.decide(0, 1, [1, 2, 3])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    for broker in (2, 3):
        history.role(11, broker, "follower", 0, offset=0, hw=0)
    return history


def isr_line(history: History, ms: float, name: str, isr: list[int] | None, **fields: Any) -> None:
    """A line of broker 1 about its ISR."""
    fields = {"source_file": "server-1.log", "broker_id": 1, "leader_epoch": 0, **fields}
    history.add("isr_update", ms, name=name, isr=isr, **fields)


def shrink_line(history: History, ms: float, isr: list[int], ends: dict[int, int], leo: int) -> None:
    """`Shrinking ISR from .. to ..`, with each replica's LEO."""
    text = " ".join(f"(brokerId: {b}, endOffset: {o}, lastCaughtUpTimeMs: 1)" for b, o in ends.items())
    isr_line(history, ms, "shrink", isr, offset=leo, hw=0, value=leos_in(text), leader_epoch=None)


def replayed(history: History, **settings: Any) -> dict[str, list[dict[str, Any]]]:
    """Every table's rows."""
    events = history.events(lag_us=0, settings={"replica.lag.time.max.ms": 1000}, **settings)
    return {name: rows.to_pylist() for name, rows in tables_of(events).items()}


def isr_rows(history: History, state: str, **settings: Any) -> list[dict[str, Any]]:
    rows = replayed(history, **settings)["isr_timeline"]
    return [row for row in rows if row["state"] == state and row["movers"]]


def alive(history: History, until: int, replica: int = 2, **fields: Any) -> None:
    """A follower that fetches every 100 ms."""
    for ms in range(20 + replica, until, 100):
        history.fetch(ms, 1, replica, 0, **{"hw": 0, **fields})


def late_history(**fields: Any) -> History:
    """3 fetches until 100 ms and then as `fields` say; 1 appends at 150 and takes it out at 1700."""
    history = begun()
    alive(history, 100, 3)
    history.fetch(22, 1, 2, 0, hw=0)
    history.fetch(155, 1, 2, 0, bytes=200, hw=0)
    history.produce(150, 1, 0, acks=1)
    history.produce(151, 1, 1, acks=1)
    for ms in range(160, 1700, 100):
        history.fetch(ms, 1, 2, 2, hw=0)
        if fields:
            history.fetch(ms + 5, 1, 3, **{"offset": 0, "hw": 0, **fields})
    shrink_line(history, 1700, [1, 2], {3: fields.get("offset", 0)}, 2)
    history.decide(1705, None, [1, 2])
    isr_line(history, 1710, "updated", [1, 2], partition_epoch=1, leader_epoch=None)
    return history


@pytest.mark.parametrize(("version", "ms"), [("2.4.1", 10_000), ("2.5.0", 30_000), (None, 30_000)])
def test_lag_is_ten_seconds_by_default_up_to_2_4_and_thirty_from_2_5_on(version: str | None, ms: int) -> None:
    first = of_kind(begun().events(kafka_version=version), "config_change")[0]
    assert first["replica_lag_time_max_us"] == ms * 1000


def test_replica_that_sent_no_fetch_in_the_lag_time_left_for_that() -> None:
    pending, committed = (isr_rows(late_history(), state)[0] for state in ("pending_shrink", "committed"))
    assert (pending["reason"], pending["outcome"], pending["broker_id"]) == ("no_fetches", "committed", 3)
    assert (pending["remote_leo"], pending["leo_gap"], pending["fetches_in_lag_time"]) == (0, 2, 0)
    assert pending["last_fetch_ts"] == at(23)
    assert (committed["reason"], committed["change"]) == ("no_fetches", "shrink")


def test_replica_that_fetched_and_did_not_catch_up_left_behind() -> None:
    row = isr_rows(late_history(offset=1), "pending_shrink")[0]
    assert (row["reason"], row["fetches_in_lag_time"], row["leo_gap"]) == ("fetching_but_behind", 10, 1)


def test_replica_whose_fetches_were_refused_left_for_errors() -> None:
    assert isr_rows(late_history(error_code=74), "pending_shrink")[0]["reason"] == "fetch_errors"


def test_replica_that_took_the_partition_out_of_its_fetches_because_of_its_quota_was_throttled() -> None:
    history = late_history()
    history.add("config_change", 90, partition=None, name="follower.replication.throttled.replicas", value="0:3")
    history.fetch(200, 1, 3, None, in_request=False, in_response=False, forgotten=True, current_leader_epoch=None)
    assert isr_rows(history, "pending_shrink")[0]["reason"] == "throttled"


def test_leader_that_stood_still_is_the_reason_where_nobody_was_late_without_it() -> None:
    begin = int(START.timestamp()) * 1_000_000
    spans = {1: [(begin + 150_000, begin + 1_690_000)]}
    assert isr_rows(late_history(), "pending_shrink", standstills=spans)[0]["reason"] == "leader_stood_still"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"fenced": True}, "fenced"), ({"fenced": None, "in_controlled_shutdown": True}, "stopped")],
)
def test_controller_takes_out_who_is_fenced_or_shuts_down(fields: dict[str, Any], reason: str) -> None:
    history = begun()
    alive(history, 300, 3)
    history.decide(400, None, [1, 2])
    history.fence(400, 3, **fields)
    row = isr_rows(history, "committed")[0]
    assert (row["reason"], row["remote_leo"], row["leo_gap"]) == (reason, 0, 0)
    assert row["ms_since_caught_up"] == 177


def test_leader_that_learns_of_a_fenced_members_removal_does_not_wait_for_it_any_more() -> None:
    history = begun()
    alive(history, 300, 3)
    history.produce(301, 1, 0, acks=1)
    history.fetch(350, 1, 2, 1, hw=0)
    history.decide(400, None, [1, 2])
    history.fence(400, 3)
    rows = replayed(history)["hw_timeline"]
    assert [(row["hw"], row["cause"]) for row in rows if row["role"] == "leader" and row["hw"]] == [(1, "isr_request")]


def test_replica_out_of_the_assignment_left_by_the_reassignment() -> None:
    history = begun()
    history.decide(400, None, [1, 2], replicas=[1, 2])
    assert isr_rows(history, "committed")[0]["reason"] == "reassigning"


def test_several_that_leave_have_a_reason_each_and_the_latest_of_them_stands_for_all() -> None:
    history = late_history()
    history.rows = [row for row in history.rows if row["kind"] != "isr_update" and row["ts"] != at(1705)]
    shrink_line(history, 1700, [1], {2: 2, 3: 0}, 2)
    row = isr_rows(history, "pending_shrink")[0]
    assert row["broker_id"] is None
    assert [(m["broker_id"], m["reason"]) for m in row["movers"]] == [(2, "fetching_but_behind"), (3, "no_fetches")]
    assert row["reason"] == "no_fetches"


# -- joining again


def returning(*, asked_at: float | None = 1800, hw: int = 2) -> History:
    """3 left at 1710 and comes back with the HW at 1800."""
    history = late_history()
    history.fetch(1760, 1, 3, 0, bytes=200, hw=hw)
    history.fetch(1800, 1, 3, 2, hw=hw)
    if asked_at is not None:
        isr_line(history, asked_at, "pending_expand", [1, 2, 3], replica_id=3, partition_epoch=1)
    return history


def test_request_to_join_stands_behind_the_fetch_that_led_to_it() -> None:
    events = of_kind(returning().events(), "fetch_update", "isr_request")
    places = [k for k, row in enumerate(events) if row["cause"] == "pending_expand"]
    assert [(events[k - 1]["replica_id"], events[k - 1]["fetch_offset"]) for k in places] == [(3, 2)]


def test_replica_that_reached_the_hw_joined_for_that() -> None:
    history = returning()
    history.decide(1810, None, [1, 2, 3])
    pending = isr_rows(history, "pending_expand")[0]
    assert (pending["reason"], pending["outcome"], pending["evidence"]) == ("leo_reached_hw", "committed", "observed")
    assert isr_rows(history, "committed")[-1]["reason"] == "leo_reached_hw"


def test_request_that_the_controller_refused_is_rejected_with_its_error() -> None:
    history = returning()
    history.request(
        "isr_request", 1830, "c1", broker_id=0, replica_id=1, leader_epoch=0, partition_epoch=1, isr=[1, 2, 3],
        error_code=95, source_file="controller.log",
    )  # fmt: skip
    row = isr_rows(history, "pending_expand")[0]
    assert (row["outcome"], row["error_code"]) == ("rejected", 95)


def test_request_that_was_not_attempted_is_rejected_and_asked_again_at_the_next_fetch() -> None:
    history = returning()
    isr_line(
        history,
        1820,
        "failed",
        [1, 2, 3],
        replica_id=3,
        error_code=error_in("since .. with OPERATION_NOT_ATTEMPTED. .."),
    )
    history.fetch(1840, 1, 3, 2, hw=2)
    first, second = isr_rows(history, "pending_expand")
    assert (first["outcome"], first["error_code"]) == ("rejected", 55)
    assert (second["reason"], second["outcome"], second["evidence"]) == ("asked_again", None, "derived")


def test_request_that_a_new_leader_epoch_overtakes_came_to_nothing() -> None:
    history = returning()
    history.decide(1900, 2, [1, 2])
    assert isr_rows(history, "pending_expand")[0]["outcome"] == "new_leader_epoch"


def test_request_that_another_decision_overtakes_is_superseded() -> None:
    history = returning()
    history.decide(1900, None, [1])
    history.fence(1900, 2)
    assert isr_rows(history, "pending_expand")[0]["outcome"] == "superseded"


def test_unfencing_was_the_last_condition_of_a_replica_that_had_the_hw() -> None:
    history = begun()
    alive(history, 100, 2)
    alive(history, 100, 3)
    history.decide(200, None, [1, 2])
    history.fence(200, 3)
    history.fetch(400, 1, 3, 0, hw=0)
    history.fence(500, 3, fenced=False)
    history.fetch(2600, 1, 3, 0, hw=0)
    assert isr_rows(history, "pending_expand")[0]["reason"] == "unfenced"


def test_run_of_unlisted_fetches_is_split_where_one_of_them_led_to_a_request() -> None:
    fields = {"run_count": 10, "run_timeouts": 7, "run_until": 1_000_000, "fetch_offset": 7}
    run = Operation(
        OP_UPDATE, Window(0, 0, 1_000_000), [Draft("fetch_update", None, Window(0, 0, 0), fields)], offset=7
    )
    line = Row(name="pending_expand", source_file="server-1.log", source_line=1)
    change = Change(line, 500_000, shrinks=False, isr=[1, 2, 3], replica=3, by_line=True)
    parts = split_run(Tenure(0, 1), run, [change])
    found = [[(d.kind, d.window.est, d.fields.get("run_count")) for d in part.drafts] for part in parts]
    assert found == [
        [("fetch_update", 0, 5)],
        [("fetch_update", 500_000, 5), ("isr_request", 500_000, None)],
    ]
    assert [part.drafts[0].fields["run_until"] for part in parts] == [499_999, 1_000_000]
    assert [part.drafts[0].fields["run_timeouts"] for part in parts] == [3, 4]


def test_fetch_that_was_parked_and_then_refused_had_been_taken_first() -> None:
    history = begun()
    history.fetch(400, 1, 3, 0, total_us=300_000, remote_us=300_000, error_code=6)
    found = [(row["error_code"], row["ts"]) for row in of_kind(history.events(), "fetch_update")]
    assert found == [(0, at(100)), (6, at(400))]


def test_leader_that_stood_still_learns_of_decisions_once_it_is_awake() -> None:
    history = begun()
    history.decide(400, None, [1, 2])
    begin = int(START.timestamp()) * 1_000_000
    events = history.events(standstills={1: [(begin + 300_000, begin + 3_000_000)]})
    assert [row["ts"] for row in of_kind(events, "isr_request")] == [at(3030)]


# -- flaps and settings


def test_replica_that_left_and_came_back_is_a_flap() -> None:
    history = returning()
    history.decide(1810, None, [1, 2, 3])
    (flap,) = replayed(history)["isr_flaps"]
    assert (flap["broker_id"], flap["out_ms"], flap["times"]) == (3, 105, 1)
    assert (flap["left_reason"], flap["back_reason"]) == ("no_fetches", "leo_reached_hw")


def test_min_insync_replicas_follows_the_metadata() -> None:
    history = begun()
    history.decide(400, None, [1, 2])
    setting = {"partition": None, "name": "min.insync.replicas"}
    history.add("config_change", 500, value="3", metadata_offset=500, **setting)
    history.decide(600, None, [1], metadata_offset=600)
    history.add("config_change", 700, value=None, metadata_offset=700, **setting)
    history.decide(800, None, [1, 2], metadata_offset=800)
    rows = isr_rows(history, "committed")
    assert [(row["isr"], row["under_min_isr"]) for row in rows] == [([1, 2], None), ([1], True), ([1, 2], None)]
