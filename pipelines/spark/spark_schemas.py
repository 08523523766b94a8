"""Converts the Arrow schemas of `schemas` to Spark types: the one place where the two type systems meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import types as T

if TYPE_CHECKING:
    from schemas.model import Table

_SCALARS: dict[pa.DataType, T.DataType] = {
    pa.int32(): T.IntegerType(),
    pa.int64(): T.LongType(),
    pa.float64(): T.DoubleType(),
    pa.string(): T.StringType(),
    pa.binary(): T.BinaryType(),
    pa.bool_(): T.BooleanType(),
    pa.timestamp("us", tz="UTC"): T.TimestampType(),
}


def spark_type(arrow_type: pa.DataType) -> T.DataType:
    """Return the Spark type of an Arrow type; TypeError for a type that none of our frames has."""
    if pa.types.is_list(arrow_type):
        return T.ArrayType(spark_type(arrow_type.value_type), arrow_type.value_field.nullable)
    if pa.types.is_struct(arrow_type):
        return T.StructType([T.StructField(f.name, spark_type(f.type), f.nullable) for f in arrow_type])
    if arrow_type not in _SCALARS:
        message = f"no Spark type for Arrow's {arrow_type}"
        raise TypeError(message)
    return _SCALARS[arrow_type]


def spark_ddl(schema: pa.Schema) -> str:
    """Return an Arrow schema as DDL, as Spark expects it for the result of a grouped function."""
    return ", ".join(f"`{field.name}` {spark_type(field.type).simpleString()}" for field in schema)


def spark_schema(table: Table) -> T.StructType:
    """Return the Spark schema of a table: same names and order, with nullability, and comments that Delta shows."""
    return T.StructType(
        [T.StructField(c.name, spark_type(c.type), c.nullable, {"comment": c.comment}) for c in table.columns]
    )
