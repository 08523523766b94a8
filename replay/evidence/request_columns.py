"""Requests of one kind as columns, for rules that ask the same of every one of them.

To read a million fetches one by one, value by value, takes longer than all that is done with them.
"""

from __future__ import annotations

from array import array
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from replay.arrays.columns import differing, texts
from replay.evidence.request_times import Phases, phases_at
from replay.evidence.rows import NO_COLUMNS, places_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replay.arrays.ints import Flags, Ints
    from replay.evidence.rows import Row


class RequestColumns:
    """Rows that belong to the same columns, in the order in which they are given."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """Read nothing yet."""
        self.rows = rows
        self.columns = rows[0].columns if rows else NO_COLUMNS
        self.places = places_of(rows)

    def stated(self, name: str, missing: int = -1) -> Ints:
        """Whole numbers that the lines state; null as `missing`."""
        return self.columns.numbers(name, self.places, missing)

    def known(self, name: str) -> Flags:
        """Which of the lines state a value."""
        return self.columns.known(name, self.places)

    def now(self, name: str, missing: int = -1) -> Ints:
        """Whole numbers as rows have them now: rules may have recorded others than the lines state."""
        if name not in self.columns:
            return self.stated(name, missing)
        values = self.columns[name]
        told = values if isinstance(values, array) else [missing if value is None else value for value in values]
        found: Ints = np.array(told, np.int64)[self.places]
        return found

    @cached_property
    def at(self) -> Phases:
        """The phases of the requests."""
        return phases_at(self.columns, self.places)

    @cached_property
    def connections(self) -> Ints:
        """The rank of each one's connection among the names of all; without a name it is the first."""
        if not self.rows:
            return self.places
        place, names = texts(pa.chunked_array([self.columns.chosen("connection", self.places).cast(pa.string())]))
        rank: Ints = np.argsort(np.argsort(np.array(names, object), kind="stable"))[place]
        return rank

    @property
    def without_error(self) -> Flags:
        """Which were answered without an error."""
        found: Flags = self.stated("error_code") == 0
        return found

    @property
    def accepted(self) -> Flags:
        """Of which fetches the leader accepted the offset as a position in its log (`epochs.was_accepted`)."""
        found: Flags = (self.stated("error_code", 0) == 0) & ~self.known("diverging_epoch")
        return found


def places_by(*keys: Ints) -> Iterator[tuple[tuple[int, ...], Ints]]:
    """Each combination of keys, rising, with the places that have it, rising."""
    if not len(keys[0]):
        return
    order = np.lexsort(keys[::-1])
    begins = np.flatnonzero(differing(*(key[order] for key in keys)))
    for places in np.split(order, begins[1:]):
        yield tuple(int(key[places[0]]) for key in keys), places
