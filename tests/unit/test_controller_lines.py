"""What KRaft controllers' own lines tell of a partition's states where no dump of the metadata log does."""

from __future__ import annotations

from facts_builder import History
from without_spark import tables_of


def said(history: History, ms: float, version: int, text: str, *, unclean: bool = False) -> None:
    """A controller's line about a change to that partition epoch."""
    kind, name = ("broker_lifecycle", "unclean_election") if unclean else ("state_change", "metadata")
    words = f"partition change for orders-0 with topic ID T: {text}, partitionEpoch: {version - 1} -> {version}"
    history.add(kind, ms, name=name, partition_epoch=version, text=words, broker_id=100)


def states(history: History) -> list[tuple[int, int | None, int, tuple[int, ...]]]:
    return [(d.leader_epoch, d.partition_epoch, d.leader, d.isr) for d in history.facts().decisions]


def test_a_change_leads_from_a_known_state_to_the_next() -> None:
    history = History()
    history.role(0, 1, "leader", 0, offset=0, hw=0, isr=[1, 2, 3], partition_epoch=0)
    said(history, 10, 1, "isr: [1, 2, 3] -> [1, 3]")
    said(history, 10, 2, "isr: [1, 3] -> [3], leader: 1 -> 3, leaderEpoch: 0 -> 1")
    said(history, 20, 9, "isr: [3] -> [3, 1]")
    assert states(history) == [(0, 0, 1, (1, 2, 3)), (0, 1, 1, (1, 3)), (1, 2, 3, (3,))]


def test_an_unclean_election_s_line_states_what_was_before_and_after() -> None:
    history = History()
    text = "isr: [1] -> [2], leader: 1 -> 2, leaderRecoveryState: RECOVERED -> RECOVERING, leaderEpoch: 4 -> 5"
    said(history, 10, 7, text, unclean=True)
    assert states(history) == [(4, 6, 1, (1,)), (5, 7, 2, (2,))]
    row = tables_of(history.events())["leadership_timeline"].to_pylist()[-1]
    assert (row["election"], row["leader_id"]) == ("unclean", 2)


def test_a_follower_s_role_line_names_the_leader_of_an_epoch_that_nobody_else_tells_of() -> None:
    history = History()
    history.role(0, 1, "leader", 0, offset=0, hw=0, isr=[1, 2], partition_epoch=0)
    history.role(9000, 1, "follower", 2, offset=5, hw=2, leader_id=2, partition_epoch=4)
    tenures = history.facts().tenures
    assert [(tenure.epoch, tenure.leader) for tenure in tenures] == [(0, 1), (2, 2)]
    row = tables_of(history.events())["leadership_timeline"].to_pylist()[-1]
    assert (row["leader_epoch"], row["leader_id"], row["election"]) == (2, 2, "clean")


def test_a_leader_that_its_predecessor_s_own_log_had_put_out_was_elected_unclean() -> None:
    history = History()
    history.role(0, 1, "leader", 0, offset=0, hw=0, isr=[1], partition_epoch=2)
    history.role(9000, 1, "follower", 1, offset=5, hw=2, leader_id=2, partition_epoch=3)
    row = tables_of(history.events())["leadership_timeline"].to_pylist()[-1]
    assert (row["leader_id"], row["election"]) == (2, "unclean")
    assert row["trigger"] == "broker 2 was outside the last ISR [1]"
