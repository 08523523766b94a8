"""Questions to the tables of one recording: small tables are asked in the driver's memory, all others by Spark.

A question is written once, in Spark's SQL; its answer is small. For small tables sqlglot says it in DuckDB's, which
answers in milliseconds what Spark plans for a second.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from pipelines.expectations.database import closed_database, for_duckdb

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from pipelines.expectations.database import Local
    from pipelines.warehouse.delta_io import Warehouse

Rows = list[dict[str, Any]]


class Ask(Protocol):
    """Answers a question, in which each table is named in braces, as rows."""

    def __call__(self, question: str, *tables: str) -> Rows:
        """Return the rows of the answer."""
        ...

    def arrow(self, question: str, *tables: str) -> pa.Table:
        """Return the answer."""
        ...


class Questions:
    """Asks the tables of a warehouse about one recording."""

    def __init__(self, warehouse: Warehouse, recording_id: str, *, few: bool = False) -> None:
        """Nothing is read before it is asked for. `few`: of a table is asked so little that not all of it is read."""
        self._small = warehouse.small_files if few else warehouse.small_rows
        self._warehouse = warehouse
        self._recording_id = recording_id

    def __call__(self, question: str, *tables: str) -> Rows:
        """Return the rows of the answer; their times are in UTC and say so."""
        kept = self._kept(tables)
        if kept is not None:
            rows: Rows = asked_in_memory(question, kept).to_pylist()
            return rows
        return [in_utc(row.asDict(recursive=True)) for row in self._frame(question, tables).collect()]

    def arrow(self, question: str, *tables: str) -> pa.Table:
        """Return the answer."""
        kept = self._kept(tables)
        return asked_in_memory(question, kept) if kept is not None else self._frame(question, tables).toArrow()

    def _kept(self, tables: Sequence[str]) -> dict[str, Local] | None:
        """Return the tables, if all of them are small."""
        small = {name: self._small(name, self._recording_id) for name in tables}
        kept = {name: one for name, one in small.items() if one is not None}
        return kept if len(kept) == len(tables) else None

    def _frame(self, question: str, tables: Sequence[str]) -> DataFrame:
        frames: dict[str, Any] = {name: self._warehouse.looked_at(name, self._recording_id) for name in tables}
        return self._warehouse.spark.sql(question, **frames)


def in_utc(value: Any) -> Any:  # noqa: ANN401 - plain values of any depth
    """Return the same with a zone in times that say none: Spark's, which are in UTC."""
    return _times_changed(value, lambda time: time.replace(tzinfo=UTC))


def without_zones(value: Any) -> Any:  # noqa: ANN401 - as above
    """Return the same with times that say no zone."""
    return _times_changed(value, lambda time: time.replace(tzinfo=None))


def _times_changed(value: Any, change: Callable[[datetime], datetime]) -> Any:  # noqa: ANN401 - as above
    if isinstance(value, list):
        return [_times_changed(one, change) for one in value]
    if isinstance(value, dict):
        return {name: _times_changed(one, change) for name, one in value.items()}
    return change(value) if isinstance(value, datetime) else value


def asked_in_memory(question: str, tables: Mapping[str, Local]) -> pa.Table:
    """Return the answer of tables in memory, or in files of which DuckDB reads the columns that it is asked for."""
    asked = for_duckdb(question.format_map({name: f"`{name}`" for name in tables}))
    with closed_database(tables) as db:
        return db.sql(asked).to_arrow_table()
