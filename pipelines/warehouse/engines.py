"""Tables and views by their plain names in DuckDB and in Polars, over whatever Arrow reads: no Spark, no network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pipelines.warehouse.views import DUCKDB, other_columns, view_sql
from schemas.views import PLACE, UNNESTED, VIEWS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb
    import polars as pl
    import pyarrow.dataset as ds

    from schemas.views import View


def in_duckdb(tables: Mapping[str, pa.Table | ds.Dataset]) -> duckdb.DuckDBPyConnection:
    """Return a connection of its own that has these tables, and the views that read no others. Its times are UTC."""
    import duckdb  # noqa: PLC0415 - whoever wants Polars does not wait for DuckDB

    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    for name, rows in tables.items():
        db.register(name, rows)
    for view in _views(tables):
        db.execute(f"CREATE VIEW {view.name} AS {view_sql(view, DUCKDB)}")
    return db


def in_polars(tables: Mapping[str, pa.Table | ds.Dataset]) -> pl.SQLContext[pl.LazyFrame]:
    """Return a context that has the same; Polars is not among Tidemark's own packages."""
    import polars as pl  # noqa: PLC0415 - as above, and it may not be there

    frames = {name: _frame(rows) for name, rows in tables.items()}
    context = pl.SQLContext(frames)
    for view in _views(tables):
        reads = {UNNESTED: _unnested(frames[view.table], view)} if view.lists else {view.table: frames[view.table]}
        context.register(view.name, pl.SQLContext(reads).execute(view.sql))
    return context


def _views(tables: Mapping[str, object]) -> list[View]:
    return [view for view in VIEWS.values() if view.table in tables]


def _frame(rows: pa.Table | ds.Dataset) -> pl.LazyFrame:
    import polars as pl  # noqa: PLC0415 - as above

    if isinstance(rows, pa.Table):
        return pl.LazyFrame(pl.from_arrow(rows))
    return pl.scan_pyarrow_dataset(rows)


def _unnested(frame: pl.LazyFrame, view: View) -> pl.LazyFrame:
    """Return the table's rows with the view's lists unnested side by side."""
    import polars as pl  # noqa: PLC0415 - as above

    first, *_ = view.lists
    places = pl.int_ranges(1, pl.col(first).list.len() + 1, dtype=pl.Int64).alias(PLACE)
    rows = frame.filter(pl.col(first).list.len() > 0).with_columns(places).explode(*view.lists, PLACE)
    columns = [pl.col(*other_columns(view), PLACE)]
    for name, called in view.lists.items():
        if isinstance(called, str):
            columns.append(pl.col(name).alias(called))
        else:
            columns += [pl.col(name).struct.field(part).alias(alias) for part, alias in called.items()]
    return rows.select(columns)
