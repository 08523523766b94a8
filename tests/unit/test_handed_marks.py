"""The mark before which requests are left out is handed on with them, as long as it stands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from carrying_runs import CarryingRuns
from hourly_runs import HourlyRuns, lines
from made_recording import MadeCluster
from made_shape import Shape
from short_times import shorten
from test_hourly_runs import facts_of, told_but_states

from pipelines.stages import carried
from pipelines.stages.carried import Carried, as_bytes, from_bytes
from pipelines.stages.partition_order import as_it_stood
from pipelines.stages.standing_windows import StandingWindows, boundary_of
from replay.evidence import steady, steady_times
from replay.evidence.steady import LeftOut
from replay.evidence.tenures import micros
from replay.order.windows import Windows
from schemas.windows import EVENT_WINDOWS

if TYPE_CHECKING:
    from pathlib import Path

    from replay.order.windows import Boundary

SECOND = timedelta(seconds=1)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
OF = ("orders", 0)


def window(place: int, state: bytes | None = b"mark", **told: Any) -> dict[str, Any]:
    """A row of `event_windows`."""
    key = {"recording_id": "r", "topic": "orders", "incarnation": 0, "partition": 0, "place": place}
    rest = {"window": BEGIN + place * SECOND, "seq": 10 * place, "digest": f"of {place}", "events": 90, "total": "t"}
    return {**key, **rest, "facts": "f", "engine": "e", "state": state, **told}


def windows(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), EVENT_WINDOWS.arrow_schema)


def handed(place: int, mark: dict[str, Any] | None = None) -> Carried:
    """What is handed on by an order that left requests out before a window."""
    left = LeftOut(micros(BEGIN + place * SECOND), (), 5, (0, 0), mark)
    nothing: Any = None
    return Carried(0, nothing, {}, {OF: left}, {}, nothing, nothing)


def mark_of(found: Carried) -> tuple[int, int] | None:
    """Place and seq of the mark that is handed on."""
    mark = found.left[OF].mark
    return None if mark is None else (mark["place"], mark["seq"])


@pytest.mark.parametrize(
    ("changed", "found"), [((), (3, 30)), ((4,), (3, 30)), ((3,), (3, 30)), ((2,), None), ((None,), None)]
)
def test_a_mark_that_was_thinned_out_is_handed_on_if_no_event_before_it_has_changed(
    changed: tuple[int | None, ...], found: tuple[int, int] | None
) -> None:
    told = [{"topic": "orders", "incarnation": 0, "partition": 0, "place": place} for place in changed]
    assert mark_of(handed(3).with_marks(windows(window(8)), windows(window(3), window(4)), told)) == found


def test_a_mark_that_the_order_leaves_comes_first() -> None:
    found = handed(3).with_marks(windows(window(3, seq=31)), windows(window(3)), ())
    assert mark_of(found) == (3, 31)
    assert mark_of(handed(3, window(3, seq=29)).with_marks(windows(window(3)), windows(), ())) == (3, 29)
    for other in (window(3, state=None), window(3, incarnation=1), window(3, topic="others"), window(2)):
        assert mark_of(handed(3).with_marks(windows(other), windows(), ())) is None


def test_the_next_mark_goes_along_if_none_will_stand_behind_it() -> None:
    def behind(now: pa.Table, before: pa.Table, *changed: int, left: LeftOut | None = None) -> int | None:
        given = handed(3) if left is None else handed(3)._replace(left={OF: left})
        told = [{"topic": "orders", "incarnation": 0, "partition": 0, "place": place} for place in changed]
        mark = given.with_marks(now, before, told).left[OF].behind
        return None if mark is None else mark["place"]

    stood = windows(window(3), window(4), window(6))
    assert behind(windows(window(3), window(8, state=None)), stood) == 4
    assert behind(windows(window(3), window(8)), stood) is None
    assert behind(windows(window(3)), stood, 3) is None
    assert behind(windows(window(2)), windows(window(4))) is None  # there is no mark that it is behind
    handed_before = handed(3, window(3)).left[OF]._replace(behind=window(5))
    assert behind(windows(), windows(), left=handed_before) == 5
    assert behind(windows(window(7)), windows(), left=handed_before) is None
    assert behind(windows(), windows(), 4, left=handed_before) is None


def test_an_order_may_go_on_from_it_unless_another_boundary_is_in_its_place() -> None:
    mark = window(3)

    def found(*rows: dict[str, Any]) -> dict[Boundary, Any]:
        standing = StandingWindows.of(windows(*rows), 1, "e")
        standing.left = handed(3, mark).left
        return {**standing.to_go_on_from(OF, standing.boundaries(OF, 0))}

    assert boundary_of(mark) in found(window(4), window(8))
    assert found(window(3, state=None))[boundary_of(mark)]["state"] == b"mark"
    assert found(window(3, state=b"later"))[boundary_of(mark)]["state"] == b"later"
    assert boundary_of(mark) not in found(window(3, seq=31, digest="other"), window(4))
    assert not found(window(4), window(0, incarnation=1))
    behind = window(5)
    left = {OF: handed(3, mark).left[OF]._replace(behind=behind)}
    standing = StandingWindows.of(windows(window(8)), 1, "e")
    standing.left = left
    assert {*map(boundary_of, (mark, behind))} < {*standing.to_go_on_from(OF, standing.boundaries(OF, 0))}


def test_an_order_that_goes_on_from_what_does_not_stand_is_given_up() -> None:
    """Also if all that comes behind is as it stands."""

    def events(seconds: list[float]) -> pa.Table:
        stamps = pa.array([BEGIN + second * SECOND for second in seconds], pa.timestamp("us", "UTC"))
        return pa.table({"ts": stamps, "window": stamps, "seq": range(len(seconds)), "what": list(map(str, seconds))})

    before, now = [0.1, 0.5, 1.1, 1.5, 2.1, 3.1], [0.1, 0.5, 0.7, 1.1, 1.5, 2.1, 3.1]
    stood, stands = Windows(1_000_000), Windows(1_000_000)
    stood.take(events(before))
    stands.take(events(now))

    class Ordered:
        def pieces(self, seq: int) -> list[pa.Table]:
            return [events(now if self.is_same else before).slice(seq)]

        is_same = False

    class Since:
        at, until = stood.boundaries[1], stands.boundaries[2]

    ordered, since = Ordered(), Since()
    given: Any = (ordered, since, {one: {} for one in stands.boundaries}, 1_000_000)
    assert as_it_stood(*given) is None
    since.at, ordered.is_same = stands.boundaries[1], True
    assert as_it_stood(*given) is not None


def test_a_late_line_of_shortly_before_the_newest_mark_leaves_none_that_does_not_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that finds it orders the partition as a whole, and brings more windows than have marks."""
    shorten(monkeypatch, steady, steady_times, carried)
    MadeCluster(Shape(events=16_000, partitions=1, elections=0, flaps=0, seed=1), tmp_path / "made").write()
    facts, stated = facts_of(tmp_path / "made")
    begin, end = (end.timestamp() for end in pc.min_max(facts["ts"]).as_py().values())
    runs, once = CarryingRuns(), HourlyRuns()
    for step, share in enumerate((0.3, 0.434, 0.7, 0.85, 1)):
        until = datetime.fromtimestamp(begin + share * (end - begin), UTC)
        if step == 2:
            marks = [row["window"] for row in runs.tables[EVENT_WINDOWS.name].to_pylist() if row["state"] is not None]
            facts = with_late_line(facts, max(marks) - SECOND / 2)
        runs.order(facts.filter(pc.less_equal(facts["ts"], pa.scalar(until))) if share < 1 else facts, stated)
    once.order(facts, stated)
    assert runs.refused
    assert runs.lean == 2
    assert lines(runs.tables["replication_events"]) == lines(once.tables["replication_events"])
    assert told_but_states(runs) == told_but_states(once)


def with_late_line(facts: pa.Table, ts: datetime) -> pa.Table:
    """The facts, and one of a moment that a log states later."""
    early = pc.and_(pc.less(facts["ts"], pa.scalar(ts)), pc.equal(facts["kind"], "produce"))
    like = facts.filter(early).to_pylist()[-1]
    kept = ("recording_id", "broker_id", "source_file", "source_line", "topic", "topic_id", "partition", "base_offset")
    line = {"fact_id": "late", "kind": "segment_change", "name": "segment_rolled", "ts": ts}
    late = {**{name: like[name] for name in kept}, **line}
    return pa.concat_tables([facts, pa.Table.from_pylist([late], facts.schema)])


def test_it_is_as_it_was_once_it_has_been_kept() -> None:
    nothing = pa.table({})
    (row,) = windows(window(3)).to_pylist()
    given = handed(3, row)._replace(rows=nothing, whole=nothing)
    assert from_bytes(as_bytes(given)).left == given.left
