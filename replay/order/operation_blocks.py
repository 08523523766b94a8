"""Operations of the frequent requests, many at a time, as columns.

A recording has millions of fetches and produces, and nearly all of them become operations by one formula each. These
operations and their events are computed with arrays, without an object for each; the rare others are an `Operation`
each. A chain may hold both: `place` says where in the chain each operation stands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from replay.arrays.records import blank
from replay.evidence.request_times import Window
from replay.evidence.rows import Row, values_of
from replay.order.front import OperationRecord
from replay.order.operations import Draft, Operation, shape_of
from schemas.events import REPLICATION_EVENTS

if TYPE_CHECKING:
    from replay.arrays.ints import Flags, Ints
    from replay.arrays.records import Records
    from replay.evidence.rows import FactColumns
    from replay.order.operations import Copied, Shape

EVENT_SCHEMA = pa.schema(
    [f.with_nullable(nullable=True) for f in REPLICATION_EVENTS.arrow_schema if f.name != "recording_id"]
)
KINDS: Final = {one.name: one.type for one in EVENT_SCHEMA}
FEW: Final = 64  # rows of a column that is kept for the next of its kind


@dataclass(slots=True)
class Drafts:
    """Events of one kind and shape as columns; each of them could be a `Draft`."""

    kind: str
    columns: FactColumns | None  # of the facts that they were read from; None: from no fact
    places: Ints  # rows of these facts in `columns`
    windows: Ints  # shape [n, 3]: earliest, best and latest time in microseconds
    fields: dict[str, pa.Array]
    copied: Copied
    numbers: Ints  # of each draft among all drafts of its block, or of the partition

    @property
    def shape(self) -> Shape:
        """What drafts must have in common to be made into columns together."""
        return shape_of(self.kind, self.columns, self.copied, self.fields)

    def numbered(self, numbers: Ints) -> Drafts:
        """Return the same drafts with other numbers."""
        return replace(self, numbers=numbers)

    def only(self, which: Flags) -> Drafts:
        """Return the drafts that the mask selects."""
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
        """Return one of them as an object."""
        row = None if self.columns is None else Row.at(self.columns, int(self.places[k]))
        fields = {name: values_of(pa.chunked_array([values.slice(k, 1)]))[0] for name, values in self.fields.items()}
        return Draft(self.kind, row, Window(*self.windows[k].tolist()), fields, self.copied)


@dataclass(slots=True)
class Block:
    """Operations of one chain and their events; the events are numbered from 0."""

    place: Ints
    records: Records[OperationRecord]
    drafts: list[Drafts]

    def __len__(self) -> int:
        """Return the number of events."""
        return sum(len(part.numbers) for part in self.drafts)

    def after(self, count: int, chain: int) -> Block:
        """Return the block as part of chain number `chain`, its events numbered from `count` on."""
        records = self.records.copy()
        records["first"] += count
        records["chain"] = chain
        return Block(self.place, records, [part.numbered(part.numbers + count) for part in self.drafts])

    def operations(self) -> list[Operation]:
        """Return each operation as an object, for callers that change a few of them."""
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
                updates=int(op.updates),
                handled=int(op.handled),
                place=int(place),
            )
            for op, place in ((self.records[k], place) for k, place in enumerate(self.place))
        ]


def operations_of(window: Window, **columns: Ints | Flags | int) -> Records[OperationRecord]:
    """Make operation records for the merge; `columns` are fields of `OperationRecord`."""
    out = blank(len(window.est), OperationRecord)
    out["lo"], out["est"], out["hi"] = window
    out["seen"] = out["hw"] = -1
    for name, values in columns.items():
        out[name] = values
    return out


def said(count: int, **fields: Any) -> dict[str, pa.Array]:  # noqa: ANN401 - a value, or many
    """Turn fields of events into columns of `replication_events`; a single value is repeated `count` times."""
    return {name: column_of(name, value, count) for name, value in fields.items()}


def column_of(name: str, value: Any, count: int) -> pa.Array:  # noqa: ANN401
    """Turn one field into a column of the schema's type; see `said`."""
    kind = KINDS[name]
    if isinstance(value, pa.Array):
        return value if value.type == kind else value.cast(kind)
    if isinstance(value, (np.ndarray, list, tuple)):
        return pa.array(value, kind)
    return repeated_often(name, value, count) if count <= FEW else repeated(name, value, count)


def repeated(name: str, value: Any, count: int) -> pa.Array:  # noqa: ANN401
    """Return a column that has the same value in every row."""
    kind = KINDS[name]
    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)


repeated_often = lru_cache(maxsize=2_000, typed=True)(repeated)  # a short partition has many such columns


def chosen(which: Flags, yes: str, no: str, missing: Flags | None = None) -> pa.Array:
    """Return a column with `yes` where `which` is set and `no` elsewhere; null where `missing` is set."""
    words = pa.array([yes, no])
    return words.take(pa.array(np.where(which, 0, 1), mask=missing))


def drafts_at(
    columns: FactColumns, places: Ints, window: Window, kind: str, fields: dict[str, Any], copied: Copied
) -> Drafts:
    """Make one event of each fact at `places`, numbered in that order."""
    windows, numbers = np.stack(window, axis=1), np.arange(len(places))
    return Drafts(kind, columns, places, windows, said(len(places), **fields), copied, numbers)
