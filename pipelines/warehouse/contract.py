"""What Delta is asked to check of a table's rows, and the names and texts for it.

A closed list of values is a CHECK constraint like any other, though it is the first thing to change with a release: it
costs a write nothing, and it is there for whoever writes to the table, with Tidemark or without. That a list may grow
is the business of `migration`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.model import Column, Table

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STRING: Final = re.compile(r"'((?:[^'\\]|\\.)*)'")
_TOKEN: Final = re.compile(rf"{_STRING.pattern}|\w+|[^\w\s]")


def row_key(table: Table) -> tuple[str, ...]:
    """Return the columns that identify a row of a recording: the partition's, if it has them, and the table's key."""
    names = {column.name for column in table.columns}
    of_partition = tuple(name for name in ("topic", "incarnation", "partition") if {"topic", "incarnation"} <= names)
    return (*of_partition, *(name for name in table.key if name not in of_partition))


def check_constraints(table: Table) -> dict[str, str]:
    """Return the table's CHECK constraints: those it states, and one for each closed list of values."""
    closed = {closed_name(column): closed_list(column, column.values) for column in table.columns if column.values}
    return {**table.checks, **closed}


def closed_name(column: Column) -> str:
    """Return the name of the constraint for a column's closed list."""
    return f"{column.name}_known"


def closed_list(column: Column, values: Sequence[str]) -> str:
    """Return the condition that a column has one of these values."""
    known = f"{column.name} IN ({', '.join(map(sql_string, values))})"
    # Delta treats a condition that evaluates to null as broken.
    return f"{column.name} IS NULL OR {known}" if column.nullable else known


def values_in(condition: str) -> tuple[str, ...]:
    """Return the values that the condition of a closed list names."""
    return tuple(re.sub(r"\\(.)", r"\1", text) for text in _STRING.findall(condition))


def is_same(one: str, other: str) -> bool:
    """Whether two conditions differ in blanks only: Delta puts some between the words of a check that is added."""
    return [found.group() for found in _TOKEN.finditer(one)] == [found.group() for found in _TOKEN.finditer(other)]


def checks_of(table: Table) -> list[tuple[str, str, str]]:
    """Return every condition on the table's rows: as SQL, with its severity, and as text for people.

    A forbidden null or an unknown word can only be our own error; numbers and times may be wrong in the logs, too.
    """
    stated = set(table.checks)
    nulls = [(f"`{c.name}` IS NOT NULL", "error", f"{c.name} IS NOT NULL") for c in table.columns if not c.nullable]
    others = [
        (condition, "warning" if name in stated else "error", f"{name}: {condition}")
        for name, condition in check_constraints(table).items()
    ]
    return nulls + others


def all_met(table: Table) -> str:
    """Return the condition that a row meets every check."""
    return " AND ".join(f"coalesce({condition}, false)" for condition, _, _ in checks_of(table))


def sql_string(text: str) -> str:
    """Return a Spark SQL string literal for exactly this text."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def time_of(us: int) -> datetime:
    """Return the time that is so many microseconds after 1970."""
    return _EPOCH + timedelta(microseconds=us)


def sql_time(us: int) -> str:
    """Return a Spark SQL literal for a time, in microseconds since 1970; by an expression Delta would skip no file."""
    return f"TIMESTAMP '{time_of(us):%Y-%m-%d %H:%M:%S.%f}Z'"
