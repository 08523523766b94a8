"""Losses: the row of an incident, its mechanism, its chain; and what was lost and came back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from facts_builder import History, at, of_kind
from histories_of_losses import (
    COMMITTED,
    acks_one_failure,
    alone,
    loss,
    losses,
    replicated,
    slots,
    tail,
    taken_over,
    taken_over_from,
)
from without_spark import tables_of


def test_acks_one_leader_failure() -> None:
    row = loss(acks_one_failure())
    assert (row["mechanism"], row["severity"]) == ("acks_one_leader_failure", "S2")
    assert slots(row) == [(0, 2, 4)]
    assert (row["records"], row["acked_all"], row["acked_one"], row["unacked"], row["committed"]) == (3, 0, 3, 0, 0)
    assert (row["old_leader_id"], row["new_leader_id"], row["losing_broker_id"]) == (1, 2, 1)
    assert (row["old_leader_epoch"], row["new_leader_epoch"]) == (0, 1)
    assert (row["lost_ts"], row["truncated_ts"]) == (at(1000), at(1500))
    assert row["producers"] == ["shop"]
    assert "acks=all" in row["prevention"]


def test_chain_tells_last_acknowledgement_election_and_cut_in_order() -> None:
    row = loss(acks_one_failure())
    assert [link["what"].split()[2] for link in row["chain"]] == ["acknowledged", "was", "elected", "led", "cut"]
    assert row["chain_sources"][0].startswith("request.log:")
    assert len(row["chain_sources"]) == len(row["chain"])
    assert [link["ts"] for link in row["chain"]] == sorted(link["ts"] for link in row["chain"])


def test_acks_one_planned_move() -> None:
    history = tail(replicated())
    history.fence(1000, 1, fenced=None, in_controlled_shutdown=True)
    assert loss(taken_over(history))["mechanism"] == "acks_one_planned_move"


def test_unclean_election() -> None:
    history = replicated()
    alone(history)
    tail(history, acks=-1)
    history.decide(900, -1, [1])
    row = loss(taken_over_from(history, epoch=2))
    assert (row["mechanism"], row["severity"], row["acked_all"]) == ("unclean_election", "S1", 3)
    assert row["committed"] == 3
    assert row["new_leader_epoch"] == 2
    assert "unclean.leader.election.enable=false" in row["prevention"]


def test_last_replica_standing() -> None:
    history = replicated()
    alone(history)
    tail(history, acks=-1)
    history.decide(900, -1, [1])
    history.decide(1000, 1, [1])
    history.role(1010, 1, "leader", 2, offset=COMMITTED, hw=COMMITTED)
    history.produce(1020, 1, COMMITTED, acks=-1)
    tables = tables_of(history.events())
    (row,) = tables["data_loss_incidents"].to_pylist()
    assert (row["mechanism"], row["severity"], row["acked_all"]) == ("last_replica_standing", "S0", 3)
    assert slots(row) == [(0, 2, 4)]
    (cut,) = tables["log_truncations"].to_pylist()
    assert (cut["broker_id"], cut["leo_before"], cut["leo_after"], cut["cause"]) == (1, 5, 2, "recovery")


def cut_to_hw() -> pa.Table:
    """Broker 2 cuts to its own HW and is elected before it fetches again: as events, no such line is parsed."""
    history = replicated()
    history.decide(1000, 2, [2])
    history.role(1010, 2, "leader", 1, offset=1, hw=1)
    events = history.events()
    role = next(r for r in of_kind(events, "role_change") if r["leader_epoch"] == 1)
    at_decision = next(r["seq"] for r in of_kind(events, "partition_change") if r["leader_epoch"] == 1)
    cut = {name: role[name] for name in ("topic", "incarnation", "partition", "ts", "ts_lo", "ts_hi")}
    cut |= {"kind": "truncation", "broker_id": 2, "leader_epoch": 0, "truncate_to": 1, "cause": "high_watermark"}
    cut |= {"event_id": "cut", "evidence": "observed"}
    rows = events.to_pylist()
    rows.insert(at_decision, cut)
    return pa.Table.from_pylist([{**row, "seq": k} for k, row in enumerate(rows)], schema=events.schema)


@pytest.mark.parametrize(
    "size",
    [1, 1000],
)
def test_hw_truncation(size: int) -> None:
    (row,) = tables_of(cut_to_hw(), size)["data_loss_incidents"].to_pylist()
    assert slots(row) == [(0, 1, 1)]
    assert (row["mechanism"], row["acked_all"]) == ("hw_truncation", 1)


def directory_failed(*, comes_back: str | None) -> History:
    """The leader's log directory fails with a tail in it; what stands in it when the broker starts again."""
    history = tail(replicated())
    line = {"broker_id": 1, "source_file": "server-1.log"}
    history.add("storage_failure", 900, name="directory_failed", **line)
    history.decide(1000, 2, [2])
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED)
    history.produce(1020, 2, COMMITTED, acks=1)
    if comes_back is not None:
        if comes_back == "empty":
            history.add("log_load", 1400, name="created", **line)
        end = 0 if comes_back == "empty" else COMMITTED + 3
        history.add("log_load", 1410, name="loaded", offset=end, hw=0, **line)
        history.role(1411, 1, "follower", 1, offset=end, hw=0)
    return history


