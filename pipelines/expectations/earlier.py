"""What an earlier validation found, and what of each table has changed since, so that only this is looked at.

A file of a Delta table never changes. A rule that each row meets by itself, and that no row broke, still holds in every
file that was there. A rule that compares rows of a partition with others at their own or later places (`onward`) still
holds before the first place at which a row of the partition has changed. All other rules are counted anew.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final, NamedTuple

import duckdb

from pipelines.expectations.rules import PARTITION, PLACE, same_partition
from pipelines.spark.session import VERSION
from pipelines.warehouse.came_and_went import changes_of
from pipelines.warehouse.commit_point import last_complete_run
from pipelines.warehouse.dialect import duckdb_string
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipelines.expectations.database import Local
    from pipelines.expectations.rules import TableRule
    from pipelines.warehouse.came_and_went import Change
    from pipelines.warehouse.delta_io import Warehouse
    from pipelines.warehouse.table_files import TableFiles

COMPARED_ROWS: Final = 200_000  # of a table that came and went: so many are compared, as most may be as they were
_CHANGED: Final = "changed"  # by table and partition, the first place at which something changed


class Earlier(NamedTuple):
    """An earlier validation, by the same rules."""

    held: frozenset[str]  # ids of the rules that no row broke
    changes: Mapping[str, Change]  # by table, as far as Delta's log tells them

    def tells_of(self, rule: TableRule) -> bool:
        """Whether a rule held, and what has changed in its tables is known."""
        return rule.id in self.held and all(name in self.changes for name in (rule.table, *rule.reads))

    @property
    def size_bytes(self) -> int:
        """The size of all files that came or went, as they are compressed."""
        return sum(one.size_bytes for one in self.changes.values())

    @property
    def tables(self) -> dict[str, Local]:
        """What came and what went, as tables of a database."""
        found: dict[str, Local] = {}
        for name, change in self.changes.items():
            found |= {new(name): change.new, gone(name): change.gone}
        return found


def new(name: str) -> str:
    """Return the name of what came to a table."""
    return f"{name}__new"


def gone(name: str) -> str:
    """Return the name of what went from a table."""
    return f"{name}__gone"


def digest_of(rules: Sequence[TableRule]) -> str:
    """Return a digest of everything that says what is counted: what held by other rules says nothing."""
    said = [
        (one.id, one.reads, one.breaches, one.condition, one.key, one.onward, one.carried, one.reaches) for one in rules
    ]
    return hashlib.sha256(repr((VERSION, duckdb.__version__, said)).encode()).hexdigest()[:16]


def find_earlier(
    warehouse: Warehouse, recording_id: str, rules_digest: str, files: Mapping[str, TableFiles]
) -> Earlier | None:
    """Return the last validation of these tables; None: there is none, or it went by other rules.

    `rules_digest`: that of the rules now (`digest_of`). `files`: those of all tables as they are now.
    """
    last = last_complete_run(warehouse, recording_id, "versions", "table_versions", stage="validate")
    if last is None or json.loads(last["versions"]).get("rules") != rules_digest:
        return None
    changes = changes_of(files, json.loads(last["table_versions"]))
    return Earlier(_held(warehouse, recording_id, last["run_id"]), changes)


def _held(warehouse: Warehouse, recording_id: str, run_id: str) -> frozenset[str]:
    """Return the ids of the rules that no row broke in a run."""
    columns = ("table", "expectation", "success", "rows_failed")
    rows = warehouse.of_run("expectation_results", recording_id, run_id, columns).to_pylist()
    return frozenset(
        f"{row['table'].split(', ')[0]}__{row['expectation']}"
        for row in rows
        if row["success"] and row["rows_failed"] == 0
    )


def find_changed(db: duckdb.DuckDBPyConnection, earlier: Earlier) -> dict[str, int] | None:
    """Note from which place on something of each table and partition has changed; None: some row says no place.

    Return the first of these places by table.
    """
    names = [name for name in earlier.changes if {*PLACE} <= {one.name for one in TABLES[name].columns}]
    places, each = ", ".join(PARTITION), " UNION ALL ".join(_differing(db, name) for name in names)
    first = "min(seq) AS since, count(*) > count(seq) AS is_unknown"
    db.execute(f"CREATE TEMP TABLE {_CHANGED} AS SELECT name, {places}, {first} FROM ({each}) GROUP BY name, {places}")
    unknown = " OR ".join(("is_unknown", *(f"{column} IS NULL" for column in PARTITION)))
    found = db.execute(f"SELECT name, min(since), bool_or({unknown}) FROM {_CHANGED} GROUP BY name").fetchall()
    return None if any(is_unknown for *_, is_unknown in found) else {name: since for name, since, _ in found}


def _differing(db: duckdb.DuckDBPyConnection, name: str) -> str:
    """Return the query for the places of the rows of a table that came or went, as far as it pays without the same."""
    places, parts = ", ".join(PLACE), ((new(name), 1), (gone(name), -1))
    counts = " + ".join(f"(SELECT count(*) FROM {part})" for part, _ in parts)
    ((rows,),) = db.execute(f"SELECT {counts}").fetchall()
    every = " UNION ALL ".join(
        f"SELECT {places}, hash(line) AS hashed, {sign} AS rows FROM {part} AS line" for part, sign in parts
    )
    differing = f"GROUP BY {places}, hashed HAVING sum(rows) <> 0" if rows <= COMPARED_ROWS else ""
    return f"SELECT {duckdb_string(name)} AS name, {places} FROM ({every}) {differing}"


def onward(rule: TableRule, first: Mapping[str, int]) -> dict[str, str]:
    """Return by which queries a rule is to read its tables, to be counted from the first changes in them on.

    `first`: what `find_changed` returns. That no row lies before all changes is said once more as a number, by which
    DuckDB leaves out most rows of a long history before it looks for their partitions, and whole files by what they say
    of themselves.
    """
    names = rule.table, *rule.reads
    least = min((first[name] for name in names if name in first), default=0)
    places, ours = ", ".join(PARTITION), ", ".join(map(duckdb_string, names))
    since = f"SELECT {places}, min(since) AS since FROM {_CHANGED} WHERE name IN ({ours}) GROUP BY {places}"
    return {name: f"({_onward(name, rule, f'({since}) AS changes', least)})" for name in names}


def _onward(name: str, rule: TableRule, changes: str, least: int) -> str:
    line = f"{name} AS line JOIN {changes} ON {same_partition('line', 'changes')}"
    carried, reach = rule.carried.get(name), rule.reaches.get(name)
    if carried is None:
        last = "line.seq" if reach is None else f"greatest(line.seq, line.{reach})"
        return f"SELECT line.* FROM {line} WHERE {last} >= {least} AND {last} >= changes.since"
    by = ", ".join(f"line.{column}" for column in (*PARTITION, *carried.by))
    values = "".join(f", line.{column}" for column in carried.values)
    lasts = "".join(f", max_by(line.{column}, line.seq) AS {column}" for column in carried.values)
    before = f"SELECT {by}, max(line.seq) AS seq{lasts} FROM {line} WHERE line.seq < changes.since GROUP BY {by}"
    return f"SELECT {by}, line.seq{values} FROM {line} WHERE line.seq >= changes.since UNION ALL {before}"
