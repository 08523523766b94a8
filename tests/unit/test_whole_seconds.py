"""Between when a line was written whose stamp is a whole second."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from pipelines.lines.whole_seconds import SECOND, Bounds, Waiting, Written

if TYPE_CHECKING:
    from collections.abc import Iterable


def bounds(lines: Iterable[Written | None], texts: str | None = None) -> list[tuple[int, int]]:
    gathered, out = Bounds(), []
    for k, written in enumerate(lines):
        out += gathered.add(Waiting(f"{k}" if texts is None else texts[k], None, k, 0), written)
    out += gathered.settle()
    assert [settled.item.line for settled in out] == list(range(len(out)))
    return [(settled.earliest, settled.latest) for settled in out]


def second(k: int, connection: str | None = None, spent: int = 0) -> Written:
    return Written(k * SECOND, (k + 1) * SECOND - 1, connection, spent)


def test_a_requests_duration_keeps_its_line_apart_from_the_one_before() -> None:
    found = bounds([second(0, "c", 0), second(0, "c", 300_000), second(0, "d", 0), second(0, "c", 500_000)])
    assert found == [(0, 199_999), (300_000, 499_999), (300_000, 999_999), (800_000, 999_999)]


def test_an_exact_stamp_bounds_its_neighbours() -> None:
    assert bounds([second(0), Written(400_000, 400_000), second(0)]) == [
        (0, 400_000),
        (400_000, 400_000),
        (400_000, 999_999),
    ]


def test_where_time_goes_back_the_order_starts_anew() -> None:
    assert bounds([second(9), second(3), second(4)]) == [
        (9_000_000, 9_999_999),
        (3_000_000, 3_999_999),
        (4_000_000, 4_999_999),
    ]


def test_a_duration_that_cannot_be_is_left_aside() -> None:
    assert bounds([second(0, "c"), second(0, "c", 5_000_000)]) == [(0, 999_999), (0, 999_999)]


def test_a_line_said_twice_takes_no_time() -> None:
    once = second(0, "c", 600_000)
    assert bounds([second(0, "c"), once, once], "abb") == [(0, 399_999), (600_000, 999_999), (600_000, 999_999)]


@pytest.mark.parametrize("seed", range(20))
def test_bounds_hold_the_true_times_of_any_stream(seed: int) -> None:
    chance, now, true, lines = random.Random(seed), 0, [], []  # noqa: S311 - a test's choice, not a secret
    answered: dict[str, int] = {}
    for _ in range(400):
        now += chance.choice([0, 1000, 30_000, 700_000])
        true.append(now)
        connection = chance.choice(["a", "b", "c", None])
        spent = 0
        if connection is not None:
            spent = round(chance.random() * (now - answered.get(connection, now)))
            answered[connection] = now
        lines.append(second(now // SECOND, connection, spent))
    found = bounds(lines)
    assert all(lo <= at <= hi for at, (lo, hi) in zip(true, found, strict=True))
    assert [lo for lo, _ in found] == sorted(lo for lo, _ in found)
