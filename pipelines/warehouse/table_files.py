"""A table's rows and their number without a Spark job, as long as its files lie on this machine.

To plan a query of Spark's takes longer than to read a table of some megabytes. deltalake reads Delta's log in
milliseconds; it is asked only where a table needs nothing of its readers but Delta's first protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from pipelines.warehouse.opened import in_one_line, place_of
from pipelines.warehouse.spans import around
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pipelines.warehouse.opened import Opened
    from pipelines.warehouse.spans import Span
    from schemas.model import Table

_PLAIN: Final = 1  # later protocols of readers have deletion vectors and renamed columns
_MILLISECOND_US: Final = 1000  # times in Delta's log have no more digits
_RECORDING: Final = "recording_id"
_OF: Final = f"partition.{_RECORDING}"
_PARQUET: Final = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us"))


@dataclass(frozen=True, slots=True)
class TableFiles:
    """One recording's files of a table in one version."""

    name: str
    recording_id: str
    table: DeltaTable
    files: pa.Table  # as Delta's log states them: path, size_bytes, num_records

    @classmethod
    def of(
        cls, name: str, path: Path, version: int | None, recording_id: str, opened: Opened | None = None
    ) -> TableFiles | None:
        """Find them; None: only Spark can read the table, or it lacks columns in that version.

        `opened`: tables that were opened before, so that the newest version need not be read from the start. What is
        found then holds until the table is written to.
        """
        with in_one_line():
            table = DeltaTable(path, version) if version is not None or opened is None else opened.newest(path)
        if table.protocol().min_reader_version > _PLAIN or not has_columns_of(table, TABLES[name]):
            return None
        every = pa.table(table.get_add_actions(flatten=True))
        mine = every.filter(pc.equal(every[_OF], recording_id)) if len(every) else every
        return cls(name, recording_id, table, mine)

    def around(self, column: str, spans: Iterable[Span | None]) -> TableFiles:
        """Return the files that may have rows with a time around these spans, or without one (`is_spanned`)."""
        known = around(spans)
        return self.within(column, known) if known else self

    def within(self, column: str, spans: Iterable[Span]) -> TableFiles:
        """Return the files that may have rows with a time in one of these spans, or without one."""
        found = (self.between(column, *span, or_none=True).files["path"].to_pylist() for span in spans)
        return self.only({*chain.from_iterable(found)})

    def only(self, paths: Collection[str]) -> TableFiles:
        """Return those of the files that have one of these paths, as Delta's log states it."""
        are_some = [one in paths for one in self.files["path"].to_pylist()]
        return replace(self, files=self.files.filter(pa.array(are_some, pa.bool_())))

    def with_text(self, column: str, text: str) -> TableFiles:
        """Return the files that may have rows with a text in a column, by what Delta's log says of them.

        The log has the first 32 characters of each text: those of the text must be no more, as a run's id has.
        """
        told = [f"{end}.{column}" for end in ("min", "max")]
        if not len(self.files) or not {*told} <= {*self.files.column_names}:
            return self
        first, last = (self.files[end] for end in told)
        apart = pc.or_(pc.greater(first, text), pc.less(last, text))
        return self._without(apart)

    def between(self, column: str, since: int, until: int, *, or_none: bool = False) -> TableFiles:
        """Return the files that may have rows with a time between two others, by what Delta's log says of them.

        `or_none`: or with none.
        """
        told = [f"{what}.{column}" for what in ("min", "max", "null_count")]
        if not len(self.files) or not {*told} <= {*self.files.column_names}:
            return self
        begins, ends = (
            self.files[f"{end}.{column}"].cast(pa.timestamp("us")).cast(pa.int64()) for end in ("min", "max")
        )
        first, last = (pa.scalar(us, pa.int64()) for us in (since, until))
        apart = pc.or_(pc.greater(begins, last), pc.less(pc.add(ends, _MILLISECOND_US), first))
        if or_none:
            apart = pc.and_(apart, pc.equal(self.files[told[2]].cast(pa.int64()), 0))
        return self._without(apart)

    def _without(self, apart: pa.ChunkedArray) -> TableFiles:
        """Return the files of which this is not true; null: it is not known."""
        return replace(self, files=self.files.filter(pc.invert(pc.coalesce(apart, pa.scalar(False)))))  # noqa: FBT003

    @property
    def size_bytes(self) -> int:
        """The files' size, as they are compressed."""
        return pc.sum(self.files["size_bytes"]).as_py() or 0

    @property
    def paths(self) -> list[Path]:
        """Where the files are."""
        place = place_of(self.table)
        return [place / unquote(path) for path in self.files["path"].to_pylist()]

    def has_at_most(self, size_bytes: int, rows: int | None = None) -> bool:
        """Whether the files are no larger, and are known to have no more rows."""
        return self.size_bytes <= size_bytes and (rows is None or (self.count is not None and self.count <= rows))

    @property
    def count(self) -> int | None:
        """Number of rows; None: not stated of all files."""
        records = self.files["num_records"]
        return None if records.null_count else pc.sum(records).as_py() or 0

    def rows(self, columns: Sequence[str] = (), where: pc.Expression | None = None) -> pa.Table:
        """Read all rows, or only these columns of those that meet a condition."""
        wanted = self._form(columns)
        with in_one_line():
            return self._dataset().to_table(columns=wanted.names, filter=where).cast(wanted)

    def some(self, columns: Sequence[str], where: pc.Expression, most: int) -> pa.Table | None:
        """Read these columns of the rows that meet a condition; None: there are more than so many."""
        found, rows = [], 0
        for batch in self.batches(columns, where):
            found.append(batch)
            rows += len(batch)
            if rows > most:
                return None
        return pa.Table.from_batches(found, self._form(columns))

    def batches(self, columns: Sequence[str], where: pc.Expression | None = None) -> Iterator[pa.RecordBatch]:
        """Read these columns of the rows that meet a condition, some at a time."""
        with in_one_line():
            yield from self._dataset().to_batches(columns=[*columns], filter=where)

    def _form(self, columns: Sequence[str]) -> pa.Schema:
        """Return the form of these columns; of all, if it is none."""
        schema = TABLES[self.name].arrow_schema
        return pa.schema([schema.field(name) for name in columns]) if columns else schema

    def _dataset(self) -> ds.Dataset:
        """Return these files as one dataset.

        deltalake's own has the largest and least value of all columns of every file of the table as a condition, which
        takes a tenth of a millisecond for each file, and a table has one of each run.
        """
        mine = ds.field(_RECORDING) == self.recording_id
        place = files_in(self.table)
        parts = [_PARQUET.make_fragment(unquote(path), place, mine) for path in self.files["path"].to_pylist()]
        return ds.FileSystemDataset(parts, TABLES[self.name].arrow_schema, _PARQUET, place)


