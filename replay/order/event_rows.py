"""Drafts as rows of `replication_events`, column by column.

Drafts of one kind and shape, read from facts of one kind, are made into rows together: values that they copy come from
the facts' own Arrow columns and never become Python objects; only their own values are gathered from the drafts. This
happens whenever some thousands of drafts are waiting, so there are few objects at a time, however long a partition is.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import filled
from replay.arrays.records import fields_of, records, together
from replay.evidence.rows import places_of, standing_together
from replay.order.event_ids import FACT, Namer, numbered
from replay.order.front import OperationRecord
from replay.order.operation_blocks import EVENT_SCHEMA, Block, Drafts, said

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from replay.arrays.ints import Ints
    from replay.arrays.records import Records
    from replay.evidence.partition_facts import PartitionFacts
    from replay.order.operations import Draft, Operation, Shape

SOURCE = ("source_file", "source_line", "ts_error_us")  # columns that every event copies from its fact
REQUEST = (("broker_id", pa.int32()), ("connection", pa.string()), ("correlation_id", pa.int64()))
TIMES = ("ts_lo", "ts", "ts_hi")
AT_ONCE = 20_000  # drafts that are made into columns together
SHORT, TOGETHER = 1_000, 20  # parts with fewer rows than SHORT are combined, TOGETHER of them at a time


class EventRows:
    """The rows of partitions' events: one partition after the other, each one's in any order."""

    def __init__(self) -> None:
        """Start without rows."""
        self.name = Namer()
        self.waiting: list[Draft] = []
        self.numbers: list[int] = []  # of the waiting drafts
        self.blocks: list[Drafts] = []  # blocks that wait
        self.count = 0  # how many drafts were added
        self.laid = 0  # how many of them have been made into rows
        self.parts: list[pa.Table] = []  # rows of one shape each, with only the columns that they fill
        self.places: list[Ints] = []  # the draft numbers of each part's rows
        self.latest = 0  # latest best estimate among those of the last partition, microseconds

    def begin(self, facts: PartitionFacts) -> int:
        """Go on with another partition; return the number of its first draft."""
        self.name.begin(facts, self.count)
        self.latest = 0
        return self.count

    def __len__(self) -> int:
        """Return the number of drafts that were added."""
        return self.count

    def add(self, drafts: Iterable[Draft]) -> None:
        """Add drafts."""
        begin = self.count
        self.waiting += drafts
        self.count += len(self.waiting) - len(self.numbers)
        self.numbers += range(begin, self.count)
        self.lay_many()

    def add_chain(self, chain: Iterable[Operation | Block], number: int) -> Records[OperationRecord]:
        """Add the drafts of chain `number`; return its operations as the merge sees them."""
        rows: list[tuple[int, ...]] = []
        places: list[int] = []
        blocks: list[Block] = []
        for op in chain:
            if isinstance(op, Block):
                blocks.append(op.after(self.count, number))
                self.blocks += blocks[-1].drafts
                blocks[-1].drafts = []
                self.count += len(op)
                self.lay_many()
            else:
                events = (self.count, len(op.drafts))
                saw = (op.offset, op.seen, op.hw, op.exact, op.updates, op.handled)
                rows.append((op.type, number, *op.window, *events, *saw))
                places.append(op.place)
                self.add(op.drafts)
        single = records(np.array(rows, np.int64).reshape(-1, len(fields_of(OperationRecord))), OperationRecord)
        order = np.argsort(np.concatenate([np.array(places, np.int64), *(b.place for b in blocks)]), kind="stable")
        return together([single, *(block.records for block in blocks)])[order]

    def lay_many(self) -> None:
        """Make the waiting drafts into columns if there are many."""
        if self.count - self.laid >= AT_ONCE:
            self.lay()

    def lay(self) -> None:
        """Make all waiting drafts into columns."""
        alike: dict[Shape, list[int]] = defaultdict(list)
        for place, draft in enumerate(self.waiting):
            alike[draft.shape].append(place)
        numbers = np.array(self.numbers, np.int64)
        found = [gathered([self.waiting[k] for k in places], numbers[places]) for places in alike.values()]
        shapes: dict[Shape, list[Drafts]] = defaultdict(list)
        for block in (*found, *self.blocks):
            shapes[block.shape].append(block)
        for blocks in shapes.values():
            drafts = joined(blocks)
            self.parts.append(pa.table({**columns_of(drafts), "event_id": self.name.ids(drafts)}))
            self.places.append(drafts.numbers)
            newest = drafts.windows[drafts.numbers >= self.name.begins[-1], 1]
            self.latest = max(self.latest, int(newest.max(initial=0)))
        self.waiting, self.numbers, self.blocks = [], [], []
        self.laid = self.count

    def close(self) -> None:
        """Finish the event ids and build the index from draft number to row. Call once all drafts were added."""
        self.lay()
        self.gather()
        order = np.concatenate(self.places)
        self.found = np.empty((2, self.count), np.int64)  # for each draft number: its part, and its row there
        self.found[0, order] = np.repeat(np.arange(len(self.parts)), [len(part) for part in self.parts])
        self.found[1, order] = np.concatenate([np.arange(len(part)) for part in self.parts])
        names = numbered(pa.chunked_array([one for part in self.parts for one in part["event_id"].chunks]), order)
        for k, part in enumerate(self.parts):
            self.parts[k] = part.set_column(part.column_names.index("event_id"), "event_id", names.slice(0, len(part)))
            names = names.slice(len(part))

    def gather(self) -> None:
        """Combine short parts: a table of ten rows costs as much to make and to read as one of a thousand."""
        short = [k for k, part in enumerate(self.parts) if len(part) < SHORT]
        groups = [[k] for k, part in enumerate(self.parts) if len(part) >= SHORT]
        groups += [short[k : k + TOGETHER] for k in range(0, len(short), TOGETHER)]
        parts = ([self.parts[k] for k in group] for group in groups)
        self.parts = [pa.concat_tables(some, promote_options="default").combine_chunks() for some in parts]
        self.places = [np.concatenate([self.places[k] for k in group]) for group in groups]

    def take(self, numbers: Ints) -> pa.Table:
        """Return the rows of some drafts in the order of `numbers`, with the columns that any of them fills."""
        part, row = self.found[:, numbers]
        pieces = [self.parts[k].take(row[part == k]) for k in np.unique(part)]
        places = np.argsort(np.argsort(part, kind="stable"))
        return pa.concat_tables(pieces, promote_options="default").combine_chunks().take(places)

    def slices(self) -> Iterator[tuple[pa.Table, Ints]]:
        """Yield all rows with all columns, at most AT_ONCE at a time, with the numbers of their drafts."""
        for part, numbers in zip(self.parts, self.places, strict=True):
            for first in range(0, len(part), AT_ONCE):
                yield completed(part.slice(first, AT_ONCE)), numbers[first : first + AT_ONCE]


def completed(rows: pa.Table, **same: Any) -> pa.Table:  # noqa: ANN401 - the values of a column
    """Return the rows with all columns of events: those in `same` as given there, those missing null."""
    columns = dict(zip(rows.column_names, rows.columns, strict=True)) | said(len(rows), **same)
    return filled(columns, len(rows), EVENT_SCHEMA)


def gathered(drafts: list[Draft], numbers: Ints) -> Drafts:
    """Turn drafts of one shape into columns."""
    first = drafts[0]
    rows = [draft.row for draft in drafts if draft.row is not None]
    columns, places = (rows[0].columns, places_of(rows)) if rows else (None, np.zeros(0, np.int64))
    if rows and rows[0].stands_alone:
        columns = standing_together(rows, (FACT, *SOURCE, *first.copied, *(name for name, _ in REQUEST)))
        places = np.arange(len(rows))
    told = zip(*(draft.fields.values() for draft in drafts), strict=True)
    return Drafts(
        first.kind,
        columns,
        places,
        np.array([draft.window for draft in drafts], np.int64),
        said(len(drafts), **dict(zip(first.fields, told, strict=False))),
        first.copied,
        numbers,
    )


def joined(blocks: list[Drafts]) -> Drafts:
    """Concatenate blocks of one shape."""
    first = blocks[0]
    if len(blocks) == 1:
        return first
    fields = {name: pa.concat_arrays([one.fields[name] for one in blocks]) for name in first.fields}
    places, windows, numbers = (
        np.concatenate([getattr(one, name) for one in blocks]) for name in ("places", "windows", "numbers")
    )
    return Drafts(first.kind, first.columns, places, windows, fields, first.copied, numbers)


def columns_of(drafts: Drafts) -> dict[str, pa.Array]:
    """Return the columns of drafts of one shape: kind, times, source, copied values, own values."""
    lo, est, hi = drafts.windows.T
    out = said(
        len(est), kind=drafts.kind, **dict(zip(TIMES, (np.minimum(lo, est), est, np.maximum(hi, est)), strict=True))
    )
    if drafts.columns is not None:
        places = drafts.places
        for name in (*SOURCE, *drafts.copied):
            out[name] = drafts.columns.take(name, places, EVENT_SCHEMA.field(name).type)
        out["request_id"] = request_ids([drafts.columns.take(name, places, kind) for name, kind in REQUEST])
    return out | drafts.fields


def request_ids(parts: list[pa.Array]) -> pa.Array:
    """Return broker, connection and correlation id as one text; null where the line belongs to no request."""
    broker, connection, number = (part.cast(pa.string()) for part in parts)
    return pc.binary_join_element_wise(pc.fill_null(broker, "None"), pc.fill_null(connection, "None"), number, "/")
