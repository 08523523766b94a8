"""Clocks that were set back: by the order of a file's lines, not by what only looks like it."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from facts_builder import at

from replay.evidence.clock_steps import SET_BACK, steadied

STEP = 2000


def lines(stamps: list[float], *, file: str = "request.log", broker: int = 1) -> list[dict[str, object]]:
    """A broker's lines in the order of their file."""
    return [
        {"broker_id": broker, "source_file": file, "source_line": k, "ts": at(ms)} for k, ms in enumerate(stamps, 1)
    ]


def steady(told: list[dict[str, object]]) -> pa.Table:
    return steadied(pa.Table.from_pylist(told).cast(SCHEMA))


SCHEMA = pa.schema(
    [
        pa.field("broker_id", pa.int32()),
        pa.field("source_file", pa.string()),
        pa.field("source_line", pa.int64()),
        pa.field("ts", pa.timestamp("us", "UTC")),
    ]
)
BEFORE = [100.0 * k for k in range(100)]
STEPPED = [*BEFORE, *(BEFORE[-1] + 1 - STEP + 100 * k for k in range(1, 100))]


def test_lines_of_a_clock_that_was_set_back_stand_in_the_order_of_their_file() -> None:
    found = steady(lines(STEPPED))
    stamps = found["ts"].cast(pa.int64()).to_pylist()
    assert all(one <= other for one, other in pairwise(stamps))
    assert (
        stamps[100:] == pa.array([at(ms) for ms in STEPPED[100:]], SCHEMA.field("ts").type).cast(pa.int64()).to_pylist()
    )
    assert set(found[SET_BACK].to_pylist()[:100]) == {(STEP - 101) * 1000}


def test_another_file_of_the_broker_is_on_the_same_clock() -> None:
    found = steady(lines(STEPPED) + lines([5000.0, 12_000.0], file="server.log") + lines([5000.0], broker=2))
    assert [back > 0 for back in found[SET_BACK].to_pylist()[-3:]] == [True, False, False]


@pytest.mark.parametrize(
    "stamps",
    [
        [*BEFORE, 16_000.0, *BEFORE[-3:], 16_010.0, 16_020.0],  # threads that a standstill held up before they wrote
        [*(100_000 + ms for ms in BEFORE), *BEFORE, *(110_000 + ms for ms in BEFORE)],  # files in the wrong order
        BEFORE,
    ],
)
def test_what_only_looks_like_a_clock_set_back_is_left_as_it_is(stamps: list[float]) -> None:
    told = lines(stamps)
    assert steady(told) == pa.Table.from_pylist(told).cast(SCHEMA)
