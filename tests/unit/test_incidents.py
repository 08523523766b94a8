"""Losses: small histories whose loss is known, from facts to the rows of the replay's tables."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from facts_builder import START, History, at, of_kind
from without_spark import tables_of

from replay.protocol.state import CACHE_CAPACITY

COMMITTED, SILENT_FROM, SILENT_UNTIL = 2, 500, 5000  # records that both replicas have; when a zombie stood still


def losses(history: History, **settings: Any) -> list[dict[str, Any]]:
    return tables_of(history.events(**settings))["data_loss_incidents"].to_pylist()


def loss(history: History, **settings: Any) -> dict[str, Any]:
    (row,) = losses(history, **settings)
    return row


def slots(row: dict[str, Any]) -> list[tuple[int, int, int]]:
    return [(r["leader_epoch"], r["first_offset"], r["last_offset"]) for r in row["ranges"]]


def replicated(isr: list[int] | None = None) -> History:
    """Broker 1 leads epoch 0; two records that broker 2 has too, committed and acknowledged with acks=all."""
    history = History()
    history.decide(0, 1, isr or [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    for base in range(COMMITTED):
        ms = 100 + 10 * base
        history.produce(ms + 1, 1, base, total_us=2000, remote_us=2000)
        history.fetch(ms, 1, 2, base, bytes=100, hw=base, total_us=5000, remote_us=5000)
    history.fetch(300, 1, 2, COMMITTED, hw=COMMITTED, total_us=189_000, remote_us=189_000)
    return history


def tail(history: History, *, ms: float = 310, **fields: Any) -> History:
    """Three more records that only broker 1 got."""
    for k in range(3):
        history.produce(ms + k, 1, COMMITTED + k, **{"acks": 1, **fields})
    return history


def alone(history: History) -> None:
    """Broker 2 is fenced and out of the ISR: the HW no longer waits for it."""
    history.fence(304, 2)
    history.decide(305, None, [1])


def taken_over(history: History, *, ms: float = 1000, start: int = COMMITTED, **decision: Any) -> History:
    """Broker 2 leads epoch 1 from `start`; broker 1 comes back and cuts to it."""
    history.decide(ms, 2, [2], **decision)
    history.role(ms + 10, 2, "leader", 1, offset=start, hw=start)
    history.produce(ms + 20, 2, start, acks=1)
    asks = {"current_leader_epoch": 1, "last_fetched_epoch": 0}
    history.fetch(ms + 500, 2, 1, COMMITTED + 3, hw=-1, diverging_epoch=0, diverging_end_offset=start, **asks)
    history.fetch(ms + 510, 2, 1, start, bytes=100, hw=start, **asks)
    history.fetch(ms + 520, 2, 1, start + 1, hw=start + 1, **{**asks, "last_fetched_epoch": 1})
    return history


def acks_one_failure() -> History:
    history = tail(replicated())
    history.fence(1000, 1)
    return taken_over(history)


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


def test_what_was_lost_may_be_back_where_nothing_tells_who_led_the_last_epoch() -> None:
    """A third broker, of which there are no logs, may have had them."""
    history = acks_one_failure()
    history.role(9000, 1, "follower", 2, offset=COMMITTED, hw=COMMITTED)
    row = loss(history)
    assert (row["evidence"], row["acked_one"], row["acked_one_possible"]) == ("bounded", 0, 3)


def test_answer_to_what_came_before_the_logs_begin_may_have_reached_nobody() -> None:
    """Nothing tells how long the broker had stood still by then; a client that goes on had its answer."""
    begin = int(at(312).timestamp() * 1_000_000)
    row = loss(acks_one_failure(), begins={1: begin})
    assert (row["acked_one"], row["acked_one_possible"], row["evidence"]) == (2, 1, "derived")
    assert loss(acks_one_failure(), begins={1: begin - 60_000})["acked_one"] == 3


def test_high_watermark_of_a_log_that_nothing_showed_to_fill_is_not_known() -> None:
    history = History()
    history.decide(0, 1, [1, 2])
    history.role(10, 1, "leader", 0, offset=500)
    history.role(10, 2, "follower", 0, offset=500, hw=480)
    rows = tables_of(history.events())["hw_timeline"].to_pylist()
    assert [(r["hw"], r["evidence"]) for r in rows if r["broker_id"] == 1 and r["step"] == "role"] == [(0, "bounded")]


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


def taken_over_from(history: History, epoch: int, *, ms: float = 1000) -> History:
    """Broker 2, outside the ISR, leads from where it was."""
    history.decide(ms, 2, [2], leader_recovery_state=1)
    history.role(ms + 10, 2, "leader", epoch, offset=COMMITTED, hw=COMMITTED)
    history.produce(ms + 20, 2, COMMITTED, acks=1)
    return history


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


def started_again(*, says_so: bool) -> History:
    """Broker 1, alone, starts again twice and loses nothing; of the role between only its produce tells."""
    history = replicated()
    alone(history)
    history.decide(400, -1, [1])
    line = {"broker_id": 1, "source_file": "server-1.log"}
    history.add("log_load", 450, name="loaded", offset=COMMITTED, hw=COMMITTED, **line)
    history.decide(460, 1, [1])
    if says_so:
        history.role(465, 1, "leader", 2, offset=COMMITTED, hw=COMMITTED)
    history.produce(470, 1, COMMITTED)
    history.decide(500, -1, [1])
    history.decide(510, 1, [1])
    history.role(515, 1, "leader", 4, offset=COMMITTED + 1, hw=COMMITTED + 1)
    return history


@pytest.mark.parametrize("says_so", [True, False])
def test_load_is_not_of_a_role_that_follows_another(*, says_so: bool) -> None:
    tables = tables_of(started_again(says_so=says_so).events())
    assert tables["data_loss_incidents"].to_pylist() == tables["log_truncations"].to_pylist() == []


def test_load_is_of_the_role_that_the_next_fetches_show() -> None:
    history = taken_over(tail(replicated()))
    line = {"broker_id": 1, "source_file": "server-1.log"}
    history.add("log_load", 1300, name="loaded", offset=COMMITTED + 3, hw=COMMITTED, **line)
    history.decide(3000, 2, [1, 2])
    history.role(3010, 1, "follower", 2, offset=COMMITTED + 1, hw=COMMITTED + 1)
    (load,) = of_kind(history.events(), "log_load")
    (role,) = (r for r in of_kind(history.events(), "role_change") if (r["broker_id"], r["leader_epoch"]) == (1, 1))
    assert load["seq"] == role["seq"] - 1


def without_fetch_lines(*, end: int) -> History:
    """Broker 2's own records were passed over by broker 1; it follows and leads again, with its log up to `end`."""
    history = History()
    history.decide(0, 2, [1, 2], replicas=[1, 2])
    history.role(10, 2, "leader", 0, offset=0, hw=0)
    history.role(11, 1, "follower", 0, offset=0, hw=0)
    for base in range(4):
        history.produce(100 + base, 2, base, acks=1)
    history.decide(1000, 1, [1, 2])
    history.role(1010, 1, "leader", 1, offset=0, hw=0)
    history.role(1011, 2, "follower", 1, offset=4, hw=0)
    for base in range(6):
        history.produce(1100 + base, 1, base, acks=1)
    history.decide(2000, 2, [1, 2])
    history.role(2010, 2, "leader", 2, offset=end, hw=0)
    history.produce(2020, 2, end, acks=1)
    return history


