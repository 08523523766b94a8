"""Mechanisms: each told by its signature on a small history, and which one wins (docs/mechanisms.md)."""

from __future__ import annotations

from pathlib import Path

import pytest
from facts_builder import History
from histories_of_losses import COMMITTED, alone, loss, losses, replicated, slots, tail, taken_over, taken_over_from

from replay.losses import mechanisms
from replay.losses.mechanisms import OTHER, RULES, WORDS, Mechanism
from replay.losses.remedies import Setting, always
from replay.losses.sentences import them
from schemas.incidents import MECHANISMS

PAGE = Path(__file__).parent.parent.parent / "docs" / "mechanisms.md"


def kept_its_own_records() -> History:
    """Broker 2 led epoch 1 for a moment, alone; it follows broker 1 with its record kept, is counted, and leads."""
    history = replicated()
    for k in range(2):
        history.produce(990 + k, 1, COMMITTED + k, acks=1)
    history.decide(1000, 2, [1, 2])
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=0)
    history.produce(1100, 2, COMMITTED, acks=1)
    history.decide(2000, 1, [1])
    history.role(2010, 1, "leader", 2, offset=COMMITTED + 2, hw=COMMITTED)
    history.role(2011, 2, "follower", 2, offset=COMMITTED + 1, hw=0)
    history.produce(2100, 1, COMMITTED + 2, acks=1)
    old = {"current_leader_epoch": -1, "last_fetched_epoch": None}
    history.fetch(2200, 1, 2, COMMITTED + 1, bytes=200, hw=COMMITTED + 3, **old)
    history.fetch(2300, 1, 2, COMMITTED + 3, hw=COMMITTED + 3, **old)
    history.decide(2400, None, [1, 2])
    history.fence(3000, 1)
    history.decide(3000, 2, [2])
    history.role(3010, 2, "leader", 3, offset=COMMITTED + 3, hw=COMMITTED + 3)
    return history


@pytest.mark.parametrize(
    ("version", "mechanism"), [("1.1.1", "fast_failover_divergence"), ("2.0.1", "stale_fetch_accepted")]
)
def test_follower_counted_with_other_records_of_an_epoch_unknown_to_its_leader(version: str, mechanism: str) -> None:
    """Up to 1.1 the answer to where that epoch ends was of another; in 2.0 it fetched without asking."""
    row = loss(kept_its_own_records(), kafka_version=version)
    assert (row["mechanism"], row["severity"], slots(row)[0][:2]) == (mechanism, "S0", (0, COMMITTED))
    assert row["evidence"] == "bounded"
    assert any(setting.startswith("inter.broker.protocol.version=2.") for setting in row["prevention"])


def lost_its_end(history: History, ms: float) -> None:
    """Broker 2 starts again with the end of its log gone."""
    line = {"broker_id": 2, "source_file": "server-2.log"}
    history.add("log_load", ms, name="loaded", offset=COMMITTED - 1, hw=COMMITTED - 1, **line)


def test_member_of_the_isr_that_started_again_with_less_is_a_stale_isr_rejoin() -> None:
    history = replicated()
    lost_its_end(history, 900)
    history.fence(1000, 1)
    history.decide(1000, 2, [2])
    history.role(1010, 2, "leader", 1, offset=COMMITTED - 1, hw=COMMITTED - 1)
    history.produce(1020, 2, COMMITTED - 1, acks=1)
    row = loss(history)
    assert (row["mechanism"], row["severity"], slots(row)) == ("stale_isr_rejoin", "S0", [(0, 1, 1)])
    assert row["acked_all"] == 1


