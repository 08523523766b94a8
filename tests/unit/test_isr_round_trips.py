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
    STALE_BROKER_EPOCH,
    UNKNOWN_TOPIC_ID,
    IsrRequest,
    PartitionNow,
    Registrations,
    alter_rules_of,
    controller_answer,
    granted_isr,
    write_answer,
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


LOST_BEFORE_2_8, LOST_SINCE = OPERATION_NOT_ATTEMPTED, INVALID_UPDATE_VERSION


@pytest.mark.parametrize(("version", "lost"), [((2, 6, 3), LOST_BEFORE_2_8), ((2, 7, 2), LOST_BEFORE_2_8)])
def test_a_leader_s_own_write_is_lost_if_the_node_has_another_version_whatever_the_epochs(
    version: Any, lost: int
) -> None:
    rules = alter_rules_of(version, zookeeper=True)
    replaced = NOW._replace(leader=2, leader_epoch=5, partition_epoch=10)
    assert write_answer(ASKED, replaced, rules) == lost
    assert write_answer(ASKED, NOW._replace(partition_epoch=10), rules) == lost
    assert write_answer(ASKED._replace(partition_epoch=10), NOW, rules) == lost
    assert write_answer(ASKED, NOW, rules) == NO_ERROR
    assert write_answer(ASKED._replace(leader_epoch=3), NOW, rules) == NO_ERROR


def test_a_write_that_came_through_although_its_answer_did_not_is_not_lost() -> None:
    rules = alter_rules_of((2, 6, 3), zookeeper=True)
    assert write_answer(ASKED, NOW._replace(partition_epoch=10, isr=ASKED.isr), rules) == NO_ERROR
    by_another = NOW._replace(partition_epoch=10, isr=ASKED.isr, leader=2)
    assert write_answer(ASKED, by_another, rules) == LOST_BEFORE_2_8


def test_from_2_8_on_a_lost_write_has_an_error() -> None:
    rules = alter_rules_of((2, 8, 0), zookeeper=True)
    assert write_answer(ASKED, NOW._replace(partition_epoch=10), rules) == LOST_SINCE


def begun() -> History:
    """Broker 1 leads under partition epoch 0, with everybody in sync."""
    history = History()
    history.decide(0, 1, [1, 2, 3])
    history.role(5, 1, "leader", 0, offset=0, hw=0, isr=[1, 2, 3], partition_epoch=0)
    return history


def line(history: History, ms: float, name: str, **fields: Any) -> None:
    history.add("isr_update", ms, name=name, broker_id=1, leader_epoch=0, source_file="server-1.log", **fields)


def compared(history: History, **settings: Any) -> tuple[int, int, str | None]:
    tables = tables_of(history.events(**settings))
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


def written(error: str = "zookeeper_conflict", **told: Any) -> History:
    """Broker 1, cut off, goes on leading epoch 0 and shrinks the ISR each time that its expiry task runs, in vain."""
    history = History()
    history.decide(0, 1, [1, 2, 3], metadata_offset=None)
    history.role(5, 1, "leader", 0, offset=0, hw=0, isr=[1, 2, 3], partition_epoch=0)
    for run in range(3):
        ms = 12_000 + 15_000 * run
        line(history, ms, "shrink", isr=[1], offset=0, hw=0)
        if error != "failed" or not run:
            line(history, ms + 5, error, **{"isr": None, **told})
    return history


def replace_leader(history: History, ms: float) -> None:
    """ZooKeeper's controller elects broker 2, of which broker 1 does not hear."""
    history.decide(ms, 2, [2, 3], leader_epoch=1, partition_epoch=1, metadata_offset=None)
    history.role(ms + 10, 2, "leader", 1, offset=0, hw=0, isr=[2, 3], partition_epoch=1)


ZOMBIE = {"partition_epoch": 0}


@pytest.mark.parametrize("ms", [1000, 11_500])
def test_a_leader_that_was_replaced_loses_each_conditional_update(ms: float) -> None:
    """Even when its successor was elected just before: there is no queue that could have refused it."""
    history = written(**ZOMBIE)
    replace_leader(history, ms)
    assert compared(history, kafka_version="2.6.3") == (3, 3, None)


def test_an_update_under_the_node_s_version_cannot_be_lost() -> None:
    history = written(**ZOMBIE)
    assert compared(history, kafka_version="2.6.3") == (3, 0, "broker 1: computed 0, stated 55")


