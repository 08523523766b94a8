"""The controller's election rules, one test per rule; sources in docs/protocol.md, Elections."""

from __future__ import annotations

from typing import Any

import pytest

from replay.protocol.election_rules import Ballot, ElectionChoice, choose, election_rules_of

NEWEST = election_rules_of((4, 1, 0), zookeeper=False, eligible_replicas=True)
BEFORE_ELR = election_rules_of((3, 9, 1), zookeeper=False, eligible_replicas=False)
FIRST_KRAFT = election_rules_of((2, 8, 2), zookeeper=False, eligible_replicas=False)
KRAFT_3_0 = election_rules_of((3, 0, 2), zookeeper=False, eligible_replicas=False)
ZOOKEEPER = election_rules_of((2, 4, 1), zookeeper=True, eligible_replicas=False)


def ballot(kind: str = "any", live: tuple[int, ...] = (1, 2, 3), **fields: Any) -> Ballot:
    """A partition assigned to 1, 2, 3; broker 1 led, and 1 and 3 are in sync."""
    return Ballot(kind, live=frozenset(live), **{"assignment": (1, 2, 3), "in_sync": (1, 3), "leader": 1, **fields})


def said(choice: ElectionChoice) -> tuple[str, int | None, tuple[int, ...] | None]:
    return choice.rule, choice.leader, choice.isr


@pytest.mark.parametrize("rules", [NEWEST, BEFORE_ELR, ZOOKEEPER])
def test_a_new_partition_is_led_by_its_first_live_replica_and_the_live_ones_are_in_sync(rules: Any) -> None:
    new = ballot("initial", live=(2, 3), in_sync=(), leader=-1)
    assert said(choose(new, rules)) == ("first_live", 2, (2, 3))


def test_a_new_partition_without_a_live_replica_gets_no_leader() -> None:
    assert choose(ballot("initial", live=(), in_sync=(), leader=-1), ZOOKEEPER).leader == -1


def test_kraft_keeps_a_valid_leader_whatever_the_assignment_prefers() -> None:
    assert said(choose(ballot(leader=3), NEWEST)) == ("leader_kept", 3, (1, 3))


def test_kraft_elects_the_first_of_the_assignment_that_is_in_sync_and_live() -> None:
    choice = choose(ballot(live=(2, 3), in_sync=(2, 3), assignment=(1, 3, 2)), NEWEST)
    assert said(choice) == ("first_in_sync", 3, (2, 3))
    assert choice.candidates == (3, 2)


def test_kraft_elects_from_the_eligible_leader_replicas_only_where_the_isr_is_empty() -> None:
    gone = ballot(live=(2, 3), in_sync=(), eligible=(3,))
    assert said(choose(gone, NEWEST)) == ("first_eligible", 3, (3,))
    assert said(choose(gone._replace(in_sync=(2,)), NEWEST)) == ("first_in_sync", 2, (2,))


def test_kraft_elects_the_last_known_leader_when_nobody_is_in_sync_or_eligible() -> None:
    empty = ballot(live=(1, 2), in_sync=(), last_known=(1,), leader=-1)
    assert said(choose(empty, NEWEST)) == ("last_known_leader", 1, (1,))
    assert choose(empty._replace(eligible=(3,)), NEWEST).leader == -1
    assert choose(empty._replace(last_known=(1, 2)), NEWEST).leader == -1
    assert choose(empty._replace(live=frozenset((2,))), NEWEST).leader == -1


def test_the_last_known_leader_goes_before_an_unclean_election() -> None:
    empty = ballot(in_sync=(), last_known=(3,), leader=-1, unclean=True)
    assert choose(empty, NEWEST).rule == "last_known_leader"


@pytest.mark.parametrize("rules", [NEWEST, BEFORE_ELR])
def test_kraft_s_unclean_election_takes_the_first_live_replica_and_the_isr_is_that_one(rules: Any) -> None:
    gone = ballot(live=(2, 3), in_sync=(), unclean=True)
    assert said(choose(gone, rules)) == ("first_live_unclean", 2, (2,))
    assert choose(gone._replace(unclean=False), rules).rule == "no_candidate"


def test_without_a_leader_the_last_member_stays_in_the_isr_unless_eligible_replicas_remember_it() -> None:
    gone = ballot(live=(2,), in_sync=(), isr_before=(1,))
    assert said(choose(gone, BEFORE_ELR)) == ("no_candidate", -1, (1,))
    assert said(choose(gone, NEWEST)) == ("no_candidate", -1, ())