def smallest(files: Mapping[str, TableFiles], most: int) -> dict[str, TableFiles]:
    """Return the files of small tables first, as long as they have so many bytes."""
    names = sorted(files, key=lambda name: files[name].size_bytes)
    sizes = accumulate(files[name].size_bytes for name in names)
    return {name: files[name] for name, size in zip(names, sizes, strict=True) if size <= most}


def dataset_of(table: DeltaTable, recording_id: str) -> ds.Dataset:
    """Return one recording's rows, read when they are asked for, with what Delta's log says of each file.

    Local files are read by Arrow alone. Through deltalake's file system Arrow's threads call Python, and if they still
    do when the interpreter ends, it aborts (exit code 134).
    """
    is_local = urlsplit(table.table_uri).scheme in {"", "file"}
    files = files_in(table) if is_local else None
    return table.to_pyarrow_dataset(partitions=[(_RECORDING, "=", recording_id)], filesystem=files)


def files_in(table: DeltaTable) -> SubTreeFileSystem:
    """Return the folder of a table on this machine."""
    return SubTreeFileSystem(str(place_of(table)), LocalFileSystem())


def has_columns_of(stands: DeltaTable, table: Table) -> bool:
    """Whether what stands has the table's columns and no others."""
    return {field.name for field in stands.schema().fields} == {one.name for one in table.columns}
