"""Which facts of a long partition an order that goes on can do without, and when it cannot go on."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from replay.arrays.digests import row_hashes
from replay.arrays.ints import NEVER
from replay.evidence.session_lines import SESSION_SCHEMA
from replay.evidence.steady import Facts, bears_on_neighbours, facts_of, kept, open_spans
from replay.evidence.steady_times import (
    MARGIN_US,
    RESENT_US,
    SERIES_US,
    SPAN_US,
    Hole,
    SteadyTime,
    both,
    holes_at,
    steady_times,
    time_at,
)
from schemas.facts import FACTS

SECOND = 1_000_000
NAMES = ("kind", "ts", "broker_id", "replica_id", "current_leader_epoch", "last_fetched_epoch", "fetch_offset",
         "base_offset", "error_code", "total_us", "connection", "name", "transactional_id",
         "producer_id", "run_until", "forgotten")  # fmt: skip
SINCE, UNTIL, END = 300, 320, 330
LEADER, EPOCH = 1, 4


def fetch(at: float, offset: int, replica: int = 2, **more: Any) -> dict[str, Any]:
    said = {"replica_id": replica, "current_leader_epoch": EPOCH, "last_fetched_epoch": EPOCH, "fetch_offset": offset}
    return {"kind": "fetch", "ts": at, "broker_id": LEADER, "connection": f"f{replica}", **said, **more}


def produce(at: float, base: int, **more: Any) -> dict[str, Any]:
    return {"kind": "produce", "ts": at, "broker_id": LEADER, "connection": "p", "base_offset": base, **more}


def line(at: float, kind: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "ts": at, "broker_id": LEADER, **more}


def steady_rows() -> list[dict[str, Any]]:
    """A batch each second, which both followers and a consumer fetch soon after."""
    rows = [line(0, "role_change", name="leader")]
    for at in range(1, END):
        rows.append(produce(at, at))
        rows += [fetch(at + 0.1 * k, at + 1, replica) for k, replica in enumerate((2, 3, -1), start=1)]
    return rows


def added(at: float, producer: int = 7, **more: Any) -> dict[str, Any]:
    """What the coordinator, another broker, is asked: a partition is added to a transaction."""
    said = {"name": "added", "producer_id": producer, "transactional_id": f"t{producer}", "connection": "p"}
    return line(at, "transaction", **{**said, "broker_id": 2, **more})


def marker(at: float, producer: int = 7, **more: Any) -> dict[str, Any]:
    return line(at, "transaction", name="marker_commit", producer_id=producer, connection="m", **more)


def question(at: float, **more: Any) -> dict[str, Any]:
    """A consumer asks where an epoch ends."""
    return line(at, "epoch_end_offset", replica_id=-1, current_leader_epoch=EPOCH, connection="q", **more)


def in_transactions(last: int = END) -> list[dict[str, Any]]:
    """The same batches, each of a transaction that is over soon after it, up to a last one."""
    rows = steady_rows()
    for row in rows:
        if row["kind"] == "produce" and row["base_offset"] < last:
            row["transactional_id"] = "t7"
    return rows + [one for at in range(1, last) for one in (added(at - 0.1), marker(at + 0.4))]


def told(rows: list[dict[str, Any]]) -> Facts | None:
    whole = [{name: row.get(name) for name in NAMES} for row in rows]
    for row in whole:
        for name in ("ts", "run_until"):
            row[name] = None if row[name] is None else int(row[name] * SECOND)
    fields = {field.name: field for field in (*SESSION_SCHEMA, *FACTS.arrow_schema)}
    schema = pa.schema([fields[name].with_nullable(nullable=True) for name in NAMES])
    table = pa.Table.from_pylist(whole, schema)
    return facts_of(table, row_hashes(table))


def goes_on(rows: list[dict[str, Any]]) -> bool:
    known = told(rows)
    time = None if known is None else time_at(known.times, SINCE * SECOND)
    return known is not None and time is not None and bears_on_neighbours(known, time, SINCE * SECOND, UNTIL * SECOND)


def times_of(rows: list[dict[str, Any]]) -> list[tuple[int, int, float, float]]:
    """The steady times as leader, epoch, and seconds."""
    known = told(rows)
    assert known is not None
    return [
        (one.leader, one.epoch, one.settled_us / SECOND, one.until_us / SECOND if one.until_us < NEVER else 0)
        for one in known.times
    ]


def test_a_time_is_steady_once_everybody_fetched_in_it_and_until_something_but_requests_comes() -> None:
    assert times_of(steady_rows()) == [(LEADER, EPOCH, 1.2, 0)]
    broken = [*steady_rows(), line(50, "truncation"), fetch(70, 71, error_code=6)]
    assert times_of(broken) == [(LEADER, EPOCH, 1.2, 50), (LEADER, EPOCH, 51.0, 70), (LEADER, EPOCH, 71.0, 0)]
    decided = [*steady_rows(), line(50, "isr_update", name="shrink"), line(70, "partition_change")]
    assert times_of(decided) == times_of(steady_rows())


def test_what_is_said_of_transactions_and_asked_of_epochs_ends_no_steady_time() -> None:
    """But a marker that was refused."""
    assert times_of(in_transactions()) == [(LEADER, EPOCH, 1.4, 0)]  # when the first marker came
    refused = [*in_transactions(), added(70.5, error_code=51), question(80.5), question(90.5, broker_id=3)]
    assert times_of(refused) == times_of(in_transactions())
    assert [one[3] for one in times_of([*in_transactions(), marker(70.5, error_code=6)])] == [70.5, 0]


def test_the_first_request_of_a_session_without_the_partition_ends_a_steady_time() -> None:
    """How far these have come, which changes with each hour if the leader has moved, is no news of the time before."""
    plain = told(steady_rows())
    assert plain is not None
    for at, broker, ended in ((0.5, 2, 0), (100.5, LEADER, 100.5)):
        without = line(at, "left_out", replica_id=2, current_leader_epoch=EPOCH, fetch_offset=1, run_until=END)
        rows = [*steady_rows(), {**without, "broker_id": broker}]
        assert [one[3] for one in times_of(rows)] == [ended, 0][not ended :]
        assert goes_on(rows)
        known = told(rows)
        assert known is not None
        assert known.sums(SINCE * SECOND) == plain.sums(SINCE * SECOND)
        assert kept(known, [Hole(LEADER, 0, SINCE * SECOND)])[-1]


def test_a_consumer_that_leaves_the_partition_out_for_a_while_ends_no_steady_time() -> None:
    """It still has records of it. Such a request names no offset, and is left out of a hole as others are."""
    for at in (100.5, SINCE - 15.5, SINCE + 5.5):
        rows = [*steady_rows(), fetch(at, 0, -1, forgotten=True)]
        rows[-1]["fetch_offset"] = None
        assert times_of(rows) == times_of(steady_rows())
        assert goes_on(rows)
        known = told(rows)
        assert known is not None
        assert kept(known, [Hole(LEADER, 0, 200 * SECOND)])[-1] == (at > 200)
        assert [one[3] for one in times_of([*rows, fetch(at, 0, 2, forgotten=True)])] == [at, 0]


def test_each_leader_epoch_has_its_own_steady_times() -> None:
    later = [
        {**row, "ts": row["ts"] + END, "broker_id": 2, **({"current_leader_epoch": 5} if "replica_id" in row else {})}
        for row in steady_rows()
        if row["kind"] != "role_change"
    ]
    for row in later:
        if row.get("replica_id") == 2:
            row |= {"replica_id": 1, "connection": "f1"}
        row["last_fetched_epoch"] = 5
    rows = [*steady_rows(), *later]
    assert times_of(rows) == [(LEADER, EPOCH, 1.2, END + 1), (2, 5, END + 1.2, 0)]
    known = told(rows)
    assert known is not None
    assert holes_at(known.times, END * SECOND) == ()  # soon after it, a client may send again what had been answered
    assert holes_at(known.times, (END + 100) * SECOND) == ()
    since = (END + SINCE) * SECOND
    first, second = holes_at(known.times, since)
    assert (first.leader, first.end) == (LEADER, (END + 1) * SECOND - MARGIN_US)
    assert second == Hole(2, round((END + 1.2) * SECOND) + SPAN_US, since - MARGIN_US)


def test_holes_of_two_orders_that_overlap_are_one() -> None:
    mine = (Hole(1, 10, 50), Hole(2, 90, 200), Hole(1, 300, 400))
    assert both(mine, ()) == both(mine, mine) == mine
    assert both(mine, (Hole(1, 20, 40),)) == mine
    assert both(mine, (Hole(2, 80, 150), Hole(1, 15, 60))) == (Hole(1, 10, 60), Hole(2, 80, 200), Hole(1, 300, 400))
    assert both((Hole(1, 10, 50),), (Hole(2, 40, 90),)) == (Hole(1, 10, 50), Hole(2, 40, 90))


def test_lines_of_two_elections_that_are_looked_at_together_do_not_span_the_time_between() -> None:
    lines = [line(100, "truncation"), line(250, "truncation")]
    requests = [row for row in steady_rows() if row["kind"] != "role_change"]
    begins = (0, 100, 250, END)
    parts = [[row for row in requests if since < row["ts"] <= until] for since, until in pairwise(begins)]
    series = [one for rows in (steady_rows()[:1], lines, *parts) if (known := told(rows)) for one in known.series()]
    known = told([*steady_rows(), *lines])
    assert known is not None
    assert steady_times(series) == known.times
    assert [(one.settled_us // SECOND, one.until_us // SECOND) for one in known.times[:2]] == [(1, 100), (101, 250)]


def test_what_ends_a_time_in_the_midst_of_others_facts_costs_little_of_the_next() -> None:
    """Requests of hours are looked at together, and a line of which their leader says nothing apart from them."""
    requests = [row for row in steady_rows() if row["kind"] != "role_change"]
    requests += [fetch(at + 0.5, at + 1, replica=4) for at in range(200, END)]
    parts = (steady_rows()[:1], requests, [line(20, "truncation")])
    found = steady_times(one for rows in parts if (known := told(rows)) for one in known.series())
    again = SERIES_US / SECOND
    times = [(one.leader, one.epoch, one.settled_us / SECOND, one.until_us) for one in found]
    assert times == [(LEADER, EPOCH, 1.2, 20 * SECOND), (LEADER, EPOCH, again + 0.5, NEVER)]


def test_somebody_who_comes_late_ends_a_time_and_begins_another() -> None:
    late = [fetch(at + 0.5, at + 1, replica=4) for at in range(SINCE, END)]
    assert times_of([*steady_rows(), *late]) == [(LEADER, EPOCH, 1.2, SINCE + 0.5), (LEADER, EPOCH, SINCE + 0.5, 0)]
    soon = [fetch(at + 0.5, at + 1, replica=4) for at in range(100, END)]
    assert times_of([*steady_rows(), *soon]) == [(LEADER, EPOCH, 100.5, 0)]  # the first would be too short for a hole


def test_reads_of_what_was_written_in_an_older_time_are_of_what_is_left_out() -> None:
    """Nobody has written since; reads of the end are of it as well."""
    written = [row for row in steady_rows() if row["kind"] != "produce" or row["ts"] < 100]
    rows = [*written, line(110, "truncation")]
    assert not goes_on(rows)
    nobody_reads = [row for row in rows if row.get("replica_id") != -1]
    assert goes_on(nobody_reads)


def test_requests_of_two_leaders_at_the_same_time_are_of_no_steady_time() -> None:
    rows = steady_rows()
    for row in rows:
        if 100 <= row["ts"] < 140 and int(row["ts"]) % 2:
            row["broker_id"] = 2
    found = times_of(rows)
    assert [(one[2], one[3]) for one in found if one[3] - one[2] > 5 or not one[3]] == [(1.2, 101), (140.2, 0)]


def test_an_order_goes_on_where_what_is_new_bears_upon_its_neighbours_alone() -> None:
    assert goes_on(steady_rows())
    assert goes_on([*steady_rows(), line(325, "isr_update", name="shrink"), line(20, "log_start_change")])
    assert goes_on([*steady_rows(), line(325, "delete_records"), line(326, "segment_change", name="segment_rolled")])


def test_an_order_goes_on_among_transactions_and_though_consumers_ask_for_epochs() -> None:
    assert goes_on(in_transactions())
    assert goes_on([*in_transactions(), produce(325.5, 400, transactional_id="t8"), added(325.4, 8), marker(325.6, 8)])
    assert goes_on([*steady_rows(), question(20.5), question(325.5)])
    assert goes_on([*steady_rows(), added(325.4), produce(325.5, 400, transactional_id="t7")])


ELECTED = SINCE + RESENT_US // SECOND + 1


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([line(ELECTED, "role_change", name="leader")], id="a role is taken up"),
        pytest.param([fetch(ELECTED, 326, error_code=6)], id="a fetch is refused"),
        pytest.param([fetch(ELECTED, 326, current_leader_epoch=5, broker_id=3, connection="x")], id="another leads"),
        pytest.param([produce(ELECTED, -1, error_code=6)], id="a batch is refused"),
        pytest.param([line(ELECTED, "log_load"), line(ELECTED + 1, "truncation")], id="a broker comes back"),
    ],
)
def test_what_ends_a_steady_time_long_after_it_does_not_bear_upon_it(rows: list[dict[str, Any]]) -> None:
    assert goes_on([*steady_rows(), *rows])
    sooner = [{**row, "ts": row["ts"] - 2} for row in rows]
    assert not goes_on([*steady_rows(), *sooner])


def test_a_steady_time_that_is_over_says_how_far_the_log_had_come() -> None:
    """Else what the next leader states of that is all that tells of batches of before."""
    reads = [row for row in steady_rows() if row["kind"] == "fetch" and row["replica_id"] == -1]
    assert goes_on(reads)
    assert not goes_on([*reads, line(ELECTED, "role_change", name="leader")])


def without(kind: str, since: float, until: float, **of: Any) -> list[dict[str, Any]]:
    def goes(row: dict[str, Any]) -> bool:
        mine = row["kind"] == kind and all(row.get(name) == value for name, value in of.items())
        return mine and since <= row["ts"] < until

    return [row for row in steady_rows() if not goes(row)]


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([*steady_rows(), fetch(325, 326, error_code=6)], id="a fetch is refused"),
        pytest.param([*steady_rows(), fetch(325, 326, replica=4)], id="another replica fetches"),
        pytest.param([*steady_rows(), fetch(325, 326, current_leader_epoch=5)], id="a fetch names another epoch"),
        pytest.param([*steady_rows(), line(325, "role_change", name="leader")], id="a role is taken up"),
        pytest.param([*steady_rows(), line(325, "log_append")], id="the leader logs at TRACE"),
        pytest.param([*in_transactions(last=290), marker(325.5)], id="a marker after a time without any"),
        pytest.param([*steady_rows(), produce(325.5, -1)], id="a batch of which no offset is known"),
        pytest.param([*steady_rows(), produce(325.5, 400, total_us=2 * SPAN_US)], id="a request that took long"),
        pytest.param([*steady_rows(), produce(325.5, 200)], id="a batch at an older offset"),
        pytest.param([*steady_rows(), fetch(325.5, 200)], id="a follower that fetches from an older offset"),
        pytest.param([*steady_rows(), fetch(325.5, 200, -1)], id="a consumer that reads what is left out"),
        pytest.param([*steady_rows(), produce(325.5, 400, connection="q"), produce(20.5, 20, connection="q")],
                     id="a client that was silent"),
        pytest.param(without("fetch", 299, 320, replica_id=3), id="a follower that was silent"),
        pytest.param(without("produce", 299, 320), id="nothing was written"),
    ],
)  # fmt: skip
def test_what_reaches_further_back_asks_for_the_whole(rows: list[dict[str, Any]]) -> None:
    assert not goes_on(rows)


def on_second(since: float, until: float, connection: str = "f2 again") -> list[dict[str, Any]]:
    """The rows, with what a follower fetched in a time on another connection."""
    rows = steady_rows()
    for row in rows:
        if row.get("replica_id") == 2 and since <= row["ts"] < until:
            row["connection"] = connection
    return rows


@pytest.mark.parametrize(
    ("since", "until", "allowed"),
    [
        pytest.param(100, 102, False, id="for a moment long ago"),
        pytest.param(310, 312, False, id="between the two places"),
        pytest.param(325, 327, False, id="since"),
        pytest.param(100, END, True, id="opened anew long ago"),
        pytest.param(310, END, True, id="opened anew between the two places"),
        pytest.param(325, END, True, id="opened anew since"),
    ],
)
def test_a_follower_uses_one_connection_after_the_other(since: int, until: int, allowed: bool) -> None:  # noqa: FBT001
    assert goes_on(on_second(since, until)) is allowed


def test_two_connections_at_the_same_time_do_not_matter_once_both_are_given_up() -> None:
    rows = on_second(100, 102)
    for row in rows:
        if row.get("replica_id") == 2 and row["ts"] >= 200:
            row["connection"] = "f2 for good"
    assert goes_on(rows)


def test_only_requests_in_the_middle_of_a_steady_tenure_are_left_out() -> None:
    rows = [*steady_rows(), line(100, "isr_update", name="shrink"), fetch(100, 101, 3, connection="once")]
    known = told(rows)
    assert known is not None
    hole = SteadyTime(LEADER, EPOCH, 2 * SECOND, NEVER).hole(SINCE * SECOND)
    assert hole == Hole(LEADER, 2 * SECOND + SPAN_US, SINCE * SECOND - MARGIN_US)
    left = kept(known, [hole])
    times = known.us // SECOND
    assert left[(times < 12) | (times >= 270)].all()
    found = [rows[k] for k in np.flatnonzero(left & (times > 12) & (times < 270))]
    lasts = [(row["replica_id"], int(row["ts"])) for row in found if row["kind"] == "fetch" and row["ts"] > 100]
    assert [row["kind"] for row in found if row["ts"] <= 100] == ["isr_update", "fetch"]
    assert lasts == [(2, 269), (3, 269)]  # by which a follower is known that stopped
    assert len(found) == 4


def test_of_transactions_in_a_hole_the_last_of_each_producer_is_kept() -> None:
    """By which it is known whether a transaction is open, and who wrote it; what was refused tells neither."""
    rows = [*in_transactions(), produce(50.5, 0, transactional_id="t8"), added(50.4, 8), added(60.4, 8, error_code=51)]
    rows += [marker(60.5, 9), question(70.5)]
    known = told(rows)
    assert known is not None
    left = kept(known, [Hole(LEADER, 20 * SECOND, 250 * SECOND)])
    times = known.us / SECOND
    found = sorted((rows[k]["kind"], times[k]) for k in np.flatnonzero(left & (times > 20) & (times < 250)))
    assert [one for one in found if one[0] != "fetch"] == [
        ("epoch_end_offset", 70.5),
        *(("produce", at) for at in (50.5, 249.0)),
        *(("transaction", at) for at in (50.4, 60.5, 249.4, 249.9)),
    ]


def test_a_transaction_is_open_from_the_first_that_is_said_of_it_to_its_marker() -> None:
    """Partitions are added again; a marker without any such line ends nothing, and what is not ended is not told."""
    said = [(8, 50, False), (7, 10, False), (7, 12, False), (7, 30, True), (7, 40, True), (7, 45, False), (9, 20, True)]
    said += [(9, 70, False), (9, 90, True), (9, 60, False)]
    who, us = (np.array([one[k] for one in said], np.int64) for k in (0, 1))
    begins, ends = open_spans(who, us, np.array([one[2] for one in said], np.bool_))
    assert sorted(zip(begins.tolist(), ends.tolist(), strict=True)) == [(10, 30), (60, 90)]
    assert [len(one) for one in open_spans(who[:0], us[:0], np.zeros(0, np.bool_))] == [0, 0]


def test_an_order_does_not_go_on_soon_after_a_tenure_began() -> None:
    assert SteadyTime(LEADER, EPOCH, 200 * SECOND, NEVER).hole(SINCE * SECOND) is None
