"""What runs by workers hand on: later ones read what is new, and write what one run over everything writes."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hourly_runs import steps_of
from made_recording import MadeCluster
from made_shape import Shape
from short_times import shorten
from test_carried import in_steps_as_at_once
from test_hourly_runs import facts_of, make_what_one_run_makes, went_on
from worker_runs import WorkerRuns

from pipelines.stages import handing_on, spilled_facts, stretches
from pipelines.stages.carried import FEW_ROWS, MOST_ROWS, SHARE, most_rows
from pipelines.stages.handing_on import horizon_of, long_ones
from pipelines.warehouse import later
from replay.evidence import steady_times
from replay.evidence.steady import Alone, LeftOut
from replay.evidence.steady_times import Hole

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["went_on"]

MINUTE_US = 100_000  # here


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch, went_on: list[bool]) -> list[bool]:
    """Seconds stand for minutes; whether each order of a partition that was not new went on from a mark."""
    shorten(monkeypatch, handing_on, stretches, spilled_facts)
    for module in (handing_on, later):
        monkeypatch.setattr(module, "MINUTE_US", MINUTE_US)
    monkeypatch.setattr(handing_on, "ROWS", 700)
    monkeypatch.setattr(handing_on, "LONG", 1)
    monkeypatch.setattr(handing_on, "WHOLE_ROWS", 0)
    return went_on


@pytest.mark.parametrize(("seed", "elections", "late"), [(1, 0, 0.0), (2, 1, 0.0), (3, 0, 0.0005), (4, 0, 0.0)])
def test_workers_find_in_what_is_new_what_one_run_finds_in_everything(
    tmp_path: Path, seconds: list[bool], seed: int, elections: int, late: float
) -> None:
    stepwise = WorkerRuns()
    facts = in_steps_as_at_once(tmp_path, stepwise, seed, elections, late)
    if not (elections or late):
        assert stepwise.lean
        assert any(seconds)
        assert max(stepwise.read[-2:]) < facts * 2 // 3


def test_a_partition_too_long_for_memory_goes_on_from_what_was_handed_on(
    tmp_path: Path, seconds: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"WINDOW_FACTS": 100, "AT_ONCE": 400, "FEWEST": 1_100}.items():
        monkeypatch.setattr(stretches, name, value)
    monkeypatch.setattr(spilled_facts, "HELD", 1_000)
    monkeypatch.setattr(spilled_facts, "PIECE_ROWS", 150)
    MadeCluster(Shape(events=9_000, partitions=1, elections=0, flaps=0, seed=1), tmp_path / "made").write()
    facts, stated = facts_of(tmp_path / "made")
    stepwise = WorkerRuns()
    steps = steps_of(facts, len(facts) // 3, Random(1), 6, 0)  # noqa: S311 - nothing secret
    make_what_one_run_makes(stepwise, steps, facts, stated)
    assert stepwise.lean >= 2
    assert seconds.count(True) < stepwise.lean  # the others were ordered in stretches


COUNTED = pa.table(
    {
        "topic": ["t"] * 6 + ["u"] * 6,
        "partition": [0] * 12,
        "minute": [k * later.MINUTE_US for k in range(6)] * 2,
        "count": [5_000] * 6 + [10] * 6,
    }
)


def mark(minutes: float) -> Alone:
    """A mark, and a hole from the end of the first minute to shortly before it."""
    end = round(minutes * later.MINUTE_US)
    hole = Hole(1, steady_times.SPAN_US, end)
    return Alone(end + steady_times.MARGIN_US, 0, (hole,))


def test_what_is_handed_on_ends_where_few_requests_are_left_to_carry_along() -> None:
    marks = {("t", 0): mark(4), ("u", 0): mark(5)}

    def latest(most: int, marks: dict[tuple[str, int], Alone] = marks, facts: int = 0) -> int | None:
        return horizon_of(COUNTED, marks, FEW_ROWS - most, facts)

    assert latest(6_000) == 4 * later.MINUTE_US  # the first minute is not yet steady
    assert latest(20_000) == 5 * later.MINUTE_US
    halfway = {("t", 0): mark(3.5), ("u", 0): mark(5)}  # it ends within a minute
    assert latest(6_000, halfway) == round(3.5 * later.MINUTE_US)
    assert latest(1_000) is None
    assert latest(1_000, facts=(FEW_ROWS + 5_000) * SHARE) is not None  # what was handed on stands for so many
    assert latest(FEW_ROWS, {("u", 0): mark(5)}) is None


def test_more_rows_are_carried_along_as_there_are_more_facts_but_not_ever_more() -> None:
    assert most_rows(1_000) == most_rows(SHARE * FEW_ROWS) == FEW_ROWS
    assert most_rows(40_000_000_000) == MOST_ROWS > most_rows(SHARE * FEW_ROWS + SHARE) == FEW_ROWS + 1


def test_of_the_shortest_partitions_nothing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = {("t", 0): mark(4), ("u", 0): mark(5)}
    monkeypatch.setattr(handing_on, "WHOLE_ROWS", 100)
    assert long_ones(COUNTED, marks, {}) == {("t", 0): mark(4)}
    left = {("u", 0): LeftOut(0, (), 5, (0, 0))}
    assert long_ones(COUNTED, marks, left) == marks
