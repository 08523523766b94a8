"""A long steady partition that is ordered stretch by stretch has the events and windows of one order of all of it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hourly_runs import HourlyRuns
from made_recording import MadeCluster
from made_shape import Shape
from made_transactions import with_transactions
from short_times import shorten
from test_hourly_runs import facts_of, told_but_states

from pipelines.stages import partition_order, spilled_facts, stretches
from replay.evidence import markers, steady, steady_times

if TYPE_CHECKING:
    from pathlib import Path

    from pipelines.stages.spilled_events import SpilledEvents

FEWEST = 600


@pytest.fixture
def in_stretches(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The seq with which each stretch of a partition begins, of each time that one could be ordered so."""
    shorten(monkeypatch, steady, steady_times, stretches, spilled_facts, markers)
    monkeypatch.setattr(stretches, "WINDOW_FACTS", 100)
    monkeypatch.setattr(stretches, "AT_ONCE", 400)
    monkeypatch.setattr(stretches, "FEWEST", FEWEST)
    monkeypatch.setattr(spilled_facts, "HELD", 1_000)
    monkeypatch.setattr(spilled_facts, "PIECE_ROWS", 150)
    found: list[list[int]] = []
    by_stretches = stretches.by_stretches

    def noted(*args: Any) -> SpilledEvents | None:
        spilled = by_stretches(*args)
        found.append([] if spilled is None else spilled.begins)
        return spilled

    monkeypatch.setattr(partition_order, "by_stretches", noted)
    return found


def made(folder: Path, **shape: int) -> tuple[pa.Table, dict[str, Any]]:
    MadeCluster(Shape(events=8_000, partitions=1, flaps=0, **shape), folder / "made").write()
    return facts_of(folder / "made")


def ordered_as_a_whole(facts: pa.Table, stated: dict[str, Any], length_us: int) -> HourlyRuns:
    whole = HourlyRuns(length_us, least=len(facts) + 1)
    whole.order(facts, stated)
    return whole


def same_events(one: HourlyRuns, other: HourlyRuns) -> bool:
    return one.tables["replication_events"].sort_by("seq").equals(other.tables["replication_events"].sort_by("seq"))


@pytest.mark.parametrize("length_us", [700_000, 7_000_000])
def test_stretches_give_the_events_and_windows_of_one_order(
    tmp_path: Path, in_stretches: list[list[int]], length_us: int
) -> None:
    facts, stated = made(tmp_path, elections=0, seed=1)
    some = HourlyRuns(length_us)
    some.order(facts, stated)
    assert len(in_stretches[0]) >= 3
    whole = ordered_as_a_whole(facts, stated, length_us)
    assert same_events(some, whole)
    assert told_but_states(some) == told_but_states(whole)


@pytest.mark.parametrize("producers", [1, 4])
def test_a_partition_with_transactions_is_ordered_in_stretches(
    tmp_path: Path, in_stretches: list[list[int]], producers: int
) -> None:
    """Of which each has to know how those end that are open at its last mark."""
    facts, stated = made(tmp_path, elections=0, seed=6)
    facts = with_transactions(facts, Random(6), producers, length=20)  # noqa: S311 - nothing secret
    times = [ts.timestamp() for ts in facts["ts"].to_pylist()]
    some = HourlyRuns(700_000)
    some.order(facts.filter(pa.array([ts < max(times) - 2 for ts in times])), stated)
    some.order(facts, stated)
    assert len(in_stretches[0]) > 1
    assert in_stretches[-1][0] > 0
    whole = ordered_as_a_whole(facts, stated, 700_000)
    assert same_events(some, whole)
    assert told_but_states(some) == told_but_states(whole)


@pytest.mark.parametrize(
    ("seed", "length_us", "later_s", "stretches"),
    [(2, 700_000, [2], 1), (2, 2_100_000, [8], 2), (4, 700_000, [10, 7.5, 5, 2.5], 1), (5, 1_000_000, [8], 2)],
)
def test_a_later_order_goes_on_in_stretches_from_the_marks_that_stretches_left(
    tmp_path: Path, in_stretches: list[list[int]], seed: int, length_us: int, later_s: list[float], stretches: int
) -> None:
    facts, stated = made(tmp_path, elections=0, seed=seed)
    times = [ts.timestamp() for ts in facts["ts"].to_pylist()]
    some = HourlyRuns(length_us)
    for seconds in later_s:
        some.order(facts.filter(pa.array([ts < max(times) - seconds for ts in times])), stated)
    some.order(facts, stated)
    assert in_stretches[0][0] == 0
    assert in_stretches[-1][0] > 0
    assert len(in_stretches[-1]) == stretches
    whole = ordered_as_a_whole(facts, stated, length_us)
    assert same_events(some, whole)
    assert told_but_states(some) == told_but_states(whole)


def test_a_long_partition_with_a_single_line_that_bars_an_order_from_going_on_is_ordered_as_a_whole(
    tmp_path: Path, in_stretches: list[list[int]]
) -> None:
    """It lies in one of many pieces; nothing of that piece may be left out."""
    facts, stated = made(tmp_path, elections=0, seed=1)
    produces = facts.filter(pc.equal(facts["kind"], "produce")).to_pylist()
    batch = produces[len(produces) * 3 // 4]
    line = batch | {"kind": "log_append", "fact_id": "line", "source_file": "server.log", "acks": None}
    line |= {"last_offset": batch["base_offset"], "offset": batch["base_offset"] + 1}
    facts = pa.concat_tables([facts, pa.Table.from_pylist([line], schema=facts.schema)])
    some = HourlyRuns(700_000)
    some.order(facts, stated)
    assert in_stretches == [[]]
    assert same_events(some, ordered_as_a_whole(facts, stated, 700_000))


def test_what_reaches_over_a_cut_is_ordered_as_a_whole(tmp_path: Path, in_stretches: list[list[int]]) -> None:
    """A batch that is answered in the middle with an offset from the beginning bears upon what lies far away."""
    facts, stated = made(tmp_path, elections=0, seed=3)
    chosen = Random(3)  # noqa: S311 - nothing secret
    produces = [k for k, kind in enumerate(facts["kind"].to_pylist()) if kind == "produce"]
    late = chosen.choice(produces[len(produces) * 2 // 3 :])
    base = facts["base_offset"].to_pylist()
    base[late] = base[produces[len(produces) // 3]] + 1
    place = facts.schema.get_field_index("base_offset")
    facts = facts.set_column(place, facts.schema.field(place), pa.array(base, facts.schema.field(place).type))
    some = HourlyRuns()
    some.order(facts, stated)
    assert in_stretches == [[]]
    assert same_events(some, ordered_as_a_whole(facts, stated, some.length_us))


def test_a_stretch_holds_as_many_facts_however_many_come_in_a_window() -> None:
    found = {facts: stretches.windows_of_stretch(facts) for facts in (0, 1_000, 3_000, 6_000, 60_000)}
    assert found == {0: 8, 1_000: 8, 3_000: 8, 6_000: 3, 60_000: 2}
