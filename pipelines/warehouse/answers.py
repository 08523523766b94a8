"""Answers to queries over the rows of one recording: of small tables by DuckDB, of all others by Spark.

A query is written once, in Spark's SQL, and sqlglot says it in DuckDB's. Its sums are cast, since DuckDB's are wider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import duckdb
import sqlglot

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from pipelines.warehouse.delta_io import Warehouse

# Nothing is fetched from the network, and no file is read.
CLOSED: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,
    "enable_external_access": False,
    "TimeZone": "UTC",
}


def answer(warehouse: Warehouse, recording_id: str, query: str, tables: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows that a query in Spark's SQL finds; its tables stand in it as `{facts}`.

    Times are in UTC and say no zone, as everywhere in the driver.
    """
    held = {name: small.rows for name in tables if (small := warehouse.small(name, recording_id)) is not None}
    if len(held) == len(tables):
        rows: list[dict[str, Any]] = _without_zones(_by_duckdb(query, held).to_pylist())
        return rows
    frames: dict[str, Any] = {name: warehouse.looked_at(name, recording_id) for name in tables}
    return [row.asDict(recursive=True) for row in warehouse.spark.sql(query, **frames).collect()]


def _by_duckdb(query: str, tables: dict[str, pa.Table]) -> pa.Table:
    (asked,) = sqlglot.transpile(query.format(**{name: name for name in tables}), read="spark", write="duckdb")
    with duckdb.connect(config=CLOSED) as db:
        for name, rows in tables.items():
            db.register(name, rows)
        return db.sql(asked).to_arrow_table()


def _without_zones(value: Any) -> Any:  # noqa: ANN401 - plain values of any depth
    if isinstance(value, list):
        return [_without_zones(one) for one in value]
    if isinstance(value, dict):
        return {name: _without_zones(one) for name, one in value.items()}
    return value.replace(tzinfo=None) if getattr(value, "tzinfo", None) is not None else value