def test_replica_taken_into_the_isr_below_the_hw_is_a_stale_isr_rejoin() -> None:
    history = History()
    history.decide(0, 1, [1], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    for base in range(COMMITTED):
        history.produce(100 + base, 1, base)
    history.fetch(200, 1, 2, 0, hw=COMMITTED)
    history.decide(300, None, [1, 2])
    history.fence(1000, 1)
    history.decide(1000, 2, [2])
    history.role(1010, 2, "leader", 1, offset=0, hw=0)
    row = loss(history)
    assert (row["mechanism"], row["acked_all"]) == ("stale_isr_rejoin", COMMITTED)


def test_eligible_replica_that_lacks_what_was_committed_is_an_eligible_leader_regressed() -> None:
    history = replicated()
    history.decide(800, -1, [], elr=[2])
    lost_its_end(history, 900)
    history.decide(1000, 2, [2], elr=[])
    history.role(1010, 2, "leader", 2, offset=COMMITTED - 1, hw=COMMITTED - 1)
    row = loss(history)
    assert (row["mechanism"], row["severity"], slots(row)) == ("eligible_leader_regressed", "S0", [(0, 1, 1)])


def reset_out_of_range() -> History:
    """Broker 3 leads for a moment with a shorter log; broker 2, refused there, cuts to its end, and leads next."""
    history = replicated(isr=[1, 2, 3])
    history.decide(1000, 3, [2, 3], replicas=[1, 2, 3])
    asks = {"current_leader_epoch": 1, "last_fetched_epoch": 0}
    history.fetch(1100, 3, 2, COMMITTED, error_code=1, **asks)
    history.fetch(1200, 3, 2, COMMITTED - 1, hw=COMMITTED - 1, **asks)
    history.decide(2000, 2, [2])
    history.role(2010, 2, "leader", 2, offset=COMMITTED - 1, hw=COMMITTED - 1)
    history.produce(2100, 2, COMMITTED - 1, acks=1)
    return history


def test_records_dropped_for_an_out_of_range_answer_are_an_out_of_range_reset() -> None:
    row = loss(reset_out_of_range(), kafka_version="2.6.3")
    assert (row["mechanism"], row["severity"], row["acked_all"]) == ("out_of_range_reset", "S0", 1)
    assert "inter.broker.protocol.version=2.7 or later" in row["prevention"]


def test_loss_that_no_rule_explains_is_other() -> None:
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.produce(100, 1, 0)  # answered, though broker 2 has never fetched
    history.fence(1000, 1)
    history.decide(1000, 2, [2])
    history.role(1010, 2, "leader", 1, offset=0, hw=0)
    assert (loss(history)["mechanism"], loss(history)["severity"]) == ("other", "S0")


def test_without_the_controllers_log_a_leader_that_never_had_what_all_acknowledged_was_elected_unclean() -> None:
    history = replicated()
    tail(history, acks=-1)
    history.rows = [row for row in history.rows if row["kind"] != "partition_change"]
    history.role(20, 1, "leader", 0, offset=0, hw=0, isr=[1, 2], replicas=[1, 2])
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED, isr=[1, 2], replicas=[1, 2])
    history.produce(1020, 2, COMMITTED, acks=1)
    row = loss(history)
    assert (row["mechanism"], row["acked_all"]) == ("unclean_election", 3)


def test_where_every_state_of_the_isr_is_known_a_member_was_not_elected_unclean() -> None:
    history = replicated()
    tail(history, acks=-1)
    history.rows = [row for row in history.rows if row["kind"] in {"produce", "fetch"}]
    isr = {"isr": [1, 2], "replicas": [1, 2]}
    history.role(20, 1, "leader", 0, offset=0, hw=0, partition_epoch=4, **isr)
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED, partition_epoch=5, **isr)
    history.produce(1020, 2, COMMITTED, acks=1)
    assert loss(history)["mechanism"] == "other"


# -- which one wins


def test_fenced_leader_is_a_failure_whatever_the_election_is_called() -> None:
    history = tail(replicated())
    history.fence(900, 1)
    history.decide(1000, 2, [2, 1])  # the preferred replica of this assignment, and the ISR as it was
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED)
    assert loss(history)["mechanism"] == "acks_one_leader_failure"


def test_leader_that_stays_in_the_isr_was_moved_on_purpose() -> None:
    history = tail(replicated())
    history.decide(1000, 2, [1, 2])
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED)
    row = loss(history)
    assert row["mechanism"] == "acks_one_planned_move"
    assert row["prevention"] == ["acks=all"]


