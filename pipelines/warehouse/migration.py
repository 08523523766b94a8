"""Makes tables, and brings those that another version of Tidemark made to what this one writes, without losing a row.

A table may gain columns, and fields of structs, that may be null; columns that are never null if `Column.before` says
what the rows from before have in them; values of closed lists; and other checks and comments. What is there already is
never narrowed: a closed list keeps the values that only the table knows, and a column that this version does not know
may hold what a later one wrote, so the table is refused as it is. See docs/decisions/0010.

Every step is a commit of its own and is taken only where something differs, so that a migration that was interrupted
goes on where it ended, and two of them side by side come to the same.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delta import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pipelines.spark.session import VERSION
from pipelines.spark.spark_schemas import spark_schema
from pipelines.warehouse import local_tables
from pipelines.warehouse.commits import MARK
from pipelines.warehouse.contract import check_constraints, closed_list, closed_name, is_same, sql_string, values_in
from pipelines.warehouse.opened import Opened
from schemas.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from schemas.model import Table

# Columns that queries filter by; Delta would keep the minimum and maximum of all columns per file, at a cost per row.
SKIPPING: Final = (
    "topic", "partition", "broker_id", "leader_epoch", "seq", "kind", "ts", "start_ts", "lost_ts", "window",
)  # fmt: skip

MADE_BY: Final = "tidemark.version"  # the version of Tidemark that made the table, or changed it last
_UNMET: Final = "tidemark.unmet."  # a check that rows from before break, and its condition
_CONSTRAINT: Final = "delta.constraints."
_SKIPPING: Final = "delta.dataSkippingStatsColumns"


def bring_up(
    spark: SparkSession, table: Table, path: str, place: Path | None = None, opened: Opened | None = None
) -> None:
    """Make the table if there is none, and let it have what this version writes; InputError if that cannot be.

    `place`: the path, if it is on this machine: there neither takes Spark as long as nothing is to be changed.
    `opened`: the tables that were opened there.
    """
    if place is None:
        _make(spark, table, path)
    elif not local_tables.is_there(place):
        mark = spark.conf.get(MARK, None)
        local_tables.make(place, spark_schema(table).json(), table.comment, first_properties(table), mark)
    stands = StandingTable.of(spark, path, place, opened)
    _refuse_what_cannot_be(spark, table, stands)
    if not stands.is_later:
        _Migration(spark, table, stands).run()


def _make(spark: SparkSession, table: Table, path: str) -> None:
    builder = DeltaTable.createIfNotExists(spark).location(path).addColumns(spark_schema(table))
    builder = builder.partitionedBy("recording_id").comment(table.comment)
    for name, text in first_properties(table).items():
        builder = builder.property(name, text)
    builder.execute()


def first_properties(table: Table) -> dict[str, str]:
    """Return the properties of a new table."""
    checks = {f"{_CONSTRAINT}{name}": condition for name, condition in check_constraints(table).items()}
    return {**checks, **_properties(table), MADE_BY: VERSION}


def completed(table: Table, frame: DataFrame) -> DataFrame:
    """Return the table's columns of a frame that an earlier version of the table was read into."""
    there = set(frame.columns)
    if frame.columns == [column.name for column in table.columns]:
        return frame
    return frame.select(
        [F.col(f.name) if f.name in there else _value_before(table, f).alias(f.name) for f in spark_schema(table)]
    )


def _value_before(table: Table, field: T.StructField) -> SparkColumn:
    return F.expr(table.column(field.name).before or "NULL").cast(field.dataType)


@dataclass(frozen=True, slots=True)
class StandingTable:
    """What a table has: its columns in turn, its properties, its comment."""

    path: str
    place: Path | None  # the path, if it is on this machine
    fields: dict[str, T.StructField]
    properties: dict[str, str]
    comment: str | None

    @classmethod
    def of(
        cls, spark: SparkSession, path: str, place: Path | None = None, opened: Opened | None = None
    ) -> StandingTable:
        """Read it. Spark's public ways, `detail` and SHOW TBLPROPERTIES, run a job or cost twice the time."""
        form = None if place is None else local_tables.form_of(place, opened or Opened())
        if form is not None:
            text, stated, comment = form
            return cls(path, place, _fields_of(text), stated, comment)
        snapshot = DeltaTable.forPath(spark, path)._jdt.deltaLog().unsafeVolatileSnapshot()  # noqa: SLF001
        metadata, jvm = snapshot.metadata(), spark.sparkContext._jvm  # noqa: SLF001
        java: Any = jvm
        properties = java.scala.jdk.javaapi.CollectionConverters.asJava(metadata.configuration())
        return cls(path, place, _fields_of(metadata.schemaString()), dict(properties), metadata.description())

    @property
    def is_later(self) -> bool:
        """Whether a later version of Tidemark made the table, or changed it."""
        return _numbers(self.properties.get(MADE_BY, "0")) > _numbers(VERSION)

    @property
    def constraints(self) -> dict[str, str]:
        """The CHECK constraints by name."""
        return _named(self.properties, _CONSTRAINT)


