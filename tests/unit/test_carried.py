"""Runs that read again only what is new write what one run over everything writes."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from carrying_runs import CarryingRuns
from hourly_runs import HourlyRuns, lines, steps_of
from made_recording import MadeCluster
from made_shape import Shape
from short_times import shorten
from test_hourly_runs import facts_of, make_what_one_run_makes, told_but_states, went_on, with_deletions

from pipelines.stages import carried, order_marks
from replay.evidence.missing_lines import missing_requests

if TYPE_CHECKING:
    from pathlib import Path

    from pipelines.stages.carried import Carried

__all__ = ["went_on"]


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch, went_on: list[bool]) -> list[bool]:
    """Seconds stand for minutes; whether each order of a partition that was not new went on from a mark."""
    shorten(monkeypatch, carried)
    return went_on


def in_steps_as_at_once(folder: Path, stepwise: CarryingRuns, seed: int, elections: int, late: float) -> int:
    """Let a made recording come in steps, and compare with one order of everything; return the number of its facts."""
    shape = Shape(events=9_000, partitions=2, elections=elections, flaps=0, seed=seed)
    MadeCluster(shape, folder / "made").write()
    facts, stated = facts_of(folder / "made")
    facts = with_deletions(facts) if seed == 1 else facts
    facts = with_numbers_left_out(facts) if seed == 4 else facts
    facts = with_a_lost_second(facts) if seed == 6 else facts
    steps = enumerate(steps_of(facts, len(facts) // 4, Random(seed), 8, late), 1)  # noqa: S311
    states = (with_directories(some, step) for step, some in steps)
    make_what_one_run_makes(stepwise, states, with_directories(facts, 8), stated)
    return len(facts)


def with_numbers_left_out(facts: pa.Table) -> pa.Table:
    """The facts, whose producer counts across its connections; one number it never sends, and one is never answered."""
    rows = facts.select(["client_id", "connection", "correlation_id", "ts"]).to_pylist()
    requests = {(row["ts"], row["connection"], row["correlation_id"]): row["client_id"] for row in rows}
    sent = sorted(one for one, client_id in requests.items() if client_id == "made-producer")
    third = sent[0][0] + (sent[-1][0] - sent[0][0]) / 3
    number = {one[1:]: k + (k > 5) + (one[0] > third) for k, one in enumerate(sent)}
    told = [number.get((row["connection"], row["correlation_id"]), row["correlation_id"]) for row in rows]
    place = facts.schema.get_field_index("correlation_id")
    return facts.set_column(place, facts.schema.field(place), pa.array(told, facts.schema.field(place).type))


def with_a_lost_second(facts: pa.Table) -> pa.Table:
    """The facts, of which a broker's request log has lost all lines of a second, so one connection's and another's."""
    begin, end = pc.min_max(facts["ts"]).as_py().values()
    since = begin + (end - begin) / 5
    is_then = pc.and_(pc.greater_equal(facts["ts"], since), pc.less(facts["ts"], since + timedelta(seconds=1)))
    lost = pc.and_(pc.and_(is_then, pc.equal(facts["broker_id"], 1)), pc.is_valid(facts["connection"]))
    rest = facts.filter(pc.invert(pc.coalesce(lost, pa.scalar(value=False))))
    (stretch,) = missing_requests(rest).lossy[1]
    assert stretch.since < stretch.until
    return rest


def with_directories(facts: pa.Table, step: int) -> pa.Table:
    """The facts, and what log directories state, at no known time: a dump that stays, and the HW as of this step."""
    told = {"recording_id": facts["recording_id"][0].as_py(), "source_line": 3, "topic": "made", "broker_id": 1}
    rows = []
    for partition in (0, 1):
        batch = {"kind": "segment_batch", "base_offset": 0, "last_offset": 4, "count": 5, "leader_epoch": 0, "crc": 7}
        hw = {"kind": "checkpoint", "name": "replication-offset-checkpoint", "offset": step, "hw": step}
        for row, name in ((batch, "dump"), (hw, f"hw-{step}")):
            key = {"fact_id": f"{name}-{partition}", "source_file": name, "partition": partition}
            rows.append({**told, **key, **row})
    return pa.concat_tables([facts, pa.Table.from_pylist(rows, schema=facts.schema)])


@pytest.mark.parametrize(
    ("seed", "elections", "late"), [(1, 0, 0.0), (2, 1, 0.0), (3, 0, 0.0005), (4, 0, 0.0), (6, 0, 0.0)]
)
def test_an_order_of_what_is_new_finds_what_one_of_everything_finds(
    tmp_path: Path, seconds: list[bool], seed: int, elections: int, late: float
) -> None:
    stepwise = CarryingRuns()
    facts = in_steps_as_at_once(tmp_path, stepwise, seed, elections, late)
    if not (elections or late):
        assert any(seconds)
        assert max(stepwise.read[-2:]) < facts * 2 // 3


