"""Broker epochs in eligibility (KIP-903): a replica whose broker registered anew joins once it has fetched since."""

from __future__ import annotations

from typing import Any

import pytest
from facts_builder import History
from isr_histories import isr_line
from small_partition import NOW, A, B, C, apply, at, led
from without_spark import tables_of

from replay.engine import codes as c
from replay.protocol.alter_partition import (
    INELIGIBLE_REPLICA,
    IsrRequest,
    PartitionNow,
    Registrations,
    alter_rules_of,
    controller_answer,
)
from replay.protocol.high_watermark import hw_candidate
from replay.protocol.isr import FENCED, STALE_EPOCH, blocks_expansion
from replay.protocol.produce import NO_ERROR
from replay.protocol.profile import profile_of
from replay.protocol.role_changes import make_follower, make_leader
from replay.protocol.state import NONE, State

OLD, NEW = 11, 77  # epochs of C's two registrations


def registered_anew(named: int = OLD) -> State:
    """C is out of A's ISR, has what is committed, fetched under `named`, and is registered under NEW and unfenced."""
    s = at(led(isr=0b011), leo=9, remote={B: 9, C: 4}, hw=4)
    s.caught_up[A, C] = NOW
    apply(s, c.FETCH_UPDATE, broker=A, replica=C, fetch_offset=3, replica_epoch=named)
    s.remote_leo[A, C] = 4
    apply(s, c.BROKER_CHANGE, broker=C, broker_epoch=NEW, fenced=1)
    apply(s, c.BROKER_CHANGE, broker=C, broker_epoch=NEW, fenced=0)
    return s


@pytest.mark.parametrize(("version", "found"), [((3, 4, 1), 0), ((3, 5, 0), STALE_EPOCH), ((4, 1, 0), STALE_EPOCH)])
def test_what_is_known_of_an_earlier_life_lets_nobody_join_from_3_5_on(version: Any, found: int) -> None:
    assert blocks_expansion(registered_anew(), profile_of(version), A, C) == found


@pytest.mark.parametrize(
    "named",
    [
        NEW,
        NONE,  # fetches up to version 14 name no broker epoch
        NEW + 5,  # a registration that no source tells
    ],
)
def test_replica_whose_epoch_is_not_known_to_be_old_may_join(named: int) -> None:
    assert blocks_expansion(registered_anew(named), profile_of((4, 1, 0)), A, C) == 0


def test_broker_whose_registration_no_source_tells_may_join() -> None:
    s = registered_anew()
    s.broker_epoch[C] = NONE
    assert blocks_expansion(s, profile_of((4, 1, 0)), A, C) == 0


def test_late_fetch_of_an_earlier_life_does_not_join_and_the_first_one_since_does() -> None:
    s = registered_anew()
    assert s.blocked[A, C] & STALE_EPOCH
    apply(s, c.FETCH_UPDATE, broker=A, replica=C, fetch_offset=4, replica_epoch=OLD)
    assert (s.blocked[A, C], s.maximal_isr[A]) == (STALE_EPOCH, 0b011)
    apply(s, c.FETCH_UPDATE, broker=A, replica=C, fetch_offset=4, replica_epoch=NEW)
    assert (s.blocked[A, C], s.maximal_isr[A]) == (0, 0b111)


def test_member_that_registers_anew_stays_in_the_isr_until_the_controller_decides() -> None:
    s = at(led(), leo=9, remote={B: 9, C: 9}, hw=4)
    apply(s, c.FETCH_UPDATE, broker=A, replica=C, fetch_offset=9, replica_epoch=OLD)
    apply(s, c.BROKER_CHANGE, broker=C, broker_epoch=NEW, fenced=1)
    assert (s.isr[A], s.blocked[A, C] & STALE_EPOCH) == (0b111, 0)
    assert s.blocked[A, C] & FENCED


@pytest.mark.parametrize(("version", "candidate"), [((3, 5, 2), 4), ((3, 6, 0), 9)])
def test_hw_waits_for_no_replica_of_an_earlier_life_from_3_6_on(version: Any, candidate: int) -> None:
    s = registered_anew()
    assert hw_candidate(s, profile_of(version), A, NOW) == candidate
    apply(s, c.FETCH_UPDATE, broker=A, replica=C, fetch_offset=4, replica_epoch=NEW)
    assert hw_candidate(s, profile_of(version), A, NOW) == 4


