"""Questions to the tables of one recording: small tables are asked in the driver's memory, all others by Spark.

A question is written once, in Spark's SQL; its answer is small. For small tables sqlglot says it in DuckDB's, which
answers in milliseconds what Spark plans for a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import duckdb
import sqlglot

from pipelines.expectations.counting import CLOSED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from pipelines.warehouse.delta_io import Warehouse

_PREFIX: Final = "tidemark_asked_"
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

    def __init__(self, warehouse: Warehouse, recording_id: str) -> None:
        """Nothing is read before it is asked for."""
        self._warehouse = warehouse
        self._recording_id = recording_id

    def __call__(self, question: str, *tables: str) -> Rows:
        """Return the rows of the answer."""
        rows: Rows = self.arrow(question, *tables).to_pylist()
        return rows

    def arrow(self, question: str, *tables: str) -> pa.Table:
        """Return the answer."""
        small = {name: self._warehouse.small(name, self._recording_id) for name in tables}
        kept = {name: one.rows for name, one in small.items() if one is not None}
        if len(kept) == len(tables):
            return asked_in_memory(question, kept)
        return self._asked_by_spark(question, tables)

    def _asked_by_spark(self, question: str, tables: Sequence[str]) -> pa.Table:
        spark = self._warehouse.spark
        try:
            for name in tables:
                frame = self._warehouse.looked_at(name, self._recording_id)
                frame.createOrReplaceTempView(f"{_PREFIX}{name}")
            asked = question.format_map({name: f"{_PREFIX}{name}" for name in tables})
            answer = spark.sql(asked).toArrow()
        finally:
            for name in tables:
                spark.catalog.dropTempView(f"{_PREFIX}{name}")
        return answer


def asked_in_memory(question: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the answer of tables in memory."""
    (asked,) = sqlglot.transpile(
        question.format_map({name: f"`{name}`" for name in tables}), read="spark", write="duckdb"
    )
    with duckdb.connect(config=CLOSED) as db:
        for name, rows in tables.items():
            db.register(name, rows)
        return db.sql(asked).to_arrow_table()
