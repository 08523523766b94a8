"""A client's gaps, found in its last requests and in what is known of those before."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from replay.evidence import counted_requests, later_gaps
from replay.evidence.client_gaps import gaps_in
from replay.evidence.client_requests import PLACE_SCHEMA, REQUEST_SCHEMA
from replay.evidence.counted_requests import Counted, counted
from replay.evidence.steady import NeedsAllError

if TYPE_CHECKING:
    from collections.abc import Callable

SECOND_US = 1_000_000
END_US = 1_000 * SECOND_US
NONE_SHARED = PLACE_SCHEMA.empty_table()


class Sent(NamedTuple):
    """A request of a client."""

    client_id: str
    connection: str
    broker_id: int
    correlation_id: int
    taken_us: int
    done_us: int  # when its line was written


def sent_by(random: Random, *, across: bool, lives: int, port: int = 1000) -> list[Sent]:
    """What a client sends to three brokers, now and then after long silences; each life begins to count anew."""
    found, at = [], random.randrange(SECOND_US)
    for life in range(lives):
        counters, until = [0, 0, 0], END_US * (life + 1) // lives
        answered: list[list[int]] = [[-END_US], [-END_US], [-END_US]]
        while at < until:
            broker = random.randrange(3)
            number = sum(counters) if across else counters[broker]
            counters[broker] += 1
            at = max([at, *answered[broker][-5:-4]])  # no sixth request is under way
            taken = max(at, answered[broker][-1] + 1)  # a broker takes up one after the other
            done = taken + random.choice([500, 5_000, 500_000, 500_000, 3 * SECOND_US])
            answered[broker].append(done)
            place = f"b{broker}:9092-10.0.0.7:{port + broker}-0-0"
            found.append(Sent("shop", place, broker, number, taken, done))
            at += random.choice([1_000, 20_000, 400_000, SECOND_US, 9 * SECOND_US])
        at, port = max(at, *(one[-1] for one in answered)) + SECOND_US, port + 3
    return found


def told(sent: list[Sent]) -> pa.Table:
    """The requests as their logs tell them."""
    columns = {name: [getattr(one, name) for one in sent] for name in Sent._fields[:-1]}
    traits = {"fetches": False, "replicates": False, "appends": True, "unkept": False}
    columns |= {name: [value] * len(sent) for name, value in traits.items()}
    return pa.table([pa.array(columns[one.name], one.type) for one in REQUEST_SCHEMA], schema=REQUEST_SCHEMA)


def without(sent: list[Sent], which: Callable[[Sent], bool]) -> list[Sent]:
    """The requests but for some, which the client counts and does not send."""
    return [one for one in sent if not which(one)]


def gaps(sent: list[Sent]) -> list[dict[str, Any]]:
    """The gaps that are found by looking at all requests."""
    return rows_of(gaps_in(told(sent), NONE_SHARED))


def rows_of(found: pa.Table, *, ends: bool = False) -> list[dict[str, Any]]:
    """Gaps, or ends of connections, in order."""
    are_ends = pc.equal(found["lines"], 0)
    return sorted(found.filter(are_ends if ends else pc.invert(are_ends)).to_pylist(), key=str)


def with_later(before: Counted, requests: pa.Table) -> Counted:
    """What is told in short, and the requests since."""
    return before._replace(kept=pa.concat_tables([before.kept, requests]))


def in_short(sent: list[Sent]) -> Counted:
    """What is told in short of all that a client has sent, which is not under way any more."""
    return counted(Counted.of(told(sent)), NONE_SHARED, 10 * END_US)


class Run(NamedTuple):
    """A run that looked at what is new: the gaps that it found, those that there are, how many requests it kept."""

    found: list[dict[str, Any]] | None
    are: list[dict[str, Any]]
    kept: int
    settled: int  # gaps between requests of which none was kept
    ends_found: list[dict[str, Any]] | None
    ends_are: list[dict[str, Any]]


def runs_over(sent: list[Sent], random: Random) -> list[Run]:
    """Runs at random moments, each of which goes on from what the last one kept of what was done well before it."""
    runs, nothing, begin = [], Counted.of(REQUEST_SCHEMA.empty_table()), 0
    before = nothing
    for cut in [*sorted(random.sample(range(END_US), 9)), END_US + 10 * SECOND_US]:
        new = told([one for one in sent if begin <= one.done_us < cut])
        found = with_later(before, new).found(NONE_SHARED)
        are = gaps_in(told([one for one in sent if one.done_us < cut]), NONE_SHARED)
        every = ((None if found is None else rows_of(found, ends=k), rows_of(are, ends=k)) for k in (False, True))
        runs.append(Run(*next(every), len(before.kept), len(before.gaps), *next(every)))
        if found is None:  # then all requests are looked at again
            before, begin = nothing, 0
        horizon = max(cut - random.choice([0, SECOND_US, 20 * SECOND_US]), begin)
        early = told([one for one in sent if begin <= one.done_us < horizon])
        try:
            before = counted(with_later(before, early), NONE_SHARED, horizon)
        except NeedsAllError:
            before, begin = nothing, 0
        else:
            begin = horizon
    return runs


@pytest.mark.parametrize("counts", ["across", "apart"])
@pytest.mark.parametrize("lives", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_a_client_of_which_nothing_is_missing_needs_its_last_requests_only(seed: int, lives: int, counts: str) -> None:
    random = Random(seed)  # noqa: S311 - nothing secret
    sent = sent_by(random, across=counts == "across", lives=lives)
    # What is under way as a recording begins, or as a life ends, may look like a gap; it is not what is asked here.
    found = [run for run in runs_over(sent, random) if not run.are]
    assert len(found) > 1
    assert all(run.found == [] for run in found)
    assert max(run.kept for run in found) < len(sent) // 3


@pytest.mark.parametrize("seed", range(8))
def test_of_a_client_that_left_out_some_numbers_the_gaps_are_handed_on(seed: int) -> None:
    """It counted requests for telemetry and did not send them, and it lost a broker while requests were under way."""
    random = Random(100 + seed)  # noqa: S311 - nothing secret
    sent = sent_by(random, across=True, lives=1)
    numbers = [one.correlation_id for one in sent if one.broker_id == 2 and one.taken_us < END_US // 2]
    sent = without(sent, lambda one: one.correlation_id == 7)  # telemetry
    sent = without(sent, lambda one: one.broker_id == 2 and one.correlation_id >= numbers[-2])  # it died
    runs = runs_over(sent, random)
    assert all(run.found == run.are for run in runs if run.found is not None)
    assert sum(run.found is None for run in runs) < 4
    assert runs[-1].settled
    assert runs[-1].kept < len(sent) // 3


@pytest.mark.parametrize("seed", range(30))
def test_of_a_client_that_counts_on_each_connection_the_gaps_are_handed_on(seed: int) -> None:
    """Its logs have lost lines: some by themselves, and perhaps all of one broker's for some time."""
    random = Random(3000 + seed)  # noqa: S311 - nothing secret
    sent = sent_by(random, across=False, lives=random.choice([1, 1, 2]))
    rate = random.choice([0, 0.01, 0.1])
    since = random.randrange(END_US)
    until = since + random.choice([0, 5, 100]) * SECOND_US
    sent = without(sent, lambda one: random.random() < rate or (one.broker_id == 1 and since <= one.done_us < until))
    runs = runs_over(sent, random)
    found = [run for run in runs if run.found is not None]
    assert all(run.found == run.are and run.ends_found == run.ends_are for run in found)
    assert len(found) > len(runs) // 2
    assert min(run.kept for run in runs[3:]) < len(sent) // 3
    assert not any(run.are for run in runs) or max(run.settled for run in runs)


