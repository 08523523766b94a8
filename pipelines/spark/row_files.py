"""Rows of a table that workers and the driver write as Parquet themselves, so that they never become the JVM's.

What Spark gets to know of them are the files' names. It may read the files, and a table may take them over as they are.
They are what was just made (`RowFile`), what was staged before as streams (`rewritten`), or what is left of other files
once some of their rows are gone (`without`).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from pipelines.spark.packed import unpacked
from pipelines.spark.spark_schemas import spark_type
from replay.arrays.columns import completed_to

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

Mask: TypeAlias = pa.Array | pa.ChunkedArray
NAMES: Final = pa.schema([pa.field("name", pa.string())])
GROUP_ROWS: Final = 25_000  # rows that are encoded together; so many a worker holds back, of events 200 MB
PARTITIONED: Final = "recording_id"  # Delta keeps it out of the files
FILE_BYTES: Final = 64 << 20  # of streams that become one file, about; with fewer, each core has some
BUFFER_BYTES: Final = 1 << 20
LEAST_BYTES: Final = 16 << 20
HERE_BYTES: Final = 32 << 20  # of files that the driver looks through itself: a job of Spark's takes longer


class RowFile:
    """A file to which one task writes rows; it is there once it has rows."""

    def __init__(self, folder: Path) -> None:
        """Write into a folder, which is made."""
        self.folder = folder
        # Spark may run a task twice, and a table may keep the file: no other may ever have its name.
        self._name = f"part-{uuid.uuid4()}.snappy.parquet"
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0

    def add(self, rows: pa.Table) -> None:
        """Write rows, or hold few back until there are more."""
        if not len(rows):
            return
        self._waiting.append(rows.drop_columns(PARTITIONED) if PARTITIONED in rows.column_names else rows)
        self._waiting_rows += len(rows)
        if self._waiting_rows >= GROUP_ROWS:
            self._write()

    def _write(self) -> None:
        rows = pa.concat_tables(self._waiting)
        self._waiting, self._waiting_rows = [], 0
        if self._writer is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self.folder / self._name, rows.schema)
        self._writer.write_table(rows)

    def close(self) -> pa.Table:
        """Write what is left; return the file's name, if there is a file."""
        if self._waiting:
            self._write()
        if self._writer is None:
            return NAMES.empty_table()
        self._writer.close()
        return pa.table({"name": [self._name]}, NAMES)


