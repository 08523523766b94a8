"""Which lines are missing, by the clients' correlation ids, and what of which broker is covered."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise
from time import process_time
from typing import Any

import pytest
from facts_builder import START, Second, at, by_source, gaps_in

from replay.evidence.coverage import (
    BY_ITSELF,
    BY_OTHERS,
    MEMBER,
    METADATA,
    MOST_SILENCES,
    REQUEST_LOG,
    SERVER_LOG,
    windows_of,
    with_windows,
)
from replay.evidence.missing_lines import NEAR_US, Gap, MissingLines
from replay.evidence.rows import Row

FOLLOWER = {"kind": "fetch", "replica_id": 2, "client_id": "f"}
CLIENT = "10.0.0.1:9092-10.0.0.{host}:{port}-0-0"
SECOND = 1_000_000
START_US = round(START.timestamp()) * SECOND


def requests(
    numbers: list[int], *, broker: int = 1, port: int = 1000, first_ms: int = 0, step_ms: int = 100, **fields: Any
) -> list[Row]:
    """Lines of one connection, one after the other."""
    connection = CLIENT.format(host=7, port=port)
    common = {"kind": "produce", "broker_id": broker, "connection": connection, "client_id": "shop", **fields}
    return [
        Row({**common, "correlation_id": number, "ts": at(first_ms + step_ms * place)})
        for place, number in enumerate(numbers)
    ]


def us(ms: int) -> int:
    return START_US + ms * 1000


def test_number_that_is_missing_on_a_connection_is_a_lost_line() -> None:
    missing = gaps_in(requests([41, 42, 44, 45]))
    assert [(hole.since, hole.until, hole.lines) for hole in missing.holes[1]] == [(us(100), us(200), 1)]
    assert missing.any_in(1, us(150), us(160))
    assert not missing.any_in(1, us(0), us(99))
    assert not missing.any_in(2, us(150), us(160))


def test_a_client_counts_on_from_the_least_number_after_the_greatest() -> None:
    """Of the last eight before that it may leave out those that authentication has for itself."""
    greatest, least = 2**31 - 1, -(2**31)
    assert gaps_in(requests([greatest - 1, greatest, least, least + 1])).holes == {}
    before = range(greatest - 20, greatest - 7)
    assert gaps_in(requests([*before, least, least + 1])).holes == {}
    assert [hole.lines for hole in gaps_in(requests([*before[:-1], least])).holes[1]] == [1]
    missing = gaps_in(requests([greatest, least, least + 2, least + 3]))
    assert [hole.lines for hole in missing.holes[1]] == [1]
    fetches = requests([least, least + 2, least + 3], **FOLLOWER)
    missing = gaps_in([*requests([greatest - 1, greatest], **FOLLOWER), *fetches])
    assert [missing.any_between(*pair) for pair in pairwise(fetches)] == [True, False]


def test_numbers_of_the_quorums_clients_show_no_lost_lines() -> None:
    numbers = [*range(10), 11, 12, 14, 17]  # while the other controller was down
    assert gaps_in(requests(numbers, client_id="raft-client-1", kind="fetch")).holes == {}
    assert gaps_in(requests(numbers, client_id="raft", kind="fetch", replica_id=2)).holes[1]


def test_number_that_the_client_sent_to_another_broker_is_not_lost() -> None:
    elsewhere = requests([3, 6], broker=2, port=2000, first_ms=150, step_ms=200)
    assert gaps_in([*requests([1, 2, 4, 5, 7]), *elsewhere]).holes == {}


def test_a_gap_between_requests_that_a_busy_broker_took_up_the_other_way_round_is_one_too() -> None:
    lines = requests([1, 2, 5], first_ms=1000, step_ms=-200)
    (hole,) = gaps_in(lines).holes[1]
    assert (hole.since, hole.until, hole.lines) == (us(600), us(800), 2)
    elsewhere = requests([3, 4], broker=2, port=2000, first_ms=700, step_ms=10)
    assert gaps_in([*lines, *elsewhere]).holes == {}


def test_number_that_the_client_sent_elsewhere_at_another_time_is_lost() -> None:
    before = requests([1, 2, 3, 4, 5, 6, 7], broker=2, port=2000, first_ms=-60_000)
    assert [hole.lines for hole in gaps_in([*requests([1, 2, 4, 5, 7]), *before]).holes[1]] == [1, 1]


def test_numbers_that_waited_on_their_connection_until_others_were_replicated_are_not_lost() -> None:
    """Five may be under way at once with acks=all, and a broker takes up one as it has answered the one before."""
    prompt = requests([n for n in range(101, 120) if n % 3], step_ms=20)
    waited = requests(list(range(102, 120, 3)), broker=2, port=2000, first_ms=30, step_ms=400)
    assert gaps_in([*prompt, *waited]).holes == {}
    lost = [line for line in waited if line["correlation_id"] != 111]
    assert [hole.lines for hole in gaps_in([*prompt, *lost]).holes[1]] == [1]


def test_a_client_that_is_started_again_and_again_hides_no_lost_line() -> None:
    """One of its lives is idle for long, so that any of its requests might have been sent long before."""
    idle = [one for k in range(20) for one in requests([k + 1], broker=3, port=900, first_ms=300_000 * k)]
    lives = [
        one
        for life in range(300)
        for broker in (1, 2)
        for one in requests(
            list(range(broker, 60, 2)), broker=broker, port=1000 + 2 * life + broker, first_ms=10_000 * life
        )
    ]
    assert gaps_in([*idle, *lives]).holes == {}
    lost = next(one for one in lives if (one["broker_id"], one["correlation_id"]) == (1, 35))
    assert [hole.lines for hole in gaps_in([*idle, *(one for one in lives if one is not lost)]).holes[1]] == [1]


def test_connections_that_count_for_themselves_do_not_fill_each_other_s_gaps() -> None:
    numbers = list(range(1, 41))
    beside = requests(numbers, broker=2, port=2000)
    missing = gaps_in([*requests([n for n in numbers if n != 20]), *beside])
    assert [hole.lines for hole in missing.holes[1]] == [1]


def test_several_clients_of_one_name_that_each_count_over_all_brokers_lose_nothing() -> None:
    lines: list[Row] = []
    for client in range(3):  # each sends its numbers to two brokers in turns
        for broker in (1, 2):
            numbers = list(range(broker, 60, 2))
            port = 1000 + 10 * client + broker
            lines += requests(numbers, broker=broker, port=port, first_ms=50 * broker + client)
    assert gaps_in(lines).holes == {}


def test_two_clients_of_one_name_that_each_have_a_leader_of_their_own_lose_nothing() -> None:
    """Java producers are called producer-1 unless somebody says otherwise."""
    first = [*requests(list(range(20, 60)), port=1001), *requests([19, 60], broker=2, port=1002, step_ms=4000)]
    second = [*requests(list(range(20, 58)), port=1003), *requests([19, 58], broker=2, port=1004, step_ms=3900)]
    assert gaps_in([*first, *second]).holes == {}


def test_number_that_a_client_counts_for_telemetry_and_does_not_send_is_no_lost_line() -> None:
    """KIP-714: brokers without a receiver do not offer the request, the client leaves its number out."""
    lines = requests([0, 1, 2, 4, 5, 6])
    missing = gaps_in(lines)
    assert missing.holes == {}
    assert missing.any_in(1, us(200), us(300))  # it may be a lost line all the same
    assert len(gaps_in(requests([0, 1, 2, 4, 6, 7])).holes[1]) == 2


def test_request_that_was_under_way_to_a_broker_that_died_is_no_lost_line_of_another() -> None:
    killed = requests(list(range(100, 110)), port=1001)
    other = requests([99, 112, 113], broker=2, port=1002, first_ms=-100, step_ms=2000)
    assert gaps_in([*killed, *other]).holes == {}


def test_connection_with_requests_of_several_clients_brings_forwarded_ones() -> None:
    own = requests([1, 3], client_id="3")
    forwarded = requests([7, 9], client_id="rdkafka", first_ms=50)
    assert gaps_in([*own, *forwarded]).holes == {}


def test_gap_on_a_fetching_connection_hides_no_append_but_shows_that_the_log_loses_lines() -> None:
    missing = gaps_in([*requests([1, 2, 4, 6], port=3000, **FOLLOWER), *requests([1, 2], port=4000)])
    assert missing.is_lossy(1, us(200))
    assert not missing.is_lossy(1, us(200) + 2 * NEAR_US)
    assert missing.any_in(1, us(101), us(5000))  # after the last produce of its connection
    assert not missing.any_in(1, us(0), us(90))


def test_one_gap_by_itself_does_not_show_that_the_log_loses_lines() -> None:
    missing = gaps_in([*requests([41, 42, 44], port=3000, **FOLLOWER), *requests([1, 2], port=4000)])
    assert len(missing.holes[1]) == 1
    assert not missing.is_lossy(1, us(200))
    assert not missing.any_in(1, us(101), us(5000))


def test_log_without_a_gap_has_lost_nothing_after_a_connection_s_last_line() -> None:
    assert not gaps_in(requests([1, 2, 3])).any_in(1, us(0), us(10**6))


def test_what_may_be_missing_after_a_connection_s_last_line_ends_where_its_client_comes_back() -> None:
    missing = gaps_in([*requests([41, 43, 45]), *requests([1, 2], port=1001, first_ms=1000)])
    assert missing.any_in(1, us(500), us(600))
    assert not missing.any_in(1, us(1020), us(1080))


def test_fetches_follow_each_other_where_no_number_is_missing_between_them() -> None:
    lines = requests([1, 2, 4, 6])
    missing = gaps_in(lines)
    assert not missing.any_between(lines[0], lines[1])
    assert missing.any_between(lines[1], lines[2])
    other = requests([1], port=2000, first_ms=400)[0]
    assert missing.any_between(lines[2], other)  # the log loses lines, and no number tells
    assert not gaps_in(lines[:2]).any_between(lines[1], other)


def test_lines_that_were_not_given_may_be_appends_but_show_no_gap_between_fetches() -> None:
    given = replace(MissingLines(), left_out={1: [Gap(us(100), us(200))]})
    assert given.any_in(1, us(150), us(160))
    assert not given.any_in(1, us(201), us(300))
    assert not given.any_between(*requests([1, 3]))


def heard(source: str, *seconds: int, lines: int = 10) -> list[Second]:
    return [(source, START_US + s * SECOND, START_US + s * SECOND + 900_000, lines) for s in seconds]


def states(rows: list[dict[str, Any]], source: str = REQUEST_LOG) -> list[tuple[str, int, int]]:
    """(state, from, to) in whole seconds."""
    return [
        (row["state"], (row["start_ts"] - START_US) // SECOND, (row["end_ts"] - START_US) // SECOND)
        for row in rows
        if row["source"] == source
    ]


SPAN = (START_US, START_US + 60 * SECOND)
NOTHING = MissingLines()


def test_broker_without_any_log_is_missing_for_the_whole_time() -> None:
    rows = windows_of(2, by_source(heard(MEMBER, 5)), NOTHING, SPAN)
    assert states(rows) == [("missing", 0, 60)]
    assert states(rows, SERVER_LOG) == [("missing", 0, 60)]
    assert {row["broker_id"] for row in rows} == {2}


def test_node_that_is_no_broker_has_no_request_log_to_miss() -> None:
    assert states(windows_of(0, by_source(heard(SERVER_LOG, *range(60))), NOTHING, SPAN)) == []


def test_silence_is_not_called_missing_where_nothing_shows_the_broker_at_work() -> None:
    spoke = heard(REQUEST_LOG, *range(10), *range(30, 60))
    rows = windows_of(1, by_source(spoke), NOTHING, SPAN)
    assert states(rows) == [("logged", 0, 9), ("silent", 9, 30), ("logged", 30, 59)]
    up = windows_of(1, by_source([*spoke, *heard(BY_OTHERS, 20)]), NOTHING, SPAN)
    (quiet,) = [row for row in up if row["state"] == "silent" and row["source"] == REQUEST_LOG]
    assert "other brokers received its fetches" in quiet["reason"]
    assert quiet["evidence"] == "unknown"


def test_silence_in_which_its_server_log_tells_of_fetches_is_missing() -> None:
    spoke = [*heard(REQUEST_LOG, *range(10), *range(30, 60)), *heard(BY_ITSELF, 20)]
    rows = windows_of(1, by_source(spoke), NOTHING, SPAN)
    assert [row["state"] for row in rows if row["source"] == REQUEST_LOG] == ["logged", "missing", "logged"]
    within = with_windows(NOTHING, rows)
    assert within.any_in(1, START_US + 15 * SECOND, START_US + 16 * SECOND)
    assert within.is_lossy(1, START_US + 15 * SECOND)
    assert not within.any_in(1, START_US + 31 * SECOND, START_US + 40 * SECOND)


@pytest.mark.parametrize(("numbers", "state"), [((1, 2, 9), "missing"), ((1, 2, 4), "silent")])
def test_silence_over_which_a_connection_s_numbers_go_on_is_missing(numbers: tuple[int, ...], state: str) -> None:
    """One number may be of a line lost just before it; several in a row are not."""
    lines = requests(list(numbers[:2])) + requests([numbers[2]], first_ms=30_000)
    spoke = heard(REQUEST_LOG, *range(10), *range(30, 60))
    rows = windows_of(1, by_source(spoke), gaps_in(lines), SPAN)
    assert state in {row["state"] for row in rows if row["source"] == REQUEST_LOG}
    assert ("missing" if state == "silent" else "silent") not in {
        r["state"] for r in rows if r["source"] == REQUEST_LOG
    }


def test_stretch_with_gaps_in_it_is_lossy_from_the_first_to_the_last() -> None:
    lines = requests([1, 2, 4, 5, 8, 9], first_ms=10_000, step_ms=1000)
    rows = windows_of(1, by_source(heard(REQUEST_LOG, *range(60))), gaps_in(lines), SPAN)
    mine = [row for row in rows if row["source"] == REQUEST_LOG]
    assert [(row["state"], row["lines_missing"]) for row in mine] == [("logged", None), ("lossy", 3), ("logged", None)]
    assert states(rows)[1] == ("lossy", 11, 14)
    assert sum(row["lines"] for row in mine) == 600
    assert all(a["end_ts"] <= b["start_ts"] for a, b in pairwise(mine))


def test_metadata_log_without_a_dump_is_missing() -> None:
    assert states(windows_of(None, by_source(heard(MEMBER, 1)), NOTHING, SPAN), METADATA) == [("missing", 0, 60)]
    there = windows_of(None, by_source(heard(METADATA, 10, 50)), NOTHING, SPAN)
    assert states(there, METADATA) == [("silent", 0, 10), ("logged", 10, 50), ("silent", 50, 60)]


def test_of_very_many_silences_the_longest_are_told_and_the_others_count_to_what_is_logged() -> None:
    pauses = [10 + (k % 7 == 0) for k in range(3 * MOST_SILENCES)]
    seconds = [0, *accumulate(pauses)]
    rows = windows_of(1, by_source(heard(REQUEST_LOG, *seconds)), NOTHING, (us(0), us(1000 * seconds[-1] + 500)))
    told = [row for row in rows if row["source"] == REQUEST_LOG]
    silent = [row["end_ts"] - row["start_ts"] for row in told if row["state"] == "silent"]
    assert len(silent) == MOST_SILENCES
    assert sum(length > 10 * SECOND for length in silent) == sum(pause == 11 for pause in pauses)
    assert sum(row["lines"] for row in told) == 10 * len(seconds)
    assert all(one["end_ts"] == other["start_ts"] for one, other in pairwise(told))


def test_days_of_lines_now_and_then_are_looked_through_once() -> None:
    begun = process_time()
    lines = heard(REQUEST_LOG, *range(0, 260_000, 13))
    signs = heard(BY_OTHERS, *range(6, 260_000, 1300))
    rows = windows_of(1, by_source([*lines, *signs]), NOTHING, (us(0), us(260_000_000)))
    assert process_time() - begun < 20  # by pairs it were hours
    assert sum(row["state"] == "silent" for row in rows if row["source"] == REQUEST_LOG) >= MOST_SILENCES