@pytest.mark.parametrize("seed", range(60))
def test_gaps_that_are_found_are_those_of_all_requests(seed: int) -> None:
    random = Random(1000 + seed)  # noqa: S311 - nothing secret
    sent = [
        one
        for port in range(1000, 1000 * random.choice([2, 2, 3]), 1000)  # perhaps a second client of that name
        for one in sent_by(random, across=random.random() < 0.6, lives=random.choice([1, 2]), port=port)
    ]
    for _ in range(random.choice([0, 1, 3, 30])):
        del sent[random.randrange(len(sent))]
    if random.random() < 0.5:
        sent = without(sent, lambda one: one.correlation_id == 5)
    # A client that sends long enough counts on from the least of all 32-bit numbers.
    first = random.choice([0, 0, -(2**31), 2**31 - 100])
    sent = [one._replace(correlation_id=(one.correlation_id + first + 2**31) % 2**32 - 2**31) for one in sent]
    found = [run for run in runs_over(sent, random) if run.found is not None]
    assert found
    assert all(run.found == run.are and run.ends_found == run.ends_are for run in found)


def test_a_request_that_is_missing_is_found_though_those_before_are_not_looked_at() -> None:
    sent = sent_by(Random(3), across=True, lives=1)  # noqa: S311 - nothing secret
    whole = [one for one in sent if one.done_us < 500 * SECOND_US]
    before = counted(Counted.of(told(whole)), NONE_SHARED, 500 * SECOND_US)
    later = [one for one in sent if one.done_us >= 500 * SECOND_US]
    assert len(before.kept) < len(whole) // 4
    every = with_later(before, told(later))
    found = every.found(NONE_SHARED)
    assert found is not None
    assert not rows_of(found)
    lost = next(one for one in later if one.taken_us > 700 * SECOND_US)
    rest = without(later, lambda one: one == lost)
    found = with_later(before, told(rest)).found(NONE_SHARED)
    assert found is not None
    assert rows_of(found) == gaps(without(sent, lambda one: one == lost))
    assert {row["lost"] for row in rows_of(found)} == {1}  # on each connection that went on
    # Nor is it taken for granted if a connection turns out to carry requests of several clients.
    shared = pa.table({"broker_id": [lost.broker_id], "connection": [lost.connection]}, schema=PLACE_SCHEMA)
    assert every.found(shared) is None