def arrow_of(
    files: Sequence[Path], recording_id: str, schema: pa.Schema, where: pc.Expression | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files, with these columns; `where`: only those that meet a condition."""
    given = [name for name in schema.names if name != PARTITIONED]
    for file in files:
        for batch in pq.ParquetFile(file).iter_batches(columns=given):
            some = batch if where is None else batch.filter(where)
            column = pa.repeat(pa.scalar(recording_id, pa.string()), len(some))
            columns = [column if name == PARTITIONED else some.column(name) for name in schema.names]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def frame_of(spark: SparkSession, files: Sequence[Path], recording_id: str, schema: pa.Schema) -> DataFrame:
    """Return the rows of files as a frame, with these columns."""
    given = ", ".join(
        f"`{field.name}` {spark_type(field.type).simpleString()}" for field in schema if field.name != PARTITIONED
    )
    frame = spark.read.schema(given).parquet(*(f"file://{file}" for file in files))
    return frame.withColumn(PARTITIONED, F.lit(recording_id)).select(*schema.names)


def streamed(files: Iterable[Path], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the streams (`packed`) that stand in files, with these columns, a stream at a time."""
    for file in files:  # with a buffer and not before it is asked for, or all of a group would be in memory at once
        read = pq.ParquetFile(file, buffer_size=BUFFER_BYTES, pre_buffer=False)
        yield from unpacked(read.iter_batches(batch_size=1, columns=["rows"]), schema)


def rewritten(
    spark: SparkSession,
    streams: Sequence[Path],
    folder: Path,
    recording_id: str,
    schema: pa.Schema,
    are_wanted: Callable[[pa.Table], Mask] | None = None,
) -> list[Path] | None:
    """Let workers write the rows of streams as Parquet into a folder; None: some are of another recording.

    The streams' files lie on this machine, and so will those that are written: few, in the order of the streams.
    `are_wanted`: which rows are written; None: all.
    """

    def written(shares: Iterable[list[Path]]) -> Iterator[str | None]:
        for share in shares:
            file = RowFile(folder)
            for batch in streamed(share, schema):
                if batch[PARTITIONED].unique().to_pylist() != [recording_id]:
                    yield None
                    return
                rows = pa.Table.from_batches([batch])
                file.add(rows if are_wanted is None else rows.filter(are_wanted(rows)))
            yield from file.close()["name"].to_pylist()

    shares = _shares(streams, spark.sparkContext.defaultParallelism)
    names = spark.sparkContext.parallelize(shares, len(shares)).mapPartitions(written).collect()
    files = [folder / name for name in names if name is not None]
    return files if len(files) == len(names) else None


def without(
    spark: SparkSession,
    files: Sequence[Path],
    are_gone: Callable[[pa.Table], Mask],
    reads: Collection[str],
    folder: Path,
    schema: pa.Schema,
) -> list[tuple[Path, Path | None]]:
    """Return which of some files have rows that are to go, each with a file of those that are left; None: none are.

    These are written into a folder, with these columns: by workers, if the files are large. All lie on this machine.
    `reads`: the columns that tell which rows go.
    """
    given = in_files(schema)
    telling = pa.schema([field for field in given if field.name in reads])

    def left(file: Path) -> tuple[Path, Path | None] | None:
        if all(len(rows) == len(kept) for rows, kept in _kept(file, are_gone, telling)):
            return None
        written = RowFile(folder)
        for _, kept in _kept(file, are_gone, given):
            written.add(kept)
        names = written.close()["name"].to_pylist()
        return file, folder / names[0] if names else None

    if sum(file.stat().st_size for file in files) <= HERE_BYTES:
        found = [left(file) for file in files]
    else:
        found = spark.sparkContext.parallelize(files, len(files)).map(left).collect()
    return [one for one in found if one is not None]


def _kept(file: Path, are_gone: Callable[[pa.Table], Mask], schema: pa.Schema) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield these columns of a file's rows, some at a time, and of those of them that stay."""
    read = parquet_file(file, buffer_size=BUFFER_BYTES, pre_buffer=False)
    have = [name for name in schema.names if name in read.schema_arrow.names]
    for batch in read.iter_batches(batch_size=GROUP_ROWS, columns=have):
        rows = in_form(pa.Table.from_batches([batch]), schema)
        yield rows, rows.filter(pc.invert(pc.coalesce(are_gone(rows), pa.scalar(False))))  # noqa: FBT003 - Arrow's own


def parquet_file(file: Path, **how: Any) -> pq.ParquetFile:  # noqa: ANN401 - as of Arrow
    """Open a file of a table, with times of Spark's in microseconds: nanoseconds reach over six centuries only."""
    return pq.ParquetFile(file, coerce_int96_timestamp_unit="us", **how)


def in_files(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a table that its files have, each of which may be null."""
    return pa.schema([field.with_nullable(True) for field in schema if field.name != PARTITIONED])  # noqa: FBT003


def in_form(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return what a file has with these columns, as whoever wrote it may have others; those that it lacks are null."""
    return completed_to(rows.cast(pa.schema([schema.field(name) for name in rows.column_names])), schema)


def _shares(files: Sequence[Path], tasks: int) -> list[list[Path]]:
    """Divide files among tasks, in their order: each share is as large as one file that is written."""
    sizes = [file.stat().st_size for file in files]
    most = min(FILE_BYTES, max(sum(sizes) // tasks, LEAST_BYTES))
    shares: list[list[Path]] = []
    room = 0
    for file, size in zip(files, sizes, strict=True):
        if not shares or size > room:
            shares.append([])
            room = most
        shares[-1].append(file)
        room -= size
    return shares
