"""Whether new rows meet the checks of their table: few are looked at by DuckDB, and many by Spark."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import duckdb
import pyarrow.dataset as ds
from sqlglot.errors import SqlglotError

from pipelines.spark.row_files import HERE_BYTES, PARTITIONED, frame_of, in_files
from pipelines.spark.staging import may_be_null, size_of
from pipelines.warehouse.contract import all_met
from pipelines.warehouse.dialect import SETTINGS, duckdb_string, for_duckdb
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession


def are_sound(spark: SparkSession, table_name: str, recording_id: str, files: Sequence[Path]) -> bool:
    """Whether no row in Parquet files of a recording breaks a check of their table, as far as DuckDB can tell."""
    if not files:
        return True
    schema, broken = may_be_null(TABLES[table_name].arrow_schema), f"NOT ({all_met(TABLES[table_name])})"
    if size_of(files) > HERE_BYTES:
        return not frame_of(spark, files, recording_id, schema).where(broken).head(1)
    with _database().cursor() as db:
        db.register("given", ds.dataset([*map(str, files)], in_files(schema)))
        rows = f"(SELECT *, {duckdb_string(recording_id)} AS {PARTITIONED} FROM given)"
        try:
            return not db.execute(f"SELECT 1 FROM {rows} WHERE {for_duckdb(broken)} LIMIT 1").fetchall()
        except (duckdb.Error, SqlglotError):
            return False  # Spark is to write them


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """Return an empty database, which takes longer to make than to ask."""
    return duckdb.connect(config=SETTINGS)
