"""Every Delta read, and what reads and writes share: where tables are, which versions are looked at, how one commits.

Tables are made, and brought up to this version of Tidemark, when they are first asked for.
"""

from __future__ import annotations

from functools import reduce
from threading import RLock
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from delta import DeltaTable
from pyspark.sql import functions as F

from pipelines.lines.rows import EARLIEST, LATEST
from pipelines.recording.names import inside
from pipelines.spark.staging import SMALL_BYTES
from pipelines.warehouse.attempts import ERRORS, attempt, is_half_made
from pipelines.warehouse.commits import commits_of, is_left_alone
from pipelines.warehouse.later import Later
from pipelines.warehouse.migration import bring_up, completed
from pipelines.warehouse.opened import Opened
from pipelines.warehouse.small import Small
from pipelines.warehouse.spans import is_spanned, spanned
from pipelines.warehouse.store import Store
from pipelines.warehouse.table_files import TableFiles, smallest
from replay.arrays.ints import NEVER
from schemas.model import TIMESTAMP
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pipelines.spark.staging import Rows
    from pipelines.warehouse.commits import Commit
    from pipelines.warehouse.spans import Span

# Timelines are compressed to a few bytes a row, which take hundreds in memory; and Spark keeps what it is handed from
# memory several times, in its plan, in its tasks and in columns.
SMALL_ROWS: Final = 1_000_000
FRAME_BYTES: Final = 4 << 20
FRAME_ROWS: Final = 200_000
PART_BYTES: Final = 64 << 20  # up to this size, compressed, files are looked through for some of their rows here,
LARGE_BYTES: Final = 512 << 20  # and up to this one for some columns of them,
LARGE_ROWS: Final = 2_000_000  # of which there are so many