def test_leader_that_leads_on_remembers_the_broker_epoch_and_a_new_one_knows_none() -> None:
    s = registered_anew()
    make_leader(s, profile_of((4, 1, 0)), A, 6, 0b011, NOW)
    assert s.fetch_epoch[A, C] == OLD
    make_follower(s, profile_of((4, 1, 0)), A, B, 7)
    make_leader(s, profile_of((4, 1, 0)), A, 8, 0b011, NOW)
    assert s.fetch_epoch[A, C] == NONE


# -- from the lines of a cluster


def come_back(*, tells_epochs: bool = True, idle: bool = False) -> History:
    """3 is fenced, removed, and registers anew; unless idle, 1 appends and commits with 2 before it fetches again.

    The last fetch of 3 was answered four seconds before, which is within the lag time of ten.
    """
    history = History()
    old, new = ({"replica_epoch": e} if tells_epochs else {} for e in (OLD, NEW))
    history.fence(0, 3, broker_epoch=OLD, fenced=False, metadata_offset=1)
    history.decide(0, 1, [1, 2, 3])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    for broker in (2, 3):
        history.role(11, broker, "follower", 0, offset=0, hw=0)
        history.fetch(20 + broker, 1, broker, 0, hw=0, **(old if broker == 3 else {}))
    history.decide(1000, None, [1, 2])
    history.fence(1000, 3, broker_epoch=OLD)
    isr_line(history, 1040, "applied", [1, 2], partition_epoch=1)
    history.fence(1200, 3, broker_epoch=NEW, record_type="REGISTER_BROKER_RECORD")
    history.fence(1300, 3, broker_epoch=NEW, fenced=False)
    if not idle:
        history.produce(4500, 1, 0, acks=1)
        history.fetch(4510, 1, 2, 0, bytes=100, hw=0)
        history.fetch(4520, 1, 2, 1, hw=1)
        history.fetch(4700, 1, 3, 0, bytes=100, hw=1, **new)
    history.fetch(4800, 1, 3, int(not idle), hw=int(not idle), **new)
    isr_line(history, 4800, "pending_expand", [1, 2, 3], replica_id=3, partition_epoch=1)
    return history


def risen(history: History) -> tuple[str, str]:
    """What moved the leader's HW to 1, and how that is known."""
    events = history.events(lag_us=10_000_000, settings={"min.insync.replicas": 1})
    rows = tables_of(events)["hw_timeline"].to_pylist()
    (row,) = (r for r in rows if r["role"] == "leader" and r["hw"] == 1)
    return row["step"], row["evidence"]


def test_hw_rises_without_a_replica_that_registered_anew_and_has_not_fetched_since() -> None:
    assert risen(come_back()) == ("leader_maybe_increment_hw", "derived")


def test_without_broker_epochs_in_the_fetches_the_hw_rises_only_as_the_leader_states_it() -> None:
    assert risen(come_back(tells_epochs=False)) == ("observation", "observed")


def test_replica_that_joins_at_its_first_fetch_since_says_so() -> None:
    for idle, reason in ((True, "fetched_since_registration"), (False, "leo_reached_hw")):
        rows = tables_of(come_back(idle=idle).events(lag_us=10_000_000))["isr_timeline"].to_pylist()
        (joined,) = (r for r in rows if r["state"] == "pending_expand")
        assert (joined["isr"], joined["reason"]) == ([1, 2, 3], reason)


def test_events_tell_the_broker_epoch_that_each_fetch_named() -> None:
    rows = [r for r in come_back().events(lag_us=10_000_000).to_pylist() if r["kind"] == "fetch_update"]
    assert [(r["replica_id"], r["replica_epoch"]) for r in rows] == [
        (2, None), (3, OLD), (2, None), (2, None), (3, NEW), (3, NEW),
    ]  # fmt: skip


# -- the controller's check

