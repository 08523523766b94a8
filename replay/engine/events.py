"""Events as columns: an Arrow batch with the events of one or many partitions, and parts of it.

Most partitions are short, and reading a column of forty values costs as much as reading one of thousands. So whatever
is read from a batch is read once for all of its partitions, and each partition gets its part.
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
class EventBatch:
    """Events in an Arrow table: whole partitions or pieces of them one after the other, each in seq order."""

    table: pa.Table
    begins: Sequence[int] = (0,)  # where each partition begins
    made: dict[Any, Any] = field(default_factory=dict)  # what was read so far

    def once(self, make: Callable[[EventBatch, *Of], T], *of: *Of) -> T:
        """The result of `make` on the batch, computed at the first call."""
        key = (make, *of)
        if key not in self.made:
            self.made[key] = make(self, *of)
        found: T = self.made[key]
        return found

    @property
    def events(self) -> Events:
        """All events of the batch."""
        return Events(self, 0, len(self.table))

    def partitions(self) -> Iterator[Events]:
        """The events of each partition."""
        for first, stop in pairwise([*self.begins, len(self.table)]):
            yield Events(self, first, stop)

    def partition_numbers(self) -> Ints:
        """The partition of each event, as an index among those of the batch."""
        found: Ints = np.repeat(np.arange(len(self.begins)), np.diff([*self.begins, len(self.table)]))
        return found


class EventColumns:
    """Some events of a batch, column by column."""

    __slots__ = ("batch", "where")

    def __init__(self, batch: EventBatch, where: slice | Ints) -> None:
        """`where`: the events' places in the batch."""
        self.batch, self.where = batch, where

    def read(self, make: Callable[[EventBatch], Ints]) -> Ints:
        """The result of `make` on the whole batch (a row per event), restricted to these events."""
        return self.batch.once(make)[self.where]

    def records(self, make: Callable[[EventBatch], Records[T]]) -> Records[T]:
        """The same for records."""
        return self.batch.once(make)[self.where]

    def numbers(self, name: str, missing: int = 0) -> Ints:
        """A numeric, boolean or time column as int64, times in microseconds, nulls as `missing`."""
        return self.batch.once(numbers_in, name, missing)[self.where]

    def texts(self, name: str) -> tuple[Ints, list[str]]:
        """A text column: each event's index into the batch's distinct texts, and these texts; nulls are empty."""
        places, found = self.batch.once(texts_in, name)
        return places[self.where], found

    def has(self, name: str) -> bool:
        """Whether there is a column of that name."""
        return bool(self.batch.table.schema.get_field_index(name) >= 0)  # the list of all names is long to make

    def known(self, name: str) -> Flags:
        """Where a column is not null."""
        return self.batch.once(known_in, name)[self.where]

    @property
    def kinds(self) -> Ints:
        """Codes of their kinds (`codes.KIND`)."""
        return self.read(kinds_in)


class Picked(EventColumns):
    """Single events of a batch, in any order."""

    __slots__ = ("places",)

    def __init__(self, batch: EventBatch, places: Ints) -> None:
        """`places`: their places in the batch."""
        super().__init__(batch, places)
        self.places = places

    def __len__(self) -> int:
        """How many there are."""
        return len(self.places)

    def at(self, which: Ints | Flags) -> Picked:
        """Some of them, selected by flags or by their places among them."""
        return Picked(self.batch, self.places[which])

    def table(self, names: tuple[str, ...] = ()) -> pa.Table:
        """The events as an Arrow table, with the columns `names`, or all."""
        return self.batch.table.select(names or self.batch.table.column_names).take(self.places)


class Events(EventColumns):
    """Consecutive events of a batch: those of one partition, or some of them."""

    __slots__ = ("first", "stop")

    def __init__(self, batch: EventBatch, first: int, stop: int) -> None:
        """The events from `first` up to, not including, `stop` in the batch."""
        super().__init__(batch, slice(first, stop))
        self.first, self.stop = first, stop

    def __len__(self) -> int:
        """How many there are."""
        return self.stop - self.first

    def part(self, first: int, stop: int) -> Events:
        """The events from `first` up to, not including, `stop` among these."""
        return Events(self.batch, self.first + first, self.first + stop)

    def at(self, which: Ints | Flags) -> Picked:
        """Some of them, selected by flags or by their places among them."""
        return Picked(self.batch, self.first + (np.flatnonzero(which) if which.dtype == bool else which))

    def among(self, which: Callable[[EventBatch], Flags], names: tuple[str, ...] = ()) -> Events:
        """The events that `which` flags, as part of a batch that has no others; only the columns `names`, if any."""
        places, batch = self.batch.once(chosen, which, names)
        first, stop = np.searchsorted(places, (self.first, self.stop)).tolist()
        return Events(batch, first, stop)

    def places_of(self, which: Callable[[EventBatch], Flags]) -> Ints:
        """Places among these events of those that `which` flags."""
        return np.flatnonzero(self.batch.once(which)[self.where])

    def table(self) -> pa.Table:
        """The events as an Arrow table."""
        return self.batch.table.slice(self.first, len(self))

    @property
    def rows(self) -> list[Event]:
        """The events as dicts, made once for the batch; do not change them."""
        return self.batch.once(rows_in)[self.first : self.stop]


def joined(parts: Sequence[Picked]) -> Picked:
    """Single events of one batch, joined from several parts. ValueError: they belong to several batches."""
    (batch,) = {part.batch for part in parts}
    return Picked(batch, np.concatenate([part.places for part in parts]))


def chosen(batch: EventBatch, which: Callable[[EventBatch], Flags], names: tuple[str, ...]) -> tuple[Ints, EventBatch]:
    """Places of the events that `which` flags, and a batch of just those."""
    places = np.flatnonzero(batch.once(which))
    return places, EventBatch(Picked(batch, places).table(names))


def numbers_in(batch: EventBatch, name: str, missing: int) -> Ints:
    """`Events.numbers` for a whole batch."""
    return numbers(batch.table.column(name), missing)


def texts_in(batch: EventBatch, name: str) -> tuple[Ints, list[str]]:
    """`Events.texts` for a whole batch."""
    return texts(batch.table.column(name))


def known_in(batch: EventBatch, name: str) -> Flags:
    """`Events.known` for a whole batch."""
    found: Flags = batch.table.column(name).is_valid().to_numpy()
    return found


def kinds_in(batch: EventBatch) -> Ints:
    """`Events.kinds` for a whole batch."""
    return codes(batch.table.column("kind"), c.KIND, UNSET)


def rows_in(batch: EventBatch) -> list[Event]:
    """`Events.rows` for a whole batch."""
    table = batch.table
    nothing = [None] * len(table)  # most columns are of events that a batch has none of
    columns = [nothing if one.null_count == len(table) else one.to_pylist() for one in table.columns]
    names = table.column_names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
