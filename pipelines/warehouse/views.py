"""The views of `schemas.views` in each engine's SQL, and the statements that register tables and views in a catalog."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import sqlglot
from sqlglot import exp

from pipelines.recording.names import inside, whole_place
from schemas.errors import InputError
from schemas.tables import TABLES
from schemas.views import PLACE, UNNESTED, VIEWS
from schemas.windows import EVENT_WINDOWS, ORDER_STATES, REPLAY_CHECKPOINTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.views import View

SPARK: Final = "spark"
DUCKDB: Final = "duckdb"
DIALECTS: Final = (SPARK, DUCKDB)
# Where a run goes on from: of use to the same version of Tidemark only, and to nobody's questions.
_INNER: Final = {EVENT_WINDOWS.name, REPLAY_CHECKPOINTS.name, ORDER_STATES.name}
SHOWN: Final = tuple(name for name in TABLES if name not in _INNER)  # tables that a catalog is to have
_DATABASE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")  # what Hive takes without quotes, and so does everybody else
_DUCKDB_READS_DELTA: Final = ("INSTALL delta", "LOAD delta")


def view_sql(view: View, dialect: str) -> str:
    """Return the query that a view is."""
    (query,) = sqlglot.parse(view.sql, read=DUCKDB)
    if query is None:
        message = f"the view {view.name} has no query"
        raise ValueError(message)
    asked = query.transform(_as_spark_says) if dialect == SPARK else query
    text = asked.sql(dialect=dialect, pretty=True)
    return f"WITH {UNNESTED} AS (\n{_unnested(view, dialect)}\n)\n{text}" if view.lists else text


def statements(warehouse: str, dialect: str, database: str | None = None, tables: Sequence[str] = SHOWN) -> list[str]:
    """Return what registers these tables of a warehouse, and the views that read no others, in a catalog.

    Tables are registered where they lie: nothing is copied, and no statement replaces or deletes anything of theirs.

    Raises:
        InputError: catalogs do not take the name of the database.

    """
    said = []
    if database is not None:
        if not _DATABASE.fullmatch(database):
            message = f"{database!r} cannot name a database: letters, digits and _ can, beginning with a letter"
            raise InputError(message)
        said = [f"CREATE SCHEMA IF NOT EXISTS {database}", f"USE {database}"]
    if dialect == DUCKDB:
        said = [*_DUCKDB_READS_DELTA, *said]
    said += [_table(name, inside(whole_place(warehouse), name), dialect) for name in tables]
    for view in VIEWS.values():
        if view.table in tables:
            said += _view(view, dialect)
    return said


def _table(name: str, place: str, dialect: str) -> str:
    literal = exp.Literal.string(place).sql(dialect=dialect)
    if dialect == DUCKDB:
        return f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM delta_scan({literal})"
    return f"CREATE TABLE IF NOT EXISTS {name} USING DELTA LOCATION {literal}"


def _view(view: View, dialect: str) -> list[str]:
    comment = exp.Literal.string(view.comment).sql(dialect=dialect)
    query = view_sql(view, dialect)
    if dialect == DUCKDB:
        return [f"CREATE OR REPLACE VIEW {view.name} AS\n{query}", f"COMMENT ON VIEW {view.name} IS {comment}"]
    return [f"CREATE OR REPLACE VIEW {view.name} COMMENT {comment} AS\n{query}"]


def other_columns(view: View) -> list[str]:
    """Return the columns of a view's table that are not among the lists that it unnests."""
    return [column.name for column in TABLES[view.table].columns if column.name not in view.lists]


def _unnested(view: View, dialect: str) -> str:
    """Return a query for the table's rows with the view's lists unnested side by side."""
    first = next(iter(view.lists))
    columns = [*other_columns(view), f"pos + 1 AS {PLACE}"]
    for name, called in view.lists.items():
        element = f"get({name}, pos)" if dialect == SPARK else f"{name}[pos + 1]"
        named: Mapping[str, str] = {"": called} if isinstance(called, str) else called
        columns += [f"{element}{'.' * bool(part)}{part} AS {alias}" for part, alias in named.items()]
    if dialect == SPARK:
        rows = f"{view.table} LATERAL VIEW posexplode({first}) places AS pos, element"
    else:
        rows = f"(SELECT *, unnest(range(len({first}))) AS pos FROM {view.table})"
    return f"  SELECT {', '.join(columns)}\n  FROM {rows}"


def _as_spark_says(node: exp.Expression) -> exp.Expression:
    """Seconds since 1970: the only thing in our views that sqlglot leaves as Spark does not know it."""
    if isinstance(node, exp.Extract) and node.name.upper() == "EPOCH":
        return exp.cast(node.expression, exp.DataType.Type.DOUBLE)
    return node
