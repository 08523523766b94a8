"""Questions to the tables of one recording: DuckDB answers of those that lie on this machine, Spark of all others.

A question is written once, in Spark's SQL; its answer is small. sqlglot says it in DuckDB's, which answers in
milliseconds what Spark plans for a second. It has small tables in the driver's memory, and reads the files of others.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import duckdb

from pipelines.expectations.database import READ_BYTES, closed_database
from pipelines.warehouse.dialect import for_duckdb
from pipelines.warehouse.table_files import TableFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

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

    def __init__(
        self, warehouse: Warehouse, recording_id: str, *, few: bool = False, together: Iterable[str] = ()
    ) -> None:
        """Nothing is read before it is asked for. `few`: so little is asked that no table is read as a whole for it.

        `together`: tables that are asked one after the other, so that one database has all of them.
        """
        self._in_memory = warehouse.read_before if few else warehouse.small_rows
        self._warehouse = warehouse
        self._recording_id = recording_id
        self._together = frozenset(together)
        # To open one takes as long as to ask it; what it has read of files it knows the next time.
        self._open: dict[tuple[str, ...], tuple[dict[str, Local], duckdb.DuckDBPyConnection]] = {}

    def __call__(self, question: str, *tables: str) -> Rows:
        """Return the rows of the answer; their times are in UTC and say so."""
        answer = self._answered_here(question, tables)
        if answer is not None:
            rows: Rows = answer.to_pylist()
            return rows
        return [in_utc(row.asDict(recursive=True)) for row in self._frame(question, tables).collect()]

    def arrow(self, question: str, *tables: str) -> pa.Table:
        """Return the answer."""
        answer = self._answered_here(question, tables)
        return self._frame(question, tables).toArrow() if answer is None else answer

    def _answered_here(self, question: str, tables: Sequence[str]) -> pa.Table | None:
        """Return DuckDB's answer; None: it cannot read all of these tables, or needs more memory than it is given."""
        here = self._found(self._together) if self._together.issuperset(tables) else None
        here = self._found(tables) if here is None else here
        if here is None:
            return None
        try:
            return answer_of(self._database(here), question, here)
        except duckdb.OutOfMemoryException:
            return None

    def _found(self, tables: Collection[str]) -> dict[str, Local] | None:
        """Return all of these tables as DuckDB reads them; None: it cannot."""
        rows = {name: self._in_memory(name, self._recording_id) for name in tables}
        here: dict[str, Local] = {name: one for name, one in rows.items() if one is not None}
        others = [name for name in tables if name not in here]
        here |= self._warehouse.files_within(others, self._recording_id, READ_BYTES)
        return here if len(here) == len(tables) else None

    def _database(self, here: dict[str, Local]) -> duckdb.DuckDBPyConnection:
        """Return a database of these tables, and of no others; it is as they were when they were read."""
        names = tuple(sorted(here))
        before, db = self._open.get(names, ({}, None))
        if db is None or not all(_are_same(before[name], here[name]) for name in names):
            db = closed_database(here)
            self._open[names] = here, db
        return db

    def _frame(self, question: str, tables: Sequence[str]) -> DataFrame:
        frames: dict[str, Any] = {name: self._warehouse.looked_at(name, self._recording_id) for name in tables}
        return self._warehouse.spark.sql(question, **frames)


def _are_same(one: Local, other: Local) -> bool:
    return one is other or (isinstance(one, TableFiles) and isinstance(other, TableFiles) and one.paths == other.paths)


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


def asked_here(question: str, tables: Mapping[str, Local]) -> pa.Table:
    """Return the answer of tables in memory or in files."""
    with closed_database(tables) as db:
        return answer_of(db, question, tables)


def answer_of(db: duckdb.DuckDBPyConnection, question: str, tables: Iterable[str]) -> pa.Table:
    """Return the answer of a database that has these tables."""
    return db.sql(for_duckdb(question.format_map({name: f"`{name}`" for name in tables}))).to_arrow_table()