@pytest.mark.parametrize("end", [2, 6])
def test_what_a_follower_holds_of_whose_fetches_nothing_is_known_is_not_lost(end: int) -> None:
    """It was cut at 0 and has fetched, or has not: what it holds may be either leader's."""
    found = {(r["leader_epoch"], k) for row in losses(without_fetch_lines(end=end)) for r in row["ranges"] for k in (
        range(r["first_offset"], r["last_offset"] + 1))}  # fmt: skip
    assert found == {(0, k) for k in range(end, 4)} | {(1, k) for k in range(end, 6)}


def test_records_fetched_of_nobody_knows_whom_may_be_those_that_were_lost() -> None:
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    for base in range(3):
        history.produce(100 + base, 1, base, acks=1)
    line = {"broker_id": 1, "source_file": "server-1.log"}
    history.decide(900, -1, [1])
    history.add("log_load", 990, name="loaded", offset=0, hw=0, **line)
    history.decide(1000, 1, [1])
    history.role(1010, 1, "leader", 2, offset=0, hw=0)  # its disk had none of them
    history.decide(2000, 2, [2], leader_recovery_state=1)
    history.role(2010, 2, "leader", 3, offset=2, hw=0)  # it had fetched two
    assert [slots(row) for row in losses(history)] == [[(0, 2, 2)]]


