"""Marks of the order from run to run: what a run keeps in `event_windows`, and which of it the next can go on from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.spark.saved_states import bytes_of, state_of
from replay.arrays.digests import added
from replay.engine.stamps import STAMP_LATE_US
from replay.evidence.steady import Facts, Steady, Sums, bears_on_neighbours, hole_of, stands_alone

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pipelines.stages.spilled_events import SpilledEvents
    from pipelines.stages.spilled_facts import SpilledFacts
    from replay.evidence.missing_lines import MissingLines
    from replay.evidence.steady import LeftOut
    from replay.order.marks import Mark
    from replay.order.order import OrderedEvents
    from replay.order.short_orders import ShortOrder
    from replay.order.windows import Boundary

    Ordered = OrderedEvents | ShortOrder | SpilledEvents

LONG: Final = 2_000  # facts of a partition from which on a mark is worth its bytes


ALONE: Final = "alone"  # of partitions, the newest mark behind which an order can do without what is before
ALONE_SCHEMA: Final = pa.schema(
    [pa.field("topic", pa.string()), *(pa.field(name, pa.int64()) for name in ("partition", *Steady._fields, "since"))]
)


class Since(NamedTuple):
    """From where an order goes on."""

    at: Boundary
    mark: Mark
    steady: Steady
    until: Boundary  # what lies between the two is ordered once more, and has to be as it was
    hole: tuple[int, int]  # the time of the requests that are left out


class Alone(NamedTuple):
    """A mark behind which an order needs none of the requests in the middle of a steady tenure before it."""

    steady: Steady
    since: int


def newest_alone(of: tuple[str, int], facts: Facts | SpilledFacts, rows: pa.Table, engine: str) -> pa.Table:
    """Return the newest such mark of a partition that has another behind it, as a row; none if there is none.

    `rows`: of `event_windows`, as the order of these facts leaves them.
    """
    marks = rows.filter(pc.and_(pc.is_valid(rows["state"]), pc.equal(rows["engine"], engine))).sort_by("place")
    for state in reversed(marks["state"].to_pylist()[:-1]):
        told = state_of(state)
        steady, since = told["steady"], told["mark"].since
        hole = hole_of(steady, since)
        if hole is not None and stands_alone(facts.near(since, hole), steady, since):
            return pa.Table.from_pylist(
                [{"topic": of[0], "partition": of[1], **steady._asdict(), "since": since}], ALONE_SCHEMA
            )
    return ALONE_SCHEMA.empty_table()


def alone_of(rows: pa.Table) -> dict[tuple[str, int], Alone]:
    """Return such marks by topic and partition."""
    found = {}
    for row in rows.to_pylist():
        of, since = (row.pop("topic"), row.pop("partition")), row.pop("since")
        found[of] = Alone(Steady(**row), since)
    return found


def is_whole(missing: MissingLines) -> bool:
    """Whether no log is known to miss lines."""
    return not (missing.gaps or missing.cuts or missing.lossy)


def kept_of(ordered: Ordered, facts: Facts | SpilledFacts | None, left: LeftOut | None = None) -> dict[int, bytes]:
    """Return the marks that an order made as bytes, by the places of their boundaries. `left`: what was not given."""
    if facts is None or ordered.steady is None or not ordered.marks:
        return {}
    epoch, leader, _ = ordered.steady
    steady = Steady(epoch, leader, facts.settled_us(epoch, leader))
    return {
        mark.place: bytes_of({"mark": mark, "steady": steady, "sums": with_left(facts.sums(mark.since), left)})
        for mark in ordered.marks
        if hole_of(steady, mark.since) is not None
    }


def with_left(sums: Sums, left: LeftOut | None) -> Sums:
    """Return the digest together with that of facts that were not given."""
    return sums if left is None else Sums(sums.us, added(sums.facts, left.sums))


def since_when(
    facts: Facts, before: Mapping[Boundary, Mapping[str, Any]], engine: str, left: LeftOut | None = None
) -> Since | None:
    """Return the newest place from which the order of these facts can go on; None: there is none."""
    for since in places_to_go_on(facts, before, engine, left):
        if bears_on_neighbours(facts, since.steady, since.at.window, since.until.window):
            return since
    return None


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
    later: tuple[Boundary, Mark] | None = None
    for at in sorted(before, reverse=True):
        row = before[at]
        if row["state"] is None or row["engine"] != engine:
            continue
        told = state_of(row["state"])
        steady: Steady = told["steady"]
        mark: Mark = told["mark"]
        sums: Sums = told["sums"]
        if left is not None and (sums.us < left.since or steady != left.steady):
            return
        if with_left(facts.sums(sums.us), left) != sums:
            continue
        hole = hole_of(steady, mark.since)
        if later is not None and hole is not None and mark.reach + STAMP_LATE_US < later[1].since:
            yield Since(at, mark, steady, later[0], hole)
        later = at, mark