@pytest.mark.parametrize(
    ("comes_back", "mechanism"),
    [("empty", "storage_failure"), (None, "storage_failure"), ("whole", "acks_one_leader_failure")],
)
def test_storage_failure_is_a_log_directory_that_failed_and_did_not_come_back(
    comes_back: str | None, mechanism: str
) -> None:
    assert loss(directory_failed(comes_back=comes_back))["mechanism"] == mechanism


def test_log_deleted_by_a_reassignment_is_no_storage_failure() -> None:
    history = tail(replicated())
    line = {"broker_id": 1, "source_file": "server-1.log"}
    history.decide(1000, 2, [2], replicas=[2, 3])
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED)
    history.produce(1020, 2, COMMITTED, acks=1)
    history.decide(2000, None, [2], replicas=[2, 1])
    history.add("log_load", 2010, name="created", **line)
    history.add("log_load", 2011, name="loaded", offset=0, hw=0, **line)
    history.role(2012, 1, "follower", 1, offset=0, hw=0)
    assert loss(history)["mechanism"] == "acks_one_planned_move"


def test_log_made_anew_is_no_truncation_and_its_leo_falls() -> None:
    tables = tables_of(directory_failed(comes_back="empty").events())
    assert tables["log_truncations"].to_pylist() == []
    moves = [row for row in tables["leo_timeline"].to_pylist() if row["cause"] == "log_load"]
    assert [(row["broker_id"], row["leo_before"], row["leo"]) for row in moves] == [(1, 5, 0)]


def test_lost_records_that_a_consumer_was_handed_are_counted() -> None:
    history = replicated()
    alone(history)
    tail(history, acks=-1)
    history.fetch(320, 1, -1, 1, bytes=300, hw=5, connection="c")
    history.fetch(321, 1, -1, 4, hw=5, connection="c")
    assert loss(taken_over_from(history, epoch=1))["consumed"] == 2


def test_slot_is_told_of_once() -> None:
    history = acks_one_failure()
    history.decide(3000, 1, [1, 2])
    history.role(3010, 1, "leader", 2, offset=3, hw=3)
    assert len(losses(history)) == 1


def passed_over(kept: int) -> History:
    """Three committed records are passed over by broker 2; then broker 1 leads again, `kept` of them in its log."""
    history = replicated()
    alone(history)
    tail(history, acks=-1)
    history.fetch(320, 1, -1, 1, bytes=400, hw=5, connection="c")
    history.fetch(321, 1, -1, 5, hw=5, connection="c")
    history.decide(1000, 2, [2], leader_recovery_state=1)
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED)
    history.decide(2000, 1, [1], leader_recovery_state=1)
    history.role(2010, 1, "leader", 2, offset=COMMITTED + kept, hw=COMMITTED + kept)
    return history


def test_records_that_a_later_leader_still_has_are_back() -> None:
    assert losses(passed_over(kept=3)) == []


@pytest.mark.parametrize("size", [1, 1000])
def test_of_records_that_come_back_in_part_the_rest_is_lost(size: int) -> None:
    (row,) = tables_of(passed_over(kept=1).events(), size)["data_loss_incidents"].to_pylist()
    assert (row["new_leader_epoch"], slots(row)) == (1, [(0, 3, 4)])
    assert (row["records"], row["acked_all"], row["committed"], row["consumed"]) == (2, 2, 2, 2)


@pytest.mark.parametrize("size", [1, 1000])
def test_records_that_came_back_may_be_lost_once_more(size: int) -> None:
    history = passed_over(kept=3)
    history.decide(3000, 2, [2], leader_recovery_state=1)
    history.role(3010, 2, "leader", 3, offset=COMMITTED, hw=COMMITTED)
    (row,) = tables_of(history.events(), size)["data_loss_incidents"].to_pylist()
    assert (row["old_leader_epoch"], row["new_leader_epoch"], slots(row)) == (2, 3, [(0, 2, 4)])
    assert (row["records"], row["acked_all"], row["committed"], row["consumed"]) == (3, 3, 3, 3)


def test_incident_has_the_same_name_in_every_run() -> None:
    assert loss(acks_one_failure())["incident_id"] == loss(acks_one_failure())["incident_id"]


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("history", [acks_one_failure, lambda: taken_over(tail(replicated()))])
def test_size_of_the_batches_of_events_changes_no_row(history: Any, size: int) -> None:
    events = history().events()
    assert tables_of(events, size) == tables_of(events)


def test_offset_committed_in_a_lost_epoch_is_not_committed_in_the_one_that_replaced_it() -> None:
    history = replicated()
    alone(history)
    tail(history, acks=-1)  # offsets 2 to 4, committed, then lost
    history.decide(1000, 2, [1, 2], leader_recovery_state=1)
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED)
    failed = {"error_code": 7, "total_us": 50_000, "remote_us": 50_000}
    history.produce(1100, 2, COMMITTED, **failed)  # broker 1 never fetches: not committed, not acknowledged
    history.decide(2000, 1, [1])
    history.role(2010, 1, "leader", 2, offset=COMMITTED, hw=COMMITTED)
    assert [(row["new_leader_epoch"], row["committed"]) for row in losses(history)] == [(1, 3)]
