"""Replicas that join the ISR again: what they waited for, how each request ended, and flaps."""

from __future__ import annotations

from facts_builder import at, of_kind
from isr_histories import alive, begun, isr_line, isr_rows, replayed, returning

from pipelines.parse.wordings.isr_words import error_in
from replay.evidence.request_times import Window
from replay.evidence.rows import Row
from replay.evidence.tenures import Tenure
from replay.order.front import OP_UPDATE
from replay.order.isr_joins import split_run
from replay.order.isr_requests import IsrChange
from replay.order.operations import Draft, Operation
from replay.tables.isr_rows import IsrRows


def test_request_to_join_stands_behind_the_fetch_that_led_to_it() -> None:
    events = of_kind(returning().events(), "fetch_update", "isr_request")
    places = [k for k, row in enumerate(events) if row["cause"] == "pending_expand"]
    assert [(events[k - 1]["replica_id"], events[k - 1]["fetch_offset"]) for k in places] == [(3, 2)]


def test_replica_that_reached_the_hw_joined_for_that() -> None:
    history = returning()
    history.decide(1810, None, [1, 2, 3])
    pending = isr_rows(history, "pending_expand")[0]
    assert (pending["reason"], pending["outcome"], pending["evidence"]) == ("leo_reached_hw", "committed", "observed")
    assert isr_rows(history, "committed")[-1]["reason"] == "leo_reached_hw"


def test_request_that_the_controller_refused_is_rejected_with_its_error() -> None:
    history = returning()
    history.request(
        "isr_request", 1830, "c1", broker_id=0, replica_id=1, leader_epoch=0, partition_epoch=1, isr=[1, 2, 3],
        error_code=95, source_file="controller.log",
    )  # fmt: skip
    row = isr_rows(history, "pending_expand")[0]
    assert (row["outcome"], row["error_code"]) == ("rejected", 95)


def test_request_that_was_not_attempted_is_rejected_and_asked_again_at_the_next_fetch() -> None:
    history = returning()
    isr_line(
        history,
        1820,
        "failed",
        [1, 2, 3],
        replica_id=3,
        error_code=error_in("since .. with OPERATION_NOT_ATTEMPTED. .."),
    )
    history.fetch(1840, 1, 3, 2, hw=2)
    first, second = isr_rows(history, "pending_expand")
    assert (first["outcome"], first["error_code"]) == ("rejected", 55)
    assert (second["reason"], second["outcome"], second["evidence"]) == ("asked_again", None, "derived")


def test_request_that_a_new_leader_epoch_overtakes_came_to_nothing() -> None:
    history = returning()
    history.decide(1900, 2, [1, 2])
    assert isr_rows(history, "pending_expand")[0]["outcome"] == "new_leader_epoch"


def test_request_that_another_decision_overtakes_is_superseded() -> None:
    history = returning()
    history.decide(1900, None, [1])
    history.fence(1900, 2)
    assert isr_rows(history, "pending_expand")[0]["outcome"] == "superseded"


def test_unfencing_was_the_last_condition_of_a_replica_that_had_the_hw() -> None:
    history = begun()
    alive(history, 100, 2)
    alive(history, 100, 3)
    history.decide(200, None, [1, 2])
    history.fence(200, 3)
    history.fetch(400, 1, 3, 0, hw=0)
    history.fence(500, 3, fenced=False)
    history.fetch(2600, 1, 3, 0, hw=0)
    assert isr_rows(history, "pending_expand")[0]["reason"] == "unfenced"


def test_run_of_unlisted_fetches_is_split_where_one_of_them_led_to_a_request() -> None:
    fields = {"run_count": 10, "run_timeouts": 7, "run_until": 1_000_000, "fetch_offset": 7}
    run = Operation(
        OP_UPDATE, Window(0, 0, 1_000_000), [Draft("fetch_update", None, Window(0, 0, 0), fields)], offset=7
    )
    line = Row(name="pending_expand", source_file="server-1.log", source_line=1)
    change = IsrChange(line, 500_000, shrinks=False, isr=[1, 2, 3], replica=3, by_line=True)
    parts = split_run(Tenure(0, 1), run, [change])
    found = [[(d.kind, d.window.est, d.fields.get("run_count")) for d in part.drafts] for part in parts]
    assert found == [
        [("fetch_update", 0, 5)],
        [("fetch_update", 500_000, 5), ("isr_request", 500_000, None)],
    ]
    assert [part.drafts[0].fields["run_until"] for part in parts] == [499_999, 1_000_000]
    assert [part.drafts[0].fields["run_timeouts"] for part in parts] == [3, 4]


def test_fetch_that_was_parked_and_then_refused_had_been_taken_first() -> None:
    history = begun()
    history.fetch(400, 1, 3, 0, total_us=300_000, remote_us=300_000, error_code=6)
    found = [(row["error_code"], row["ts"]) for row in of_kind(history.events(), "fetch_update")]
    assert found == [(0, at(100)), (6, at(400))]


def test_replica_that_left_and_came_back_is_a_flap() -> None:
    history = returning()
    history.decide(1810, None, [1, 2, 3])
    (flap,) = replayed(history)["isr_flaps"]
    assert (flap["broker_id"], flap["out_ms"], flap["times"]) == (3, 105, 1)
    assert (flap["left_reason"], flap["back_reason"]) == ("no_fetches", "leo_reached_hw")


def test_replica_that_came_back_before_it_left_by_the_clocks_of_two_leaders_was_out_for_an_unknown_time() -> None:
    rows, told = IsrRows(), {"leader_epoch": 1, "evidence": "observed"}
    moves = ((1, 92_000, "no_fetches"), (2, 0, "leo_reached_hw"))
    for seq, ts, reason in moves:
        row = {**told, "seq": seq, "ts": ts, "leader_id": seq}
        rows.note_flap(row, {"broker_id": 3, "joined": seq == 2, "reason": reason})
    (flap,) = rows.flaps
    assert (flap["out_ms"], flap["evidence"], flap["left_ts"], flap["back_ts"]) == (None, "bounded", 92_000, 0)
