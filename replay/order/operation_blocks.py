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

from replay.arrays.records import blank
from replay.evidence.request_times import Window
from replay.evidence.rows import Row, values_of
from replay.order.merge import OperationRecord
from replay.order.operations import Draft, Operation, shape_of
from schemas.events import REPLICATION_EVENTS

if TYPE_CHECKING:
    from replay.arrays.ints import Flags, Ints
    from replay.arrays.records import Records
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
    """Operations of one chain (numbers of events counted from 0), and their events."""

    place: Ints
    records: Records[OperationRecord]
    drafts: list[Drafts]

    def __len__(self) -> int:
        """How many events there are."""
        return sum(len(part.numbers) for part in self.drafts)

    def after(self, count: int, chain: int) -> Block:
        """The same as part of that chain, behind so many events."""
        records = self.records.copy()
        records["first"] += count
        records["chain"] = chain
        return Block(self.place, records, [part.numbered(part.numbers + count) for part in self.drafts])

    def operations(self) -> list[Operation]:
        """Each operation by itself: for what happens to a few of them only."""
        drafts = {int(n): part.draft(k) for part in self.drafts for k, n in enumerate(part.numbers)}
        return [
            Operation(
                int(op.type),
                Window(int(op.lo), int(op.est), int(op.hi)),
                [drafts[n] for n in range(op.first, op.first + op.count)],
                offset=int(op.offset),
                seen=int(op.seen),
                hw=int(op.hw),
                exact=bool(op.exact),
                place=int(place),
            )
            for op, place in ((self.records[k], place) for k, place in enumerate(self.place))
        ]


def operations_of(window: Window, **columns: Ints | Flags | int) -> Records[OperationRecord]:
    """Operations as the merge sees them, by the fields of `OperationRecord`."""
    out = blank(len(window.est), OperationRecord)
    out["lo"], out["est"], out["hi"] = window
    out["seen"] = out["hw"] = -1
    for name, values in columns.items():
        out[name] = values
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