@pytest.mark.parametrize(("ms", "matched"), [(11_000, 3), (25_000, 2)])
def test_an_update_is_lost_once_the_topic_and_its_node_were_deleted(ms: float, matched: int) -> None:
    history = written(**ZOMBIE)
    history.role(6, 2, "follower", 0, offset=0, hw=0)
    gone = {"state_before": "OfflinePartition", "state_after": "NonExistentPartition", "source_file": "server-3.log"}
    history.add("state_change", ms, name="partition", broker_id=3, **gone)
    assert compared(history, kafka_version="2.6.3")[:2] == (3, matched)


def test_an_update_is_lost_to_a_decision_of_which_the_first_line_came_later() -> None:
    """ZooKeeper has a decision before the controller tells any broker of it."""
    history = written(**ZOMBIE)
    replace_leader(history, 13_000)
    assert compared(history, kafka_version="2.6.3") == (3, 3, None)
    late = written(**ZOMBIE)
    replace_leader(late, 16_000)
    assert compared(late, kafka_version="2.6.3") == (3, 2, "broker 1: computed 0, stated 55")


def test_the_line_states_the_version_that_the_leader_knows() -> None:
    history = written(partition_epoch=4)
    replace_leader(history, 1000)
    assert compared(history, kafka_version="2.6.3") == (3, 0, "broker 1: computed version 0, stated 4")


def test_a_leader_that_leads_on_under_a_new_epoch_knew_the_old_version_before_it_heard_of_it() -> None:
    history = written(**ZOMBIE)
    history.decide(1000, 1, [1, 3], leader_epoch=1, partition_epoch=1, metadata_offset=None)
    history.role(60_000, 1, "leader", 1, offset=0, hw=0, isr=[1, 3], partition_epoch=1)
    assert compared(history, kafka_version="2.6.3") == (3, 3, None)


def test_an_epoch_that_comes_an_hour_later_explains_no_lost_update() -> None:
    later = 3_600_000
    history = written(**ZOMBIE)
    history.decide(later, 1, [1, 2, 3], leader_epoch=1, partition_epoch=1, metadata_offset=None)
    history.role(later + 10, 1, "leader", 1, offset=0, hw=0, isr=[1, 2, 3], partition_epoch=1)
    told = compared(history, kafka_version="2.6.3")
    assert told is not None
    assert told[:2] == (3, 0)


@pytest.mark.parametrize(("stated", "matched"), [(LOST_SINCE, 1), (LOST_BEFORE_2_8, 0)])
def test_from_2_8_on_the_line_of_a_lost_update_names_its_error(stated: int, matched: int) -> None:
    history = written("failed", error_code=stated)
    replace_leader(history, 1000)
    note = None if matched else "broker 1: computed 95, stated 55"
    spoken = {"kafka_version": "2.8.2", "inter_broker_protocol": "2.6"}
    assert compared(history, **spoken) == (1, matched, note)


def test_a_write_that_became_a_decision_came_through() -> None:
    history = History()
    history.decide(0, 1, [1, 2, 3], metadata_offset=None)
    history.role(5, 1, "leader", 0, offset=0, hw=0, isr=[1, 2, 3], partition_epoch=0)
    line(history, 5000, "shrink", isr=[1, 2], offset=0, hw=0)
    history.decide(5010, 1, [1, 2], leader_epoch=0, partition_epoch=1, metadata_offset=None)
    line(history, 5010, "updated", isr=[1, 2], partition_epoch=1)
    assert compared(history, kafka_version="2.6.3") == (1, 1, None)


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


REGISTERED = 10
BROKER_1 = Registrations(frozenset(), frozenset({(1, REGISTERED)}))


@pytest.mark.parametrize("rules", [KRAFT, KRAFT_3_2, ZOOKEEPER, ZOOKEEPER_3_6])
def test_a_request_of_a_broker_that_is_registered_anew_is_refused_first_of_all(rules: Any) -> None:
    for asked in (ASKED, ASKED._replace(leader_epoch=3), ASKED._replace(partition_epoch=10)):
        earlier = asked._replace(broker_epoch=REGISTERED - 1)
        assert controller_answer(earlier, NOW, BROKER_1, rules) == STALE_BROKER_EPOCH
        for same in (asked, asked._replace(broker_epoch=REGISTERED)):
            assert controller_answer(same, NOW, BROKER_1, rules) == controller_answer(same, NOW, NOBODY, rules)
    assert controller_answer(ASKED._replace(broker_epoch=1), NOW, NOBODY, rules) == NO_ERROR


@pytest.mark.parametrize(("rules", "error"), [(KRAFT_3_2, NO_ERROR), (ZOOKEEPER, STALE_BROKER_EPOCH)])
def test_only_zookeeper_s_controller_has_no_epoch_of_a_broker_that_is_away(rules: Any, error: int) -> None:
    away = BROKER_1._replace(away=frozenset({1}))
    assert controller_answer(ASKED._replace(broker_epoch=REGISTERED), NOW, away, rules) == error


