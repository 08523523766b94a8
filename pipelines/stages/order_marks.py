"""Marks of the order from run to run: what a run keeps in `event_windows`, and which of it the next can go on from."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.spark.saved_states import bytes_of, state_of
from replay.arrays.digests import added
from replay.engine.stamps import STAMP_LATE_US
from replay.evidence.missing_lines import Gap
from replay.evidence.steady import Alone, Facts, Sums, bears_on_neighbours, stands_alone
from replay.evidence.steady_times import both, holes_at, time_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pipelines.stages.spilled_events import SpilledEvents
    from pipelines.stages.spilled_facts import SpilledFacts
    from replay.evidence.missing_lines import MissingLines
    from replay.evidence.steady import LeftOut
    from replay.evidence.steady_times import Hole, SteadyTime
    from replay.order.marks import Mark
    from replay.order.order import OrderedEvents
    from replay.order.short_orders import ShortOrder
    from replay.order.windows import Boundary

    Ordered = OrderedEvents | ShortOrder | SpilledEvents

LONG: Final = 2_000  # facts of a partition from which on a mark is worth its bytes


ALONE: Final = "alone"  # of partitions, the newest mark behind which an order can do without what is before
ALONE_SCHEMA: Final = pa.schema(
    [pa.field("topic", pa.string()), pa.field("partition", pa.int64()), pa.field("state", pa.binary())]
)


class Since(NamedTuple):
    """From where an order goes on."""

    at: Boundary
    mark: Mark
    time: SteadyTime  # in which the mark lies
    until: Boundary  # what lies between the two is ordered once more, and has to be as it was
    later: Mark  # there
    holes: tuple[Hole, ...]  # in which requests are left out

    def told_of(self, missing: MissingLines) -> MissingLines:
        """What is missing, with the holes, so that nothing is held against what is not there."""
        left_out = defaultdict[int, list[Gap]](list)
        for hole in self.holes:
            left_out[hole.leader].append(Gap(hole.begin, hole.end))
        return replace(missing, left_out=left_out)


def alone_at(facts: Facts | SpilledFacts, since: int, times: Sequence[SteadyTime]) -> Alone | None:
    """Return what can be left out before a moment, by what came so far; None: nothing. `times`: of all of the facts."""
    time, holes = time_at(times, since), holes_at(times, since)
    if time is None or not stands_alone(facts.near(since, holes), time.leader, time.settled_us, since):
        return None
    return Alone(since, time.settled_us, holes)


def newest_alone(of: tuple[str, int], facts: Facts | SpilledFacts, rows: pa.Table, engine: str) -> pa.Table:
    """Return the newest such mark of a partition that has another behind it, as a row; none if there is none.

    `rows`: of `event_windows`, as the order of these facts leaves them.
    """
    times = facts.times
    marks = rows.filter(pc.and_(pc.is_valid(rows["state"]), pc.equal(rows["engine"], engine))).sort_by("place")
    for state in reversed(marks["state"].to_pylist()[:-1]):
        alone = alone_at(facts, state_of(state)["mark"].since, times)
        if alone is not None:
            row = {"topic": of[0], "partition": of[1], "state": bytes_of({"alone": alone})}
            return pa.Table.from_pylist([row], ALONE_SCHEMA)
    return ALONE_SCHEMA.empty_table()


def alone_of(rows: pa.Table) -> dict[tuple[str, int], Alone]:
    """Return such marks by topic and partition."""
    return {(row["topic"], row["partition"]): state_of(row["state"])["alone"] for row in rows.to_pylist()}


def kept_of(ordered: Ordered, facts: Facts | SpilledFacts | None, left: LeftOut | None = None) -> dict[int, bytes]:
    """Return the marks that an order made as bytes, by the places of their boundaries. `left`: what was not given."""
    if facts is None or not ordered.marks:
        return {}
    times = facts.times
    at = {mark.place: (mark, time_at(times, mark.since)) for mark in ordered.marks}
    return {
        place: bytes_of({"mark": mark, "sums": with_left(facts.sums(mark.since), left)})
        for place, (mark, time) in at.items()
        if time is not None and time.is_of(mark.epoch, mark.leader)
    }


def with_left(sums: Sums, left: LeftOut | None) -> Sums:
    """Return the digest together with that of facts that were not given."""
    return sums if left is None else Sums(sums.us, added(sums.facts, left.sums))


def places_by_facts(
    facts: Facts, before: Mapping[Boundary, Mapping[str, Any]], engine: str, left: LeftOut | None = None
) -> Iterator[Since]:
    """Yield from where the order of these facts can go on, newest first, by all that the facts alone tell."""
    for since in places_to_go_on(facts, before, engine, left):
        if bears_on_neighbours(facts, since.time, since.at.window, since.until.window):
            yield since


def places_to_go_on(
    facts: Facts | SpilledFacts,
    before: Mapping[Boundary, Mapping[str, Any]],
    engine: str,
    left: LeftOut | None = None,
) -> Iterator[Since]:
    """Yield from where the order of these facts may go on, newest first, if what is new bears on its neighbours only.

    Of two marks that follow each other, before which no fact is new: what came behind the second of the two reaches
    into the time before it, but not into that before the first. All of which that holds are told, for it may happen
    that it does not just there, as where nobody wrote for some seconds. `left`: what was not given.
    """
    times = facts.times
    later: tuple[Boundary, Mark] | None = None
    for at in sorted(before, reverse=True):
        row = before[at]
        if row["state"] is None or row["engine"] != engine:
            continue
        told = state_of(row["state"])
        mark: Mark = told["mark"]
        sums: Sums = told["sums"]
        if left is not None and sums.us < left.since:
            return
        if with_left(facts.sums(sums.us), left) != sums:
            continue
        time, holes = time_at(times, mark.since), holes_at(times, mark.since)
        is_apart = later is not None and mark.reach + STAMP_LATE_US < later[1].since
        if later is not None and is_apart and time is not None and time.is_of(mark.epoch, mark.leader):
            yield Since(at, mark, time, *later, holes if left is None else both(holes, left.holes))
        later = at, mark