def test_orders_go_on_though_the_leader_has_changed_shortly_behind_the_newest_mark(
    tmp_path: Path, seconds: list[bool]
) -> None:
    """No mark stands behind it, so requests are left out before an older one, and the two go along."""
    MadeCluster(Shape(events=6_000, partitions=1, elections=1, flaps=0, seed=3), tmp_path / "made").write()
    facts, stated = facts_of(tmp_path / "made")
    stepwise = CarryingRuns()
    make_what_one_run_makes(stepwise, steps_of(facts, len(facts) // 4, Random(3), 8, 0), facts, stated)  # noqa: S311
    assert not stepwise.refused
    assert stepwise.lean == 6
    assert any(seconds)


@pytest.mark.usefixtures("seconds")
@pytest.mark.parametrize("seed", [1, 5])
def test_what_is_ordered_behind_a_mark_though_it_came_long_before_is_not_left_out(tmp_path: Path, seed: int) -> None:
    """Of request logs alone: nothing says when the second leader began, and its batches come before all fetches."""
    MadeCluster(Shape(events=4_500, partitions=1, elections=1, flaps=0, seed=seed), tmp_path / "made").write()
    facts, stated = facts_of(tmp_path / "made")
    facts = facts.filter(pc.is_valid(facts["client_id"]))
    steps = steps_of(facts, len(facts) // 3, Random(seed), 6, 0)  # noqa: S311 - nothing secret
    make_what_one_run_makes(CarryingRuns(), steps, facts, stated)


def seldom_written(folder: Path, seed: int) -> tuple[pa.Table, dict[str, Any]]:
    """The facts of a recording of partitions to which nobody may write for some steps, and what is stated of it."""
    shape = Shape(events=9_000, partitions=3, elections=0, flaps=0, seed=seed, tick_ms=400, wait_ms=400)
    MadeCluster(shape, folder / "made").write()
    return facts_of(folder / "made")


def test_requests_stay_where_nobody_wrote_before_the_mark(
    tmp_path: Path, seconds: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No order goes on from such a mark, but from an older one, before which they must not be left out."""
    facts, stated = seldom_written(tmp_path, seed=1)
    once, stepwise, careless = HourlyRuns(), CarryingRuns(), CarryingRuns()
    once.order(facts, stated)
    steps = steps_of(facts, len(facts) // 4, Random(1), 8, 0)  # noqa: S311 - nothing secret
    for some in steps:
        stepwise.order(some, stated)
    assert lines(stepwise.tables["replication_events"]) == lines(once.tables["replication_events"])
    assert told_but_states(stepwise) == told_but_states(once)
    assert any(seconds)
    monkeypatch.setattr(order_marks, "stands_alone", lambda *_: True)
    for some in steps:
        careless.order(some, stated)
    assert lines(careless.tables["replication_events"]) == lines(once.tables["replication_events"])
    assert len(stepwise.refused) < len(careless.refused)


class WithoutMarks(CarryingRuns):
    """Each run is handed no mark, and has to do with those that are left of `event_windows`."""

    def before(self, facts: pa.Table) -> Carried | None:
        found = super().before(facts)
        if found is None:
            return None
        return found._replace(left={of: left._replace(mark=None) for of, left in found.left.items()})


def test_an_order_goes_on_from_the_mark_that_it_was_handed_if_no_other_serves(
    tmp_path: Path, seconds: list[bool]
) -> None:
    """Of the windows of a step few boundaries are kept, and nobody wrote before any of these."""
    facts, stated = seldom_written(tmp_path, seed=5)
    once, stepwise, without = HourlyRuns(), CarryingRuns(), WithoutMarks()
    once.order(facts, stated)
    for some in steps_of(facts, len(facts) // 4, Random(5), 5, 0):  # noqa: S311 - nothing secret
        stepwise.order(some, stated)
        without.order(some, stated)
    assert any(seconds)
    assert lines(stepwise.tables["replication_events"]) == lines(once.tables["replication_events"])
    assert told_but_states(stepwise) == told_but_states(once)
    assert stepwise.lean == 3
    assert not stepwise.refused
    assert without.refused


class EarlierHoles(CarryingRuns):
    """Each run is handed what one made that found other facts together: its holes begin a little earlier."""

    def before(self, facts: pa.Table) -> Carried | None:
        found = super().before(facts)
        if found is None:
            return None
        earlier = {
            of: left._replace(holes=tuple(hole._replace(begin=hole.begin - 1) for hole in left.holes))
            for of, left in found.left.items()
        }
        return found._replace(left=earlier)


def test_an_order_goes_on_with_holes_that_begin_earlier_than_its_own(tmp_path: Path, seconds: list[bool]) -> None:
    plain, earlier = CarryingRuns(), EarlierHoles()
    in_steps_as_at_once(tmp_path / "plain", plain, 4, 0, 0.0)
    in_steps_as_at_once(tmp_path / "earlier", earlier, 4, 0, 0.0)
    assert any(seconds)
    assert plain.lean == earlier.lean > 2