class Tables(Store):
    """The Delta tables under one directory, as a run reads them."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        """Remember the path; nothing is created before it is needed."""
        super().__init__(spark, path)
        self.opened = Opened()
        self._places: dict[str, Path | None] = {}  # of tables that were asked for
        self._ensured: dict[str, int] = {}  # tables that were used, with their version before that
        self._committed: set[str] = set()  # tables that were written to
        self._pinned: dict[str, int] = {}
        self._counted: dict[str, dict[str, int]] = {}  # by recording: rows of each table
        self._aside: dict[str, set[str]] = {}  # by recording: tables that have rows set aside
        self._aside_in_turn = RLock()
        self._small: dict[tuple[str, str], Small | None] = {}  # by table and recording

    def table_path(self, table_name: str) -> str:
        """Return the path of a table."""
        return inside(self.path, TABLES[table_name].name)

    def place_of(self, table_name: str) -> Path | None:
        """Return the path of a table on this machine; None: it is in another store."""
        if table_name not in self._places:
            self._places[table_name] = self._local(self.table_path(table_name))
        return self._places[table_name]

    def folder_for(self, table_name: str, recording_id: str) -> Path | None:
        """Return where a table's files are written before it takes them over; None: it is in another store."""
        is_here = self.place_of(table_name) is not None
        return self._local(f"{self.staging_dir(recording_id)}/files/{table_name}") if is_here else None

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
        told = TABLES[table_name], self.table_path(table_name), self.place_of(table_name), self.opened
        self.commit(table_name, lambda: bring_up(self.spark, *told), "form")

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

    def of_run(self, table_name: str, recording_id: str, run_id: str, columns: Sequence[str]) -> pa.Table:
        """Return these columns of the rows that a run appended, in the driver's memory."""
        files = self._files(table_name, recording_id)
        if files is not None:
            return files.with_text("run_id", run_id).rows(columns, pc.field("run_id") == run_id)
        return self.read(table_name, recording_id).where(F.col("run_id") == run_id).select(*columns).toArrow()

    def is_empty(self, table_name: str, recording_id: str) -> bool:
        """Whether the table has no rows of the recording."""
        files = self._files(table_name, recording_id)
        return not (self.read(table_name, recording_id).head(1) if files is None else len(files.files))

    def looked_at(self, table_name: str, recording_id: str) -> DataFrame:
        """Return the rows as `read` does, for who asks more than once: those of a small table are read once."""
        files = self._files(table_name, recording_id)
        is_handed = files is not None and files.has_at_most(FRAME_BYTES, FRAME_ROWS)
        found = self.small(table_name, recording_id) if is_handed else None
        return self.read(table_name, recording_id) if found is None else found.frame

    def small(self, table_name: str, recording_id: str) -> Small | None:
        """Return the rows in the driver's memory; None: they are too many, or only Spark can read them."""
        key = (table_name, recording_id)
        if key not in self._small:
            files = self._files(table_name, recording_id)
            is_small = files is not None and files.has_at_most(SMALL_BYTES, SMALL_ROWS)
            self._small[key] = Small(self.spark, files.rows()) if files is not None and is_small else None
        return self._small[key]

    def small_rows(self, table_name: str, recording_id: str) -> pa.Table | None:
        """Return the same without a frame of Spark's."""
        found = self.small(table_name, recording_id)
        return None if found is None else found.rows

    def read_before(self, table_name: str, recording_id: str) -> pa.Table | None:
        """Return the same if somebody has asked for them before."""
        found = self._small.get((table_name, recording_id))
        return None if found is None else found.rows

    def around(
        self,
        table_name: str,
        recording_id: str,
        spans: Sequence[Span | None],
        columns: Sequence[str],
        only: pc.Expression | None = None,
    ) -> Rows:
        """Return these columns of the rows whose time is around these spans, in the driver's memory if they are few.

        `only`: which of them are asked for, if others may be left out.
        """
        files = self._files(table_name, recording_id)
        near = None if files is None else files.around("ts", spans)
        if near is not None and near.has_at_most(LARGE_BYTES, LARGE_ROWS):
            return near.rows(columns, is_spanned("ts", spans))
        if near is not None and only is not None:
            found = near.some(columns, is_spanned("ts", spans) & only, LARGE_ROWS)
            if found is not None:
                return found
        return self.read(table_name, recording_id).where(spanned("ts", spans)).select(*columns)

    def stated(self, recording_id: str, spans: Sequence[Span | None], ids: pa.Array) -> pa.Table | None:
        """Return these few facts, whose times are around these spans; None: only Spark can read them."""
        files = self._files("facts", recording_id)
        where = is_spanned("ts", spans) & pc.field("fact_id").isin(ids)
        return None if files is None else files.around("ts", spans).rows((), where)

    def since(self, table_name: str, recording_id: str, column: str, since: int) -> pa.Table | None:
        """Return the rows with a time from this one on, in the driver's memory; None: they may be too many for it."""
        files = self._files(table_name, recording_id)
        if files is None:
            return None
        later = files.between(column, since, LATEST)
        if later.size_bytes > PART_BYTES:
            return None
        if since < EARLIEST:  # then those without a time, too
            return files.rows()
        return later.rows((), pc.field(column) >= pa.scalar(since, pa.int64()).cast(TIMESTAMP))

    def later(self, table_name: str, recording_id: str, since: int) -> Later | None:
        """Return the facts from a moment on, to be read some at a time; None: only Spark can read them."""
        files = self._files(table_name, recording_id)
        if files is None:
            return None
        return Later(files if since == -NEVER else files.between("ts", since, LATEST, or_none=True), since)

    def whole(self, table_name: str, recording_id: str, most: int, columns: Sequence[str] = ()) -> pa.Table | None:
        """Return all rows in the driver's memory, or only these columns; None: they are too many, or only for Spark."""
        files = self._files(table_name, recording_id)
        if files is None or files.count is None or files.count > most:
            return None
        found = self._small.get((table_name, recording_id))
        return files.rows(columns) if found is None else found.rows

    def paths(self, table_name: str, recording_id: str) -> list[Path]:
        """Return the Parquet files with exactly the rows that `read` returns; none if only Spark can read them."""
        files = self._files(table_name, recording_id)
        return [] if files is None else files.paths

    def table_files(self, table_names: Iterable[str], recording_id: str) -> dict[str, TableFiles]:
        """Return the files that `read` reads of these tables, but for those that only Spark can read."""
        return {name: files for name in table_names if (files := self._files(name, recording_id)) is not None}

    def files_within(self, table_names: Iterable[str], recording_id: str, most: int) -> dict[str, TableFiles]:
        """Return the same of small tables first, as long as they have so many bytes."""
        return smallest(self.table_files(table_names, recording_id), most)

    def _files(self, table_name: str, recording_id: str) -> TableFiles | None:
        """Return the files that `read` reads; None: only Spark can read them."""
        self.ensure(table_name)
        place, version = self.place_of(table_name), self._pinned.get(table_name)
        return None if place is None else TableFiles.of(table_name, place, version, recording_id, self.opened)

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
            return int(self.opened.newest(place).version())
        # The public way, history(), runs a job for the same answer.
        log = DeltaTable.forPath(self.spark, self.table_path(table_name))._jdt.deltaLog()  # noqa: SLF001
        return int(log.unsafeVolatileSnapshot().version())

    def commits(self, table_name: str, recording_id: str, since: int) -> Iterator[Commit]:
        """Yield the commits that runs of the recording made to the table after the version `since`, newest first."""
        newest = self.version(table_name)
        path, place = self.table_path(table_name), self.place_of(table_name)
        return commits_of(self.spark, path, place, recording_id, newest, since)

    def is_left_alone(self, table_name: str, recording_id: str, since: int, run_id: str) -> bool:
        """Whether nobody but this run can have changed the recording's rows after the version `since`."""
        newest = self.version(table_name)
        path, place = self.table_path(table_name), self.place_of(table_name)
        return since <= newest and is_left_alone(self.spark, path, place, recording_id, newest, since, run_id)

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

    def commit(self, table_name: str, action: Callable[[], object], part: str = "rows") -> None:
        """Run the action, again if another run committed in between; TableContractError for broken contracts.

        HeldError if this driver lost a lease. `part`: changes of another part of the table do not wait for this one.
        """
        with self.alone(f"{table_name}.{part}"):
            self._forget(table_name)
            attempt(table_name, action, self.check_leases)
        self._committed.add(table_name)
