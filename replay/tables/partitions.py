"""Replay whole partitions one after the other, however their events are batched: the engine's only driver."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.engine.events import EventBatch
from replay.order.windows import BEFORE_ALL, starts_of
from replay.tables.output import Output
from replay.tables.partition_replay import PartitionReplay
from schemas.model import PARTITION_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from replay.engine.events import Events

KEY: Final = ("recording_id", "topic", "incarnation", "partition")
OUT_OF_ORDER: Final = "events did not arrive in seq order"


class Keeper(Protocol):
    """What keeps states of replays from run to run, each where a window begins."""

    def state_of(self, name: tuple[Any, ...]) -> tuple[int, int, dict[str, Any]] | None:
        """Return the state from which to replay a partition (its `KEY`), with the place and start of its window."""

    def keep(self, key: dict[str, Any], place: int, window: int, state: dict[str, Any]) -> None:
        """Take the state of a partition before the first event of a window; it changes with the next event."""


def replayed(batches: Iterable[pa.RecordBatch], keeper: Keeper | None = None) -> Iterator[tuple[str, pa.Table]]:
    """`replication_events` of whole partitions, each in seq order -> (table, its rows), batch by batch.

    Rows of all partitions in a batch come together; tables without rows are omitted. Raises `RuntimeError` if the
    events are not in order: Spark's planner happens to preserve a sort but does not promise to. Of partitions of which
    the keeper has a state, the events are those from that state's window on.
    """
    out = Output()
    ended: set[tuple[Any, ...]] = set()
    now: tuple[Any, ...] = ()
    one: WindowedReplay | None = None
    for batch in batches:
        for events, key in partitions_of(batch):
            name = tuple(key[column] for column in KEY)
            if one is None or name != now:
                if name in ended:
                    raise RuntimeError(OUT_OF_ORDER)
                if one is not None:
                    one.replay.finish()
                ended.add(name)
                one, now = WindowedReplay(key, out, keeper), name
            one.feed(events)
        yield from out.tables()
    if one is not None:
        one.replay.finish()
    yield from out.tables()


class WindowedReplay:
    """The replay of one partition, window by window; where one begins, the state is offered to the keeper."""

    def __init__(self, key: dict[str, Any], out: Output, keeper: Keeper | None) -> None:
        """Start from the keeper's state, if it has any, else before the first event."""
        self.key, self.keeper = key, keeper
        self.last = -1  # seq
        self.place = -1
        self.window: int | None = None
        found = keeper.state_of(tuple(key[column] for column in KEY)) if keeper else None
        if found is None:
            self.replay = PartitionReplay(key, out)
        else:
            self.place, self.window, state = found
            self.replay = PartitionReplay.resumed(key, out, state)
            self.replay.enter(self.window)

    def feed(self, events: Events) -> None:
        """Replay the next events. Raises `RuntimeError` if they are not in order."""
        seq = events.numbers("seq")
        if seq[0] <= self.last or (seq[1:] <= seq[:-1]).any():
            raise RuntimeError(OUT_OF_ORDER)
        self.last = int(seq[-1])
        if not events.has("window"):
            self.replay.feed(events)
            return
        windows = events.numbers("window", BEFORE_ALL)
        begins = starts_of(windows, self.window).tolist()
        if begins[:1] != [0]:
            self.replay.feed(events.part(0, begins[0] if begins else len(events)))
        for begin, end in pairwise([*begins, len(events)]):
            self.enter(int(windows[begin]))
            self.replay.feed(events.part(begin, end))

    def enter(self, window: int) -> None:
        """Begin a window."""
        self.place, self.window = self.place + 1, window
        if self.keeper is not None and self.place > 0:
            self.keeper.keep(self.key, self.place, window, self.replay.state_of_replay)
        self.replay.enter(None if window == BEFORE_ALL else window)


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