def test_leader_epoch_without_a_record_starts_where_nothing_says() -> None:
    """That a follower at 2 has no record of the epoch says only that it starts at 2 or later."""
    history = tail(replicated())
    for k in range(3):
        history.fetch(320 + k, 1, 2, COMMITTED + k, bytes=100, hw=COMMITTED)
    history.fetch(330, 1, 2, COMMITTED + 3, hw=COMMITTED)
    history.decide(1000, 2, [1, 2])
    asks = {"current_leader_epoch": 1, "last_fetched_epoch": 0}
    history.fetch(1500, 2, 3, COMMITTED, bytes=300, hw=COMMITTED, **asks)
    assert losses(history) == []


def test_end_of_a_batch_is_not_where_its_leader_stood_after_another_led() -> None:
    """Broker 1 has one record of its own, and one that it fetched while broker 2 led."""
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.produce(100, 1, 0, acks=1)
    history.decide(1000, 2, [1, 2])
    history.produce(1100, 2, 1, acks=1)
    history.decide(2000, 1, [1, 2])
    history.produce(2100, 1, 2, acks=1)
    assert losses(history) == []
    assert next(r for r in of_kind(history.events(), "append"))["next_offset"] == 1


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


def test_unacknowledged_tail_is_no_loss() -> None:
    failed = {"acks": -1, "error_code": 7, "total_us": 100_000, "remote_us": 100_000}
    assert losses(taken_over(tail(replicated(), **failed))) == []


def test_fire_and_forget_tail_is_no_loss() -> None:
    assert losses(taken_over(tail(replicated(), acks=0, error_code=None))) == []


def test_clean_move_loses_nothing() -> None:
    history = replicated()
    history.decide(1000, 2, [1, 2])
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED)
    assert losses(history) == []


def test_records_deleted_on_purpose_are_no_loss() -> None:
    history = replicated()
    for broker in (1, 2):
        fields = {"broker_id": broker, "log_start_offset": 2, "source_file": f"server-{broker}.log"}
        history.add("log_start_change", 400, **fields)
    history.decide(1000, 2, [1, 2])
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED)
    assert losses(history) == []


def test_without_produce_lines_acknowledgements_are_null_and_not_zero() -> None:
    history = acks_one_failure()
    history.rows = [row for row in history.rows if row["kind"] not in ("produce", "fetch")]
    history.role(1500, 1, "follower", 1, offset=5, hw=2)
    history.add("truncation", 1510, broker_id=1, name="log", offset=2, source_file="server-1.log")
    row = loss(history)
    unknown = ("acked_all", "acked_one", "unacked", "acked_all_possible", "acked_one_possible", "acked_unconfirmed")
    assert {row[name] for name in (*unknown, "producers", "consumed")} == {None}
    assert row["first_offset"] == 2


def test_batch_without_a_produce_line_is_possibly_acknowledged() -> None:
    history = taken_over(tail(replicated()))
    history.rows = [r for r in history.rows if not (r["kind"] == "produce" and r["base_offset"] == 3)]
    row = loss(history)
    assert (row["records"], row["acked_one"], row["acked_one_possible"], row["unacked"]) == (3, 2, 1, 0)


def test_log_that_lost_lines_may_have_lost_the_last_of_a_connection_too() -> None:
    history = taken_over(tail(replicated()))
    history.rows = [r for r in history.rows if not (r["kind"] == "produce" and r["base_offset"] in (1, 4))]
    row = loss(history)
    assert (row["records"], row["acked_one"], row["acked_one_possible"], row["unacked"]) == (3, 2, 1, 0)


