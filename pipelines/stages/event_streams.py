"""What the order has staged of events, for the replay of the same run, which need not read them from the table again.

A first order stages all events. A later one stages those of partitions that have news, each from the first window that
differs on; a replay that goes on from the state at the beginning of that very window needs no others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.spark.row_files import BUFFER_BYTES, PARTITIONED
from pipelines.warehouse.changes import ALL_US, KEY, numbers_in
from replay.evidence.tenures import micros
from schemas.windows import REPLAY_CHECKPOINTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from replay.tables.resumption import Place, Resumption, Row

STATES_AT_ONCE: Final = 8  # a long partition's state has megabytes
_READ: Final = (*KEY, "place", "window", "state")
_STATES: Final = pa.schema([REPLAY_CHECKPOINTS.arrow_schema.field(name) for name in (PARTITIONED, *_READ)])


class EventStreams(NamedTuple):
    """Files on this machine with streams of events (`packed`), each partition's in one of them and in seq order."""

    files: Sequence[Path] = ()
    since: Mapping[Place, int] | None = None  # as of `Changes`: from when on they have a partition's events; None: all
    shared: Sequence[Row] = ()  # where these windows begin, as of `resumed`

    def are_all(self, plan: Resumption | None) -> bool:
        """Whether they are all events, and all are to be replayed."""
        return bool(self.files) and self.since is None and (plan is None or plan.is_everything)

    def suffice_for(self, plan: Resumption) -> dict[Place, int]:
        """Return the partitions of a plan whose events to replay are these, and from when on they are replayed."""
        if not self.files:
            return {}
        asked = begins_of(plan)
        have = dict.fromkeys(asked, ALL_US) if self.since is None else self.since
        return {place: us for place, us in asked.items() if have.get(place) == us}


def begins_of(plan: Resumption) -> dict[Place, int]:
    """Return from when on each partition is replayed, as of `Changes`."""
    return {place: ALL_US if row is None else micros(row["window"]) for place, row in plan.since.items()}


def write_states(tables: Iterable[Path], recording_id: str, begun: Mapping[Place, int], target: Path) -> None:
    """Write the states to go on from into one file. `begun`: their places. `tables`: files of `replay_checkpoints`.

    RuntimeError: one is not there. Its partition would be replayed as if nothing lay before.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with pa.ipc.new_file(target, _STATES) as out:
        for file in tables:  # a few at a time, as `streamed` reads
            read = pq.ParquetFile(file, buffer_size=BUFFER_BYTES, pre_buffer=False)
            for batch in read.iter_batches(batch_size=STATES_AT_ONCE, columns=list(_READ)):
                rows = pa.Table.from_batches([batch])
                mine = rows.filter(pc.equal(rows["place"], numbers_in(rows, begun)))
                named = mine.append_column(PARTITIONED, pa.array([recording_id] * len(mine), pa.string()))
                out.write_table(named.select(_STATES.names).cast(_STATES))
                count += len(mine)
    if count != len(begun):
        message = f"{count} of {len(begun)} states to go on from are in {REPLAY_CHECKPOINTS.name}"
        raise RuntimeError(message)


def states_in(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows that were written; of a state only the place in the file, which the system has in memory."""
    with pa.memory_map(str(file)) as told, pa.ipc.open_file(told) as read:
        rows = read.read_all()
    keys = rows.drop_columns("state").to_pylist()
    yield from ({**key, "state": state.as_buffer()} for key, state in zip(keys, rows["state"], strict=True))
