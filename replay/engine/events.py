"""Events as columns: an Arrow batch with those of one partition or of many, and the parts of it.

Most partitions are short, and a column of forty values costs as much to read as one of thousands. So whatever is read
of a batch is read once, for all of its partitions; each is handed its part of what was read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

import numpy as np

from replay.arrays.columns import codes, numbers, texts
from replay.engine import codes as c
from replay.protocol.state import UNSET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from replay.arrays.ints import Flags, Ints
    from replay.arrays.records import Records

Of = TypeVarTuple("Of")
T = TypeVar("T")
Event = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Events in an Arrow table, whole partitions or pieces of them one after the other, each in seq order."""

    table: pa.Table
    begins: Sequence[int] = (0,)  # where each partition begins
    made: dict[Any, Any] = field(default_factory=dict)  # what was read so far

    def once(self, make: Callable[[Batch, *Of], T], *of: *Of) -> T:
        """What `make` makes of the batch, made at the first call."""
        key = (make, *of)
        if key not in self.made:
            self.made[key] = make(self, *of)
        found: T = self.made[key]
        return found

    @property
    def events(self) -> Events:
        """All of them."""
        return Events(self, 0, len(self.table))

    def partitions(self) -> Iterator[Events]:
        """The events of each partition."""
        for first, stop in pairwise([*self.begins, len(self.table)]):
            yield Events(self, first, stop)

    def partition_numbers(self) -> Ints:
        """The partition of each event, by its place among those of the batch."""
        found: Ints = np.repeat(np.arange(len(self.begins)), np.diff([*self.begins, len(self.table)]))
        return found


class Columns:
    """Some events of a batch, column by column."""

    __slots__ = ("batch", "where")

    def __init__(self, batch: Batch, where: slice | Ints) -> None:
        """`where` in the batch they are."""
        self.batch, self.where = batch, where

    def read(self, make: Callable[[Batch], Ints]) -> Ints:
        """Of what `make` makes of the whole batch, a row per event, the rows of these."""
        return self.batch.once(make)[self.where]

    def records(self, make: Callable[[Batch], Records[T]]) -> Records[T]:
        """The same of records."""
        return self.batch.once(make)[self.where]

    def numbers(self, name: str, missing: int = 0) -> Ints:
        """A numeric, boolean or time column as int64, times in microseconds, nulls as `missing`."""
        return self.batch.once(numbers_in, name, missing)[self.where]

    def texts(self, name: str) -> tuple[Ints, list[str]]:
        """A text column: for each event its place among the batch's different texts, and these; nulls are empty."""
        places, found = self.batch.once(texts_in, name)
        return places[self.where], found

    def known(self, name: str) -> Flags:
        """Where a column is not null."""
        return self.batch.once(known_in, name)[self.where]

    @property
    def kinds(self) -> Ints:
        """Codes of their kinds (`codes.KIND`)."""
        return self.read(kinds_in)


class Picked(Columns):
    """Single events of a batch, in any order."""

    __slots__ = ("places",)

    def __init__(self, batch: Batch, places: Ints) -> None:
        """`places`: theirs in the batch."""
        super().__init__(batch, places)
        self.places = places

    def __len__(self) -> int:
        """How many there are."""
        return len(self.places)

    def at(self, which: Ints | Flags) -> Picked:
        """Some of them, flagged or by their places among them."""
        return Picked(self.batch, self.places[which])

    def table(self, names: tuple[str, ...] = ()) -> pa.Table:
        """Them as Arrow has them, with the columns `names`, or all."""
        return self.batch.table.select(names or self.batch.table.column_names).take(self.places)


class Events(Columns):
    """Events of a batch that follow each other: those of one partition, or some of them."""

    __slots__ = ("first", "stop")

    def __init__(self, batch: Batch, first: int, stop: int) -> None:
        """The events from one place in the batch up to another."""
        super().__init__(batch, slice(first, stop))
        self.first, self.stop = first, stop

    def __len__(self) -> int:
        """How many there are."""
        return self.stop - self.first

    def part(self, first: int, stop: int) -> Events:
        """Those from one place among them up to another."""
        return Events(self.batch, self.first + first, self.first + stop)

    def at(self, which: Ints | Flags) -> Picked:
        """Some of them, flagged or by their places among them."""
        return Picked(self.batch, self.first + (np.flatnonzero(which) if which.dtype == bool else which))

    def among(self, which: Callable[[Batch], Flags], names: tuple[str, ...] = ()) -> Events:
        """Those that `which` flags, as part of a batch that has no others, and of columns only `names`, if any."""
        places, batch = self.batch.once(chosen, which, names)
        first, stop = np.searchsorted(places, (self.first, self.stop)).tolist()
        return Events(batch, first, stop)

    def places_of(self, which: Callable[[Batch], Flags]) -> Ints:
        """Places among them of those that `which` flags."""
        return np.flatnonzero(self.batch.once(which)[self.where])

    def table(self) -> pa.Table:
        """Them as Arrow has them."""
        return self.batch.table.slice(self.first, len(self))

    @property
    def rows(self) -> list[Event]:
        """Them as dicts, made once for the batch: not to be changed."""
        return self.batch.once(rows_in)[self.first : self.stop]


def joined(parts: Sequence[Picked]) -> Picked:
    """Single events of one batch, those of several parts together. ValueError: they are of several batches."""
    (batch,) = {part.batch for part in parts}
    return Picked(batch, np.concatenate([part.places for part in parts]))


def chosen(batch: Batch, which: Callable[[Batch], Flags], names: tuple[str, ...]) -> tuple[Ints, Batch]:
    """Places of the events that `which` flags, and a batch of just those."""
    places = np.flatnonzero(batch.once(which))
    return places, Batch(Picked(batch, places).table(names))


def numbers_in(batch: Batch, name: str, missing: int) -> Ints:
    """`Events.numbers` of a whole batch."""
    return numbers(batch.table.column(name), missing)


def texts_in(batch: Batch, name: str) -> tuple[Ints, list[str]]:
    """`Events.texts` of a whole batch."""
    return texts(batch.table.column(name))


def known_in(batch: Batch, name: str) -> Flags:
    """`Events.known` of a whole batch."""
    found: Flags = batch.table.column(name).is_valid().to_numpy()
    return found


def kinds_in(batch: Batch) -> Ints:
    """`Events.kinds` of a whole batch."""
    return codes(batch.table.column("kind"), c.KIND, UNSET)


def rows_in(batch: Batch) -> list[Event]:
    """`Events.rows` of a whole batch."""
    found: list[Event] = batch.table.to_pylist()
    return found
