"""Appends and answers, kept as long as what they tell of may still be lost: as tables, the older ones compressed.

Nearly none of them is ever asked for, so they stay as they came, in stretches. As long as a replica is away, nothing is
dropped of what it lacks, and that may be days; compressed, a batch takes some tens of bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import LONG_RUN, in_full, in_short, numbers
from replay.protocol.state import NONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.arrays.ints import Flags, Ints
    from replay.engine.events import EventBatch, Events
    from replay.losses.slots import Slots

WRITTEN = (
    "kind", "seq", "ts", "broker_id", "leader_epoch", "base_offset", "next_offset", "next_offset_evidence", "duplicate",
    "source_file", "source_line", "acks", "error_code", "client_id", "unconfirmed", "evidence", "is_control",
    "transaction",
)  # fmt: skip


class Told(NamedTuple):
    """The rows of a stretch, and columns of them."""

    rows: pa.Table
    epoch: Ints
    base: Ints
    next: Ints
    is_append: Flags

    @classmethod
    def of(cls, rows: pa.Table) -> Told:
        """Read the columns."""
        epoch, base, following = (numbers(rows[name], NONE) for name in ("leader_epoch", "base_offset", "next_offset"))
        is_append = pc.equal(rows["kind"], "append").to_numpy(zero_copy_only=False).astype(bool)
        return cls(rows, epoch, base, following, is_append)

    def among(self, slots: list[Slots]) -> Flags:
        """Which appends overlap the slots."""
        out = np.zeros(len(self.base), bool)
        for one in slots:
            out |= (self.epoch == one.epoch) & (self.base < one.end) & (self.next > one.first)
        return out & self.is_append


@dataclass(slots=True)
class AppendStretch:
    """Appends and answers between two decisions of the controller, unprocessed because few are ever asked for."""

    rows: pa.Table | bytes  # `WRITTEN` of `append` and `ack` events; texts `in_short`, unless few; bytes: compressed
    held: dict[int, list[Slots]]  # broker that answered a retry -> what it certainly holds of older epochs
    appends: int
    end: int  # offset after the last append
    bases: tuple[int, int]  # the least and the greatest base offset
    epochs: set[int]  # the epochs that occur in it
    retried: bool  # whether any answer is one to a retry, possibly of a batch of an older epoch

    def __reduce__(self) -> tuple[Any, ...]:
        """Be written with texts in full: in short, each stretch would bring all words of the batch that it is of."""
        others = (getattr(self, one.name) for one in fields(self) if one.name != "rows")
        return stretch_again, (in_full(self.rows) if self.is_loose else self.rows, *others)

    @property
    def is_loose(self) -> bool:
        """Whether it is not compressed."""
        return not isinstance(self.rows, bytes)

    def opened(self) -> Told:
        """Return its rows."""
        return Told.of(pa.ipc.open_stream(self.rows).read_all() if isinstance(self.rows, bytes) else self.rows)


def stretch_of(written: Events, held: dict[int, list[Slots]]) -> AppendStretch:
    """`append` and `ack` events as a stretch."""
    return stretch_with(written.batch.once(batch_in_short).slice(written.first, len(written)), held)


def stretch_with(rows: pa.Table, held: dict[int, list[Slots]]) -> AppendStretch:
    """The stretch of some rows."""
    told = Told.of(rows)
    end = int(told.next[told.is_append].max(initial=0))
    bases = int(told.base.min()), int(told.base.max())
    retried = bool(numbers(rows["duplicate"]).any())
    return AppendStretch(rows, held, int(told.is_append.sum()), end, bases, {*np.unique(told.epoch).tolist()}, retried)


def stretch_again(rows: pa.Table | bytes, *others: Any) -> AppendStretch:  # noqa: ANN401 - of any field
    """Return a stretch as a state has it, whose rows have their texts in full."""
    return AppendStretch(rows if isinstance(rows, bytes) else many_in_short(rows), *others)


def packed(stretches: Sequence[AppendStretch]) -> AppendStretch:
    """Some stretches as one that is compressed; `held` is the same for all in which an answer is one to a retry."""
    rows = pa.concat_tables([in_full(one.opened().rows) for one in stretches]).combine_chunks()
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(rows)
    held = next((one.held for one in stretches if one.retried), {})
    return replace(stretch_with(rows, held), rows=out.getvalue().to_pybytes())


def batch_in_short(batch: EventBatch) -> pa.Table:
    """All events of a batch, with their texts `in_short` if they are many."""
    return many_in_short(batch.table)


def many_in_short(rows: pa.Table) -> pa.Table:
    """Rows with their texts `in_short`, if they are many."""
    return in_short(rows) if len(rows) >= LONG_RUN else rows
