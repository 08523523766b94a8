"""Many operations of one form at a time: what the frequent requests become, as columns.

A recording has fetches and produces by the million, and nearly all of them follow one formula each. Their operations
and events are computed with arrays, without an object for any; the rare others are an `Operation` each. A chain is of
both: `place` says where in the chain each operation stands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from replay.evidence.request_times import Window
from replay.evidence.rows import Row, values_of
from replay.order.merge import (
    O_CHAIN,
    O_COUNT,
    O_EST,
    O_EXACT,
    O_FIRST,
    O_HI,
    O_HW,
    O_LO,
    O_OFFSET,
    O_SEEN,
    O_TYPE,
    OP_WIDTH,
)
from replay.order.operations import Draft, Operation, shape_of
from schemas.events import REPLICATION_EVENTS

if TYPE_CHECKING:
    from replay.arrays.ints import Flags, Ints
    from replay.evidence.rows import Columns
    from replay.order.operations import Copied, Shape

EVENT_SCHEMA = pa.schema(
    [f.with_nullable(nullable=True) for f in REPLICATION_EVENTS.arrow_schema if f.name != "recording_id"]
)


@dataclass(slots=True)
class Drafts:
    """Events of one kind and shape, a `Draft` each, as columns."""

    kind: str
    columns: Columns | None  # of the facts that they were read from; null: from none
    places: Ints  # of these facts
    windows: Ints  # [n, 3]
    fields: dict[str, pa.Array]
    copied: Copied
    numbers: Ints  # of each among all drafts of the block, or of the partition

    @property
    def shape(self) -> Shape:
        """What is alike of drafts that are made into columns together."""
        return shape_of(self.kind, self.columns, self.copied, self.fields)

    def numbered(self, numbers: Ints) -> Drafts:
        """The same with other numbers."""
        return replace(self, numbers=numbers)

    def only(self, which: Flags) -> Drafts:
        """Some of them."""
        mask = pa.array(which)
        return Drafts(
            self.kind,
            self.columns,
            self.places[which],
            self.windows[which],
            {name: values.filter(mask) for name, values in self.fields.items()},
            self.copied,
            self.numbers[which],
        )

    def draft(self, k: int) -> Draft:
        """One of them by itself."""
        row = None if self.columns is None else Row.at(self.columns, int(self.places[k]))
        fields = {name: values_of(pa.chunked_array([values.slice(k, 1)]))[0] for name, values in self.fields.items()}
        return Draft(self.kind, row, Window(*self.windows[k].tolist()), fields, self.copied)


@dataclass(slots=True)
class Block:
    """Operations of one chain: the merge's matrix (numbers of events counted from 0), and their events."""

    place: Ints
    matrix: Ints
    drafts: list[Drafts]

    def __len__(self) -> int:
        """How many events there are."""
        return sum(len(part.numbers) for part in self.drafts)

    def after(self, count: int, chain: int) -> Block:
        """The same as part of that chain, behind so many events."""
        matrix = self.matrix.copy()
        matrix[:, O_FIRST] += count
        matrix[:, O_CHAIN] = chain
        return Block(self.place, matrix, [part.numbered(part.numbers + count) for part in self.drafts])

    def operations(self) -> list[Operation]:
        """Each operation by itself: for what happens to a few of them only."""
        drafts = {int(n): part.draft(k) for part in self.drafts for k, n in enumerate(part.numbers)}
        return [
            Operation(
                op[O_TYPE],
                Window(*op[[O_LO, O_EST, O_HI]].tolist()),
                [drafts[n] for n in range(op[O_FIRST], op[O_FIRST] + op[O_COUNT])],
                offset=int(op[O_OFFSET]),
                seen=int(op[O_SEEN]),
                hw=int(op[O_HW]),
                exact=bool(op[O_EXACT]),
                place=int(place),
            )
            for op, place in zip(self.matrix, self.place, strict=True)
        ]


COLUMNS = {
    "type": O_TYPE, "first": O_FIRST, "count": O_COUNT, "offset": O_OFFSET, "seen": O_SEEN, "hw": O_HW, "exact": O_EXACT
}  # fmt: skip


def matrix_of(window: Window, **columns: Ints | Flags | int) -> Ints:
    """The merge's matrix of operations, by the columns of `Operation`; `first` and `count` of their events."""
    out = np.zeros((len(window.est), OP_WIDTH), np.int64)
    out[:, O_LO], out[:, O_EST], out[:, O_HI] = window
    out[:, O_SEEN] = out[:, O_HW] = -1
    for name, values in columns.items():
        out[:, COLUMNS[name]] = values
    return out


def said(count: int, **fields: Any) -> dict[str, pa.Array]:  # noqa: ANN401 - a value, or many
    """Fields of events as columns of `replication_events`: what is one value is the same in all of them."""
    return {name: column_of(name, value, count) for name, value in fields.items()}


def column_of(name: str, value: Any, count: int) -> pa.Array:  # noqa: ANN401
    """One of them."""
    kind = EVENT_SCHEMA.field(name).type
    if isinstance(value, pa.Array):
        return value.cast(kind)
    if isinstance(value, (np.ndarray, list, tuple)):
        return pa.array(value, kind)
    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)


def chosen(which: Flags, yes: str, no: str, missing: Flags | None = None) -> pa.Array:
    """One of two words; null where `missing`."""
    words = pa.array([yes, no])
    return words.take(pa.array(np.where(which, 0, 1), mask=missing))


def drafts_at(
    columns: Columns, places: Ints, window: Window, kind: str, fields: dict[str, Any], copied: Copied
) -> Drafts:
    """An event of each of these facts, numbered as they stand."""
    windows, numbers = np.stack(window, axis=1), np.arange(len(places))
    return Drafts(kind, columns, places, windows, said(len(places), **fields), copied, numbers)
