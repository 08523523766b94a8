"""Consumers that are sent to another replica (KIP-392): which replicas a leader may choose."""

from __future__ import annotations

import pytest
from facts_builder import History, of_kind
from small_partition import LATEST, A, B, C, at, led
from without_spark import tables_of

from replay.evidence.racks import RACK_AWARE
from replay.protocol.isr import RACE_US, may_serve_consumer, rack_aware_choice
from replay.protocol.profile import profile_of
from replay.protocol.state import NONE


@pytest.mark.parametrize(("version", "outside"), [((3, 3, 1), True), ((3, 3, 2), False)])
def test_only_members_of_the_isr_serve_consumers_from_3_3_2_on(version: tuple[int, int, int], *, outside: bool) -> None:
    profile = profile_of(version)
    s = at(led(0b011, profile=profile), leo=9, remote={B: 5})
    assert may_serve_consumer(s, profile, A, B, 5)
    s.isr[A] = 0b001
    assert may_serve_consumer(s, profile, A, B, 5) is outside


def test_a_replica_serves_only_what_it_has_as_far_as_its_leader_knows() -> None:
    profile = profile_of((4, 1, 0))
    s = at(led(0b011, profile=profile), leo=9, remote={B: 5})
    s.remote_start[A, B] = 3
    assert [offset for offset in range(9) if may_serve_consumer(s, profile, A, B, offset)] == [3, 4, 5]


def sent_to(replica: int) -> dict[str, int | str | None]:
    """Broker 1 leads with 2 in the ISR and 3 outside it, and sends a consumer to `replica`."""
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2, 3])
    history.role(10, 1, "leader", 0, offset=9, hw=0)
    for follower, offset in ((2, 9), (3, 4)):
        history.role(11, follower, "follower", 0, offset=offset, hw=0)
        history.fetch(100 + follower, 1, follower, offset, hw=0)
    history.fetch(200, 1, -1, 3, preferred_read_replica=replica, hw=9, current_leader_epoch=0)
    rows = tables_of(history.events())["conformance"].to_pylist()
    (check,) = (row for row in rows if row["check"] == "preferred_replica")
    return {name: check[name] for name in ("compared", "matched", "note")}


def test_the_replica_that_a_consumer_was_sent_to_is_held_against_what_its_leader_knew() -> None:
    assert sent_to(2) == {"compared": 1, "matched": 1, "note": None}
    assert sent_to(3) == {"compared": 1, "matched": 0, "note": "broker 1: computed nothing, stated broker 3"}


ALL = 0b111
RACK = 0b110  # B and C


def test_a_leader_in_the_consumers_rack_serves_it_itself() -> None:
    s = at(led(ALL), leo=9, remote={B: 9, C: 9})
    assert rack_aware_choice(s, LATEST, A, ALL, 3, NONE) == NONE
    assert rack_aware_choice(s, LATEST, A, 0, 3, NONE) == NONE  # nobody is in it


def test_of_several_in_the_rack_the_most_caught_up_serves() -> None:
    s = at(led(ALL), leo=9, remote={B: 7, C: 8})
    assert rack_aware_choice(s, LATEST, A, RACK, 3, NONE) == C
    assert rack_aware_choice(s, LATEST, A, RACK, 9, NONE) == NONE  # none of them has that offset
    s.isr[A] = 0b011
    assert rack_aware_choice(s, LATEST, A, RACK, 3, NONE) == B  # outside the ISR nobody serves (3.3.2+)


def test_of_equals_the_one_that_was_caught_up_last_serves() -> None:
    s = at(led(ALL), leo=9, remote={B: 8, C: 8})
    s.caught_up[A, B], s.caught_up[A, C] = 0, RACE_US + 1
    assert rack_aware_choice(s, LATEST, A, RACK, 3, B) == C
    s.caught_up[A, C] = RACE_US  # their times do not tell
    assert [rack_aware_choice(s, LATEST, A, RACK, 3, told) for told in (B, C, NONE)] == [B, C, B]


def in_racks(preferred: int, rack: str | None, **settings: str) -> tuple[list[list[int] | None], list[tuple[int, int]]]:
    """Broker 1 is in rack a, 2 and 3 in b, 3 lags; a consumer of some rack is sent to `preferred`. Events, checks."""
    history = History()
    for broker, own in ((1, "a"), (2, "b"), (3, "b")):
        told = {"broker.rack": own, "replica.selector.class": RACK_AWARE} | settings
        for name, value in told.items():
            place = {"source_file": f"server-{broker}.log", "topic": None, "partition": None}
            history.add("config_change", 0, broker_id=broker, name=name, value=value, resource_type=4, **place)
    history.decide(0, 1, [1, 2, 3], replicas=[1, 2, 3])
    history.role(10, 1, "leader", 0, offset=9, hw=0)
    for follower, offset in ((2, 9), (3, 4)):
        history.role(11, follower, "follower", 0, offset=offset, hw=0)
        history.fetch(100 + follower, 1, follower, offset, hw=0)
    history.fetch(200, 1, -1, 3, preferred_read_replica=preferred, hw=4, current_leader_epoch=0, rack=rack)
    events = history.events()
    checks = tables_of(events)["conformance"].to_pylist()
    found = [(row["compared"], row["matched"]) for row in checks if row["check"] == "preferred_replica"]
    return [row["replicas"] for row in of_kind(events, "consumer_read")], found


@pytest.mark.parametrize(
    ("preferred", "rack", "matched"),
    [(2, "b", 1), (3, "b", 0), (-1, "b", 0), (-1, "a", 1), (2, "a", 0), (-1, "elsewhere", 1)],
)
def test_a_rack_aware_leader_sends_a_consumer_to_its_rack(preferred: int, rack: str, matched: int) -> None:
    members = {"a": [1], "b": [2, 3]}.get(rack, [])
    assert in_racks(preferred, rack) == ([members], [(1, matched)])


@pytest.mark.parametrize(
    ("rack", "settings"),
    [(None, {}), ("b", {"replica.selector.class": "null"}), ("b", {"replica.selector.class": "Own"})],
)
def test_without_a_rack_or_with_another_selector_nothing_is_foretold(
    rack: str | None, settings: dict[str, str]
) -> None:
    assert in_racks(-1, rack, **settings) == ([None], [])
    assert in_racks(3, rack, **settings) == ([None], [(1, 1)])  # it may
