"""Every Delta read and write. One directory per table under the warehouse, partitioned by recording_id.

A write replaces or adds the rows of one recording and touches no other's, so runs of different recordings can go on
side by side: a run that loses the race for a commit repeats it on top of the winner's. Each write is one commit, so a
run that is killed leaves every table either unchanged or completely written.

A bad row never ends a run: rows that break a check of their table are put into `set_aside` instead. Delta's own checks
find them during the write, so rows that meet all checks are looked at only once.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import TYPE_CHECKING, Final, NamedTuple

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
from pipelines.warehouse.commits import commits_of
from pipelines.warehouse.contract import checks_of, row_key, sql_string
from pipelines.warehouse.migration import bring_up, completed
from pipelines.warehouse.store import Store
from pipelines.warehouse.table_files import TableFiles
from schemas.errors import TableContractError
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from pipelines.warehouse.commits import Commit

FILE_BYTES: Final = 128 * 1024 * 1024  # intended size of one file of a write, by the optimizer's estimate
SMALL_BYTES: Final = 8 << 20  # up to this size, compressed, a recording's rows of a table are looked at in the driver
COMMIT_ATTEMPTS: Final = 8
WRITES_AT_ONCE: Final = 4
# Another run committed in between; Delta's Python classes for it have no common base.
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

# Another run is creating the table: its directory exists, but its first commit does not, or did not when we looked.
_HALF_MADE_MARKS: Final = ("[DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION]", "[DELTA_TABLE_NOT_FOUND]")

# Delta's errors for rows that break the table's contract, most specific first: a replacing write reports every broken
# constraint as a mismatch with the actual one as its cause; for rows of another recording that is EXPRESSION.
_CONTRACT_MARKS: Final = (
    "[DELTA_NOT_NULL_CONSTRAINT_VIOLATED]",
    "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES]",
    "[DELTA_REPLACE_WHERE_MISMATCH]",
)
_FOREIGN_ROW_MARK: Final = "CHECK constraint EXPRESSION("


class Warehouse(Store):
    """The Delta tables under one directory, for the run `run_id`."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        """Remember the path; nothing is created before it is needed."""
        super().__init__(spark, path)
        self._ensured: dict[str, int] = {}  # tables that were used, with their version before that
        self._committed: set[str] = set()  # tables that were written to
        self._pinned: dict[str, int] = {}
        self._counted: dict[str, dict[str, int]] = {}  # by recording: rows of each table
        self._aside: dict[str, set[str]] = {}  # by recording: tables that have rows set aside
        self._small: dict[tuple[str, str], Small | None] = {}  # by table and recording

    def table_path(self, table_name: str) -> str:
        """Return the path of a table."""
        return inside(self.path, TABLES[table_name].name)

    def ensure(self, table_name: str) -> None:
        """Create the table, or bring it up to this version of Tidemark; InputError if that cannot be done."""
        if table_name not in self._ensured:
            try:
                self._bring_up(table_name)
            except (Py4JJavaError, PySparkException) as error:
                if not _is_half_made(error) or not self.drop_unmade(self.table_path(table_name)):
                    raise
                self._bring_up(table_name)
            self._ensured[table_name] = self._newest(table_name)

    def _bring_up(self, table_name: str) -> None:
        table, path = TABLES[table_name], self.table_path(table_name)
        self.commit(table_name, lambda: bring_up(self.spark, table, path), "form")

    def pin(self, versions: Mapping[str, int]) -> None:
        """From now on read these tables in these versions, whoever writes to them."""
        self._pinned = dict(versions)
        for table_name in TABLES:
            self._forget(table_name)

    def read(self, table_name: str, recording_id: str | None = None) -> DataFrame:
        """Return the table, or one recording's rows of it; an empty frame if nothing was written yet."""
        return self.read_at(table_name, self._pinned.get(table_name), recording_id)

    def read_at(self, table_name: str, version: int | None, recording_id: str | None = None) -> DataFrame:
        """Return the table in a version; None: in the newest."""
        self.ensure(table_name)
        return completed(TABLES[table_name], self.as_it_is(table_name, version, recording_id))

    def as_it_is(self, table_name: str, version: int | None = None, recording_id: str | None = None) -> DataFrame:
        """Return the table, which must be there, as it stands: without bringing it up to this version of Tidemark."""
        reader = self.spark.read.format("delta")
        reader = reader if version is None else reader.option("versionAsOf", version)
        frame = reader.load(self.table_path(table_name))
        return frame if recording_id is None else frame.where(F.col("recording_id") == F.lit(recording_id))

    def arrow(self, table_name: str, recording_id: str, columns: Sequence[str] = ()) -> pa.Table:
        """Return the rows as `read` does, or only these columns of them, in the driver's memory."""
        files = self._files(table_name, recording_id)
        if files is not None:
            return files.rows(columns)
        frame = self.read(table_name, recording_id)
        return frame.select(*columns or frame.columns).toArrow()

    def is_empty(self, table_name: str, recording_id: str) -> bool:
        """Whether the table has no rows of the recording."""
        files = self._files(table_name, recording_id)
        return not (self.read(table_name, recording_id).head(1) if files is None else len(files.files))

    def looked_at(self, table_name: str, recording_id: str) -> DataFrame:
        """Return the rows as `read` does, for who asks more than once: those of a small table are read once."""
        found = self.small(table_name, recording_id)
        return self.read(table_name, recording_id) if found is None else found.frame

    def small(self, table_name: str, recording_id: str) -> Small | None:
        """Return the rows in the driver's memory; None: they are too many, or only Spark can read them."""
        key = (table_name, recording_id)
        if key not in self._small:
            files = self._files(table_name, recording_id)
            is_small = files is not None and files.size_bytes <= SMALL_BYTES
            self._small[key] = Small.of(self.spark, files.rows()) if files is not None and is_small else None
        return self._small[key]

    def _files(self, table_name: str, recording_id: str) -> TableFiles | None:
        """Return the files that `read` reads; None: only Spark can read them."""
        self.ensure(table_name)
        place, version = self._local(self.table_path(table_name)), self._pinned.get(table_name)
        return None if place is None else TableFiles.of(table_name, place, version, recording_id)

    def _forget(self, table_name: str) -> None:
        """Let the rows be read anew that are asked for again."""
        self._counted.clear()
        for key in [key for key in tuple(self._small) if key[0] == table_name]:
            small = self._small.pop(key)
            if small is not None:
                small.frame.unpersist()

    def version(self, table_name: str) -> int:
        """Return the table's newest version."""
        self.ensure(table_name)
        return self._newest(table_name)

    def _newest(self, table_name: str) -> int:
        # The public way, history(), runs a job for the same answer.
        log = DeltaTable.forPath(self.spark, self.table_path(table_name))._jdt.deltaLog()  # noqa: SLF001
        return int(log.unsafeVolatileSnapshot().version())

    def commits(self, table_name: str, recording_id: str, since: int) -> Iterator[Commit]:
        """Yield the commits that runs of the recording made to the table after the version `since`, newest first."""
        newest = self.version(table_name)
        return commits_of(self.spark, self.table_path(table_name), recording_id, newest, since)

    def own_versions(self, recording_id: str) -> dict[str, int]:
        """Return by table the last version that this run has made itself."""
        found = {}
        for name in sorted(self._committed):
            own = (one for one in self.commits(name, recording_id, self._ensured[name]) if one.run_id == self.run_id)
            if (last := next(own, None)) is not None:
                found[name] = last.version
        return found

    def row_counts(self, recording_id: str) -> dict[str, int]:
        """Return how many rows of the recording each table but `runs` has; counted anew after a write."""
        if recording_id not in self._counted:
            names = [name for name in TABLES if name != "runs"]
            stated = {name: files.count for name in names if (files := self._files(name, recording_id)) is not None}
            counts = {name: count for name, count in stated.items() if count is not None}
            each = [
                self.read(name, recording_id).agg(F.lit(name).alias("name"), F.count("*").alias("n"))
                for name in names
                if name not in counts
            ]
            rows = reduce(lambda one, other: one.unionAll(other), each).collect() if each else []
            counts |= {row.name: row.n for row in rows}
            self._counted[recording_id] = {name: counts[name] for name in names}
        return self._counted[recording_id]

    def append(self, table_name: str, frame: DataFrame) -> None:
        """Add rows."""
        self.ensure(table_name)
        rows = self._arranged(table_name, frame)
        self.commit(table_name, lambda: rows.write.format("delta").mode("append").save(self.table_path(table_name)))

    def append_facts(
        self, frame: DataFrame, recording_id: str, changed: DataFrame | None = None, within: str | None = None
    ) -> None:
        """Add the facts that are not in the table yet; the frame holds each once, in the order of its lines.

        `changed`: the facts of earlier readings that get another name or go (`superseded.changed_facts`). Those of them
        that the frame states again are updated from it. `within`: a condition on `known.ts` that the facts of the frame
        and of `changed` meet. Only the table's files with such facts are read, for an equal fact has an equal time.

        This is a merge, not a check followed by an append: two runs that bring the same facts must not both add them.
        """
        self.ensure("facts")
        same = f"known.recording_id = {sql_string(recording_id)} AND known.fact_id = new.fact_id"
        same += f" AND {within}" if within else ""

        def write(rows: DataFrame) -> None:
            known = DeltaTable.forPath(self.spark, self.table_path("facts")).alias("known")
            if changed is None:
                known.merge(rows.alias("new"), same).whenNotMatchedInsertAll().execute()
                return
            told = changed.select("fact_id", "to", F.when(F.col("is_gone"), "gone").otherwise("moved").alias("what"))
            anew = rows.join(told.select("fact_id", "what"), on="fact_id", how="left")
            others = told.join(rows, on="fact_id", how="left_anti").withColumnRenamed("to", "source_file")
            new = anew.withColumn("is_new", F.expr("true")).unionByName(
                others.withColumn("is_new", F.expr("false")), allowMissingColumns=True
            )
            merge = known.merge(new.alias("new"), same)
            merge = merge.whenMatchedDelete("NOT new.is_new AND new.what = 'gone'")
            merge = merge.whenMatchedUpdate("NOT new.is_new", {"source_file": "new.source_file"})
            merge = merge.whenMatchedUpdateAll("new.what IS NOT NULL")
            merge.whenNotMatchedInsertAll("new.is_new").execute()

        self._write_sound("facts", self._columns("facts", frame), recording_id, write)

    def replace(
        self, table_name: str, frame: DataFrame, recording_id: str, *, arranged: bool = False, within: str | None = None
    ) -> None:
        """Replace the recording's rows with these; TableContractError if the new rows are another recording's.

        `arranged`: the frame already has as few tasks as there should be files, each in order. `within`: a condition;
        only rows that meet it are replaced, and only new rows that meet it are written.
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
        """Write rows; if some break a check of the table, write all others and put those into `set_aside`."""
        try:
            self.commit(table_name, lambda: write(rows))
        except TableContractError:
            # Staged for now: to compute the rows may have taken minutes.
            folder = f"{self.staging_dir(recording_id)}/unsound/{table_name}"
            rows.write.mode("overwrite").parquet(folder)
            kept = self.spark.read.schema(rows.schema).parquet(folder)
            met = F.expr(
                " AND ".join(f"coalesce({condition}, false)" for condition, _, _ in checks_of(TABLES[table_name]))
            )
            sound = kept.where(met)
            arranged = sound.sortWithinPartitions(*row_key(TABLES[table_name]))
            self.commit(table_name, lambda: write(arranged))
            self._put_aside(table_name, kept.where(~met), recording_id)
        else:
            if table_name in self._with_aside(recording_id):
                self._put_aside(table_name, None, recording_id)

    def _with_aside(self, recording_id: str) -> set[str]:
        """Return the tables of which rows of the recording were set aside before."""
        if recording_id not in self._aside:
            self._aside[recording_id] = {*self.arrow("set_aside", recording_id, ["table"])["table"].to_pylist()}
        return self._aside[recording_id]

    def _put_aside(self, table_name: str, rows: DataFrame | None, recording_id: str) -> None:
        """Replace the rows of a table that were set aside before by these; None: there are none now."""
        self.ensure("set_aside")
        only = f"recording_id = {sql_string(recording_id)} AND table = {sql_string(table_name)}"
        if rows is None:
            aside = DeltaTable.forPath(self.spark, self.table_path("set_aside"))
            self.commit("set_aside", lambda: aside.delete(only))
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
        self.commit("set_aside", lambda: writer.save(self.table_path("set_aside")))
        self._with_aside(recording_id).add(table_name)

    def replace_all(
        self,
        frames: Mapping[str, DataFrame],
        recording_id: str,
        within: Mapping[str, str | None] | None = None,
        filled: Container[str] | None = None,
    ) -> None:
        """Replace the recording's rows of several tables; the first error is raised after all writes have ended.

        Writes run in parallel: a small write is mostly planning, which leaves cores idle. `within`: as in `replace`.
        `filled`: the tables of which the frames have rows; one that has none, and none to be replaced, is left.
        """
        aside = self._with_aside(recording_id)
        if filled is not None:
            stands = {name for name in frames if name in aside or not self.is_empty(name, recording_id)}
            frames = {name: frame for name, frame in frames.items() if name in filled or name in stands}
        with ThreadPoolExecutor(WRITES_AT_ONCE) as pool:
            written = [
                pool.submit(self.replace, name, frame, recording_id, within=(within or {}).get(name))
                for name, frame in frames.items()
            ]
        for one in written:
            one.result()

    def _arranged(self, table_name: str, frame: DataFrame) -> DataFrame:
        """Return exactly the table's columns, in few files, each with its rows in a fixed order."""
        rows = self._columns(table_name, frame)
        files = -(-estimated_bytes(rows) // FILE_BYTES)
        # A narrow coalesce instead of a shuffle; a large frame keeps its partitions.
        rows = rows.coalesce(max(1, files)) if files < self.spark.sparkContext.defaultParallelism else rows
        return rows.sortWithinPartitions(*row_key(TABLES[table_name]))

    def _columns(self, table_name: str, frame: DataFrame) -> DataFrame:
        """Return exactly the table's columns with their types; TableContractError if one is missing."""
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

    def commit(self, table_name: str, action: Callable[[], object], part: str = "rows") -> None:
        """Run the action, again if another run committed in between; TableContractError for broken contracts.

        HeldError if this driver lost a lease. `part`: changes of another part of the table do not wait for this one.
        """
        with self.alone(f"{table_name}.{part}"):
            self._attempt(table_name, action)
        self._committed.add(table_name)

    def _attempt(self, table_name: str, action: Callable[[], object]) -> None:
        self._forget(table_name)
        for attempt in range(1, COMMIT_ATTEMPTS + 1):
            self.check_leases()
            try:
                action()
            except (*_LOST_RACES, Py4JJavaError, PySparkException) as error:
                broken = _broken_contract(error)
                if broken is not None:
                    message = f"{table_name}: {broken}; nothing was written"
                    raise TableContractError(message) from error
                lost_race = _is_half_made(error) or isinstance(error, _LOST_RACES)
                if not lost_race or attempt == COMMIT_ATTEMPTS:
                    raise
                time.sleep(0.1 * attempt)
            else:
                return


def _is_half_made(error: BaseException) -> bool:
    return any(mark in str(error) for mark in _HALF_MADE_MARKS)


class Small(NamedTuple):
    """The rows of a small table: for Python, and for Spark."""

    rows: pa.Table
    frame: DataFrame

    @classmethod
    def of(cls, spark: SparkSession, rows: pa.Table) -> Small:
        """Hand them to Spark, which keeps them in columns once they are asked for."""
        return cls(rows, spark.createDataFrame(rows).coalesce(1).persist())


def estimated_bytes(frame: DataFrame) -> int:
    """Return the optimizer's estimate of the frame's size: exact for files and literals, huge if unknown."""
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))  # noqa: SLF001 - not in the API


def _broken_contract(error: Py4JJavaError | PySparkException) -> str | None:
    """Return Delta's own words for a broken constraint from anywhere in the chain of causes; None for other errors."""
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
