"""Every Delta read and write. One directory per table under the warehouse, partitioned by recording_id.

A write replaces or adds the rows of one recording and touches no other's, so runs of different recordings can go on
side by side: a run that loses the race for a commit repeats it on top of the winner's. Each write is one commit, so a
run that is killed leaves every table either unchanged or completely written.

A bad row never ends a run: rows that break a check of their table are put into `set_aside` instead. Delta's own checks
find them during the write, so rows that meet all checks are looked at only once.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from delta import DeltaTable
from pyspark.sql import functions as F

from pipelines.recording.names import inside
from pipelines.spark.spark_schemas import spark_schema
from pipelines.spark.staging import SMALL_BYTES, Rows, as_frame, may_be_null
from pipelines.warehouse import local_tables
from pipelines.warehouse.attempts import ERRORS, attempt, is_half_made
from pipelines.warehouse.commits import MARK, commits_of
from pipelines.warehouse.contract import all_met, checks_of, row_key, sql_string
from pipelines.warehouse.fact_merge import merge
from pipelines.warehouse.migration import bring_up, completed
from pipelines.warehouse.small import Small
from pipelines.warehouse.spans import is_spanned, spanned
from pipelines.warehouse.store import Store
from pipelines.warehouse.table_files import TableFiles
from schemas.errors import TableContractError
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pipelines.warehouse.commits import Commit
from pipelines.warehouse.spans import Span

FILE_BYTES: Final = 128 * 1024 * 1024  # intended size of one file of a write, by the optimizer's estimate
WRITES_AT_ONCE: Final = 4


class Warehouse(Store):
    """The Delta tables under one directory, for the run `run_id`."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        """Remember the path; nothing is created before it is needed."""
        super().__init__(spark, path)
        self._places: dict[str, Path | None] = {}  # of tables that were asked for
        self._ensured: dict[str, int] = {}  # tables that were used, with their version before that
        self._committed: set[str] = set()  # tables that were written to
        self._pinned: dict[str, int] = {}
        self._counted: dict[str, dict[str, int]] = {}  # by recording: rows of each table
        self._aside: dict[str, set[str]] = {}  # by recording: tables that have rows set aside
        self._small: dict[tuple[str, str], Small | None] = {}  # by table and recording

    def table_path(self, table_name: str) -> str:
        """Return the path of a table."""
        return inside(self.path, TABLES[table_name].name)

    def place_of(self, table_name: str) -> Path | None:
        """Return the path of a table on this machine; None: it is in another store."""
        if table_name not in self._places:
            self._places[table_name] = self._local(self.table_path(table_name))
        return self._places[table_name]

    def ensure(self, table_name: str) -> None:
        """Create the table, or bring it up to this version of Tidemark; InputError if that cannot be done."""
        if table_name not in self._ensured:
            try:
                self._bring_up(table_name)
            except ERRORS as error:
                if not is_half_made(error) or not self.drop_unmade(self.table_path(table_name)):
                    raise
                self._bring_up(table_name)
            self._ensured[table_name] = self._newest(table_name)

    def _bring_up(self, table_name: str) -> None:
        table, path = TABLES[table_name], self.table_path(table_name)
        self.commit(table_name, lambda: bring_up(self.spark, table, path, self.place_of(table_name)), "form")

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
            self._small[key] = Small(self.spark, files.rows()) if files is not None and is_small else None
        return self._small[key]

    def _files(self, table_name: str, recording_id: str) -> TableFiles | None:
        """Return the files that `read` reads; None: only Spark can read them."""
        self.ensure(table_name)
        place, version = self.place_of(table_name), self._pinned.get(table_name)
        return None if place is None else TableFiles.of(table_name, place, version, recording_id)

    def _forget(self, table_name: str) -> None:
        """Let the rows be read anew that are asked for again."""
        self._counted.clear()
        for key in [key for key in tuple(self._small) if key[0] == table_name]:
            small = self._small.pop(key)
            if small is not None:
                small.forget()

    def version(self, table_name: str) -> int:
        """Return the table's newest version."""
        self.ensure(table_name)
        return self._newest(table_name)

    def _newest(self, table_name: str) -> int:
        if (place := self.place_of(table_name)) is not None:
            return local_tables.newest(place)
        # The public way, history(), runs a job for the same answer.
        log = DeltaTable.forPath(self.spark, self.table_path(table_name))._jdt.deltaLog()  # noqa: SLF001
        return int(log.unsafeVolatileSnapshot().version())

    def commits(self, table_name: str, recording_id: str, since: int) -> Iterator[Commit]:
        """Yield the commits that runs of the recording made to the table after the version `since`, newest first."""
        newest = self.version(table_name)
        path, place = self.table_path(table_name), self.place_of(table_name)
        return commits_of(self.spark, path, place, recording_id, newest, since)

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

    def append(self, table_name: str, found: Rows) -> None:
        """Add rows."""
        self.ensure(table_name)
        if isinstance(found, pa.Table) and len(found):
            (recording_id,) = found["recording_id"].unique().to_pylist()
            if self._written_here(table_name, lambda: _in_turn(table_name, found), recording_id, mode="append"):
                return
        rows = self._arranged(table_name, as_frame(self.spark, found))
        self.commit(table_name, lambda: rows.write.format("delta").mode("append").save(self.table_path(table_name)))

    def append_facts(
        self,
        found: Rows,
        recording_id: str,
        changed: DataFrame | None = None,
        spans: Sequence[Span | None] | None = None,
        files: Sequence[Path] = (),
    ) -> None:
        """Add the facts that are not in the table yet; what is given holds each once, in the order of its lines.

        `changed`: the facts of earlier readings that get another name or go (`superseded.changed_facts`). Those of them
        that are given again are updated. `spans`: in which times the facts lie that are given or changed. Only the
        table's files with such facts are read, for an equal fact has an equal time. `files`: Parquet files with exactly
        the given facts, on this machine. The table takes them over as they are where all in them is new and sound.

        Else many facts are merged. Of few those that stand are left out before they are added, while no other driver
        may commit: two runs that bring the same facts must not both add them.
        """
        self.ensure("facts")

        def news() -> pa.Table:
            stand = self._files("facts", recording_id)
            if stand is None:
                return None
            known = stand.rows(["fact_id"], None if spans is None else is_spanned("ts", spans))["fact_id"]
            return found.filter(pc.invert(pc.is_in(found["fact_id"], known)))

        is_few = changed is None and isinstance(found, pa.Table)
        if is_few and self._written_here("facts", news, recording_id, mode="append"):
            return
        frame = as_frame(self.spark, found)
        if changed is None and files and self._taken_over(frame, recording_id, spans, files):
            return
        same = f"known.recording_id = {sql_string(recording_id)} AND known.fact_id = new.fact_id"
        same += f" AND {spanned('known.ts', spans)}" if spans else ""

        def write(rows: DataFrame) -> None:
            merge(DeltaTable.forPath(self.spark, self.table_path("facts")), rows, changed, same)

        self._write_sound("facts", self._columns("facts", frame), recording_id, write)

    def _taken_over(
        self, facts: DataFrame, recording_id: str, spans: Sequence[Span | None] | None, files: Sequence[Path]
    ) -> bool:
        """Let the table take over the facts' files; False: some facts stand or break a check, or Spark is to do it."""

        def commit(place: Path, mark: str | None) -> bool:
            if facts.where(f"NOT ({all_met(TABLES['facts'])})").head(1):
                return False
            if not self.is_empty("facts", recording_id):
                stand = self.read("facts", recording_id).where(spanned("ts", spans) if spans else "true")
                if stand.join(facts.select("fact_id"), "fact_id", "left_semi").head(1):
                    return False
            return local_tables.take_over(place, TABLES["facts"], files, recording_id, mark)

        return self._committed_here("facts", recording_id, commit)

    def replace(
        self, table_name: str, found: Rows, recording_id: str, *, arranged: bool = False, within: str | None = None
    ) -> None:
        """Replace the recording's rows with these; TableContractError if the new rows are another recording's.

        `arranged`: the frame already has as few tasks as there should be files, each in order. `within`: a condition;
        only rows that meet it are replaced, and only new rows that meet it are written.
        """
        self.ensure(table_name)
        whole = self._with_those_left(table_name, found, recording_id, within)
        if isinstance(whole, pa.Table) and self._written_here(
            table_name, lambda: _in_turn(table_name, whole), recording_id
        ):
            return
        frame = as_frame(self.spark, found)
        some = frame if within is None else frame.where(within)
        rows = self._columns(table_name, some) if arranged else self._arranged(table_name, some)
        only = f"recording_id = {sql_string(recording_id)}" + (f" AND ({within})" if within else "")

        def write(rows: DataFrame) -> None:
            writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", only)
            writer.save(self.table_path(table_name))

        self._write_sound(table_name, rows, recording_id, write)

    def _written_here(
        self,
        table_name: str,
        rows_of_now: Callable[[], pa.Table | None],
        recording_id: str,
        mode: Literal["append", "overwrite"] = "overwrite",
    ) -> bool:
        """Write rows that are in the driver's memory; False: they are not, or Spark is to do it.

        Rows that break a check are not written here, so that there is one way in which they are set aside.
        """

        def write(place: Path, mark: str | None) -> bool:
            rows = rows_of_now()
            return rows is not None and local_tables.write(place, TABLES[table_name], rows, recording_id, mark, mode)

        return self._committed_here(table_name, recording_id, write)

    def _committed_here(self, table_name: str, recording_id: str, commit: Callable[[Path, str | None], bool]) -> bool:
        """Let this process commit to a table that is on this machine; False: it is not, or nothing was committed.

        `commit` is given the table's path and what marks the run's commits, and returns whether it did.
        """
        place = self.place_of(table_name)
        if place is None:
            return False
        mark, written = self.spark.conf.get(MARK, None), []
        self.commit(table_name, lambda: written.append(commit(place, mark)))
        if written[-1] and table_name in self._with_aside(recording_id):
            self._put_aside(table_name, None, recording_id)
        return written[-1]

    def _with_those_left(self, table_name: str, new: Rows, recording_id: str, within: str | None) -> Rows:
        """Return new rows of a small table with those that they leave, as they replace what meets a condition."""
        place = self.place_of(table_name)
        if within is None or place is None or not isinstance(new, pa.Table):
            return new
        stand = TableFiles.of(table_name, place, None, recording_id)
        if stand is None or stand.size_bytes > SMALL_BYTES:
            return as_frame(self.spark, new)
        left = as_frame(self.spark, stand.rows()).where(f"NOT coalesce({within}, false)")
        rows = left.unionByName(as_frame(self.spark, new).where(within)).toArrow()
        return rows.select(new.column_names).cast(may_be_null(new.schema))

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
            met = F.expr(all_met(TABLES[table_name]))
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
        frames: Mapping[str, Rows],
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
            self._forget(table_name)
            attempt(table_name, action, self.check_leases)
        self._committed.add(table_name)


def _in_turn(table_name: str, rows: pa.Table) -> pa.Table:
    """Return rows in a fixed order."""
    keys = [(name, "ascending", "at_start") for name in row_key(TABLES[table_name])]  # where Spark has nulls
    return rows.take(pc.sort_indices(rows, sort_keys=keys))


def estimated_bytes(frame: DataFrame) -> int:
    """Return the optimizer's estimate of the frame's size: exact for files and literals, huge if unknown."""
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))  # noqa: SLF001 - not in the API
