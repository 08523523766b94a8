"""Whether any client's request is missing, told from its last requests and from what is known of those before."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from replay.evidence.client_requests import PLACE_SCHEMA, REQUEST_SCHEMA
from replay.evidence.counted_requests import COUNTER_SCHEMA, counted, is_nothing_missing
from replay.evidence.missing_lines import gaps_in
from replay.evidence.steady import NeedsAllError

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


def is_whole(sent: list[Sent]) -> bool:
    """Whether no request is missing, by looking at all of them."""
    return not pc.any(pc.greater(gaps_in(told(sent), NONE_SHARED)["lines"], 0)).as_py()


class Run(NamedTuple):
    """A run that looked at what is new: what it said, what is so, and how many requests it kept."""

    said: bool
    is_so: bool
    kept: int


def runs_over(sent: list[Sent], random: Random) -> list[Run]:
    """Runs at random moments, each of which goes on from what the last one kept of what was done well before it."""
    found, counters, kept, begin = [], COUNTER_SCHEMA.empty_table(), REQUEST_SCHEMA.empty_table(), 0
    for cut in [*sorted(random.sample(range(END_US), 9)), END_US + 10 * SECOND_US]:
        some = pa.concat_tables([kept, told([one for one in sent if begin <= one.done_us < cut])])
        said = is_nothing_missing(counters, some, NONE_SHARED)
        is_so = is_whole([one for one in sent if one.done_us < cut])
        found.append(Run(said, is_so, len(kept)))
        if not is_so:
            return found
        if not said:  # then all requests are looked at again
            counters, kept, begin = COUNTER_SCHEMA.empty_table(), REQUEST_SCHEMA.empty_table(), 0
        horizon = max(cut - random.choice([0, SECOND_US, 20 * SECOND_US]), begin)
        early = pa.concat_tables([kept, told([one for one in sent if begin <= one.done_us < horizon])])
        counters, kept = counted(counters, early, NONE_SHARED, horizon)
        begin = horizon
    return found


@pytest.mark.parametrize("counts", ["across", "apart"])
@pytest.mark.parametrize("lives", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_a_client_of_which_nothing_is_missing_needs_its_last_requests_only(seed: int, lives: int, counts: str) -> None:
    random = Random(seed)  # noqa: S311 - nothing secret
    sent = sent_by(random, across=counts == "across", lives=lives)
    # What is under way as a recording begins, or as a life ends, may look like a gap; it is not what is asked here.
    found = [run for run in runs_over(sent, random) if run.is_so]
    assert len(found) > 1
    assert all(run.said for run in found)
    assert max(run.kept for run in found) < len(sent) // 3


@pytest.mark.parametrize("seed", range(40))
def test_it_is_never_said_that_nothing_is_missing_where_something_is(seed: int) -> None:
    random = Random(1000 + seed)  # noqa: S311 - nothing secret
    sent = [
        one
        for port in range(1000, 1000 * random.choice([2, 2, 3]), 1000)  # perhaps a second client of that name
        for one in sent_by(random, across=random.random() < 0.6, lives=random.choice([1, 2]), port=port)
    ]
    for _ in range(random.choice([0, 1, 3])):
        del sent[random.randrange(len(sent))]
    assert all(run.is_so for run in runs_over(sent, random) if run.said)


def test_a_request_that_is_missing_is_found_though_those_before_are_not_looked_at() -> None:
    sent = sent_by(Random(3), across=True, lives=1)  # noqa: S311 - nothing secret
    whole = [one for one in sent if one.done_us < 500 * SECOND_US]
    counters, kept = counted(COUNTER_SCHEMA.empty_table(), told(whole), NONE_SHARED, 500 * SECOND_US)
    later = [one for one in sent if one.done_us >= 500 * SECOND_US]
    assert len(kept) < len(whole) // 4
    assert is_nothing_missing(counters, pa.concat_tables([kept, told(later)]), NONE_SHARED)
    lost = next(one for one in later if one.taken_us > 700 * SECOND_US)
    rest = [one for one in later if one != lost]
    assert not is_nothing_missing(counters, pa.concat_tables([kept, told(rest)]), NONE_SHARED)
    # Nor is it taken for granted if a connection turns out to carry requests of several clients.
    shared = pa.table({"broker_id": [lost.broker_id], "connection": [lost.connection]}, schema=PLACE_SCHEMA)
    assert not is_nothing_missing(counters, pa.concat_tables([kept, told(later)]), shared)


def test_of_a_client_whose_numbers_prove_nothing_no_request_is_kept() -> None:
    """A consumer's, in a filtered log; that it is filtered may turn out to be wrong later."""
    fetches = {"fetches": True, "replicates": False, "appends": False, "unkept": False}
    sent = told(sent_by(Random(5), across=True, lives=2)[::2])  # noqa: S311 - nothing secret
    places = {name: sent.schema.get_field_index(name) for name in fetches}
    for name, value in fetches.items():
        sent = sent.set_column(places[name], REQUEST_SCHEMA.field(name), pa.array([value] * len(sent)))
    early, later = sent.slice(0, len(sent) // 2), sent.slice(len(sent) // 2)
    counters, kept = counted(COUNTER_SCHEMA.empty_table(), early, NONE_SHARED, END_US)
    assert (len(counters), len(kept)) == (1, 0)
    assert is_nothing_missing(counters, later, NONE_SHARED)
    assert counted(counters, later, NONE_SHARED, 2 * END_US).counters.equals(counters)
    heartbeat = later.set_column(places["unkept"], REQUEST_SCHEMA.field("unkept"), pa.array([True] * len(later)))
    assert not is_nothing_missing(counters, heartbeat, NONE_SHARED)
    with pytest.raises(NeedsAllError):
        counted(counters, heartbeat, NONE_SHARED, 2 * END_US)


def test_numbers_of_before_make_all_requests_be_looked_at_again() -> None:
    sent = sent_by(Random(4), across=True, lives=1)  # noqa: S311 - nothing secret
    counters, kept = counted(COUNTER_SCHEMA.empty_table(), told(sent), NONE_SHARED, END_US)
    again = sent[len(sent) // 2]._replace(taken_us=END_US + 1)
    assert not is_nothing_missing(counters, pa.concat_tables([kept, told([again])]), NONE_SHARED)
    assert np.all(counters["until"].to_numpy() >= again.correlation_id)
