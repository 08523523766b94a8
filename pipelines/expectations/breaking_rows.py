"""The rows that break a rule: their number, the first few as JSON, and where these stand.

Of tables that DuckDB reads it is asked, so that a rule that fails starts no job of Spark's; of all others Spark is, and
of very many rows. Both say the same of the same rows, in the same words.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from heapq import nsmallest
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from pyspark.sql import functions as F

from pipelines.expectations.database import NAMES
from pipelines.warehouse.dialect import for_duckdb

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb
    from pyspark.sql import SparkSession

    from pipelines.expectations.rules import TableRule

EXAMPLES: Final = 3
AT_ONCE: Final = 10_000  # rows in Python


class Breaking(NamedTuple):
    """The rows that break a rule."""

    rows: int
    examples: list[str]  # the first few in the order of their JSON


class Tables(Protocol):
    """What can be asked for rows."""

    def breaking(self, rule: TableRule) -> Breaking:
        """Return the rows that break a rule."""
        ...

    def events(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of a query over `replication_events`, which goes by its name in `names`."""
        ...

    def columns(self, table_name: str) -> list[str]:
        """Return the columns that a table has."""
        ...

    @property
    def names(self) -> Mapping[str, str]:
        """The names by which queries call the tables."""
        ...


class ByDuckDB:
    """Tables that DuckDB reads in this process."""

    names: Mapping[str, str] = NAMES

    def __init__(self, db: duckdb.DuckDBPyConnection) -> None:
        """Remember the database that has them, by their names."""
        self._db = db

    def breaking(self, rule: TableRule) -> Breaking:
        """Return the rows that break a rule, all of whose tables are here."""
        count = 0

        def told() -> Any:  # noqa: ANN401 - of batches of any rows
            nonlocal count
            for batch in self._asked(rule.sql(self.names)).to_arrow_reader(AT_ONCE):
                count += len(batch)
                yield map(as_json, batch.to_pylist())

        examples = nsmallest(EXAMPLES, chain.from_iterable(told()))
        return Breaking(count, examples)

    def events(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of a query over `replication_events`."""
        rows: list[dict[str, Any]] = self._asked(query).to_arrow_table().to_pylist()
        return rows

    def columns(self, table_name: str) -> list[str]:
        """Return the columns that a table has."""
        return list(self._db.table(table_name).columns)

    def _asked(self, query: str) -> duckdb.DuckDBPyRelation:
        return self._db.sql(for_duckdb(query))


class BySpark:
    """Tables that Spark reads, through views."""

    def __init__(self, spark: SparkSession, views: Mapping[str, str]) -> None:
        """Remember them; no view is made before it is asked for."""
        self._spark = spark
        self.names = views

    def breaking(self, rule: TableRule) -> Breaking:
        """Return the rows that break a rule."""
        rows = self._spark.sql(rule.sql(self.names))
        told = rows.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("row"))
        examples = [row["row"] for row in told.orderBy("row").limit(EXAMPLES).collect()]
        return Breaking(rows.count() if examples else 0, examples)

    def events(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of a query over `replication_events`."""
        return [row.asDict() for row in self._spark.sql(query).collect()]

    def columns(self, table_name: str) -> list[str]:
        """Return the columns that a table has."""
        return self._spark.table(self.names[table_name]).columns


def as_json(row: Mapping[str, Any]) -> str:
    """Return a row as the JSON that Spark makes of it, but for the digits of very large and small floats."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: object) -> str | int | float:
    """Return as JSON has it what JSON has no type for."""
    match value:
        case datetime():
            in_utc = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
            return f"{in_utc.isoformat(timespec='milliseconds')}Z"
        case date():
            return value.isoformat()
        case Decimal():  # a sum of whole numbers, which are whole numbers in Spark
            return int(value) if value == value.to_integral_value() else float(value)
        case bytes():
            return base64.b64encode(value).decode()
    message = f"no JSON for {type(value).__name__}"
    raise TypeError(message)
