"""Gaps in clients' numbers are the same whether all requests are looked at together or in pieces."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hourly_runs import lines
from test_counted_requests import Sent, sent_by, told

from replay.evidence import request_runs
from replay.evidence.client_gaps import NUMBERS, gaps_in
from replay.evidence.client_requests import PLACE_SCHEMA
from replay.evidence.request_runs import gaps_in_pieces

if TYPE_CHECKING:
    from collections.abc import Iterable

NONE_SHARED = PLACE_SCHEMA.empty_table()


def pieces_of(sent: list[Sent], chosen: Random) -> list[pa.Table]:
    """The requests in some pieces, each in an order of its own, and some of them in two."""
    count = chosen.randrange(1, 6)
    places: list[list[int]] = [[] for _ in range(count)]
    for k in range(len(sent)):
        for _ in range(1 + (chosen.random() < 0.1)):
            places[k * count // len(sent) if chosen.random() < 0.7 else chosen.randrange(count)].append(k)
    for mine in places:
        chosen.shuffle(mine)
    return [with_fetches(told([sent[k] for k in mine])) for mine in places]


def with_fetches(requests: pa.Table) -> pa.Table:
    """The requests, of which one in four fetches."""
    return changed(requests, "fetches", pc.equal(pc.bit_wise_and(requests["correlation_id"], 3), 0))


@pytest.mark.parametrize("seed", range(60))
def test_gaps_and_ends_are_those_of_all_requests_together(seed: int) -> None:
    chosen = Random(seed)  # noqa: S311 - nothing secret
    sent = sent_by(chosen, across=seed % 3 == 0, lives=1 + seed % 2)
    others = [one._replace(client_id="till") for one in sent_by(chosen, across=False, lives=1, port=5000)]
    lacking = [one for one in sent if seed % 4 or chosen.random() < 0.98]
    pieces = pieces_of([*lacking, *others], chosen)
    shared = pieces[0].select(PLACE_SCHEMA.names).cast(PLACE_SCHEMA)[:1] if seed % 5 == 0 else NONE_SHARED
    assert lines(gaps_in_pieces(partial(iter, pieces), shared)) == lines(gaps_in(pa.concat_tables(pieces), shared))


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("tells_in", ["no piece", "one piece", "the other host's"])
def test_of_a_client_whose_numbers_prove_nothing_the_ends_are_told(seed: int, tells_in: str) -> None:
    chosen = Random(seed)  # noqa: S311 - nothing secret
    sent = [one for one in sent_by(chosen, across=seed % 2 == 0, lives=1 + seed % 2) if chosen.random() < 0.6]
    if seed % 4 == 3:  # it counts on from the least number after the greatest
        sent = [
            one._replace(correlation_id=(one.correlation_id + NUMBERS - 20) % NUMBERS - NUMBERS // 2) for one in sent
        ]
    pieces = [as_consumer(piece) for piece in pieces_of(sent, chosen)]
    if tells_in == "one piece":
        told_of = chosen.randrange(len(pieces))
        pieces[told_of] = changed(pieces[told_of], "unkept", pa.repeat(pa.scalar(value=True), len(pieces[told_of])))
    elif tells_in == "the other host's":
        elsewhere = [one._replace(connection=one.connection.replace("10.0.0", "10.0.9")) for one in sent]
        pieces += pieces_of(elsewhere, chosen)
    found, every = gaps_in_pieces(partial(iter, pieces), NONE_SHARED), gaps_in(pa.concat_tables(pieces), NONE_SHARED)
    assert lines(found) == lines(every)
    if tells_in == "no piece":
        assert not pc.any(pc.greater(found["lines"], 0)).as_py()


def changed(requests: pa.Table, name: str, values: pa.Array) -> pa.Table:
    """The requests with other values of a column."""
    return requests.set_column(requests.schema.get_field_index(name), requests.schema.field(name), values)


def as_consumer(requests: pa.Table) -> pa.Table:
    """The requests as fetches of a consumer whose log is filtered."""
    none = pa.repeat(pa.scalar(value=False), len(requests))
    for name in ("replicates", "appends", "unkept"):
        requests = changed(requests, name, none)
    return changed(requests, "fetches", pc.invert(none))


def test_of_a_client_without_a_gap_requests_are_never_together(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def noted(requests: pa.Table, shared: pa.Table) -> pa.Table:
        seen.extend(pc.unique(requests["client_id"]).to_pylist())
        return gaps_in(requests, shared)

    monkeypatch.setattr(request_runs, "gaps_in", noted)
    whole = sent_by(Random(1), across=False, lives=1)  # noqa: S311 - nothing secret
    across = [one._replace(client_id="till") for one in sent_by(Random(2), across=True, lives=1, port=5000)]  # noqa: S311
    pieces = pieces_of([*whole, *across], Random(3))  # noqa: S311
    asked: list[int] = []

    def again() -> Iterable[pa.Table]:
        asked.append(1)
        return iter(pieces)

    found = gaps_in_pieces(again, NONE_SHARED)
    assert seen == ["till"]
    assert len(asked) == 2
    assert len(found) == 6
