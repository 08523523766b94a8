"""DuckDB's SQL. Conditions and questions are written once, in Spark's, and said in it by sqlglot."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import sqlglot

# Nothing is fetched from the network, and a time without a zone is in UTC.
SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,
    "TimeZone": "UTC",
}


@lru_cache(2000)  # rules and most questions are the same for every recording
def for_duckdb(query: str) -> str:
    """Return a query of Spark's SQL in DuckDB's."""
    (said,) = sqlglot.transpile(query, read="spark", write="duckdb")
    return said


def duckdb_string(text: str) -> str:
    """Return a literal of DuckDB's SQL for exactly this text."""
    return "'" + text.replace("'", "''") + "'"
