"""Drafts as rows of `replication_events`, column by column.

Drafts of one kind and shape that repeat facts of one kind are made together: what they repeat is taken from the facts'
own Arrow columns, so that it never is an object; only what they say themselves is gathered from them.
"""

from __future__ import annotations

from collections import defaultdict
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.identity import event_ids
from replay.rows import places_of
from schemas.events import REPLICATION_EVENTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.drafts import Draft
    from replay.partition_facts import PartitionFacts
    from replay.state import Ints

EVENT_SCHEMA = pa.schema(
    [f.with_nullable(nullable=True) for f in REPLICATION_EVENTS.arrow_schema if f.name != "recording_id"]
)
SOURCE = ("source_file", "source_line", "ts_error_us")  # what every event repeats of its fact
TIMES = ("ts_lo", "ts", "ts_hi")


def table_of(facts: PartitionFacts, drafts: Sequence[Draft]) -> tuple[pa.Table, Ints]:
    """Drafts as event rows, like ones together, seq still null; and where each draft's row stands."""
    alike: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for place, draft in enumerate(drafts):
        source = None if draft.row is None else id(draft.row.columns)
        alike[draft.kind, source, draft.copied, tuple(draft.fields)].append(place)
    parts = [columns_of([drafts[place] for place in places]) for places in alike.values()]
    order = np.fromiter((place for places in alike.values() for place in places), np.int64, len(drafts))
    sizes = [len(places) for places in alike.values()]
    common = {name: pa.repeat(pa.scalar(value), len(drafts)) for name, value in facts.key.items()}
    common["event_id"] = event_ids(facts, drafts).take(pa.array(order))
    columns = []
    for field in EVENT_SCHEMA:
        if field.name in common:
            columns.append(pa.chunked_array([common[field.name].cast(field.type)]))
        elif any(field.name in part for part in parts):
            chunks = [part.get(field.name, pa.nulls(size, field.type)) for part, size in zip(parts, sizes, strict=True)]
            columns.append(pa.chunked_array([one for part in chunks for one in chunks_of(part)], field.type))
        else:
            columns.append(pa.chunked_array([pa.nulls(len(drafts), field.type)]))
    found = np.empty(len(drafts), np.int64)
    found[order] = np.arange(len(drafts))
    return pa.Table.from_arrays(columns, schema=EVENT_SCHEMA).combine_chunks(), found


def chunks_of(part: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    """A column's arrays."""
    return part.chunks if isinstance(part, pa.ChunkedArray) else [part]


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
    said = [draft.fields for draft in drafts]
    for name in first.fields:
        out[name] = typed([*map(itemgetter(name), said)], name)
    return out


def typed(values: Any, name: str) -> pa.Array:  # noqa: ANN401 - a list or an array
    """Values as that column of `replication_events`."""
    return pa.array(values, EVENT_SCHEMA.field(name).type)


REQUEST = (("broker_id", pa.int32()), ("connection", pa.string()), ("correlation_id", pa.int64()))


def request_ids(parts: list[pa.Array]) -> pa.Array:
    """Broker, connection and correlation id as one text; null where a line is of no request."""
    broker, connection, number = (part.cast(pa.string()) for part in parts)
    whole = pc.binary_join_element_wise(pc.fill_null(broker, "None"), pc.fill_null(connection, "None"), number, "/")
    return whole.cast(pa.string())
