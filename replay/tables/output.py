"""Rows on their way out, kept as the rules made them; those of many partitions become Arrow columns together.

A piece is what a partition has for one table at one time, without its key. Rows from the fold are kept as records with
broker ids in place of indices; the few other rows as dicts.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import Names, offsets, row_columns, words
from replay.engine import codes as c
from replay.engine.events import Picked, joined
from replay.protocol.state import UNSET
from replay.tables.log_start_rows import start_columns
from replay.tables.rounds import commit_columns, round_columns
from schemas.events import EVENT_KINDS
from schemas.model import INT_LIST
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from replay.arrays.ints import Ints
    from replay.arrays.records import Records
    from replay.engine.emit import CutRow, HwRow, LeoRow
    from replay.engine.purgatory import OpenBatch
    from replay.tables.rounds import BatchAnswer

Key = dict[str, Any]
Part = Any  # records of one class, texts, or events (`Picked`)
Piece = tuple[Key, tuple[Part, ...]]


class Output:
    """The rows of replay tables that were not handed out yet."""

    def __init__(self) -> None:
        """Start empty."""
        self.rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self.pieces: defaultdict[str, list[Piece]] = defaultdict(list)
        self.clients: Names[str] = Names(pa.string())
        self.sets: Names[tuple[int, ...]] = Names(INT_LIST)  # of brokers
        self.made = MADE | {"commit_latency": self.commit_columns}

    def add_rows(self, name: str, key: Key, rows: list[dict[str, Any]]) -> None:
        """Add rows of a table as dicts, without the partition's key."""
        if rows:
            self.rows[name] += [{**key, **row} for row in rows]

    def add(self, name: str, key: Key, *piece: Part) -> None:
        """Add rows of a table as the equally long parts that its columns are made from (`made`)."""
        if len(piece[0]):
            self.pieces[name].append((key, piece))

    def tables(self) -> Iterator[tuple[str, pa.Table]]:
        """Hand out the pending rows as Arrow tables. Call before feeding the next batch."""
        for name, rows in self.rows.items():
            yield name, pa.Table.from_pylist(rows, schema=schema_of(name))
        for name, pieces in self.pieces.items():
            yield name, self.table_of(name, pieces)
        self.rows.clear()
        self.pieces.clear()

    def table_of(self, name: str, pieces: Sequence[Piece]) -> pa.Table:
        """Pieces as a table of the schema, with the keys filled in."""
        parts = zip(*(piece for _, piece in pieces), strict=True)
        columns = self.made[name](*map(together, parts))
        of = pa.array(np.repeat(np.arange(len(pieces)), [len(piece[0]) for _, piece in pieces]))
        arrays = []
        for field in schema_of(name):
            if field.name in columns:
                arrays.append(columns[field.name].cast(field.type))
            else:
                arrays.append(pa.array([key[field.name] for key, _ in pieces], field.type).take(of))
        return pa.Table.from_arrays(arrays, schema=schema_of(name))

    def commit_columns(
        self, at: Records[OpenBatch], answers: Records[BatchAnswer], derived: Ints
    ) -> dict[str, pa.Array]:
        """Columns of `commit_latency`; the rows refer to sets of brokers by their codes among `sets`.

        `derived`: the errors that follow from the rules.
        """
        isr = self.sets.named(at["isr"])
        return commit_columns(at, answers, self.clients) | {
            "derived_error_code": pa.array(derived, mask=derived == UNSET),
            "broker_id": offsets(at["broker"]),
            "last_replica_id": offsets(at["replica"]),
            "isr": isr,
            "isr_size": pc.list_value_length(isr),
        }


def together(parts: Sequence[Any]) -> Part:
    """The same part of several pieces, joined."""
    return joined(parts) if isinstance(parts[0], Picked) else np.concatenate(parts).view(parts[0].dtype)


@cache
def schema_of(name: str) -> pa.Schema:
    """A replay table's Arrow schema."""
    return TABLES[name].arrow_schema


def empty(name: str) -> pa.Table:
    """A table without rows."""
    return schema_of(name).empty_table()


def moved_columns(at: Records[Any]) -> dict[str, pa.Array]:
    """Columns that all timelines of offsets share."""
    step, cause = words(at["step"], c.STEPS), words(at["kind"], EVENT_KINDS)
    return row_columns(at) | {"step": step, "cause": cause}


def leo_columns(at: Records[LeoRow]) -> dict[str, pa.Array]:
    """Columns of `leo_timeline`."""
    return moved_columns(at) | {
        "observer": words(at["observer"], ("local", "leader")),
        "leo_before": pa.array(at["before"], mask=at["before"] == UNSET),
        "leo": pa.array(at["leo"]),
    }


def hw_columns(at: Records[HwRow], stable: Ints) -> dict[str, pa.Array]:
    """Columns of `hw_timeline`. `stable`: last stable offsets."""
    return moved_columns(at) | {
        "role": words(at["role"], ("none", "follower", "leader")),
        "hw_before": pa.array(at["before"]),
        "hw": pa.array(at["hw"]),
        "cause_broker_id": offsets(at["cause"]),
        "last_stable_offset": pa.array(stable, mask=stable == UNSET),
    }


def cut_columns(at: Records[CutRow]) -> dict[str, pa.Array]:
    """Columns of `log_truncations`."""
    return row_columns(at) | {
        "leo_before": pa.array(at["before"]),
        "leo_after": pa.array(at["after"]),
        "hw_before": pa.array(at["hw_before"]),
        "records_removed": pa.array(at["before"] - at["after"]),
        "cause": words(at["cause"], c.CAUSES),
    }


MADE: Final[dict[str, Callable[..., dict[str, pa.Array]]]] = {
    "leo_timeline": leo_columns,
    "hw_timeline": hw_columns,
    "log_truncations": cut_columns,
    "log_start_timeline": start_columns,
    "fetch_rounds": round_columns,
}
