"""Every Delta read and write. One directory per table under the warehouse, partitioned by recording_id.

A write replaces or adds the rows of one recording and touches no other's, so that runs of different recordings can go
side by side: a run that loses the race for a commit takes it again on top of the winner's. Each write is one commit:
a killed run leaves every table as it was or as it shall be.

One row never ends a run: those that break a check of their table are put into `set_aside` instead. That they are there
is found out by Delta's own checks as it writes, so rows that hold all of them are looked at once.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from delta import DeltaTable
from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from pipelines.recording.names import inside
from pipelines.spark.spark_schemas import spark_schema
from schemas.errors import InputError, TableContractError
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from schemas.model import Table

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # anything else is a path of this machine

FILE_BYTES: Final = 128 * 1024 * 1024  # what one file of a write should hold, by the optimizer's estimate
COMMIT_ATTEMPTS: Final = 8
WRITES_AT_ONCE: Final = 4
# By these tables are asked; Delta would keep the least and the most of every column of every file, at a price per row.
SKIPPING: Final = ("topic", "partition", "broker_id", "leader_epoch", "seq", "kind", "ts", "start_ts", "lost_ts")

# Another run's commit came between; Delta's Python classes for it share no base.
_LOST_RACES: Final = (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)

# Another run is creating the table: its directory is there, and its first commit is not yet, or was not when we looked.
_HALF_MADE_MARKS: Final = ("[DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION]", "[DELTA_TABLE_NOT_FOUND]")

# What Delta says when rows break the table's contract, the most telling first: a replacing write calls every broken
# constraint a mismatch and keeps the true one as its cause; a foreign row is then the broken EXPRESSION.
_CONTRACT_MARKS: Final = (
    "[DELTA_NOT_NULL_CONSTRAINT_VIOLATED]",
    "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES]",
    "[DELTA_REPLACE_WHERE_MISMATCH]",
)
_FOREIGN_ROW_MARK: Final = "CHECK constraint EXPRESSION("


def row_key(table: Table) -> tuple[str, ...]:
    """The columns that name one row of a recording: the partition's, where the table has them, and the table's own."""
    names = {column.name for column in table.columns}
    of_partition = tuple(name for name in ("topic", "incarnation", "partition") if {"topic", "incarnation"} <= names)
    return (*of_partition, *(name for name in table.key if name not in of_partition))


def check_constraints(table: Table) -> dict[str, str]:
    """The table's CHECK constraints: those it states, and one for each closed list of values."""
    closed = {}
    for column in table.columns:
        if column.values:
            known = f"{column.name} IN ({', '.join(sql_string(value) for value in column.values)})"
            # Delta takes a condition that comes out null for a broken one.
            closed[f"{column.name}_known"] = f"{column.name} IS NULL OR {known}" if column.nullable else known
    return {**table.checks, **closed}


def checks_of(table: Table) -> list[tuple[str, str, str]]:
    """Every condition that a row of the table meets, as SQL, with its severity and the words of it for people.

    A null or an unknown word where none may be is ours alone; what numbers and times say rests on lines, too.
    """
    stated = set(table.checks)
    nulls = [(f"`{c.name}` IS NOT NULL", "error", f"{c.name} IS NOT NULL") for c in table.columns if not c.nullable]
    others = [
        (condition, "warning" if name in stated else "error", f"{name}: {condition}")
        for name, condition in check_constraints(table).items()
    ]
    return nulls + others