def _fields_of(schema: str) -> dict[str, T.StructField]:
    return {field.name: field for field in T.StructType.fromJson(json.loads(schema))}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _named(properties: dict[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): text for name, text in properties.items() if name.startswith(prefix)}


def _properties(table: Table) -> dict[str, str]:
    """Return the properties other than constraints that the table should have."""
    known = {column.name for column in table.columns}
    skipping = ",".join(name for name in SKIPPING if name in known)
    return {_SKIPPING: skipping} if skipping else {}


def _refuse_what_cannot_be(spark: SparkSession, table: Table, stands: StandingTable) -> None:
    """Raise InputError if the table has columns that this version would lose or could not write."""
    ours = {f.name: f for f in spark_schema(table)}
    made_by = stands.properties.get(MADE_BY)
    whose = f"Tidemark {made_by} changed it last" if made_by else "another version made it"
    advice = f"this is Tidemark {VERSION}, and {whose}: use that version, or a new warehouse; nothing was changed"
    if not set(ours) & set(stands.fields):
        message = f"what is there is not the table {table.name}, it has other columns; use a new warehouse"
        raise InputError(message, source=stands.path)
    for name, field in stands.fields.items():
        if name in ours and not _may_become(field.dataType, ours[name].dataType):
            message = (
                f"the column {name} of the table {table.name} is {field.dataType.simpleString()} there, and not "
                f"{ours[name].dataType.simpleString()}; {advice}"
            )
            raise InputError(message, source=stands.path)
    gone = [name for name in ours if name not in stands.fields]
    if gone and stands.is_later:
        message = f"the table {table.name} no longer has the columns {', '.join(gone)}; {advice}"
        raise InputError(message, source=stands.path)
    unknown = [name for name in stands.fields if name not in ours]
    if unknown and (stands.is_later or _any_value(spark, stands.path, unknown)):
        message = f"the table {table.name} has columns that this version does not know ({', '.join(unknown)}); {advice}"
        raise InputError(message, source=stands.path)


def _any_value(spark: SparkSession, path: str, columns: list[str]) -> bool:
    has_one = " OR ".join(f"`{name}` IS NOT NULL" for name in columns)
    return bool(spark.read.format("delta").load(path).where(has_one).head(1))


def _may_become(old: T.DataType, new: T.DataType) -> bool:
    """Whether values of one type are values of the other, once fields that may be null have been added to structs."""
    if isinstance(old, T.ArrayType) and isinstance(new, T.ArrayType):
        return _may_become(old.elementType, new.elementType)
    if isinstance(old, T.StructType) and isinstance(new, T.StructType):
        ours = {f.name: f for f in new}
        return all(f.name in ours and _may_become(f.dataType, ours[f.name].dataType) for f in old) and all(
            f.nullable for f in new if f.name not in old.names
        )
    return old == new


