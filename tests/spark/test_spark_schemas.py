from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from pipelines.spark.spark_schemas import spark_schema, spark_type
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", TABLES)
def test_schema_comes_back_from_spark_as_it_went(name: str) -> None:
    table = TABLES[name]
    back = to_arrow_schema(spark_schema(table))
    assert back.names == [column.name for column in table.columns]
    for field, column in zip(back, table.columns, strict=True):
        assert field.nullable == column.nullable, column.name
        assert spark_type(field.type) == spark_type(column.type), column.name


@pytest.mark.parametrize("name", TABLES)
def test_every_column_carries_its_comment(name: str) -> None:
    assert [f.metadata["comment"] for f in spark_schema(TABLES[name])] == [c.comment for c in TABLES[name].columns]


def test_a_type_that_no_table_uses_is_refused() -> None:
    with pytest.raises(TypeError, match="uint8"):
        spark_type(pa.uint8())


def test_the_dictionary_s_queries_are_valid(spark: SparkSession) -> None:
    for name, table in TABLES.items():
        spark.createDataFrame([], spark_schema(table)).createOrReplaceTempView(name)
    for table in TABLES.values():
        for _, sql in table.questions:
            assert spark.sql(sql).columns  # analysed, not run
    for name in TABLES:
        spark.catalog.dropTempView(name)
