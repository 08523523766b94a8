"""What stands in the warehouse of the partitions that an order is asked for."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pipelines.stages.order_marks import LONG
from replay.arrays.columns import completed_to
from replay.arrays.digests import added
from replay.evidence.tenures import micros
from replay.order.windows import HOUR_US, Boundary
from schemas.windows import EVENT_WINDOWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from replay.evidence.steady import LeftOut

Of = tuple[str, int]  # topic and partition
PARTITION: Final = ("topic", "partition")


@dataclass(slots=True)
class StandingWindows:
    """What stands in the warehouse of some partitions: rows of `event_windows` by topic and partition."""

    length_us: int = HOUR_US  # of a window
    engine: str = ""  # a digest of its sources
    least: int = LONG  # facts of a partition that an order goes on for
    table: pa.Table = field(default_factory=EVENT_WINDOWS.arrow_schema.empty_table)
    places: dict[Of, list[int]] = field(default_factory=lambda: defaultdict(list))  # of the rows
    facts: list[str] = field(default_factory=list)  # of each row: the digest of what the events follow from
    left: Mapping[Of, LeftOut] = field(default_factory=dict)  # what of a partition's facts is not given
    tells_alone: bool = False  # whether to say which marks stand alone (`order_marks.Alone`)

    @classmethod
    def of(cls, windows: pa.Table | None, length_us: int, engine: str, least: int = LONG) -> StandingWindows:
        """Index rows of `event_windows`, which may lack columns that are null; None: nothing stands."""
        found = cls(length_us, engine, least)
        if windows is not None:
            found.table = completed_to(windows, EVENT_WINDOWS.arrow_schema)
            found.facts = windows["facts"].to_pylist()
            for place, of in enumerate(zip(*(windows[name].to_pylist() for name in PARTITION), strict=True)):
                found.places[of].append(place)
        return found

    def is_made_of(self, of: Of, facts: str) -> bool:
        """Whether a partition's events stand there, and follow from what has this digest."""
        mine = self.places.get(of, ())
        return bool(mine) and all(self.facts[place] == facts for place in mine)

    def every(self, of: Of, sums: tuple[int, int], count: int) -> tuple[tuple[int, int], int]:
        """Return the digest and number of all of a partition's facts, by those of the given ones."""
        left = self.left.get(of)
        return (sums, count) if left is None else (added(sums, left.sums), count + left.facts)

    def rows(self, partitions: Iterable[Of]) -> pa.Table:
        """Return the rows of some partitions."""
        return self.table.take(pa.array((place for of in partitions for place in self.places.get(of, ())), pa.int64()))

    def boundaries(self, of: Of, incarnation: int) -> dict[Boundary, dict[str, Any]]:
        """Return the boundaries of one incarnation, each with its row."""
        mine = (row for row in self.rows([of]).to_pylist() if row["incarnation"] == incarnation)
        return {boundary_of(row): row for row in mine}

    def to_go_on_from(self, of: Of, stand: Mapping[Boundary, Mapping[str, Any]]) -> dict[Boundary, Mapping[str, Any]]:
        """Return the boundaries from which a partition's order may go on; none if its topic was created again.

        The one before which requests are left out is among them, and the next, even if they were thinned out since:
        perhaps no others serve. `stand`: those of its first incarnation.
        """
        if len(stand) != len(self.places.get(of, ())):
            return {}
        known = {**stand}
        left = self.left.get(of)
        handed = () if left is None else (left.mark, left.behind)
        for mark in (one for one in handed if one is not None):
            at = boundary_of(mark)
            is_other = any(one.place == at.place and one != at for one in known)
            if not is_other and (at not in known or known[at]["state"] is None):
                known[at] = mark
        return known


def boundary_of(row: Mapping[str, Any]) -> Boundary:
    """Return the boundary of a row of `event_windows`."""
    return Boundary(row["place"], micros(row["window"]), row["seq"], row["digest"])
