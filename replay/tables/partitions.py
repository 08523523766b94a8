"""Replay whole partitions one after the other, however their events are batched: the engine's only driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.engine.events import EventBatch
from replay.tables.output import Output
from replay.tables.partition_replay import PartitionReplay
from schemas.model import PARTITION_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from replay.engine.events import Events

KEY: Final = ("recording_id", "topic", "incarnation", "partition")
OUT_OF_ORDER: Final = "events did not arrive in seq order"


def replayed(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.Table]]:
    """`replication_events` of whole partitions, each in seq order -> (table, its rows), batch by batch.

    Rows of all partitions in a batch come together; tables without rows are omitted. Raises `RuntimeError` if the
    events are not in order: Spark's planner happens to preserve a sort but does not promise to.
    """
    out = Output()
    ended: set[tuple[Any, ...]] = set()
    now: tuple[Any, ...] = ()
    last = -1
    replay: PartitionReplay | None = None
    for batch in batches:
        for events, key in partitions_of(batch):
            name, seq = tuple(key[column] for column in KEY), events.numbers("seq")
            if replay is None or name != now:
                if name in ended:
                    raise RuntimeError(OUT_OF_ORDER)
                if replay is not None:
                    replay.finish()
                ended.add(name)
                replay, now, last = PartitionReplay(key, out), name, -1
            if seq[0] <= last or (seq[1:] <= seq[:-1]).any():
                raise RuntimeError(OUT_OF_ORDER)
            last = int(seq[-1])
            replay.feed(events)
        yield from out.tables()
    if replay is not None:
        replay.finish()
    yield from out.tables()


def partitions_of(batch: pa.RecordBatch) -> Iterator[tuple[Events, dict[str, Any]]]:
    """The events of each partition in a batch that is sorted by partition, and its key columns."""
    begins = np.zeros(len(batch), bool)
    begins[:1] = True
    for name in KEY:
        column = batch.column(name)
        begins[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    firsts = np.flatnonzero(begins)
    keys = batch.select([column.name for column in PARTITION_KEY]).take(pa.array(firsts)).to_pylist()
    return zip(EventBatch(pa.Table.from_batches([batch]), firsts.tolist()).partitions(), keys, strict=True)