def test_lines_of_the_leader_about_its_appends_stand_in_for_missing_produce_lines() -> None:
    history = taken_over(tail(replicated()))
    for produce in [r for r in history.rows if r["kind"] == "produce" and r["base_offset"] >= 2]:
        base = produce["base_offset"]
        line = {"base_offset": base, "last_offset": base, "offset": base + 1, "source_file": "server-1.log"}
        history.add("log_append", 0, broker_id=1, **line)
        history.rows[-1]["ts"] = produce["ts"]
    history.rows = [r for r in history.rows if not (r["kind"] == "produce" and r["base_offset"] == 3)]
    row = loss(history)
    assert (row["acked_one"], row["acked_one_possible"], row["evidence"]) == (2, 1, "derived")


def test_answer_of_a_leader_that_had_stood_still_is_unconfirmed() -> None:
    history = tail(replicated(), ms=SILENT_UNTIL + 1)
    start = round(START.timestamp() * 1_000_000)
    silent = {1: [(start + SILENT_FROM * 1000, start + SILENT_UNTIL * 1000)]}
    row = loss(taken_over(history, ms=4000), standstills=silent)
    assert (row["acked_one"], row["acked_unconfirmed"], row["records"]) == (0, 3, 3)


def test_without_the_brokers_own_log_such_an_answer_is_possible() -> None:
    history = tail(replicated(), ms=SILENT_UNTIL + 1)
    start = round(START.timestamp() * 1_000_000)
    silent = {1: [(start + SILENT_FROM * 1000, start + SILENT_UNTIL * 1000)]}
    row = loss(taken_over(history, ms=4000), standstills=silent, own_logs=frozenset({2}))
    assert (row["acked_one"], row["acked_one_possible"], row["acked_all_possible"]) == (0, 3, 0)
    assert (row["acked_possible"], row["acked_unconfirmed"], row["unacked"], row["records"]) == (3, 0, 0, 3)


def test_answer_that_waited_for_followers_long_after_the_standstill_counts() -> None:
    waited = {"acks": -1, "total_us": 1_500_000, "remote_us": 1_500_000}
    history = tail(replicated(), ms=SILENT_UNTIL + 1501, **waited)
    start = round(START.timestamp() * 1_000_000)
    silent = {1: [(start + SILENT_FROM * 1000, start + SILENT_UNTIL * 1000)]}
    row = loss(taken_over(history, ms=4000), standstills=silent)
    assert (row["acked_all"], row["acked_unconfirmed"]) == (3, 0)


def test_answer_that_waits_for_nobody_is_unconfirmed_however_long_after_the_standstill_it_came() -> None:
    held_up = {"acks": 1, "total_us": 4_600_000, "queue_us": 4_580_000, "local_us": 10_000}
    history = tail(replicated(), ms=SILENT_UNTIL + 80, **held_up)
    start = round(START.timestamp() * 1_000_000)
    silent = {1: [(start + SILENT_FROM * 1000, start + SILENT_UNTIL * 1000)]}
    row = loss(taken_over(history, ms=6000), standstills=silent)
    assert (row["acked_one"], row["acked_unconfirmed"]) == (0, 3)


def test_answer_counts_if_its_connection_goes_on() -> None:
    history = tail(replicated(), ms=SILENT_UNTIL + 1)
    start = round(START.timestamp() * 1_000_000)
    silent = {1: [(start + SILENT_FROM * 1000, start + SILENT_UNTIL * 1000)]}
    went_on = {(1, "p1"): start + (SILENT_UNTIL + 900) * 1000}
    row = loss(taken_over(history, ms=4000), standstills=silent, connection_ends=went_on)
    assert (row["acked_one"], row["acked_unconfirmed"]) == (3, 0)


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


def test_record_whose_retry_was_answered_well_is_acknowledged() -> None:
    history = replicated()
    failed = {"error_code": 7, "total_us": 100_000, "remote_us": 100_000}
    alone(history)
    history.produce(420, 1, COMMITTED, **failed)
    history.produce(430, 1, COMMITTED)  # the same again: error 0, the old base
    assert loss(taken_over_from(history, epoch=1))["acked_all"] == 1


