"""Registers a warehouse's tables and views in the catalog of a Spark session, such as a Hive metastore."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from delta.tables import DeltaTable

from pipelines.recording.names import inside, whole_place
from pipelines.warehouse.views import SHOWN, SPARK, statements
from schemas.errors import InputError
from schemas.views import VIEWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession, warehouse: str, database: str | None = None) -> list[str]:
    """Register what there is, and return its names. Tables stay where they are; older views are replaced.

    Raises:
        InputError: there is no warehouse, or a table of that name is another one.

    """
    place = whole_place(warehouse)
    tables = [name for name in SHOWN if DeltaTable.isDeltaTable(spark, inside(place, name))]
    if not tables:
        message = "no tables of Tidemark are there"
        raise InputError(message, source=warehouse)
    views = [view for view in VIEWS.values() if view.table in tables]
    for statement in statements(warehouse, SPARK, database, tables):
        spark.sql(statement)
    for name in tables:
        _check_place(spark, name, inside(place, name))
    return [*tables, *(view.name for view in views)]


def _check_place(spark: SparkSession, name: str, place: str) -> None:
    """InputError if the catalog had a table of that name that lies elsewhere: it is not replaced."""
    (detail,) = spark.sql(f"DESCRIBE DETAIL {name}").select("location").collect()
    if _path(detail["location"]) != _path(place):
        message = (
            f"the catalog has another table '{name}', in {detail['location']}: name another --database, "
            f"or drop that table from the catalog, which leaves its files where they are"
        )
        raise InputError(message, source=place)


def _path(place: str) -> str:
    """Delta writes a place as a URI, where a path of this machine may have been given."""
    parts = urlsplit(place)
    return unquote(parts.path) if parts.scheme == "file" else place
