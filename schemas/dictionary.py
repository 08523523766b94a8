"""The table dictionary as Markdown. `python -m schemas.dictionary > docs/tables.md` brings the page up to date."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING

import pyarrow as pa

from schemas.tables import TABLES

if TYPE_CHECKING:
    from schemas.model import Column, Table

_INTRODUCTION = """\
# Tables

<!-- Made by `python -m schemas.dictionary > docs/tables.md`; a test compares them. -->

One Delta table per directory of the warehouse, partitioned by `recording_id`. Offsets are Kafka's; a range's last
offset is inside it, a log end offset is one past the last. Times are UTC with microseconds, each on the clock of the
broker it speaks of: clocks of different brokers need not agree, `seq` orders what happened to one partition.

Every row says in `evidence` how it is known: `observed` (a log line, metadata record or segment states it), `derived`
(follows from observed facts by the protocol's rules), `bounded` (known within an interval, or its cautious end) or
`unknown`. A null count means that nothing tells, never zero.

A partition is named by `recording_id`, `topic`, `incarnation` and `partition`: join tables of one partition by these
four, and by `seq` where both have it. `broker_id` is the broker that acted or whose log it is, `leader_id` and
`leader_epoch` who led then, `replica_id` the other side. Start with `data_loss_incidents` (what was lost), go on to
`leadership_timeline` and `isr_timeline` (how it came about), and to `replication_events` for the single lines.

The queries are Spark SQL, and use the tables' names. `./spark-submit.sh views --warehouse DIR` prints the statements
that register these names in a catalog; Spark SQL reads a directory also as ``delta.`WAREHOUSE/hw_timeline` ``. Without
Spark: `tidemark.snapshot("WAREHOUSE", "RECORDING").duckdb()` has all tables by their names, and views without nested
columns; [cookbook.md](cookbook.md) has queries that every engine takes. A warehouse may hold several recordings: add
`WHERE recording_id = '...'`.
"""


def dictionary() -> str:
    """The whole page."""
    contents = "\n".join(f"- [{table.name}](#{table.name}): {table.comment}" for table in TABLES.values())
    return "\n".join([_INTRODUCTION, contents, *(_section(table) for table in TABLES.values())])


def _section(table: Table) -> str:
    key = ", ".join(f"`{name}`" for name in table.key)
    within = " within a partition" if {"topic", "incarnation"} <= {c.name for c in table.columns} else ""
    lines = [f"\n## {table.name}\n", f"{table.comment} A row is named by {key}{within} of a recording.\n"]
    lines += ["| column | type | null | meaning |", "|---|---|---|---|"]
    lines += [_row(column) for column in table.columns]
    if table.checks:
        lines.append("\nEvery row meets: " + "; ".join(f"`{condition}`" for condition in table.checks.values()) + ".")
    for question, sql in table.questions:
        lines += [f"\n{question}\n", "```sql", textwrap.dedent(sql).strip(), "```"]
    return "\n".join(lines)


def _row(column: Column) -> str:
    meaning = column.comment + (f" Unit: {column.unit}." if column.unit else "")
    if column.values:
        meaning += " One of: " + ", ".join(f"`{value}`" for value in column.values) + "."
    null = "yes" if column.nullable else "no"
    return f"| `{column.name}` | {type_name(column.type)} | {null} | {meaning.replace('|', chr(92) + '|')} |"


def type_name(type_: pa.DataType) -> str:
    """The type as Spark SQL calls it."""
    if pa.types.is_list(type_):
        return f"array<{type_name(type_.value_type)}>"
    if pa.types.is_struct(type_):
        return f"struct<{', '.join(f'{field.name}: {type_name(field.type)}' for field in type_)}>"
    names = {pa.int32(): "int", pa.int64(): "bigint", pa.float64(): "double", pa.bool_(): "boolean"}
    return "timestamp" if pa.types.is_timestamp(type_) else names.get(type_, str(type_))


if __name__ == "__main__":
    sys.stdout.write(dictionary())
