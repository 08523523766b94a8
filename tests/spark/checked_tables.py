"""Rows as DuckDB reads them when it checks tables: in files, or in memory; and what it counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake import write_deltalake

from pipelines.expectations.counting import counts_by_duckdb, look_through
from pipelines.expectations.database import closed_database
from pipelines.warehouse.table_files import TableFiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from pipelines.expectations.database import Local
    from pipelines.expectations.rules import TableRule


def files_of(tables: Mapping[str, pa.Table], folder: Path) -> dict[str, Local]:
    """The rows in Delta tables, each in two files as far as it has two rows; tables without rows stay in memory."""
    return {name: _files(name, rows, folder / name) if len(rows) else rows for name, rows in tables.items()}


def _files(name: str, rows: pa.Table, place: Path) -> TableFiles:
    (recording_id,) = rows["recording_id"].unique().to_pylist()
    half = len(rows) // 2
    for part in (rows[:half], rows[half:]):
        if len(part):
            write_deltalake(place, part, mode="append", partition_by=["recording_id"])
    found = TableFiles.of(name, place, None, recording_id)
    assert found is not None
    return found


def counts_of(rules: Sequence[TableRule], tables: Mapping[str, Local]) -> dict[str, int]:
    """How many rows each table has, and how many break each rule, by DuckDB."""
    with closed_database(tables) as db:
        looked = {name: look_through(db, name, rules) for name in tables}
        return counts_by_duckdb(db, rules, looked)
