"""Expectations of one's own: a condition in SQL that every row of a table meets, and nothing that does more than that.

The condition becomes part of our queries, to DuckDB and to Spark. Spark's SQL can call any class of Java, and both can
read files, so only what is on a list here is let through: columns of the table, comparisons, and some functions that
say the same in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from pipelines.expectations.database import closed_database
from pipelines.expectations.rules import TableRule, with_answer

if TYPE_CHECKING:
    from schemas.model import Table

LONGEST: Final = 4000  # characters of a condition
# Comparisons, logic, plain values, and a column.
_PLAIN: Final = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.LT, exp.LTE, exp.GT,
    exp.GTE, exp.Is, exp.Null, exp.In, exp.Between, exp.Like, exp.Boolean, exp.Literal, exp.Neg, exp.Column,
    exp.Identifier, exp.Add, exp.Sub, exp.Interval, exp.Var, exp.Case, exp.If,
)  # fmt: skip
# Functions by the names that people write; they mean the same in DuckDB, and none fails on a value.
_FUNCTIONS: Final = {
    exp.Coalesce: "coalesce",
    exp.Greatest: "greatest",
    exp.Least: "least",
    exp.Lower: "lower",
    exp.Upper: "upper",
    exp.Length: "length",
    exp.StartsWith: "startswith",
    exp.EndsWith: "endswith",
    exp.ArraySize: "size",
    exp.ArrayContains: "array_contains",
}
_ALLOWED: Final = (*_PLAIN, *_FUNCTIONS)
_UNITS: Final = ("SECOND", "SECONDS", "MINUTE", "MINUTES", "HOUR", "HOURS", "DAY", "DAYS")


def own_rule(table: Table, name: str, condition: str, meaning: str, answer: str = "") -> TableRule:
    """Return a rule that each row of the table meets; ValueError, in one sentence, if the condition is not allowed."""
    said = _condition(table, condition)
    as_text = said.replace("{", "{{").replace("}", "}}")  # a rule's SELECT is a format string
    breaches = f"SELECT * FROM {{{table.name}}} WHERE NOT ({as_text})"
    return with_answer(TableRule(name, table.name, meaning, breaches, condition=said, answer=answer))


def _condition(table: Table, text: str) -> str:
    """Return the condition as Spark's SQL, written anew from what was understood of it."""
    if len(text) > LONGEST:
        message = f"it is longer than {LONGEST:,} characters"
        raise ValueError(message)
    try:
        (parsed,) = sqlglot.parse(f"SELECT 1 WHERE ({text}\n)", read="spark")
    except (SqlglotError, ValueError, RecursionError) as error:
        message = f"{text!r} is not one condition in SQL"
        raise ValueError(message) from error
    where = parsed.args.get("where") if isinstance(parsed, exp.Select) else None
    if (
        parsed is None
        or where is None
        or {key for key, value in parsed.args.items() if value} - {"expressions", "where"}
    ):
        message = f"{text!r} is not one condition in SQL"
        raise ValueError(message)
    columns = {column.name for column in table.columns}
    for node in where.this.walk():
        _check(node, columns, table.name)
    said = str(where.this.transform(_without_overflow).sql(dialect="spark", comments=False))
    _bind(table, said)
    return said


def _without_overflow(node: exp.Expr) -> exp.Expr:
    """Let a sum that is too large be null, which breaks nothing: else one row of a log could end a run."""
    if not isinstance(node, exp.Add | exp.Sub):
        return node
    safe = exp.SafeAdd if isinstance(node, exp.Add) else exp.SafeSubtract
    return safe(this=node.this.transform(_without_overflow), expression=node.expression.transform(_without_overflow))


def _check(node: exp.Expr, columns: set[str], table: str) -> None:
    if type(node) not in _ALLOWED:  # a kind of function may be derived from one that is allowed
        what = node.sql(dialect="spark")[:60]
        functions = ", ".join(sorted(_FUNCTIONS.values()))
        message = (
            f"'{what}' is not allowed: a condition is made of columns, values, comparisons, + and -, AND, OR, NOT, "
            f"CASE and the functions {functions}"
        )
        raise ValueError(message)
    if isinstance(node, exp.Column) and (len(node.parts) != 1 or node.name not in columns):
        message = f"{table} has no column '{node.sql(dialect='spark')[:60]}': it has {', '.join(sorted(columns))}"
        raise ValueError(message)
    if isinstance(node, exp.In) and (node.args.get("query") or node.args.get("unnest") or node.args.get("field")):
        message = "IN takes a list of values"
        raise ValueError(message)
    if isinstance(node, exp.Neg) and not isinstance(node.this, exp.Literal):
        message = f"'{node.sql(dialect='spark')[:60]}' is not allowed: write 0 - x"
        raise ValueError(message)  # noqa: TRY004 - not a type of Python's
    if isinstance(node, exp.Interval) and str(node.args.get("unit")).upper() not in _UNITS:
        message = f"'{node.sql(dialect='spark')[:60]}' is not allowed: an interval is in days or less"
        raise ValueError(message)


def _some_value(kind: pa.DataType) -> object:
    if pa.types.is_list(kind):
        return []
    if pa.types.is_timestamp(kind):
        return 0
    if pa.types.is_binary(kind):
        return b""
    return "a" if pa.types.is_string(kind) else pa.scalar(0).cast(kind).as_py()


def _bind(table: Table, condition: str) -> None:
    """Let DuckDB say whether the condition fits the columns' types, on a row that has something in each."""
    (asked,) = sqlglot.transpile(f"SELECT ({condition}) AS holds FROM {table.name}", read="spark", write="duckdb")
    row = {column.name: _some_value(column.type) for column in table.columns}
    with closed_database({table.name: pa.Table.from_pylist([row], table.arrow_schema)}) as db:
        try:
            kind = str(db.execute(asked).description[0][1])
            db.fetchall()
        except duckdb.Error as error:
            message = f"it does not fit {table.name}: {str(error).splitlines()[0]}"
            raise ValueError(message) from error
    if kind.upper() not in {"BOOLEAN", "BOOL"}:
        message = f"it is no condition, its value is {kind}"
        raise ValueError(message)