def sql_string(text: str) -> str:
    """A Spark SQL string literal that stands for exactly this text."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


class Warehouse:
    """The Delta tables under one directory; `path` is local or any URI that Hadoop's file systems know."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        """Nothing is created before it is needed."""
        self.spark = spark
        self.path = (path if _URI.match(path) else str(Path(path).absolute())).rstrip("/") or "/"
        self.run_id = "none"  # the run that writes
        self._ensured: set[str] = set()
        self._aside: dict[str, set[str]] = {}  # by recording: tables of which rows were set aside

    def table_path(self, table_name: str) -> str:
        """Where a table lies."""
        return inside(self.path, TABLES[table_name].name)

    def ensure(self, table_name: str) -> None:
        """Create the table if it is not there; InputError if another schema stands in its place."""
        if table_name in self._ensured:
            return
        table, path = TABLES[table_name], self.table_path(table_name)
        builder = (
            DeltaTable.createIfNotExists(self.spark)
            .location(path)
            .addColumns(spark_schema(table))
            .partitionedBy("recording_id")
            .comment(table.comment)
        )
        for name, condition in check_constraints(table).items():
            builder = builder.property(f"delta.constraints.{name}", condition)
        known = {column.name for column in table.columns}
        if skipping := ",".join(name for name in SKIPPING if name in known):
            builder = builder.property("delta.dataSkippingStatsColumns", skipping)
        self._commit(table_name, builder.execute)
        stands = {f.name: f.dataType for f in self.spark.read.format("delta").load(path).schema}
        if stands != {f.name: f.dataType for f in spark_schema(table)}:
            message = f"the table {table_name} there has other columns than this version of Tidemark writes"
            raise InputError(f"{message}; use a new warehouse, or the version that made it", source=path)
        self._ensured.add(table_name)

    def read(self, table_name: str, recording_id: str | None = None) -> DataFrame:
        """The table, or one recording's rows of it; an empty frame while nobody has written to it."""
        self.ensure(table_name)
        frame = self.spark.read.format("delta").load(self.table_path(table_name))
        return frame if recording_id is None else frame.where(F.col("recording_id") == F.lit(recording_id))

    def version(self, table_name: str) -> int:
        """The table's newest version."""
        self.ensure(table_name)
        table = DeltaTable.forPath(self.spark, self.table_path(table_name))
        # The public way, history(), runs a job to say the same.
        return int(table._jdt.deltaLog().unsafeVolatileSnapshot().version())  # noqa: SLF001

    def append(self, table_name: str, frame: DataFrame) -> None:
        """Add rows."""
        self.ensure(table_name)
        rows = self._arranged(table_name, frame)
        self._commit(table_name, lambda: rows.write.format("delta").mode("append").save(self.table_path(table_name)))

    def append_facts(self, frame: DataFrame, recording_id: str, superseded: DataFrame | None = None) -> None:
        """Add the facts that are not there yet; in the frame each stands once, in the order of its lines.

        `superseded`: ids of facts that another reading of the same files told; those that the frame does not tell again
        go, and the others become what it says.

        A merge, not an append behind a look: two runs that bring the same facts at once must not both add them.
        """
        self.ensure("facts")
        same = f"known.recording_id = {sql_string(recording_id)} AND known.fact_id = new.fact_id"

        def write(rows: DataFrame) -> None:
            known = DeltaTable.forPath(self.spark, self.table_path("facts")).alias("known")
            if superseded is None:
                known.merge(rows.alias("new"), same).whenNotMatchedInsertAll().execute()
                return
            gone = superseded.join(rows, on="fact_id", how="left_anti").withColumn("is_gone", F.lit(True))  # noqa: FBT003
            new = rows.withColumn("is_gone", F.lit(False)).unionByName(gone, allowMissingColumns=True)  # noqa: FBT003
            merge = known.merge(new.alias("new"), same).whenMatchedDelete("new.is_gone").whenMatchedUpdateAll()
            merge.whenNotMatchedInsertAll("NOT new.is_gone").execute()

        self._write_sound("facts", self._columns("facts", frame), recording_id, write)

    def replace(
        self, table_name: str, frame: DataFrame, recording_id: str, *, arranged: bool = False, within: str | None = None
    ) -> None:
        """Put these rows in the place of the recording's rows; TableContractError if they are another recording's.

        `arranged`: they come in as few tasks as there shall be files, and in each in order. `within`: a condition; only
        rows that meet it are replaced, and by such.
        """
        self.ensure(table_name)
        some = frame if within is None else frame.where(within)
        rows = self._columns(table_name, some) if arranged else self._arranged(table_name, some)
        only = f"recording_id = {sql_string(recording_id)}" + (f" AND ({within})" if within else "")

        def write(rows: DataFrame) -> None:
            writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", only)
            writer.save(self.table_path(table_name))

        self._write_sound(table_name, rows, recording_id, write)

    def _write_sound(
        self, table_name: str, rows: DataFrame, recording_id: str, write: Callable[[DataFrame], None]
    ) -> None:
        """Write rows; if some break a check of the table, all others, and those into `set_aside`."""
        try:
            try:
                self._commit(table_name, lambda: write(rows))
            except TableContractError:
                if not self._renew_checks(table_name):
                    raise
                self._commit(table_name, lambda: write(rows))
        except TableContractError:
            # Kept for a moment: what rows are made of may have taken minutes.
            folder = f"{self.staging_dir(self.run_id)}/unsound/{table_name}"
            rows.write.mode("overwrite").parquet(folder)
            kept = self.spark.read.schema(rows.schema).parquet(folder)
            met = F.expr(
                " AND ".join(f"coalesce({condition}, false)" for condition, _, _ in checks_of(TABLES[table_name]))
            )
            sound = kept.where(met)
            arranged = sound.sortWithinPartitions(*row_key(TABLES[table_name]))
            self._commit(table_name, lambda: write(arranged))
            self._put_aside(table_name, kept.where(~met), recording_id)
        else:
            if table_name in self._with_aside(recording_id):
                self._put_aside(table_name, None, recording_id)

    def _renew_checks(self, table_name: str) -> bool:
        """Put this version's checks in the place of those that another version gave the table; say whether any were."""
        path, wanted, mark = self.table_path(table_name), check_constraints(TABLES[table_name]), "delta.constraints."
        found = DeltaTable.forPath(self.spark, path).detail().select("properties").head()
        stands = {name: text for name, text in (found.properties if found else {}).items() if name.startswith(mark)}
        outdated = sorted(name for name, text in stands.items() if wanted.get(name.removeprefix(mark)) != text)
        table = f"delta.`{path.replace('`', '``')}`"
        for name in (one.removeprefix(mark) for one in outdated):
            self.spark.sql(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
            if name in wanted:
                self.spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT {name} CHECK ({wanted[name]})")
        return bool(outdated)

    def _with_aside(self, recording_id: str) -> set[str]:
        """Tables of which rows of the recording were set aside before."""
        if recording_id not in self._aside:
            tables = self.read("set_aside", recording_id).select("table").distinct()
            self._aside[recording_id] = {row.table for row in tables.collect()}
        return self._aside[recording_id]

    def _put_aside(self, table_name: str, rows: DataFrame | None, recording_id: str) -> None:
        """Put these rows of a table in the place of those that were set aside before; None: there are none."""
        self.ensure("set_aside")
        only = f"recording_id = {sql_string(recording_id)} AND table = {sql_string(table_name)}"
        if rows is None:
            aside = DeltaTable.forPath(self.spark, self.table_path("set_aside"))
            self._commit("set_aside", lambda: aside.delete(only))
            self._with_aside(recording_id).discard(table_name)
            return
        table = TABLES[table_name]
        broken = [(~F.expr(f"coalesce({condition}, false)"), how, said) for condition, how, said in checks_of(table)]
        ours = reduce(lambda a, b: a | b, [breaks for breaks, how, _ in broken if how == "error"])
        told = rows.select(
            F.lit(recording_id).alias("recording_id"),
            F.lit(self.run_id).alias("run_id"),
            F.lit(table_name).alias("table"),
            F.array_join(
                F.array_compact(F.array(*(F.when(breaks, F.lit(said)) for breaks, _, said in broken))), "; "
            ).alias("reason"),
            F.when(ours, "error").otherwise("warning").alias("severity"),
            F.to_json(F.struct(*row_key(table)), {"ignoreNullFields": "false"}).alias("key"),
            F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("row"),
        )
        writer = self._columns("set_aside", told).write.format("delta").mode("overwrite").option("replaceWhere", only)
        self._commit("set_aside", lambda: writer.save(self.table_path("set_aside")))
        self._with_aside(recording_id).add(table_name)

    def replace_all(
        self, frames: Mapping[str, DataFrame], recording_id: str, within: Mapping[str, str | None] | None = None
    ) -> None:
        """Replace the recording's rows of several tables; the first error is raised once all others are through.

        Side by side: of a small write most is planning, in which Spark leaves its cores idle. `within`: as for one.
        """
        self._with_aside(recording_id)
        with ThreadPoolExecutor(WRITES_AT_ONCE) as pool:
            written = [
                pool.submit(self.replace, name, frame, recording_id, within=(within or {}).get(name))
                for name, frame in frames.items()
            ]
        for one in written:
            one.result()

    def staging_dir(self, run_id: str) -> str:
        """Where a run keeps what it hands from stage to stage; nobody else writes there."""
        return inside(self.path, f"_staging/{run_id}")

    def drop_staging(self, run_id: str) -> None:
        """Delete the run's staging directory, if there is one."""
        path, system = self._hadoop(self.staging_dir(run_id))
        system.delete(path, True)  # noqa: FBT003 - Java's recursive

    def publish(self, local_dir: str, name: str) -> str:
        """Put a copy of a local directory at `name` in the warehouse, in place of what is there; say where."""
        target = inside(self.path, name)
        path, system = self._hadoop(target)
        system.setWriteChecksum(False)
        system.delete(path, True)  # noqa: FBT003
        system.mkdirs(path.getParent())
        system.copyFromLocalFile(False, True, self._hadoop(f"file://{local_dir}")[0], path)  # noqa: FBT003
        return target

    def write(self, name: str, content: bytes) -> str:
        """Put one file at `name` in the warehouse, in place of what is there; say where."""
        target = inside(self.path, name)
        path, system = self._hadoop(target)
        system.setWriteChecksum(False)
        stream = system.create(path, True)  # noqa: FBT003 - Java's overwrite
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()
        return target

    def _hadoop(self, path: str) -> tuple[Any, Any]:
        """A path and its file system, as Spark itself sees them."""
        jvm: Any = self.spark.sparkContext._jvm  # noqa: SLF001 - Spark has no public way to Hadoop's file systems
        hadoop_path = jvm.org.apache.hadoop.fs.Path(path)
        configuration = self.spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - as above
        return hadoop_path, hadoop_path.getFileSystem(configuration)

    def _arranged(self, table_name: str, frame: DataFrame) -> DataFrame:
        """Exactly the table's columns, in few files, rows of a file in a fixed order."""
        rows = self._columns(table_name, frame)
        files = -(-estimated_bytes(rows) // FILE_BYTES)
        # A narrow coalesce instead of a shuffle: a large frame keeps the partitions it has.
        rows = rows.coalesce(max(1, files)) if files < self.spark.sparkContext.defaultParallelism else rows
        return rows.sortWithinPartitions(*row_key(TABLES[table_name]))

    def _columns(self, table_name: str, frame: DataFrame) -> DataFrame:
        """Exactly the table's columns."""
        table = TABLES[table_name]
        types = {f.name: f.dataType for f in frame.schema}
        missing = [column.name for column in table.columns if column.name not in types]
        if missing:
            message = f"rows for {table_name} lack the columns {', '.join(missing)}"
            raise TableContractError(message)
        columns = [
            F.col(f.name) if types[f.name] == f.dataType else F.col(f.name).cast(f.dataType).alias(f.name)
            for f in spark_schema(table)
        ]
        return frame.select(columns)

    def _commit(self, table_name: str, action: Callable[[], object]) -> None:
        """Do it; again if another run's commit came between; contract violations as one plain error."""
        for attempt in range(1, COMMIT_ATTEMPTS + 1):
            try:
                action()
            except (*_LOST_RACES, Py4JJavaError, PySparkException) as error:
                broken = _broken_contract(error)
                if broken is not None:
                    message = f"{table_name}: {broken}; nothing was written"
                    raise TableContractError(message) from error
                half_made = any(mark in str(error) for mark in _HALF_MADE_MARKS)
                lost_race = half_made or isinstance(error, _LOST_RACES)
                if not lost_race or attempt == COMMIT_ATTEMPTS:
                    raise
                time.sleep(0.1 * attempt)
            else:
                return


def estimated_bytes(frame: DataFrame) -> int:
    """The optimizer's estimate of the frame's size: known for files and literals, huge where it cannot tell."""
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))  # noqa: SLF001 - not in the API


def _broken_contract(error: Py4JJavaError | PySparkException) -> str | None:
    """Delta's own words for a broken constraint, wherever in the chain of causes they stand; None for other errors."""
    throwable = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    said: list[str] = []
    while throwable is not None:
        said.append(str(throwable.getMessage()))
        throwable = throwable.getCause()
    for mark in _CONTRACT_MARKS:
        for message in reversed(said):
            if mark in message and (mark == _CONTRACT_MARKS[-1] or _FOREIGN_ROW_MARK not in message):
                words = message[message.index(mark) + len(mark) :].split("[DELTA_", 1)[0]
                return " ".join(words.split())
    return None
