"""Drafts as rows of `replication_events`, column by column.

Drafts of one kind and shape that repeat facts of one kind are made together: what they repeat is taken from the facts'
own Arrow columns, so that it never is an object; only what they say themselves is gathered from them. Drafts are made
into columns as soon as there are some thousands, and forgotten: objects are few, however long a partition is.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.identity import Namer, numbered
from replay.merge import OP_WIDTH
from replay.rows import places_of
from schemas.events import REPLICATION_EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.drafts import Draft, Operation
    from replay.partition_facts import PartitionFacts
    from replay.state import Ints

EVENT_SCHEMA = pa.schema(
    [f.with_nullable(nullable=True) for f in REPLICATION_EVENTS.arrow_schema if f.name != "recording_id"]
)
SOURCE = ("source_file", "source_line", "ts_error_us")  # what every event repeats of its fact
REQUEST = (("broker_id", pa.int32()), ("connection", pa.string()), ("correlation_id", pa.int64()))
TIMES = ("ts_lo", "ts", "ts_hi")
AT_ONCE = 20_000  # drafts that are made into columns together


class EventRows:
    """Rows of one partition's events, in any order."""

    def __init__(self, facts: PartitionFacts) -> None:
        """No rows yet."""
        self.key = facts.key
        self.name = Namer(facts)
        self.waiting: list[Draft] = []
        self.parts: list[dict[str, pa.Array]] = []
        self.places: list[Ints] = []  # of each part's rows, in the order in which drafts came
        self.laid = 0
        self.latest = 0  # latest time among them, microseconds

    def __len__(self) -> int:
        """How many drafts came."""
        return self.laid + len(self.waiting)

    def add(self, drafts: Iterable[Draft]) -> None:
        """More rows."""
        self.waiting += drafts
        if len(self.waiting) >= AT_ONCE:
            self.lay()

    def add_chain(self, chain: Iterable[Operation], number: int) -> Ints:
        """The rows of a chain of operations; returns the merge's matrix of them."""
        columns: list[tuple[int, ...]] = []
        found: list[Ints] = [np.zeros((0, OP_WIDTH), np.int64)]
        for op in chain:
            lo, est, hi = op.window
            columns.append(
                (op.type, number, lo, est, hi, len(self), len(op.drafts), op.offset, op.seen, op.hw, op.exact)
            )
            self.waiting += op.drafts
            if len(self.waiting) >= AT_ONCE:
                self.lay()
                found.append(np.array(columns, np.int64))
                columns = []
        return np.concatenate([*found, np.array(columns, np.int64).reshape(-1, OP_WIDTH)])

    def lay(self) -> None:
        """Make what waits into columns."""
        alike: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for place, draft in enumerate(self.waiting):
            source = None if draft.row is None else id(draft.row.columns)
            alike[draft.kind, source, draft.copied, tuple(draft.fields)].append(place)
        for places in alike.values():
            drafts = [self.waiting[place] for place in places]
            self.parts.append({**columns_of(drafts), "event_id": self.name.ids(drafts)})
            self.places.append(np.array(places, np.int64) + self.laid)
        self.latest = max(self.latest, max((draft.window[1] for draft in self.waiting), default=0))
        self.laid += len(self.waiting)
        self.waiting = []

    def table(self) -> tuple[pa.Table, Ints]:
        """All rows, seq still null; and where the row of each draft stands."""
        self.lay()
        found = np.empty(self.laid, np.int64)
        order = np.concatenate([found[:0], *self.places])
        found[order] = np.arange(self.laid)
        columns = [self.column(field, order) for field in EVENT_SCHEMA]
        return pa.Table.from_arrays(columns, schema=EVENT_SCHEMA), found

    def column(self, field: pa.Field, order: Ints) -> pa.Array:
        """One column of all rows."""
        if field.name in self.key:
            return pa.repeat(pa.scalar(self.key[field.name], field.type), self.laid)
        if not any(field.name in part for part in self.parts):
            return pa.nulls(self.laid, field.type)
        pieces = [
            part.pop(field.name) if field.name in part else pa.nulls(len(places), field.type)
            for part, places in zip(self.parts, self.places, strict=True)
        ]
        column = pa.chunked_array([one for piece in pieces for one in chunks_of(piece)], field.type).combine_chunks()
        return numbered(column, order) if field.name == "event_id" else column


def chunks_of(piece: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    """A column's arrays."""
    return piece.chunks if isinstance(piece, pa.ChunkedArray) else [piece]


def columns_of(drafts: list[Draft]) -> dict[str, pa.Array]:
    """Columns of drafts of one shape: kind, times, source, what they repeat, what they say."""
    first = drafts[0]
    windows = np.array([draft.window for draft in drafts], np.int64)
    windows[:, 0] = np.minimum(windows[:, 0], windows[:, 1])
    windows[:, 2] = np.maximum(windows[:, 2], windows[:, 1])
    out = {name: typed(windows[:, k], name) for k, name in enumerate(TIMES)}
    out["kind"] = pa.repeat(first.kind, len(drafts))
    rows = [draft.row for draft in drafts if draft.row is not None]
    if rows:
        places, columns = places_of(rows), rows[0].columns
        for name in (*SOURCE, *first.copied):
            out[name] = columns.take(name, places, EVENT_SCHEMA.field(name).type)
        out["request_id"] = request_ids([columns.take(name, places, kind) for name, kind in REQUEST])
    said = zip(*(draft.fields.values() for draft in drafts), strict=True)
    return out | {name: typed(values, name) for name, values in zip(first.fields, said, strict=True)}


def typed(values: Any, name: str) -> pa.Array:  # noqa: ANN401 - a list or an array
    """Values as that column of `replication_events`."""
    return pa.array(values, EVENT_SCHEMA.field(name).type)


def request_ids(parts: list[pa.Array]) -> pa.Array:
    """Broker, connection and correlation id as one text; null where a line is of no request."""
    broker, connection, number = (part.cast(pa.string()) for part in parts)
    return pc.binary_join_element_wise(pc.fill_null(broker, "None"), pc.fill_null(connection, "None"), number, "/")