def test_a_preferred_election_moves_to_the_assignment_s_first_if_that_may_lead() -> None:
    moved = ballot("preferred", leader=3)
    assert said(choose(moved, NEWEST)) == ("preferred_in_sync", 1, (1, 3))
    assert said(choose(moved._replace(in_sync=(3,)), NEWEST)) == ("leader_kept", 3, (3,))


def test_a_preferred_election_is_never_unclean() -> None:
    assert choose(ballot("preferred", live=(2,), in_sync=(3,), leader=3, unclean=True), NEWEST).leader == -1


def test_the_first_kraft_controller_elects_a_member_of_the_isr_without_asking_whether_it_is_alive() -> None:
    gone = ballot(live=(2,), in_sync=(3,), leader=1)
    assert choose(gone, FIRST_KRAFT).leader == 3
    assert choose(gone, KRAFT_3_0).leader == -1


def test_up_to_3_1_kraft_keeps_a_leader_in_the_isr_without_asking_whether_it_is_alive() -> None:
    assert choose(ballot(live=(3,)), KRAFT_3_0).leader == 1
    assert choose(ballot(live=(3,)), BEFORE_ELR).leader == 3


def test_kraft_heeds_the_unclean_setting_from_3_9_on() -> None:
    assert not election_rules_of((3, 8, 0), zookeeper=False, eligible_replicas=False).unclean_by_setting
    assert BEFORE_ELR.unclean_by_setting
    assert ZOOKEEPER.unclean_by_setting


def test_zookeeper_s_offline_election_takes_the_first_live_member_of_the_isr_and_drops_the_dead() -> None:
    died = ballot("offline", live=(2, 3), in_sync=(1, 2, 3), assignment=(1, 3, 2))
    assert said(choose(died, ZOOKEEPER)) == ("first_in_sync", 3, (2, 3))


def test_zookeeper_s_offline_election_is_unclean_only_when_no_member_of_the_isr_is_alive() -> None:
    died = ballot("offline", live=(2, 3), in_sync=(3,), unclean=True)
    assert choose(died, ZOOKEEPER).leader == 3
    assert said(choose(died._replace(in_sync=()), ZOOKEEPER)) == ("first_live_unclean", 2, (2,))
    assert choose(died._replace(in_sync=(), unclean=False), ZOOKEEPER).rule == "no_candidate"


def test_zookeeper_s_reassignment_elects_the_first_live_target_replica_in_sync_and_keeps_the_isr() -> None:
    moved = ballot("reassignment", live=(1, 3, 4), assignment=(4, 3), in_sync=(1, 3))
    assert said(choose(moved, ZOOKEEPER)) == ("first_in_sync", 3, (1, 3))


def test_zookeeper_s_preferred_election_fails_rather_than_take_another() -> None:
    assert said(choose(ballot("preferred", leader=3), ZOOKEEPER)) == ("preferred_in_sync", 1, (1, 3))
    assert choose(ballot("preferred", leader=3, in_sync=(2, 3)), ZOOKEEPER).rule == "no_candidate"


def test_zookeeper_s_controlled_shutdown_never_elects_uncleanly() -> None:
    stops = ballot("controlled_shutdown", live=(2, 3), in_sync=(3,), unclean=True)
    assert said(choose(stops, ZOOKEEPER)) == ("first_in_sync", 3, (3,))
    assert choose(stops._replace(in_sync=()), ZOOKEEPER).leader == -1


def test_a_replica_that_goes_offline_makes_an_epoch_without_an_election_in_zookeeper() -> None:
    stays = ballot("isr_change", live=(1, 3))
    assert said(choose(stays, ZOOKEEPER)) == ("leader_kept", 1, (1, 3))
    gone = ballot("isr_change", live=(3,), in_sync=(), isr_before=(1,))
    assert said(choose(gone, ZOOKEEPER)) == ("no_candidate", -1, (1,))


def test_where_the_answer_hangs_on_a_broker_of_whom_nobody_tells_there_is_none() -> None:
    open_ = ballot(live=(3,), unknown=frozenset((1,)), leader=-1)
    choice = choose(open_, NEWEST)
    assert (choice.rule, choice.leader, choice.candidates) == ("not_known", None, (1, 3))
    assert choose(open_._replace(assignment=(3, 1)), NEWEST).leader == 3


def test_up_to_4_0_0_the_last_known_leader_is_elected_whether_it_is_alive_or_not() -> None:
    away = ballot(live=(2,), in_sync=(), last_known=(1,), leader=-1)
    before = election_rules_of((4, 0, 0), zookeeper=False, eligible_replicas=True)
    since = election_rules_of((4, 0, 1), zookeeper=False, eligible_replicas=True)
    assert said(choose(away, before)) == ("last_known_leader", 1, (1,))
    assert choose(away, since).leader == -1
