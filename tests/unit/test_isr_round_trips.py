"""AlterPartition as a round trip: what the controller answers, by version, and the comparison with what came of it."""

from __future__ import annotations

from typing import Any

import pytest
from facts_builder import History, at
from without_spark import tables_of

from replay.evidence.active_controllers import NOBODY as NO_NODE
from replay.evidence.active_controllers import ActiveControllers
from replay.evidence.rows import Row
from replay.protocol.alter_partition import (
    FENCED_LEADER_EPOCH,
    INELIGIBLE_REPLICA,
    INVALID_REQUEST,
    INVALID_UPDATE_VERSION,
    NEW_LEADER_ELECTED,
    NOT_CONTROLLER,
    OPERATION_NOT_ATTEMPTED,
    IsrRequest,
    PartitionNow,
    Registrations,
    alter_rules_of,
    controller_answer,
    granted_isr,
)
from replay.protocol.produce import NO_ERROR

KRAFT, KRAFT_3_2 = alter_rules_of((4, 1, 0), zookeeper=False), alter_rules_of((3, 2, 3), zookeeper=False)
ZOOKEEPER, ZOOKEEPER_3_6 = (alter_rules_of(version, zookeeper=True) for version in ((2, 8, 2), (3, 6, 0)))
NOW = PartitionNow(1, 4, 9, frozenset({1, 2}), frozenset({1, 2, 3}))
ASKED = IsrRequest(1, 4, 9, frozenset({1, 2, 3}))
NOBODY = Registrations(frozenset())
THIRD_FENCED = Registrations(frozenset({3}))


@pytest.mark.parametrize(
    ("request_", "brokers", "error"),
    [
        (ASKED, NOBODY, NO_ERROR),
        (ASKED._replace(leader_epoch=3), NOBODY, FENCED_LEADER_EPOCH),
        (ASKED._replace(leader_epoch=3, partition_epoch=8), NOBODY, FENCED_LEADER_EPOCH),
        (ASKED._replace(leader=2), NOBODY, INVALID_REQUEST),
        (ASKED._replace(partition_epoch=8), NOBODY, INVALID_UPDATE_VERSION),
        (ASKED._replace(isr=frozenset({1, 4})), NOBODY, INVALID_REQUEST),
        (ASKED._replace(isr=frozenset({2, 3})), NOBODY, INVALID_REQUEST),
        (ASKED, THIRD_FENCED, INELIGIBLE_REPLICA),
        (ASKED._replace(partition_epoch=8), THIRD_FENCED, INVALID_UPDATE_VERSION),
        (ASKED._replace(partition_epoch=10), NOBODY, NOT_CONTROLLER),
    ],
)
def test_the_first_reason_in_the_controllers_order_is_its_answer(
    request_: IsrRequest, brokers: Registrations, error: int
) -> None:
    assert controller_answer(request_, NOW, brokers, KRAFT) == error


def test_up_to_3_2_nobody_asks_whether_a_replica_is_eligible_or_who_is_ahead() -> None:
    assert controller_answer(ASKED, NOW, THIRD_FENCED, KRAFT_3_2) == NO_ERROR
    assert controller_answer(ASKED._replace(leader_epoch=5), NOW, NOBODY, KRAFT_3_2) == FENCED_LEADER_EPOCH


@pytest.mark.parametrize(("rules", "error"), [(KRAFT, NEW_LEADER_ELECTED), (KRAFT_3_2, FENCED_LEADER_EPOCH)])
def test_an_isr_that_completes_the_removal_of_its_leader_is_decided_and_yet_answered_with_an_error(
    rules: Any, error: int
) -> None:
    moving = NOW._replace(adding=frozenset({3}), removing=frozenset({1}))
    assert controller_answer(ASKED, moving, NOBODY, rules) == error
    assert granted_isr(ASKED, moving) == {2, 3}
    assert controller_answer(ASKED, moving._replace(removing=frozenset({2})), NOBODY, rules) == NO_ERROR
    assert granted_isr(ASKED._replace(isr=frozenset({1, 2})), moving) == {1, 2}