HAD = PartitionNow(1, 4, 9, frozenset({1, 2}), frozenset({1, 2, 3}))
BROKERS = Registrations(frozenset(), frozenset({(1, 10), (3, NEW)}))


@pytest.mark.parametrize(
    ("version", "members", "error"),
    [
        ((3, 5, 0), {(1, 10), (3, OLD)}, INELIGIBLE_REPLICA),
        ((3, 5, 0), {(1, 10), (3, NEW)}, NO_ERROR),
        ((3, 5, 0), {(1, 10), (2, 5)}, NO_ERROR),  # no source tells how broker 2 is registered
        ((3, 5, 0), {(1, 10)}, NO_ERROR),  # of 3 the leader names no epoch
        ((3, 4, 1), {(1, 10), (3, OLD)}, NO_ERROR),
    ],
)
def test_from_3_5_on_the_controller_refuses_a_member_of_an_earlier_life(
    version: Any, members: set[tuple[int, int]], error: int
) -> None:
    asked = IsrRequest(1, 4, 9, frozenset({1, 2, 3}), frozenset(members))
    assert controller_answer(asked, HAD, BROKERS, alter_rules_of(version, zookeeper=False)) == error


def refused(*, named: list[int] | None, error: int = INELIGIBLE_REPLICA) -> tuple[int, int, str | None]:
    """1 asks for 3 as it was before 3 registered anew; what was compared, and the difference."""
    history = come_back()
    isr_line(history, 4810, "failed", [1, 2, 3], error_code=error)
    asked = {"leader_epoch": 0, "partition_epoch": 1, "isr": [3, 1, 2], "replica_id": 1, "error_code": error}
    place = {"broker_id": 100, "source_file": "request-100.log", "isr_broker_epochs": named}
    history.request("isr_request", 4805, "c100", **asked, **place)
    checks = tables_of(history.events(lag_us=10_000_000))["conformance"].to_pylist()
    (row,) = (row for row in checks if row["check"] == "alter_partition")
    return row["compared"], row["matched"], row["note"]


def test_request_that_names_an_earlier_life_must_be_refused() -> None:
    assert refused(named=[OLD, 10, 12]) == (1, 1, None)
    assert refused(named=[NEW, 10, 12]) == (1, 0, f"broker 1: computed 0, stated {INELIGIBLE_REPLICA}")


@pytest.mark.parametrize("named", [None, [-1, -1, -1]])
def test_request_that_names_no_broker_epochs_is_not_held_against_registrations(named: list[int] | None) -> None:
    assert refused(named=named) == (1, 0, f"broker 1: computed 0, stated {INELIGIBLE_REPLICA}")


def test_events_tell_the_broker_epochs_that_the_leader_asked_for_in_the_order_of_the_isr() -> None:
    history = come_back()
    asked = {"leader_epoch": 0, "partition_epoch": 1, "isr": [3, 1, 2], "replica_id": 1, "broker_id": 100}
    history.request("isr_request", 4805, "c100", **asked, isr_broker_epochs=[NEW, 10, -1])
    (row,) = (r for r in history.events(lag_us=10_000_000).to_pylist() if r["cause"] == "pending_expand")
    assert (row["isr"], row["isr_broker_epochs"]) == ([1, 2, 3], [10, -1, NEW])


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ([NEW, 10, -1], (1, 1, None)),
        ([OLD, 10, -1], (1, 0, f"broker 3: computed {NEW}, stated {OLD}")),
        ([-1, 10, -1], None),
        (None, None),
    ],
)
def test_leader_asks_for_a_replica_under_the_broker_epoch_of_its_last_fetch(
    named: list[int] | None, found: tuple[int, int, str | None] | None
) -> None:
    history = come_back()
    asked = {"leader_epoch": 0, "partition_epoch": 1, "isr": [3, 1, 2], "replica_id": 1, "broker_id": 100}
    history.request("isr_request", 4805, "c100", **asked, isr_broker_epochs=named)
    checks = tables_of(history.events(lag_us=10_000_000))["conformance"].to_pylist()
    rows = [(r["compared"], r["matched"], r["note"]) for r in checks if r["check"] == "broker_epoch"]
    assert rows == ([] if found is None else [found])
