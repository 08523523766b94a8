"""Marks of the order from run to run: what a run keeps in `event_windows`, and which of it the next can go on from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipelines.spark.saved_states import bytes_of, state_of
from replay.arrays.digests import added
from replay.engine.stamps import STAMP_LATE_US
from replay.evidence.steady import Facts, Steady, Sums, bears_on_neighbours, hole_of

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


class Since(NamedTuple):
    """From where an order goes on."""

    at: Boundary
    mark: Mark
    steady: Steady
    until: Boundary  # what lies between the two is ordered once more, and has to be as it was
    hole: tuple[int, int]  # the time of the requests that are left out


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