class _Migration:
    """The steps that take a table from what stands to what this version writes."""

    def __init__(self, spark: SparkSession, table: Table, stands: StandingTable) -> None:
        self.spark = spark
        self.table = table
        self.stands = stands
        self.name = f"delta.`{stands.path.replace('`', '``')}`"
        self.ours = {f.name: f for f in spark_schema(table)}

    def run(self) -> None:
        """Take the steps that are needed; each sees what the one before left."""
        changed = False
        for step in (self._add_columns, self._allow_nulls, self._renew_checks, self._renew_comments):
            if step():
                changed = True
                self.stands = StandingTable.of(self.spark, self.stands.path, self.stands.place)
        self._renew_properties(changed=changed)

    def _alter(self, what: str) -> bool:
        self.spark.sql(f"ALTER TABLE {self.name} {what}")
        return True

    def _add_columns(self) -> bool:
        """Add columns and fields of structs, as ones that may be null: one commit of no rows that merges schemas."""
        there = self.stands.fields
        if all(name in there and _has_fields_of(there[name].dataType, f.dataType) for name, f in self.ours.items()):
            return False
        gone = [f for name, f in there.items() if name not in self.ours]
        fields = [
            T.StructField(f.name, f.dataType, f.nullable or f.name not in there, f.metadata) for f in self.ours.values()
        ]
        none = self.spark.createDataFrame([], T.StructType([*fields, *gone]))
        writer = none.write.format("delta").mode("append").option("mergeSchema", "true")
        writer.option("userMetadata", "").save(self.stands.path)  # as a write of rows it is no run's
        return True

    def _allow_nulls(self) -> bool:
        """Let columns be null that may be, and those that this version no longer fills."""
        loose = [
            f"`{name}` DROP NOT NULL"
            for name, f in self.stands.fields.items()
            if not f.nullable and (name not in self.ours or self.ours[name].nullable)
        ]
        return bool(loose) and self._alter(f"ALTER COLUMN {', '.join(loose)}")

    def _renew_checks(self) -> bool:
        """Replace the constraints that differ; a check that rows from before break is left out and remembered."""
        wanted, stand = self._constraints(), self.stands.constraints
        unmet = _named(self.stands.properties, _UNMET)
        for name in sorted(stand):
            if not is_same(wanted.get(name, ""), stand[name]):
                self._alter(f"DROP CONSTRAINT IF EXISTS {name}")
        missing = {
            name: text
            for name, text in wanted.items()
            if not is_same(stand.get(name, ""), text) and unmet.get(name) != text
        }
        for name, text in missing.items():
            self._add_check(name, text)
        return bool(missing) or not set(stand) <= set(wanted)

    def _constraints(self) -> dict[str, str]:
        """Return the constraints that the table should have, closed lists with what only the table knows."""
        wanted = check_constraints(self.table)
        for column in self.table.columns:
            name = closed_name(column)
            if column.values and name in self.stands.constraints:
                known = values_in(self.stands.constraints[name])
                others = [value for value in known if value not in column.values]
                grown = [*column.values, *others] if set(column.values) - set(known) else known
                wanted[name] = closed_list(column, grown)
            if not column.nullable and self.stands.fields[column.name].nullable:
                # Delta adds no column that is never null to a table that is there, but a check says the same.
                wanted[f"{column.name}_not_null"] = f"{column.name} IS NOT NULL"
        return wanted

    def _add_check(self, name: str, condition: str) -> None:
        column = next((c for c in self.table.columns if name == f"{c.name}_not_null"), None)
        if column is not None and column.before is not None:
            rows = DeltaTable.forPath(self.spark, self.stands.path)
            rows.update(f"{column.name} IS NULL", {column.name: column.before})
        try:
            self._alter(f"ADD CONSTRAINT {name} CHECK ({condition})")
        except AnalysisException as error:
            if "[DELTA_CONSTRAINT_ALREADY_EXISTS]" in str(error):
                return  # another run was quicker
            if "[DELTA_NEW_CHECK_CONSTRAINT_VIOLATION]" not in str(error):
                raise
            if column is not None:
                message = (
                    f"the column {column.name} of the table {self.table.name} is never null in Tidemark {VERSION}, and "
                    "nothing says what the rows that are there have in it; use a new warehouse"
                )
                raise InputError(message, source=self.stands.path) from error
            self._alter(f"SET TBLPROPERTIES ({_assignment(_UNMET + name, condition)})")

    def _renew_comments(self) -> bool:
        """Let every column say what it means now, in one commit."""
        there = self.stands.fields
        told = [
            f"`{column.name}` COMMENT {sql_string(column.comment)}"
            for column in self.table.columns
            if there[column.name].metadata.get("comment") != column.comment
        ]
        return bool(told) and self._alter(f"ALTER COLUMN {', '.join(told)}")

    def _renew_properties(self, *, changed: bool) -> None:
        """Set what else differs, in one commit: the table's comment, the columns for skipping, who changed it."""
        wanted = _properties(self.table)
        differing = {name: text for name, text in wanted.items() if self.stands.properties.get(name) != text}
        if self.stands.comment != self.table.comment:
            differing["comment"] = self.table.comment
        if (changed or differing) and self.stands.properties.get(MADE_BY) != VERSION:
            differing[MADE_BY] = VERSION
        if differing:
            pairs = ", ".join(_assignment(name, text) for name, text in differing.items())
            self._alter(f"SET TBLPROPERTIES ({pairs})")


def _assignment(name: str, text: str) -> str:
    return f"{sql_string(name)} = {sql_string(text)}"


def _has_fields_of(old: T.DataType, new: T.DataType) -> bool:
    """Whether a type that may become another has all of its fields already."""
    if isinstance(old, T.ArrayType) and isinstance(new, T.ArrayType):
        return _has_fields_of(old.elementType, new.elementType)
    if isinstance(old, T.StructType) and isinstance(new, T.StructType):
        there = {f.name: f for f in old}
        return all(f.name in there and _has_fields_of(there[f.name].dataType, f.dataType) for f in new)
    return True
