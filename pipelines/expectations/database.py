"""Tables in DuckDB: rows in the driver's memory, and Parquet files of this machine, of which each query reads its part.

Rules and questions are written once, in Spark's SQL (`warehouse.dialect`).
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

import duckdb
import pyarrow as pa

from pipelines.warehouse.dialect import SETTINGS, duckdb_string
from pipelines.warehouse.table_files import TableFiles
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Local: TypeAlias = pa.Table | TableFiles  # what DuckDB reads

NAMES: Final = {name: name for name in TABLES}  # by which queries call the tables
READ_BYTES: Final = 2 << 30  # of Parquet files in all, which DuckDB reads: more may be a cluster's work
MEMORY: Final = "2GB"  # for what DuckDB computes; what is more goes to disk
# What sqlglot says for Spark's `try_add` and `try_subtract`, which are null where a number would be too large.
_MACROS: Final = (
    "CREATE MACRO safe_add(one, other) AS TRY(one + other)",
    "CREATE MACRO safe_subtract(one, other) AS TRY(one - other)",
)
_PATTERN: Final = re.compile(r"[\[*?]")  # what DuckDB takes for a pattern in a path
_OF: Final = "recording_id"  # stands in the folder's name, and not in the file


def closed_database(tables: Mapping[str, Local], spill: Path | None = None) -> duckdb.DuckDBPyConnection:
    """Return a database of these tables, each by its name. It reads nothing else, and knows the functions of rules.

    `spill`: the folder for what does not fit into its memory; None: all of it must, or OutOfMemoryException is raised.
    """
    if spill is not None:
        spill.parent.mkdir(parents=True, exist_ok=True)  # the folder itself is made when something is put into it
    own = {"temp_directory": "" if spill is None else str(spill), "memory_limit": MEMORY}
    # A hundred queries ask the same files, of which each run adds one to a table.
    db = duckdb.connect(config=SETTINGS | own | {"parquet_metadata_cache": True})
    for macro in _MACROS:
        db.execute(macro)
    files = {name: one for name, one in tables.items() if isinstance(one, TableFiles) and len(one.files)}
    paths = {path for one in files.values() for found in one.paths for path in (str(found), _as_pattern(found))}
    db.execute(f"SET allowed_paths = [{', '.join(map(duckdb_string, sorted(paths)))}]")
    for name, one in tables.items():
        if name in files:
            db.execute(f"CREATE VIEW {name} AS {_rows_of(db, files[name])}")
        else:
            db.register(name, one if isinstance(one, pa.Table) else TABLES[one.name].arrow_schema.empty_table())
    db.execute("SET enable_external_access = false")
    return db


def _rows_of(db: duckdb.DuckDBPyConnection, files: TableFiles) -> str:
    """Return the query for all rows of files. Columns that a file lacks, since it is from before, are null in it.

    Of files that are read with a schema DuckDB thinks that they have one row, and puts the largest table of a join into
    memory. So they are read without one wherever this gives the same columns.
    """
    types = {name: kind for name, kind in _types(files.name).items() if name != _OF}
    paths = ", ".join(duckdb_string(_as_pattern(path)) for path in files.paths)
    read = f"read_parquet([{paths}], hive_partitioning = false, union_by_name = true)"
    if _columns_of(db, read) != types:
        schema = ", ".join(
            f"{duckdb_string(name)}: {{name: {duckdb_string(name)}, type: {duckdb_string(kind)}, default_value: NULL}}"
            for name, kind in types.items()
        )
        read = f"read_parquet([{paths}], schema = MAP {{{schema}}}, hive_partitioning = false)"
    names = (
        f"{duckdb_string(files.recording_id)} AS {_OF}" if name == _OF else f'"{name}"' for name in _types(files.name)
    )
    return f"SELECT {', '.join(names)} FROM {read}"


def _columns_of(db: duckdb.DuckDBPyConnection, read: str) -> dict[str, str]:
    """Return the types of the columns that files have, by name; none if these do not fit together."""
    try:
        found = db.execute(f"DESCRIBE SELECT * FROM {read}").fetchall()
    except duckdb.BinderException:
        return {}
    return {name: kind for name, kind, *_ in found}


@cache
def _types(table_name: str) -> dict[str, str]:
    """Return the types of a table's columns as DuckDB names them."""
    with duckdb.connect() as db:
        rows = db.from_arrow(TABLES[table_name].arrow_schema.empty_table())
        return dict(zip(rows.columns, map(str, rows.types), strict=True))


def _as_pattern(path: Path) -> str:
    """Return the pattern that is met by this path alone."""
    return _PATTERN.sub(r"[\g<0>]", str(path))