def test_a_zookeeper_controller_updates_the_version_that_the_leader_knows() -> None:
    assert controller_answer(ASKED, NOW, THIRD_FENCED, ZOOKEEPER) == NO_ERROR
    assert controller_answer(ASKED._replace(partition_epoch=8), NOW, NOBODY, ZOOKEEPER) == INVALID_UPDATE_VERSION
    same = ASKED._replace(partition_epoch=8, isr=NOW.isr)
    assert controller_answer(same, NOW, NOBODY, ZOOKEEPER) == NO_ERROR
    assert controller_answer(same._replace(leader_epoch=3), NOW, NOBODY, ZOOKEEPER) == FENCED_LEADER_EPOCH


@pytest.mark.parametrize(
    ("request_", "brokers", "before", "since"),
    [
        (ASKED, THIRD_FENCED, NO_ERROR, INELIGIBLE_REPLICA),
        (ASKED._replace(partition_epoch=8), THIRD_FENCED, INVALID_UPDATE_VERSION, INVALID_UPDATE_VERSION),
        (ASKED._replace(partition_epoch=10), NOBODY, INVALID_UPDATE_VERSION, NOT_CONTROLLER),
        (ASKED._replace(partition_epoch=10, isr=NOW.isr), NOBODY, NO_ERROR, NOT_CONTROLLER),
        (ASKED._replace(leader_epoch=5), NOBODY, NO_ERROR, NOT_CONTROLLER),
    ],
)
def test_a_zookeeper_controller_of_3_3_and_later_asks_who_is_ahead_and_who_is_alive(
    request_: IsrRequest, brokers: Registrations, before: int, since: int
) -> None:
    assert controller_answer(request_, NOW, brokers, ZOOKEEPER) == before
    assert controller_answer(request_, NOW, brokers, ZOOKEEPER_3_6) == since


def begun() -> History:
    """Broker 1 leads under partition epoch 0, with everybody in sync."""
    history = History()
    history.decide(0, 1, [1, 2, 3])
    history.role(5, 1, "leader", 0, offset=0, hw=0, isr=[1, 2, 3], partition_epoch=0)
    return history


def line(history: History, ms: float, name: str, **fields: Any) -> None:
    history.add("isr_update", ms, name=name, broker_id=1, leader_epoch=0, source_file="server-1.log", **fields)


def compared(history: History) -> tuple[int, int, str | None]:
    tables = tables_of(history.events())
    (row,) = (row for row in tables["conformance"].to_pylist() if row["check"] == "alter_partition")
    return row["compared"], row["matched"], row["note"]


def test_a_request_that_became_a_decision_was_granted() -> None:
    history = begun()
    line(history, 5000, "shrink", isr=[1, 2], offset=0, hw=0)
    history.decide(5010, None, [1, 2])
    line(history, 5020, "updated", isr=[1, 2], partition_epoch=1)
    assert compared(history) == (1, 1, None)


def derived(history: History, size: int = 1000) -> list[tuple[str, int | None, int | None]]:
    """Of each row of the ISR: its state, the error that is stated, and the one that is derived."""
    rows = tables_of(history.events(), size)["isr_timeline"].to_pylist()
    return [(row["state"], row["error_code"], row["derived_error_code"]) for row in rows]


def test_how_a_request_is_answered_is_told_though_nothing_states_it() -> None:
    shrinks, joins = begun(), begun()
    line(shrinks, 5000, "shrink", isr=[1, 2], offset=0, hw=0)
    joins.decide(1000, None, [1, 2])
    line(joins, 1010, "updated", isr=[1, 2], partition_epoch=1)
    joins.fetch(5000, 1, 3, 0, hw=0)
    line(joins, 5001, "pending_expand", isr=[1, 2, 3], replica_id=3)
    for history, state in ((shrinks, "pending_shrink"), (joins, "pending_expand")):
        found = {size: derived(history, size) for size in (1, 1000)}
        assert found[1] == found[1000]
        assert found[1][-1] == (state, None, NO_ERROR)
        assert {told for name, *told in map(list, found[1]) if name == "committed" for told in told} == {None}


def test_what_the_controller_refuses_by_its_rules_is_told_beside_what_is_stated() -> None:
    replaced = begun()
    line(replaced, 5000, "shrink", isr=[1], offset=0, hw=0)
    replaced.decide(1000, 2, [2, 3])
    assert ("pending_shrink", None, FENCED_LEADER_EPOCH) in derived(replaced)