def told(*requests: tuple[float, int | None, int], **removed: Any) -> tuple[int, int, str | None]:
    """Requests (milliseconds, broker epoch, error) of broker 1, which registers at 0 s and anew, as 20, at 10 s."""
    history = History()
    place = {"source_file": "server-100.log", "topic": None, "partition": None}
    history.add("broker_lifecycle", 0, name="active_controller", broker_id=100, controller_epoch=0, **place)
    history.decide(0, 1, [1], replicas=[1, 2], topic_id="T")
    for ms, epoch in ((100, REGISTERED), (10_000, 2 * REGISTERED)):
        history.fence(ms, 1, fenced=False, broker_epoch=epoch, record_type="REGISTER_BROKER_RECORD")
    history.role(110, 1, "leader", 0, offset=0, hw=0, isr=[1], partition_epoch=0)
    for ms, epoch, error in requests:
        asked = {"leader_epoch": 0, "partition_epoch": 0, "isr": [1, 2], "replica_id": 1, "error_code": error}
        where = {"broker_id": 100, "source_file": "r-100.log", "broker_epoch": epoch}
        history.request("isr_request", ms, "c100", **asked, **where)
    if removed:
        record = {"metadata_offset": 900, "record_type": "REMOVE_TOPIC_RECORD", "name": "remove"}
        history.add("topic_change", removed["ms"], topic=None, partition=None, topic_id="T", **record)
    checks = tables_of(history.events(topic_id="T"))["conformance"].to_pylist()
    (row,) = (row for row in checks if row["check"] == "alter_partition")
    return row["compared"], row["matched"], row["note"]


def test_an_answer_is_held_against_the_broker_epoch_that_the_request_names() -> None:
    assert told((5_000, 10, NO_ERROR), (15_000, 10, STALE_BROKER_EPOCH), (16_000, 20, NO_ERROR)) == (3, 3, None)
    lost = "broker 1 asks under broker epoch 10: computed 77, stated 0"
    assert told((15_000, 10, NO_ERROR)) == (1, 0, lost)
    assert told((15_000, 20, STALE_BROKER_EPOCH)) == (
        1,
        0,
        lost.replace("10: computed", "20: computed no").replace("stated 0", "stated 77"),
    )


def test_an_answer_is_not_held_against_a_registration_that_changes_about_then_or_an_epoch_that_is_not_known() -> None:
    assert told((10_500, 10, NO_ERROR), (10_600, 10, STALE_BROKER_EPOCH)) == (2, 2, None)
    assert told((15_000, None, STALE_BROKER_EPOCH), (16_000, None, NO_ERROR)) == (2, 2, None)


def test_a_topic_is_unknown_to_the_controller_once_it_was_deleted_and_not_before() -> None:
    requests = ((15_000, 20, NO_ERROR), (25_000, 20, UNKNOWN_TOPIC_ID))
    assert told(*requests, ms=20_000) == (2, 2, None)
    assert told(*requests, ms=30_000) == (2, 1, "topic not deleted yet: stated 100")
    assert told(*requests, ms=10_000) == (2, 1, "topic deleted: stated 0")
    assert told(*requests) == (2, 2, None)  # no source tells of a deletion, so nothing is known


@pytest.mark.parametrize(("deleted", "compared_"), [(5_000, (1, 1)), (20_000, (1, 0)), (None, None)])
def test_a_leader_s_line_about_an_unknown_topic_is_held_against_the_deletion(deleted: Any, compared_: Any) -> None:
    history = begun()
    line(history, 5_000, "shrink", isr=[1], offset=0, hw=0)
    line(history, 5_020, "failed", isr=[1], error_code=UNKNOWN_TOPIC_ID)
    if deleted is not None:
        record = {"metadata_offset": 900, "record_type": "REMOVE_TOPIC_RECORD", "name": "remove"}
        history.add("topic_change", deleted, topic=None, partition=None, topic_id="T", **record)
    rows = tables_of(history.events(topic_id="T"))["conformance"].to_pylist()
    found = [(row["compared"], row["matched"]) for row in rows if row["check"] == "alter_partition"]
    assert found == ([] if compared_ is None else [compared_])


def test_while_the_active_controller_changes_nothing_is_compared() -> None:
    assert answers((5_000, 100, NO_ERROR), (10_500, 100, NOT_CONTROLLER), (11_000, 101, NO_ERROR)) == (1, 1, None)
