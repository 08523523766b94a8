"""Every Delta write. One directory per table under the warehouse, partitioned by recording_id.

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
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.spark.spark_schemas import spark_schema
from pipelines.spark.staging import SMALL_BYTES, Rows, as_frame, estimated_bytes, may_be_null
from pipelines.warehouse import aside, local_tables
from pipelines.warehouse.commits import MARK
from pipelines.warehouse.contract import all_met, checks_of, row_key, sql_string
from pipelines.warehouse.delta_reads import Tables
from pipelines.warehouse.exchange import facts_in_place_of, in_place_of
from pipelines.warehouse.fact_merge import merge
from pipelines.warehouse.spans import spanned
from pipelines.warehouse.within import Within, has_one_of
from replay.arrays.columns import taken
from schemas.errors import TableContractError
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence
    from pathlib import Path

    from deltalake import DeltaTable as Standing

    from pipelines.intake.ledger import Change
    from pipelines.warehouse.aside import Stays
    from pipelines.warehouse.spans import Span
    from pipelines.warehouse.table_files import TableFiles

FILE_BYTES: Final = 128 * 1024 * 1024  # intended size of one file of a write, by the optimizer's estimate
WRITES_AT_ONCE: Final = 4
_NUMBER: Final = "number"
_NONE: Final = TABLES["set_aside"].arrow_schema.empty_table()
TINY_BYTES: Final = 256 << 10  # a table of this size, compressed, is written as a whole whatever changes in it


class Warehouse(Tables):
    """The Delta tables under one directory, for the run `run_id`."""

    def append(self, table_name: str, found: Rows) -> None:
        """Add rows."""
        self.ensure(table_name)
        if isinstance(found, pa.Table) and len(found):
            (recording_id,) = found["recording_id"].unique().to_pylist()
            if self._written_here(table_name, found, recording_id, aside.all_stay, mode="append"):
                return
        rows = self._arranged(table_name, as_frame(self.spark, found))
        self.commit(table_name, lambda: rows.write.format("delta").mode("append").save(self.table_path(table_name)))

    def append_facts(
        self,
        found: Rows,
        recording_id: str,
        changed: Rows | None = None,
        spans: Sequence[Span | None] | None = None,
        files: Sequence[Path] = (),
        changes: Sequence[Change] | None = None,
    ) -> None:
        """Add the facts that are not in the table yet; what is given holds each once, in the order of its lines.

        `changed`: the facts of earlier readings that get another name or go (`superseded.changed_facts`). Those of them
        that are given again are updated. `spans`: in which times the facts lie that are given or changed. Only the
        table's files with such facts are read, for an equal fact has an equal time. `files`: Parquet files with exactly
        the given facts, on this machine. `changes`: what becomes of the facts of earlier readings, for those that were
        set aside; None: all are read now.

        The table takes over files of new facts, and files of earlier ones are written again where some of them change
        (`facts_in_place_of`); else Spark merges them. Those that stand are left out before new ones are added, while no
        other driver may commit: two runs that bring the same facts must not both add them.
        """
        self.ensure("facts")
        stays = aside.none_stay if changes is None else aside.left_by_reading(changes)
        if isinstance(changed, pa.Table) and not len(changed):
            changed = None
        given = found if isinstance(found, pa.Table) else files
        if self._facts_exchanged(given, recording_id, changed, spans, stays):
            return
        same = f"known.recording_id = {sql_string(recording_id)} AND known.fact_id = new.fact_id"
        same += f" AND {spanned('known.ts', spans)}" if spans else ""
        frame = as_frame(self.spark, found)
        others = None if changed is None else as_frame(self.spark, changed)

        def write(rows: DataFrame) -> None:
            merge(DeltaTable.forPath(self.spark, self.table_path("facts")), rows, others, same)

        self._write_sound("facts", self._columns("facts", frame), recording_id, stays, write)

    def _facts_exchanged(
        self,
        given: pa.Table | Sequence[Path],
        recording_id: str,
        changed: Rows | None,
        spans: Sequence[Span | None] | None,
        stays: Stays,
    ) -> bool:
        """Let the table take over files of facts, in place of those that change; False: Spark is to write them."""
        if isinstance(changed, DataFrame) or not (isinstance(given, pa.Table) or given):
            return False

        def commit(stands: Standing, mark: str | None) -> bool:
            if (exchangeable := self._exchangeable("facts", recording_id)) is None:
                return False
            stand, folder = exchangeable
            made = facts_in_place_of(self.spark, stand, given, changed, spans, folder)
            return made is not None and local_tables.take_over(stands, TABLES["facts"], *made, recording_id, mark)

        return self._committed_here("facts", recording_id, stays, commit)

    def replace(  # noqa: PLR0913 - what is written, in place of what, and what is known of it
        self,
        table_name: str,
        found: Rows,
        recording_id: str,
        *,
        arranged: bool = False,
        within: Within | str | None = None,
        are_same: bool = False,
        streams: Sequence[Path] = (),
    ) -> None:
        """Replace the recording's rows with these; TableContractError if the new rows are another recording's.

        `arranged`: the frame already has as few tasks as there should be files, each in order. `within`: a condition;
        only rows that meet it are replaced, and only new rows that meet it are written. `are_same`: they are the rows
        that stand, so that those that were set aside stay aside. `streams`: files on this machine with streams of
        exactly the given rows; if all are sound, workers write the table's files where rows are many.
        """
        self.ensure(table_name)
        stays = aside.all_stay if are_same else self._left_by(table_name, within)
        whole = self._whole(table_name, found, recording_id, within)
        if whole is not None and self._written_here(table_name, whole, recording_id, stays):
            return
        if self._exchanged(table_name, found, streams, recording_id, stays, within):
            return
        frame = as_frame(self.spark, found)
        within = within.sql if isinstance(within, Within) else within
        some = frame if within is None else frame.where(within)
        rows = self._columns(table_name, some) if arranged else self._arranged(table_name, some)
        only = f"recording_id = {sql_string(recording_id)}" + (f" AND ({within})" if within else "")

        def write(rows: DataFrame) -> None:
            writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", only)
            writer.save(self.table_path(table_name))

        self._write_sound(table_name, rows, recording_id, stays, write)

    def _exchanged(
        self,
        table_name: str,
        found: Rows,
        streams: Sequence[Path],
        recording_id: str,
        stays: Stays,
        within: Within | str | None,
    ) -> bool:
        """Let the table take over files in place of others; False: rows break a check, or Spark is to write them."""
        if isinstance(within, str) or not (isinstance(found, pa.Table) or streams):
            return False
        if (exchangeable := self._exchangeable(table_name, recording_id)) is None:
            return False
        stand, folder = exchangeable
        given = _in_turn(table_name, found) if isinstance(found, pa.Table) else streams
        made = in_place_of(self.spark, stand, given, within, folder)
        if made is None:
            return False

        def commit(stands: Standing, mark: str | None) -> bool:
            return local_tables.take_over(stands, TABLES[table_name], *made, recording_id, mark)

        return self._committed_here(table_name, recording_id, stays, commit)

    def _exchangeable(self, table_name: str, recording_id: str) -> tuple[TableFiles, Path] | None:
        """Return the recording's files of a table, and where others in their place are written; None: only by Spark."""
        stand = self._files(table_name, recording_id)
        if stand is None or not local_tables.may_take_over(stand.table, TABLES[table_name], recording_id):
            return None
        folder = self.folder_for(table_name, recording_id)
        return None if folder is None else (stand, folder)

    def _left_by(self, table_name: str, within: Within | str | None) -> Stays:
        """Return which rows that were set aside stay so, as those that meet a condition are replaced."""
        if within is None:
            return aside.none_stay
        if isinstance(within, Within):
            return aside.left_by(table_name, within)

        def stay(rows: pa.Table) -> pa.Table:
            given = aside.as_rows(table_name, rows)
            numbered = given.append_column(_NUMBER, pa.array(range(len(given)), pa.int64()))
            left = as_frame(self.spark, numbered).where(f"NOT coalesce({within}, false)").select(_NUMBER).toArrow()
            return rows.take(left[_NUMBER].sort())

        return stay

    def _written_here(
        self,
        table_name: str,
        rows: pa.Table,
        recording_id: str,
        stays: Stays,
        mode: Literal["append", "overwrite"] = "overwrite",
    ) -> bool:
        """Write rows that are in the driver's memory; False: Spark is to do it.

        Rows that break a check are not written here, so that there is one way in which they are set aside.
        """

        def write(stands: Standing, mark: str | None) -> bool:
            return local_tables.write(stands, TABLES[table_name], _in_turn(table_name, rows), recording_id, mark, mode)

        return self._committed_here(table_name, recording_id, stays, write)

    def _committed_here(
        self, table_name: str, recording_id: str, stays: Stays, commit: Callable[[Standing, str | None], bool]
    ) -> bool:
        """Let this process commit to a table that is on this machine; False: it is not, or nothing was committed.

        `commit` is given the table as it stands and what marks the run's commits, and returns whether it did.
        """
        place = self.place_of(table_name)
        if place is None:
            return False
        mark, written = self.spark.conf.get(MARK, None), []
        self.commit(table_name, lambda: written.append(commit(self.opened.newest(place), mark)))
        if written[-1]:
            self._put_aside(table_name, None, recording_id, stays)
        return written[-1]

    def _whole(self, table_name: str, new: Rows, recording_id: str, within: Within | str | None) -> pa.Table | None:
        """Return all rows of a small table once new ones have replaced those that meet a condition; None: many.

        Those that it keeps are written again with the new ones, so that it stays in one file.
        """
        if not isinstance(new, pa.Table):
            return None
        if within is None:
            return new
        stand = self._files(table_name, recording_id)
        if stand is None or stand.size_bytes > (TINY_BYTES if isinstance(within, Within) else SMALL_BYTES):
            return None
        if isinstance(within, Within):
            (some, _), (_, left) = within.split(new), within.split(stand.rows())
            return pa.concat_tables([left.select(some.column_names).cast(some.schema), some])
        left = as_frame(self.spark, stand.rows()).where(f"NOT coalesce({within}, false)")
        rows = left.unionByName(as_frame(self.spark, new).where(within)).toArrow()
        return rows.select(new.column_names).cast(may_be_null(new.schema))

    def _write_sound(
        self, table_name: str, rows: DataFrame, recording_id: str, stays: Stays, write: Callable[[DataFrame], None]
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
            self._put_aside(table_name, kept.where(~met), recording_id, stays)
        else:
            self._put_aside(table_name, None, recording_id, stays)

    def has_many_aside(self, recording_id: str) -> bool:
        """Whether so many rows were set aside that all are made anew."""
        return not self.is_empty("set_aside", recording_id) and self._aside_of(recording_id) is None

    def has_aside(self, table_name: str, recording_id: str) -> bool:
        """Whether rows of a table were set aside."""
        return table_name in self._with_aside(recording_id)

    def _aside_of(self, recording_id: str) -> pa.Table | None:
        """Return the rows that were set aside; None: they are too many to be looked at one by one."""
        if self.place_of("set_aside") is not None:
            return self.whole("set_aside", recording_id, aside.MOST)
        found = self.read("set_aside", recording_id).limit(aside.MOST + 1).toArrow()
        return found.cast(TABLES["set_aside"].arrow_schema) if len(found) <= aside.MOST else None

    def _with_aside(self, recording_id: str) -> set[str]:
        """Return the tables of which rows of the recording were set aside before."""
        if recording_id not in self._aside:
            self._aside[recording_id] = {*self.arrow("set_aside", recording_id, ["table"])["table"].to_pylist()}
        return self._aside[recording_id]

    def _put_aside(self, table_name: str, rows: DataFrame | None, recording_id: str, stays: Stays) -> None:
        """Set rows aside, in place of those of their table that were before and do not stay; None: there are none now.

        One table after the other, since each changes rows of one table.
        """
        if table_name == "set_aside" or (rows is None and table_name not in self._with_aside(recording_id)):
            return
        with self._aside_in_turn:
            every = self._aside_of(recording_id) if table_name in self._with_aside(recording_id) else _NONE
            stood = _NONE if every is None else every.filter(pc.equal(every["table"], table_name))
            left = stays(stood)
            if rows is not None:
                self._add_aside(table_name, rows, recording_id, left)
                self._with_aside(recording_id).add(table_name)
            elif every is None or not left.equals(stood):
                self.replace("set_aside", left, recording_id, within=has_one_of("table", [table_name]))
                if not len(left):
                    self._with_aside(recording_id).discard(table_name)

    def _add_aside(self, table_name: str, rows: DataFrame, recording_id: str, left: pa.Table) -> None:
        """Set rows of a table aside beside those that stay."""
        self.ensure("set_aside")
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
        if len(left):
            stay = as_frame(self.spark, left)
            if table_name == "facts":  # one that is stated again, by another file, as in the table
                told = told.join(stay.select("key"), on="key", how="left_anti")
            told = told.unionByName(stay)
        only = f"recording_id = {sql_string(recording_id)} AND table = {sql_string(table_name)}"
        writer = self._columns("set_aside", told).write.format("delta").mode("overwrite").option("replaceWhere", only)
        self.commit("set_aside", lambda: writer.save(self.table_path("set_aside")))

    def replace_all(
        self,
        frames: Mapping[str, Rows],
        recording_id: str,
        within: Mapping[str, Within | str | None] | None = None,
        filled: Container[str] | None = None,
        streams: Mapping[str, Sequence[Path]] | None = None,
    ) -> None:
        """Replace the recording's rows of several tables; the first error is raised after all writes have ended.

        Writes run in parallel: a small write is mostly planning, which leaves cores idle. `within`, `streams`: as in
        `replace`.
        `filled`: the tables of which the frames have rows; one that has none, and none to be replaced, is left.
        """
        with_aside = self._with_aside(recording_id)
        if filled is not None:
            stands = {name for name in frames if name in with_aside or not self.is_empty(name, recording_id)}
            frames = {name: frame for name, frame in frames.items() if name in filled or name in stands}
        with ThreadPoolExecutor(WRITES_AT_ONCE) as pool:
            written = [
                pool.submit(
                    self.replace,
                    name,
                    frame,
                    recording_id,
                    within=(within or {}).get(name),
                    streams=(streams or {}).get(name, ()),
                )
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


def _in_turn(table_name: str, rows: pa.Table) -> pa.Table:
    """Return rows in a fixed order."""
    keys = [(name, "ascending", "at_start") for name in row_key(TABLES[table_name])]  # where Spark has nulls
    return taken(rows, pc.sort_indices(rows, sort_keys=keys).to_numpy())