def test_leader_that_is_shutting_down_in_order_was_moved_though_it_is_fenced_afterwards() -> None:
    history = tail(replicated())
    history.fence(990, 1, fenced=None, in_controlled_shutdown=True)
    history.decide(1000, 2, [2])
    history.fence(1400, 1)
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED)
    assert loss(history)["mechanism"] == "acks_one_planned_move"


def test_unclean_election_wins_over_the_clean_one_that_follows_it() -> None:
    history = replicated()
    alone(history)
    tail(history, acks=-1)
    history.decide(1000, 2, [2], leader_recovery_state=1)  # nothing shows broker 2 at work
    history.decide(2000, 3, [3, 2], replicas=[1, 2, 3])
    history.role(2010, 3, "leader", 2, offset=COMMITTED, hw=COMMITTED)
    assert {row["mechanism"] for row in losses(history)} == {"unclean_election"}


def test_unclean_election_after_a_clean_one_lost_only_what_was_promised() -> None:
    """Nothing shows broker 2 at work in epoch 1; its return as last of the ISR is marked as recovering."""
    history = tail(replicated())
    history.fence(1000, 1)
    history.decide(1000, 2, [2])
    history.decide(1500, -1, [])
    history.decide(2000, 2, [2], leader_recovery_state=1)
    history.role(2010, 2, "leader", 3, offset=COMMITTED, hw=COMMITTED)
    assert loss(history)["mechanism"] == "acks_one_leader_failure"


def test_records_that_were_only_read_are_visible_and_no_more() -> None:
    history = replicated()
    failed = {"acks": -1, "error_code": 7, "total_us": 100_000, "remote_us": 100_000}
    tail(history, ms=420, **failed)
    history.fetch(430, 1, -1, COMMITTED, bytes=300, hw=COMMITTED + 3, connection="c", client_id="reader")
    history.fetch(431, 1, -1, COMMITTED + 3, hw=COMMITTED + 3, connection="c", client_id="reader")
    row = loss(taken_over(history))
    assert (row["severity"], row["consumed"], row["consumers"]) == ("S3", 3, ["reader"])
    assert (row["unacked"], row["failed_appended"]) == (3, 3)


def test_min_isr_is_named_only_where_the_leader_was_alone_and_it_was_one() -> None:
    history = replicated()
    alone(history)
    tail(history, acks=-1)
    assert "min.insync.replicas=2" in loss(taken_over_from(history, epoch=1))["prevention"]
    history = taken_over(tail(replicated()))
    assert loss(history)["prevention"] == ["acks=all"]


def test_counts_add_up_to_the_records() -> None:
    failed = {"acks": -1, "error_code": 7, "total_us": 5_000, "remote_us": 5_000}
    history = tail(replicated())
    history.produce(315, 1, COMMITTED + 3, **failed)
    row = loss(taken_over(history))
    told = ("acked_all", "acked_one", "unacked", "acked_unconfirmed", "acked_possible")
    assert (row["records"], row["failed_appended"]) == (4, 1)
    assert sum(row[name] for name in told) == row["records"]


# -- the list as a whole


def test_every_mechanism_has_a_rule_and_its_place_on_the_page() -> None:
    ruled = list(dict.fromkeys(mechanism.name for mechanism, _ in RULES))
    assert set(ruled) | {OTHER.name} == set(MECHANISMS) == set(WORDS)
    page = PAGE.read_text(encoding="utf-8")
    places = [page.index(f"| `{name}` |") for name in (*ruled, "other")]
    assert places == sorted(places)


def test_a_mechanism_is_its_record_and_its_place_among_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up = Mechanism(
        "made_up",
        "by a test",
        lambda found, _story: f"A test took {them(found)}.",
        "S0",
        is_severe_anyway=True,
        settings=always(Setting("test=false", "it was a test")),
    )
    monkeypatch.setattr(mechanisms, "RULES", ((made_up, lambda _found, _story: True), *RULES))
    row = loss(taken_over(tail(replicated())))
    assert (row["mechanism"], row["severity"], row["evidence"]) == ("made_up", "S0", "derived")
    assert (row["prevention"][0], row["prevention_reasons"][0]) == ("test=false", "it was a test")
    assert "A test took them." in row["explanation"]