@pytest.mark.parametrize(("error", "matched"), [(FENCED_LEADER_EPOCH, 1), (INELIGIBLE_REPLICA, 0)])
def test_a_leader_that_was_replaced_is_fenced(error: int, matched: int) -> None:
    """The controller replaced it before it asked; it hears of that later."""
    history = begun()
    line(history, 5000, "shrink", isr=[1], offset=0, hw=0)
    line(history, 5020, "failed", isr=[1], error_code=error)
    history.decide(1000, 2, [2, 3])
    history.role(1010, 2, "leader", 1, offset=0, hw=0, isr=[2, 3], partition_epoch=1)
    note = None if matched else f"broker 1: computed {FENCED_LEADER_EPOCH}, stated {error}"
    assert compared(history) == (1, matched, note)


def test_a_request_behind_one_that_has_no_answer_yet_is_not_attempted() -> None:
    history = begun()
    line(history, 5000, "shrink", isr=[1, 2], offset=0, hw=0)
    history.decide(5005, None, [1, 2])
    line(history, 5010, "updated", isr=[1, 2], partition_epoch=1)
    line(history, 5015, "pending_expand", isr=[1, 2, 3], replica_id=3)
    line(history, 5016, "failed", isr=[1, 2, 3], error_code=OPERATION_NOT_ATTEMPTED)
    assert compared(history) == (2, 2, None)


def turns(*lines: tuple[float, str, int]) -> ActiveControllers:
    return ActiveControllers(
        [Row(kind="broker_lifecycle", ts=at(ms), name=name, broker_id=node) for ms, name, node in lines]
    )


def active(controllers: ActiveControllers, ms: float) -> int | None:
    return controllers.at(int(at(ms).timestamp() * 1_000_000))


def test_the_active_controller_is_the_one_that_last_said_so_until_it_resigns_or_starts_again() -> None:
    found = turns(
        (0, "active_controller", 100),
        (10_000, "active_controller", 101),
        (10_500, "controller_resigned", 100),  # late: it was replaced before
        (20_000, "controller_resigned", 101),
        (30_000, "controller_elected", 1),
        (40_000, "start", 1),
        (50_000, "start", 2),  # it was not active
    )
    times = (-5_000, 5_000, 9_000, 11_000, 15_000, 25_000, 35_000, 45_000, 60_000)
    assert [active(found, ms) for ms in times] == [None, 100, None, None, 101, NO_NODE, 1, NO_NODE, NO_NODE]


def answers(*requests: tuple[float, int, int]) -> tuple[int, int, str | None]:
    """Requests (milliseconds, node, error) of a leader, while 100 is active up to 10 s and 101 from then on."""
    history = History()
    for ms, node in ((0, 100), (10_000, 101)):
        place = {"source_file": f"server-{node}.log", "topic": None, "partition": None}
        history.add("broker_lifecycle", ms, name="active_controller", broker_id=node, controller_epoch=ms, **place)
    history.decide(0, 1, [1], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0, isr=[1], partition_epoch=0)
    for ms, node, error in requests:
        asked = {"leader_epoch": 0, "partition_epoch": 0, "isr": [1, 2], "replica_id": 1, "error_code": error}
        history.request("isr_request", ms, f"c{node}", broker_id=node, source_file=f"r-{node}.log", **asked)
    checks = tables_of(history.events())["conformance"].to_pylist()
    (row,) = (row for row in checks if row["check"] == "alter_partition")
    return row["compared"], row["matched"], row["note"]


def test_a_node_that_is_not_the_active_controller_says_so() -> None:
    assert answers((5_000, 100, NO_ERROR), (15_000, 100, NOT_CONTROLLER)) == (2, 2, None)
    assert answers((15_000, 100, NO_ERROR)) == (1, 0, "node 100: active controller 101, stated 0")
    assert answers((15_000, 101, NOT_CONTROLLER)) == (1, 0, "node 101: active controller 101, stated 41")


def test_a_failure_of_the_whole_request_does_not_say_who_is_active() -> None:
    assert answers((5_000, 100, NO_ERROR), (15_000, 100, -1)) == (1, 1, None)


def test_while_the_active_controller_changes_nothing_is_compared() -> None:
    assert answers((5_000, 100, NO_ERROR), (10_500, 100, NOT_CONTROLLER), (11_000, 101, NO_ERROR)) == (1, 1, None)
