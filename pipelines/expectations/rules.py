"""A rule is a sentence, a SELECT of the rows that break it, and the matching Great Expectations expectation.

Rules about a single table are derived from `schemas`, where the table is defined. For rules that Great Expectations can
express it queries the table itself, all in one pass. For the others it queries a frame of one row that holds the number
of breaching rows per rule (`counting`), so that there are not several jobs per rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from great_expectations.expectations.metadata_types import FailureSeverity

from pipelines.expectations.answers import ANSWERS, ANYWHERE
from pipelines.expectations.described import ExpectColumns, ExpectKnownValues, ExpectNoBreaches, ExpectNoNulls
from pipelines.warehouse.contract import row_key, sql_string

if TYPE_CHECKING:
    from collections.abc import Mapping

    from great_expectations.expectations.expectation import Expectation

    from schemas.model import Column, Table

PARTITION: Final = ("topic", "incarnation", "partition")  # the columns that name one within a recording
PLACE: Final = (*PARTITION, "seq")  # and an event of it
Severity = Literal["error", "warning"]
GX_SEVERITY: Final[dict[Severity, FailureSeverity]] = {
    "error": FailureSeverity.CRITICAL,
    "warning": FailureSeverity.WARNING,
}


class Carried(NamedTuple):
    """Of which rows of a table the last one before a place still says something at this place."""

    by: tuple[str, ...]  # columns beside the partition: of each of their values it is the last row
    values: tuple[str, ...]  # the columns that the rule reads, beside these and `seq`


@dataclass(frozen=True, slots=True)
class TableRule:
    """One thing that must hold for `table`; `breaches` selects the rows that break it.

    In `breaches`, `{name}` stands for the view of the table of that name; `reads` lists the tables other than `table`.
    `native` is Great Expectations' own expectation for the rule; without one, breaches are counted. A rule that can be
    counted together with others states one more thing: the `condition` that each row meets by itself (one pass per
    table), or the columns of the `key` that no two rows share (one shuffle for the keys of all tables).

    If a rule is `onward`, all its tables have a partition and a `seq`, and a row breaks it only together with rows of
    its partition at its own or later places, or with those that are `carried`, by table. `reaches` names by table a
    column with a later place that a row speaks of. Such a rule need not be counted again before the first change.

    `answer` says what it means for the report's answer if the rule does not hold. So many rows as `allowed_rows`, or
    such a share of the table's rows as `allowed_share`, whichever is more, may break the rule.
    """

    name: str
    table: str
    meaning: str
    breaches: str
    severity: Severity = "error"
    reads: tuple[str, ...] = ()
    native: Expectation | None = None
    condition: str | None = None
    key: str | None = None
    onward: bool = False
    carried: Mapping[str, Carried] = field(default_factory=dict)
    reaches: Mapping[str, str] = field(default_factory=dict)
    answer: str = ""
    allowed_rows: int = 0
    allowed_share: float = 0.0

    @property
    def named(self) -> str:
        """The rule's name as people write it: table.rule."""
        return f"{self.table}.{self.name}"

    def allowed(self, rows: int) -> int:
        """Return how many of so many rows may break the rule."""
        return max(self.allowed_rows, math.floor(self.allowed_share * rows))

    def counted(self) -> TableRule:
        """Return the same rule, counted by a query: Great Expectations' own expectations know no number of rows."""
        return replace(self, native=None)

    @property
    def id(self) -> str:
        """The rule's name, unique across tables; also the column with the count of its breaches."""
        return f"{self.table}__{self.name}"

    def sql(self, views: Mapping[str, str]) -> str:
        """Return the SELECT over these views."""
        return self.breaches.format_map(views)

    def expectation(self) -> Expectation:
        """Return the expectation to put in a suite, marked with the rule's id."""
        if self.native is not None:
            if self.severity == "warning":  # else it is critical, as it was made
                self.native.severity = GX_SEVERITY["warning"]
            return self.native
        return ExpectNoBreaches(
            column=self.id,
            max_value=0,
            description=f"{self.name}: {self.meaning}",
            severity=GX_SEVERITY[self.severity],
            meta={"rule": self.id},
        )


def table_rules(table: Table) -> list[TableRule]:
    """Return what the schema demands: columns, NOT NULL, closed lists of values, CHECK conditions, the key."""
    rules = [_columns_rule(table)]
    rules += [_not_null_rule(table, column) for column in table.columns if not column.nullable]
    rules += [_values_rule(table, column) for column in table.columns if column.values]
    rules += [_check_rule(table, name, condition) for name, condition in table.checks.items()]
    return [with_answer(rule) for rule in (*rules, _key_rule(table))]


def same_partition(left: str, right: str) -> str:
    """Return the condition that rows under two aliases are of the same partition."""
    return " AND ".join(f"{left}.{name} = {right}.{name}" for name in PARTITION)


def with_answer(rule: TableRule) -> TableRule:
    """Return the rule with what its failure means, which is that of its table if it says nothing of its own."""
    return rule if rule.answer else replace(rule, answer=ANSWERS.get(rule.table, ANYWHERE))


def _columns_rule(table: Table) -> TableRule:
    name, meaning = "columns", "The table has exactly the columns of its schema."
    return TableRule(
        name,
        table.name,
        meaning,
        breaches=f"SELECT * FROM {{{table.name}}} LIMIT 0",
        native=ExpectColumns(
            column_set=[column.name for column in table.columns],
            exact_match=True,
            description=meaning,
            meta={"rule": f"{table.name}__{name}"},
        ),
    )


def _not_null_rule(table: Table, column: Column) -> TableRule:
    name, meaning = f"{column.name}_not_null", f"{column.name} is never null."
    return TableRule(
        name,
        table.name,
        meaning,
        breaches=f"SELECT * FROM {{{table.name}}} WHERE {column.name} IS NULL",
        condition=f"{column.name} IS NOT NULL",
        native=ExpectNoNulls(column=column.name, description=meaning, meta={"rule": f"{table.name}__{name}"}),
    )


def _values_rule(table: Table, column: Column) -> TableRule:
    values = ", ".join(column.values)
    name, meaning = f"{column.name}_known", f"{column.name} is one of: {values}."
    literals = ", ".join(sql_string(value) for value in column.values)
    return TableRule(
        name,
        table.name,
        meaning,
        breaches=f"SELECT * FROM {{{table.name}}} WHERE {column.name} NOT IN ({literals})",
        condition=f"{column.name} IN ({literals})",
        native=ExpectKnownValues(
            column=column.name,
            value_set=list(column.values),
            description=meaning,
            meta={"rule": f"{table.name}__{name}"},
        ),
    )


def _check_rule(table: Table, name: str, condition: str) -> TableRule:
    breaches = f"SELECT * FROM {{{table.name}}} WHERE NOT ({condition})"
    return TableRule(name, table.name, f"Every row of {table.name} meets: {condition}.", breaches, condition=condition)


def _key_rule(table: Table) -> TableRule:
    columns = ", ".join(row_key(table))
    return TableRule(
        "key_unique",
        table.name,
        f"A row of {table.name} is named by ({columns}): no two rows share it.",
        breaches=f"SELECT {columns}, count(*) AS copies FROM {{{table.name}}} GROUP BY {columns} HAVING count(*) > 1",
        key=columns,
        onward="seq" in row_key(table),
    )
