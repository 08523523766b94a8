"""The cookbook's queries and the views in Spark, over the tables that DuckDB and Polars read."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from cookbook import plain, queries
from warehouse_without_spark import write_warehouse

import tidemark
from pipelines.warehouse.catalog import register
from schemas.errors import InputError
from schemas.views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
NAME = "unclean-election"
DATABASE = "tidemark_for_analysts"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, recordings: Path) -> Path:
    return write_warehouse(tmp_path_factory.mktemp("an analyst's"), recordings, [NAME])


@pytest.fixture(scope="module")
def registered(spark: SparkSession, warehouse: Path) -> Iterator[list[str]]:
    yield register(spark, str(warehouse), DATABASE)
    spark.sql("USE default")
    spark.sql(f"DROP SCHEMA {DATABASE} CASCADE")


def rows(found: pa.Table) -> list[dict[str, Any]]:
    return [{name: plain(value) for name, value in row.items()} for row in found.to_pylist()]


def test_spark_answers_as_duckdb_and_polars_do(spark: SparkSession, registered: list[str], warehouse: Path) -> None:
    tables = tidemark.snapshot(str(warehouse), NAME)
    duckdb, polars = tables.duckdb(), tables.polars()
    for query in queries():
        answer = rows(spark.sql(query.sql).toArrow())
        assert answer == rows(duckdb.sql(query.sql).to_arrow_table()), query.name
        assert answer == rows(polars.execute(query.sql).collect().to_arrow()), query.name
    assert "data_loss_incidents" in registered


def test_the_catalog_has_views_without_nested_columns(spark: SparkSession, registered: list[str]) -> None:
    for name in VIEWS:
        assert name in registered
        types = {field.dataType.typeName() for field in spark.table(name).schema}
        assert not types & {"array", "struct", "map"}, name
        assert spark.catalog.getTable(name).description == VIEWS[name].comment


def test_views_have_the_same_rows_in_spark(spark: SparkSession, registered: list[str], warehouse: Path) -> None:
    db = tidemark.snapshot(str(warehouse), NAME).duckdb()
    assert {*VIEWS} <= {*registered}
    for name in VIEWS:
        mine, others = rows(spark.table(name).toArrow()), rows(db.table(name).to_arrow_table())
        assert sorted(mine, key=repr) == sorted(others, key=repr), name
        assert mine


def test_a_table_of_that_name_that_lies_elsewhere_is_not_replaced(
    spark: SparkSession, registered: list[str], warehouse: Path, tmp_path: Path
) -> None:
    other = tmp_path / "another"
    shutil.copytree(warehouse / registered[0], other / registered[0])
    with pytest.raises(InputError, match="the catalog has another table 'facts'"):
        register(spark, str(other), DATABASE)


def test_where_there_are_no_tables_it_says_so(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no tables of Tidemark"):
        register(spark, str(tmp_path))
