"""The tables of a recording as its last complete run left them, for Spark, deltalake, Arrow and DuckDB.

Runs go on while one reads, and each table is written by itself. A run names the versions that belong together when it
has come to its end; these are read here, whatever has been written since:

    import tidemark
    tables = tidemark.snapshot("/lake/tidemark", "prod")
    tables.arrow("data_loss_incidents").to_pandas()                  # without a JVM
    tables.spark(spark, "isr_timeline").where("under_min_isr")       # with Spark
    tables.duckdb().sql("SELECT mechanism, records FROM incidents")  # with DuckDB, all tables and views by their names
    tables.polars().execute("SELECT mechanism, records FROM incidents").collect()  # the same with Polars
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from pipelines.warehouse.engines import in_duckdb, in_polars
from pipelines.warehouse.table_files import dataset_of
from pipelines.warehouse.views import SHOWN
from schemas.errors import InputError
from schemas.runs import FAILED
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    import duckdb
    import polars as pl
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One recording's tables in the versions that belong together."""

    warehouse: str
    recording_id: str
    run_id: str  # the run that left them so,
    finished: datetime  # and when it ended
    versions: Mapping[str, int]  # by table
    storage_options: Mapping[str, str] | None = None

    def path(self, table: str) -> str:
        """Return where a table is, for readers of other kinds."""
        return f"{self.warehouse.rstrip('/')}/{TABLES[table].name}"

    def table(self, table: str) -> DeltaTable:
        """Return a table in its version; it also has the rows of other recordings."""
        return DeltaTable(self.path(table), self.versions[table], _options(self.storage_options))

    def dataset(self, table: str) -> ds.Dataset:
        """Return the recording's rows, read when they are asked for."""
        return dataset_of(self.table(table), self.recording_id)

    def arrow(self, table: str) -> pa.Table:
        """Return the recording's rows."""
        return self.dataset(table).to_table()

    def duckdb(self) -> duckdb.DuckDBPyConnection:
        """Return a DuckDB connection in which tables, and the views of `schemas.views`, have their plain names."""
        return in_duckdb(self._shown())

    def polars(self) -> pl.SQLContext[pl.LazyFrame]:
        """Return the same for Polars, which Tidemark does not bring."""
        return in_polars(self._shown())

    def _shown(self) -> dict[str, ds.Dataset]:
        return {name: self.dataset(name) for name in SHOWN if name in self.versions}

    def spark(self, spark: SparkSession, table: str) -> DataFrame:
        """Return the recording's rows as a frame of a session that has Delta."""
        frame = spark.read.format("delta").option("versionAsOf", self.versions[table]).load(self.path(table))
        return frame.where(frame["recording_id"] == self.recording_id)


def snapshot(
    warehouse: str,
    recording_id: str,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Snapshot:
    """Return the tables as the recording's last complete run left them; InputError if there was none.

    `spark`: look it up through Spark, where deltalake does not come to the store. `storage_options`: deltalake's.
    """
    columns = ["recording_id", "run_id", "status", "finished", "table_versions"]
    path = f"{warehouse.rstrip('/')}/runs"
    if spark is None:
        runs = DeltaTable(path, storage_options=_options(storage_options))
        every: pa.Table = dataset_of(runs, recording_id).to_table(columns=columns)
    else:
        every = spark.read.format("delta").load(path).select(columns).toArrow()
    rows: list[dict[str, Any]] = [
        row for row in every.to_pylist() if row["recording_id"] == recording_id and row["status"] != FAILED
    ]
    if not rows:
        message = f"no run of the recording '{recording_id}' has come to its end in this warehouse"
        raise InputError(message, source=warehouse)
    last = max(rows, key=lambda row: (row["finished"], row["run_id"]))
    versions = json.loads(last["table_versions"])
    return Snapshot(warehouse, recording_id, last["run_id"], last["finished"], versions, storage_options)


def _options(said: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if said is None else dict(said)
