"""Lines that cannot all be true: each law by a small history that breaks it, and what follows for its losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from facts_builder import History
from histories_of_losses import acks_one_failure, loss, replicated, tail, taken_over
from hypothesis import given
from test_properties import LAG_MS, clusters
from without_spark import tables_of

from replay.evidence.controller_view import MIN_ISR_SETTING
from replay.evidence.partition_facts import LAG_SETTING
from replay.order.contradictions import contradictions

if TYPE_CHECKING:
    from cluster_model import Cluster


def told(history: History) -> list[str]:
    """What contradicts itself, in words."""
    return [one.text for one in contradictions(history.facts())]


def altered(history: History, place: int, **changed: Any) -> History:
    """The history with another number in one line."""
    history.rows[place].update(changed)
    return history


def rows_of(history: History, kind: str, **fields: Any) -> list[int]:
    """Places of the rows of a kind with these values."""
    return [
        k
        for k, row in enumerate(history.rows)
        if row["kind"] == kind and all(row.get(name) == value for name, value in fields.items())
    ]


@given(clusters)
def test_what_brokers_logged_never_contradicts_itself(cluster: Cluster) -> None:
    settings = {LAG_SETTING: LAG_MS, MIN_ISR_SETTING: cluster.min_isr}
    assert contradictions(History().facts(cluster.rows, settings=settings)) == []


def test_histories_here_contradict_nothing_before_they_are_altered() -> None:
    assert told(acks_one_failure()) == []


def test_an_epoch_has_one_leader() -> None:
    history = acks_one_failure()
    (place,) = rows_of(history, "role_change", broker_id=2, name="leader")
    assert (
        told(altered(history, place, leader_epoch=0))[0] == "broker 2 acts as leader of epoch 0, and so does broker 1"
    )


def test_roles_are_taken_up_in_rising_epochs() -> None:
    history = acks_one_failure()
    (place,) = rows_of(history, "role_change", broker_id=2, name="follower")
    assert "broker 2 takes up a role in epoch 1 after one in epoch 7" in told(altered(history, place, leader_epoch=7))


def test_a_follower_asks_in_rising_epochs() -> None:
    history = replicated()
    place = rows_of(history, "fetch")[0]
    assert "broker 2 asks in epoch 0 after it had asked in epoch 4" in told(
        altered(history, place, current_leader_epoch=4)
    )


def test_a_follower_asks_for_no_less_than_before_and_no_more_than_it_got() -> None:
    history = replicated()
    place = rows_of(history, "fetch")[1]
    assert told(altered(history, place, fetch_offset=9)) == ["broker 2 asks for offset 2 after 9"]
    history = replicated()
    place = rows_of(history, "fetch")[0]
    assert told(altered(history, place, bytes=0)) == ["broker 2 asks for offset 1 after 0 and an empty answer"]


def test_hw_of_a_leader_never_falls_in_its_epoch() -> None:
    history = replicated()
    history.fetch(2000, 1, 2, 2, hw=1)
    assert told(history) == ["broker 1 answers with HW 1 after it had answered with 2"]


def test_log_of_a_leader_never_shrinks() -> None:
    history = tail(replicated())
    history.fetch(5000, 1, 2, 3, hw=2, connection="again", total_us=500_000, remote_us=500_000, request_bytes=0)
    assert told(history) == ["broker 1 has nothing beyond offset 3, where it had more before"]


@pytest.mark.parametrize(("error", "base"), [(0, -1), (10, 4)])
def test_an_answer_without_an_error_has_an_offset_and_most_errors_have_none(error: int, base: int) -> None:
    history = replicated()
    history.produce(320, 1, base, acks=1, error_code=error)
    assert told(history) == [f"a produce is answered with error {error} and base offset {base}"]


def test_a_batch_holds_no_more_records_than_its_bytes_can() -> None:
    history = tail(replicated())
    history.produce(330, 1, 999_999, acks=1)
    assert told(history) == ["100 bytes at offset 4 would hold 999995 records"]


def test_a_role_is_taken_up_with_the_log_that_was_there() -> None:
    history = acks_one_failure()
    (place,) = rows_of(history, "role_change", broker_id=2, name="leader")
    assert told(altered(history, place, offset=1)) == [
        "broker 2 takes up its role with HW 2 beyond its log's end 1",
        "broker 2 takes up its role in epoch 1 at offset 1, and had 2 before",
    ]


def test_a_restarted_broker_takes_up_its_role_with_the_log_that_it_loaded() -> None:
    history = tail(replicated())
    history.add("log_load", 900, broker_id=2, offset=2, hw=0, source_file="server-2.log")
    history = taken_over(history)
    (place,) = rows_of(history, "role_change", broker_id=2, name="leader")
    found = told(altered(history, place, offset=1, hw=1))
    assert found == ["broker 2 takes up its role at offset 1, and had loaded a log up to 2"]


def test_nobody_acts_in_an_epoch_that_is_older_than_what_is_decided_long_after() -> None:
    history = acks_one_failure()
    place = rows_of(history, "fetch")[2]
    history.decide(90_000, 1, [1, 2])
    assert "broker 1 acts in epoch 9, and later epoch 2 is the newest" in told(
        altered(history, place, current_leader_epoch=9)
    )


def test_a_loss_among_lines_that_contradict_each_other_is_possible_only() -> None:
    history = acks_one_failure()
    history.fetch(800, 1, 2, 2, hw=1)  # the leader had answered with HW 2 before
    row = loss(history)
    assert (row["evidence"], row["severity"], row["acked_one"], row["acked_one_possible"]) == ("bounded", "S2", 0, 3)
    assert row["records"] == 3


def test_contradictions_are_counted_in_conformance() -> None:
    history = acks_one_failure()
    history.fetch(800, 1, 2, 2, hw=1)
    (check,) = [r for r in tables_of(history.events())["conformance"].to_pylist() if r["check"] == "lines_agree"]
    assert (check["compared"], check["matched"]) == (1, 0)
    assert check["note"] == "broker 1 answers with HW 1 after it had answered with 2"


def test_rows_of_epochs_with_contradictions_are_bounded_at_best() -> None:
    history = acks_one_failure()
    history.fetch(800, 1, 2, 2, hw=1)
    tables = tables_of(history.events())
    for name in ("hw_timeline", "leo_timeline", "leadership_timeline"):
        rows = tables[name].to_pylist()
        assert {row["evidence"] for row in rows if row["leader_epoch"] == 0} <= {"bounded", "unknown"}
        assert {row["evidence"] for row in rows if row["leader_epoch"] == 1} & {"observed", "derived"}
