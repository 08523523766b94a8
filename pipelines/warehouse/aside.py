"""Which of the rows that were set aside still are, after a write to the table that they would stand in.

A write replaces some of a table's rows: of a time, of partitions, of files. Those that were set aside before are no
part of the table, and yet the same ones among them are replaced. So what is set aside after many runs is what one run
over everything would set aside, and no run has to make anew what broke a check long ago.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pipelines.intake.ledger import Change
    from pipelines.warehouse.within import Within

Stays: TypeAlias = "Callable[[pa.Table], pa.Table]"  # of one table's rows of `set_aside`, those that stay
# Above so many of a recording's they are all made anew in each run, and not looked at one by one.
MOST: Final = 100_000
_CHANGE: Final = pa.schema({"path": pa.string(), "to": pa.string(), "since": pa.int64()})
_NOT: Final = pa.scalar(False)  # noqa: FBT003 - Arrow's own


def none_stay(aside: pa.Table) -> pa.Table:
    """Return none of them: the write replaces all of the recording's rows."""
    return aside.slice(0, 0)


def all_stay(aside: pa.Table) -> pa.Table:
    """Return all of them: the write adds rows, or puts those that stand in another order."""
    return aside


def left_by(table_name: str, within: Within) -> Stays:
    """Return what leaves those that do not meet a condition, since these rows are replaced."""

    def stay(aside: pa.Table) -> pa.Table:
        met = pc.coalesce(within.are_met(as_rows(table_name, aside)), _NOT)
        return aside.filter(pc.invert(met))

    return stay


def left_by_reading(changes: Sequence[Change]) -> Stays:
    """Return what leaves facts that were not read again, under the names that their files have now."""

    def stay(aside: pa.Table) -> pa.Table:
        told = told_in(as_rows("facts", aside), changes).to_pylist()
        found = []
        for row, change in zip(aside.to_pylist(), told, strict=True):
            fact = json.loads(row["row"])
            if change["to"] is not None:
                if change["since"] is not None and fact["source_line"] >= change["since"]:
                    continue
                fact["source_file"] = change["to"]
                row["row"] = json.dumps(fact, ensure_ascii=False, separators=(",", ":"))
            found.append(row)
        return pa.Table.from_pylist(found, aside.schema)

    return stay


def as_rows(table_name: str, aside: pa.Table) -> pa.Table:
    """Return rows that were set aside as their table would have them, by their plain columns; all others are null.

    Their times have whole milliseconds, since JSON has no more of them; windows begin with whole minutes.
    """
    told = [json.loads(text) for text in aside["row"].to_pylist()]
    columns = {}
    for field in TABLES[table_name].arrow_schema:
        is_time = pa.types.is_timestamp(field.type)
        is_plain = is_time or pa.types.is_string(field.type) or pa.types.is_integer(field.type)
        values: list[Any] = [row.get(field.name) if is_plain else None for row in told]
        if is_time:
            values = [None if value is None else datetime.fromisoformat(value) for value in values]
        columns[field.name] = pa.array(values, field.type)
    return pa.table(columns)


def told_in(rows: pa.Table, changes: Sequence[Change]) -> pa.Table:
    """Return by row what becomes of those of its file: `to`, `since`; null where they stay."""
    told = pa.Table.from_pylist([change._asdict() for change in changes], _CHANGE)
    return told.take(pc.index_in(rows["source_file"], told["path"]))
