"""How many rows break each rule: of tables in the driver's memory by DuckDB, of all others by one job of Spark.

Rules are written once, in Spark's SQL. For small tables Spark needs ten seconds to plan what DuckDB does in a third of
a second, so sqlglot says the same rule in DuckDB's SQL.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import duckdb
import sqlglot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from pipelines.expectations.rules import TableRule

ALIKE: Final = "keys that may stand twice"
# Nothing is fetched from the network, and no file is read.
_CLOSED: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,
    "enable_external_access": False,
    "TimeZone": "UTC",
}


# What sqlglot says for Spark's `try_add` and `try_subtract`, which are null where a number would be too large.
_MACROS: Final = (
    "CREATE MACRO safe_add(one, other) AS TRY(one + other)",
    "CREATE MACRO safe_subtract(one, other) AS TRY(one - other)",
)


def closed_database() -> duckdb.DuckDBPyConnection:
    """Return a database in memory that reads no file, fetches nothing, and knows the functions that rules use."""
    db = duckdb.connect(config=_CLOSED)
    for macro in _MACROS:
        db.execute(macro)
    return db


def counts_in_memory(rules: Sequence[TableRule], tables: Mapping[str, pa.Table]) -> dict[str, int]:
    """Count the rows that break each rule (by its id); `tables` holds every table that a rule reads.

    Raises:
        sqlglot.errors.SqlglotError: a rule is not Spark's SQL.
        duckdb.Error: a rule asks for something that the tables do not have.

    """
    names = {name: name for name in tables}
    counts = {}
    with closed_database() as db:
        for name, rows in tables.items():
            db.register(name, rows)
        for rule in rules:
            ((counts[rule.id],),) = db.execute(for_duckdb(f"SELECT count(*) FROM ({rule.sql(names)})")).fetchall()
    return counts


@lru_cache(2000)  # rules and most questions are the same for every recording
def for_duckdb(query: str) -> str:
    """Return a query of Spark's SQL in DuckDB's."""
    (said,) = sqlglot.transpile(query, read="spark", write="duckdb")
    return said


def counts_by_spark(
    spark: SparkSession, rules: Sequence[TableRule], views: Mapping[str, str], tables: Sequence[str]
) -> dict[str, int]:
    """Count in one job the rows of each of the tables (by its name), and the rows that break each rule (by its id).

    There are as few queries as possible: to plan and compile one takes longer than to run it on up to some millions of
    rows.
    """
    keyed = [rule for rule in rules if rule.key]
    passed = [rule for rule in rules if rule.condition and rule.table in tables]
    asked = [_passed_once(name, views[name], passed) for name in tables]
    alone = (rule for rule in rules if rule not in passed and rule.key is None)
    asked += [f"SELECT '{rule.id}' AS what, count(*) AS rows FROM ({rule.sql(views)})" for rule in alone]
    asked += [f"SELECT '{ALIKE}' AS what, count(*) AS rows FROM ({_alike(keyed, views)})"] if keyed else []
    counts = {row["what"]: row["rows"] for row in spark.sql(" UNION ALL ".join(asked)).collect()} if asked else {}
    alike = counts.pop(ALIKE, 0)
    return counts | {rule.id: spark.sql(rule.sql(views)).count() if alike else 0 for rule in keyed}


def _passed_once(name: str, view: str, rules: Sequence[TableRule]) -> str:
    """Return a query that counts the rows of a table, and those that break each of its conditions."""
    broken = (f", '{rule.id}', count_if(NOT ({rule.condition}))" for rule in rules if rule.table == name)
    return f"SELECT explode(map('{name}', count(*){''.join(broken)})) AS (what, rows) FROM {view}"


def _alike(keyed: Sequence[TableRule], views: Mapping[str, str]) -> str:
    """Return a query for hashes of keys that occur twice: if there are none, no key does, and no rows were moved."""
    hashes = (f"SELECT xxhash64('{rule.id}', {rule.key}) AS hashed FROM {views[rule.table]}" for rule in keyed)
    return f"SELECT hashed FROM ({' UNION ALL '.join(hashes)}) GROUP BY hashed HAVING count(*) > 1"