def test_of_a_client_whose_numbers_prove_nothing_no_request_is_kept() -> None:
    """A consumer's, in a filtered log; that it is filtered may turn out to be wrong later."""
    fetches = {"fetches": True, "replicates": False, "appends": False, "unkept": False}
    sent = told(sent_by(Random(5), across=True, lives=2)[::2])  # noqa: S311 - nothing secret
    places = {name: sent.schema.get_field_index(name) for name in fetches}
    for name, value in fetches.items():
        sent = sent.set_column(places[name], REQUEST_SCHEMA.field(name), pa.array([value] * len(sent)))
    early, later = sent.slice(0, len(sent) // 2), sent.slice(len(sent) // 2)
    before = counted(Counted.of(early), NONE_SHARED, END_US)
    assert [len(part) for part in before] == [3, 0, 0]  # when each connection was used
    found = before._replace(kept=later).found(NONE_SHARED)
    assert found is not None
    assert not rows_of(found)
    assert rows_of(found, ends=True) == rows_of(gaps_in(sent, NONE_SHARED), ends=True)
    after = counted(before._replace(kept=later), NONE_SHARED, 2 * END_US)
    at_once = counted(Counted.of(sent), NONE_SHARED, 2 * END_US)
    assert sorted(after.counters.to_pylist(), key=str) == sorted(at_once.counters.to_pylist(), key=str)
    assert not len(after.kept)
    heartbeat = later.set_column(places["unkept"], REQUEST_SCHEMA.field("unkept"), pa.array([True] * len(later)))
    assert before._replace(kept=heartbeat).found(NONE_SHARED) is None
    with pytest.raises(NeedsAllError):
        counted(before._replace(kept=heartbeat), NONE_SHARED, 2 * END_US)


def test_numbers_of_before_make_all_requests_be_looked_at_again() -> None:
    sent = sent_by(Random(4), across=True, lives=1)  # noqa: S311 - nothing secret
    before = in_short(sent)
    again = sent[len(sent) // 2]._replace(taken_us=END_US + 1)
    assert with_later(before, told([again])).found(NONE_SHARED) is None
    assert np.all(before.counters["until"].to_numpy() >= again.correlation_id)


def on_one(port: int, broker: int, numbers: range, since: int) -> list[Sent]:
    """Requests on one connection, ten a second."""
    place = f"b{broker}:9092-10.0.0.7:{port}-0-0"
    every = enumerate(numbers)
    return [Sent("shop", place, broker, one, since + k * 100_000, since + k * 100_000 + 500) for k, one in every]


def test_a_late_line_of_an_earlier_life_makes_all_requests_be_looked_at_again() -> None:
    """It was taken up before the client started again, on a connection that has no other line."""
    first = without(on_one(1000, 1, range(1_000), 0), lambda one: one.correlation_id == 500)
    before = in_short([*first, *on_one(2000, 1, range(100), 200 * SECOND_US)])
    assert before.gaps.select(["correlation_id", "lines", "missing"]).to_pylist() == [
        {"correlation_id": 499, "lines": 1, "missing": None}
    ]
    late = on_one(1001, 2, range(500, 501), 50 * SECOND_US)
    assert before._replace(kept=told(late)).found(NONE_SHARED) is None
    later = on_one(2000, 1, range(100, 110), 300 * SECOND_US)
    found = before._replace(kept=told(later)).found(NONE_SHARED)
    assert found is not None
    assert [row["lost"] for row in rows_of(found)] == [1]


def test_a_number_that_a_connection_without_a_counter_of_its_own_may_have_sent_is_not_told() -> None:
    """Of two connections that share no number it is not known whether each counts by itself."""
    apart = [*on_one(1000, 1, range(1_000), 0), *on_one(1001, 2, range(1_000), 50_000)]
    before = in_short(apart)
    assert before.counters["across"].to_pylist() == [False, False]
    since = 150 * SECOND_US
    later = without(on_one(1000, 1, range(1_000, 1_100), since), lambda one: one.correlation_id == 1_050)
    found = with_later(before, told(later)).found(NONE_SHARED)
    assert found is not None
    assert [row["lost"] for row in rows_of(found)] == [1]
    opened = on_one(1002, 3, range(1_050, 1_051), since + 50 * 100_000)
    assert with_later(before, told([*later, *opened])).found(NONE_SHARED) is None
    opened = on_one(1002, 3, range(1_049, 1_051), since + 49 * 100_000)  # it shares a number, so it has its own counter
    every = [*later, *opened]
    found = with_later(before, told(every)).found(NONE_SHARED)
    assert found is not None
    assert rows_of(found) == gaps([*apart, *every])
    # Nor is it later, if a number of before comes again: its request may have been under way all the time.
    after = counted(with_later(before, told(later)), NONE_SHARED, 10 * END_US)
    assert after.gaps["missing"].to_pylist() == [None]
    slow = on_one(1003, 3, range(1_050, 1_051), since + 51 * 100_000)
    assert with_later(after, told(slow)).found(NONE_SHARED) is None


def test_how_much_is_handed_on_of_missing_numbers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted_requests, "MOST_GAPS", 2)
    monkeypatch.setattr(later_gaps, "MOST_ABSENT", 3)
    monkeypatch.setattr(counted_requests, "MOST_ABSENT", 3)
    idle, busy = on_one(1000, 1, range(10), 0), on_one(1001, 2, range(10, 5_000), SECOND_US)
    # Of a connection since whose last request many numbers are missing it is not told which.
    before = in_short(without([*idle, *busy], lambda one: one.correlation_id % 500 in {1, 2} and one.broker_id == 2))
    assert not len(before.counters)  # too many gaps
    assert len(before.kept) == 10 + 4_990 - 18
    before = in_short(without([*idle, *busy], lambda one: one.correlation_id in {100, 101, 200, 201}))
    assert before.counters.sort_by("broker_id")["absent"].to_pylist() == [None, []]
    again = before._replace(kept=told(on_one(1000, 1, range(5_000, 5_001), 600 * SECOND_US)))
    assert again.found(NONE_SHARED) is None
    with pytest.raises(NeedsAllError):
        counted(again, NONE_SHARED, END_US)
    third = without(on_one(1001, 2, range(5_000, 5_100), 600 * SECOND_US), lambda one: one.correlation_id == 5_050)
    with pytest.raises(NeedsAllError):
        counted(before._replace(kept=told(third)), NONE_SHARED, END_US)


def test_each_of_many_numbers_that_are_left_out_is_found() -> None:
    sent = on_one(1000, 1, range(40_000), 0)
    before = in_short(sent[:20_000])
    later = without(sent[20_000:], lambda one: one.correlation_id % 50 == 0)
    found = before._replace(kept=told(later)).found(NONE_SHARED)
    assert found is not None
    assert len(rows_of(found)) == 400
