"""How many rows break each rule: of tables that DuckDB reads in this process, of all others by one job of Spark.

Of a small table Spark plans for ten seconds what DuckDB does in a third of a second, and of ten million rows it takes
many times the CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipelines.expectations.database import NAMES
from pipelines.expectations.described import ExpectKnownValues, ExpectNoNulls
from pipelines.expectations.earlier import find_changed, new, onward
from pipelines.warehouse.dialect import for_duckdb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb
    from pyspark.sql import SparkSession

    from pipelines.expectations.earlier import Earlier
    from pipelines.expectations.rules import TableRule

ALIKE: Final = "keys that may stand twice"


class Looked(NamedTuple):
    """What one pass over a table finds."""

    rows: int
    broken: dict[str, int]  # by the id of a rule that each row meets by itself: how many do not
    occurring: dict[str, list[Any]]  # by column: the values that Great Expectations is to look into


def look_through(
    db: duckdb.DuckDBPyConnection, name: str, rules: Sequence[TableRule], earlier: Earlier | None = None
) -> Looked:
    """Read a table once, for all rules that each row meets by itself; only what is new of it, if they held earlier.

    The table's own expectations ask whether a value is null, and whether it is one of a list: the set of a column's
    values answers both. Great Expectations hashes every value that it is given, so all rows would cost it too much.

    Raises:
        sqlglot.errors.SqlglotError: a rule is not Spark's SQL.
        duckdb.Error: a rule asks for something that the tables do not have.

    """
    own = [rule for rule in rules if rule.table == name]
    counted = [rule for rule in own if rule.native is None and rule.condition]
    natives = [rule.native for rule in own]
    listed = [native.column for native in natives if isinstance(native, ExpectKnownValues)]
    filled = {*listed, *(native.column for native in natives if isinstance(native, ExpectNoNulls))}
    columns = db.table(name).columns
    there = [column for column in columns if column in filled]
    asked = {
        **{rule.id: f"count(*) FILTER (WHERE NOT ({rule.condition}))" for rule in counted},
        **{f"values of {column}": f"collect_set(`{column}`)" for column in listed if column in there},
        **{f"number of {column}": f"count(`{column}`)" for column in there},
    }
    have_held = earlier is not None and all(earlier.tells_of(rule) for rule in own if rule.condition or rule.native)
    part = new(name) if have_held else name
    (row,) = db.execute(for_duckdb(f"SELECT {', '.join(('count(*)', *asked.values()))} FROM {part}")).fetchall()
    rows, found = row[0], dict(zip(asked, row[1:], strict=True))
    occurring = {}
    for column in columns:
        nulls = rows - found.get(f"number of {column}", rows)
        some = sorted(found[f"values of {column}"] or ()) if column in listed else [0] * (nulls < rows)
        occurring[column] = [*some, *[None] * (nulls > 0)]
    if have_held:
        ((rows,),) = db.execute(f"SELECT count(*) FROM {name}").fetchall()
    return Looked(rows, {rule.id: found[rule.id] for rule in counted}, occurring)


def counts_by_duckdb(
    db: duckdb.DuckDBPyConnection,
    rules: Sequence[TableRule],
    looked: Mapping[str, Looked],
    earlier: Earlier | None = None,
) -> dict[str, int]:
    """Count the rows of each table (by its name), and the rows that break each rule (by its id).

    `looked`: what was found in the tables, for all of these rules. `earlier`: rules that held then are counted from the
    first change on, if that can be told, and only those that do not hold there as a whole. Raises as `look_through`.
    """
    counts = {name: found.rows for name, found in looked.items()}
    for found in looked.values():
        counts |= found.broken
    first = None if earlier is None else find_changed(db, earlier)
    for rule in rules:
        if rule.id in counts:
            continue
        is_told = earlier is not None and earlier.tells_of(rule)
        if is_told and rule.onward and first is not None:
            counts[rule.id] = _count(db, rule, onward(rule, first))
        elif is_told and rule.key and not rule.onward:
            counts[rule.id] = int(_are_alike_with_new(db, rule))
        if counts.get(rule.id) != 0:
            counts[rule.id] = _count(db, rule, NAMES)
    return counts


def _count(db: duckdb.DuckDBPyConnection, rule: TableRule, names: Mapping[str, str]) -> int:
    """Count the rows that break a rule, of the tables by these names."""
    if rule.key and not _are_alike(db, rule.key, names[rule.table]):
        return 0
    ((count,),) = db.execute(for_duckdb(f"SELECT count(*) FROM ({rule.sql(names)})")).fetchall()
    return int(count)


def _are_alike(db: duckdb.DuckDBPyConnection, key: str, table: str) -> bool:
    """Whether two rows have a key of the same hash: if none have, no rows share a key, and few bytes say so."""
    said = for_duckdb(f"SELECT count(*) > count(DISTINCT hash({key})) FROM {table}")
    ((are_alike,),) = db.execute(said).fetchall()
    return bool(are_alike)


def _are_alike_with_new(db: duckdb.DuckDBPyConnection, rule: TableRule) -> bool:
    """Whether a new row has a key of the same hash as another one, new or not."""
    hashed = f"SELECT hash({rule.key}) AS hashed FROM"
    those = f"({hashed} {rule.table}) WHERE hashed IN ({hashed} {new(rule.table)})"
    ((are_alike,),) = db.execute(for_duckdb(f"SELECT count(*) > count(DISTINCT hashed) FROM {those}")).fetchall()
    return bool(are_alike)


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
