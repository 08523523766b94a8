"""Standstills of brokers: the same by pieces of lines as by looking at line after line."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from silent_lines import lines_of

from replay.evidence.broker_pauses import DUE_PARTS, PARTS, STANDSTILL_US
from replay.evidence.choices import Choice
from replay.evidence.standstills import (
    PIECE_SCHEMA,
    are_woken,
    by_broker,
    pieces_together,
    silences_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from silent_lines import Line


def standstills_of(lines: Iterable[Line]) -> list[tuple[int, int]]:
    """Gaps of at least `STANDSTILL_US` in a broker's sorted lines where one was due."""
    out = []
    before: int | None = None
    parts: set[int] = set()  # in which requests were answered
    for stamp, error, asked in lines:
        if before is not None and stamp - before >= STANDSTILL_US:
            since = (before // STANDSTILL_US - 1) * PARTS
            if sum(part >= since for part in parts) >= DUE_PARTS:
                out.append((before, stamp + error))
        if asked:
            parts = {part for part in parts if part > stamp * PARTS // STANDSTILL_US - 3 * PARTS}
            parts.add(stamp * PARTS // STANDSTILL_US)
        before = stamp
    return out


def one_by_one(lines: list[Line]) -> pa.Table:
    rows = [(1, at, at + error, at, asked) for at, error, asked in lines]
    return pa.Table.from_pylist([dict(zip(PIECE_SCHEMA.names, row, strict=True)) for row in rows], schema=PIECE_SCHEMA)


@pytest.mark.parametrize("seed", range(20))
def test_standstills_are_between_neighbouring_lines_where_lines_were_due(seed: int) -> None:
    lines = sorted(lines_of(seed))
    expected = standstills_of(lines)
    assert 0 < len(expected) < sum(after[0] - before[0] >= STANDSTILL_US for before, after in pairwise(lines))
    each = one_by_one(lines[::-1])
    assert len(pieces_together(each)) < len(each)
    for pieces in (each, pieces_together(each)):
        found, begins = by_broker(silences_of(pieces))
        assert found[1] == expected
        assert begins == {1: lines[0][0] + lines[0][1]}


def test_a_standstill_wakes_no_connection_of_another_broker() -> None:
    silences = pa.table({"broker_id": [1], "before": [10**7], "first": [2 * 10**7], "after": [2 * 10**7]})
    produces = pa.table(
        {
            "broker_id": [1, 2],
            "connection": ["a", "b"],
            "ts": pa.array([2 * 10**7] * 2, pa.timestamp("us", "UTC")),
            "ts_error_us": pa.nulls(2, pa.int64()),
            "total_us": pa.nulls(2, pa.int64()),
        }
    )
    assert are_woken(produces, silences).tolist() == [True, False]


def test_a_choice_is_the_same_in_sql() -> None:
    choice = Choice(kinds=("fetch", "produce"), filled=("connection",), empty=("metadata_offset",))
    assert choice.sql == "connection IS NOT NULL AND metadata_offset IS NULL AND kind IN ('fetch', 'produce')"
    facts = pa.table(
        {"kind": ["fetch", "fetch", "api"], "connection": ["a", None, "a"], "metadata_offset": pa.nulls(3)}
    )
    assert choice.of(facts).to_pylist() == facts.slice(0, 1).to_pylist()