def test_hw_waits_for_the_followers_that_fetch_where_no_source_names_the_assignment() -> None:
    history = History()
    history.fetch(100, 1, 2, 0, bytes=100, hw=0, last_fetched_epoch=-1, total_us=50_000, remote_us=50_000)
    history.produce(99, 1, 0, acks=1)
    history.fetch(200, 1, 2, 1, hw=1, total_us=98_000, remote_us=98_000)
    history.produce(300, 1, 1, acks=1)  # nobody fetches it
    rows = tables_of(history.events())["hw_timeline"].to_pylist()
    assert max(row["hw"] for row in rows) == 1


def answered_by_the_next_leader(*, says_from_where: bool) -> History:
    """A batch that failed at broker 1; broker 2 has it, leads, answers the retry well; then broker 1 leads again."""
    history = replicated()
    history.produce(420, 1, COMMITTED, error_code=7, total_us=100_000, remote_us=100_000)
    history.fetch(430, 1, 2, COMMITTED, bytes=100, hw=COMMITTED)
    history.fetch(431, 1, 2, COMMITTED + 1, hw=COMMITTED)
    history.fence(1000, 1)
    history.decide(1000, 2, [2])
    if says_from_where:
        history.role(1010, 2, "leader", 1, offset=COMMITTED + 1, hw=COMMITTED)
    history.produce(1020, 2, COMMITTED)  # from the producer's state: nothing appended
    history.decide(1900, -1, [2])
    history.decide(2000, 1, [1], leader_recovery_state=1)
    history.role(2010, 1, "leader", 3, offset=COMMITTED, hw=COMMITTED)
    return history


def test_record_whose_retry_the_next_leader_answered_well_is_acknowledged() -> None:
    assert loss(answered_by_the_next_leader(says_from_where=True))["acked_all"] == 1


def test_retry_answered_by_a_leader_of_whom_nothing_says_from_where_it_led_acknowledges_nothing_older() -> None:
    rows = losses(answered_by_the_next_leader(says_from_where=False))
    assert not any(row["acked_all"] for row in rows if row["old_leader_epoch"] == 0)


def test_epoch_without_a_record_is_forgotten_when_the_log_is_loaded() -> None:
    """Broker 2 led epoch 1 without a record and starts again: what it fetches then is of epoch 0, and is no other."""
    history = tail(replicated(), ms=500)
    history.decide(1000, 2, [2])
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED)
    history.decide(2000, 1, [1], leader_recovery_state=1)
    history.role(2010, 1, "leader", 2, offset=COMMITTED + 3, hw=COMMITTED)
    line = {"broker_id": 2, "source_file": "server-2.log"}
    history.add("log_load", 2500, name="loaded", offset=COMMITTED, hw=COMMITTED, **line)
    history.role(2510, 2, "follower", 2, offset=COMMITTED, hw=COMMITTED)
    asks = {"current_leader_epoch": 2, "last_fetched_epoch": 0}
    history.fetch(2600, 1, 2, COMMITTED, bytes=300, hw=COMMITTED, **asks)
    history.fetch(2700, 1, 2, COMMITTED + 3, hw=COMMITTED + 3, **asks)
    history.decide(2800, None, [1, 2])
    history.decide(3000, 2, [1, 2])
    history.role(3010, 2, "leader", 3, offset=COMMITTED + 3, hw=COMMITTED + 3)
    assert losses(history) == []


def test_more_epochs_than_the_cache_holds_lose_nothing() -> None:
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(1, 1, "leader", 0, offset=0, hw=0)
    history.produce(2, 1, 0, acks=1)
    for epoch in range(1, CACHE_CAPACITY + 1):
        history.decide(epoch * 100, 1, [1, 2])
        history.role(epoch * 100 + 10, 1, "leader", epoch, offset=epoch, hw=epoch)
        history.produce(epoch * 100 + 20, 1, epoch, acks=1)
    assert losses(history) == []
