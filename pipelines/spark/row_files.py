"""Rows of a table that workers write as Parquet themselves, so that they never become rows of the JVM's.

What Spark gets to know of them are the files' names. It may read the files, and a table may take them over as they are.
Workers write what they have just made (`RowFile`), or what was staged before as streams (`rewritten`).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from pipelines.spark.packed import unpacked
from pipelines.spark.spark_schemas import spark_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

NAMES: Final = pa.schema([pa.field("name", pa.string())])
GROUP_ROWS: Final = 25_000  # rows that are encoded together; so many a worker holds back, of events 200 MB
PARTITIONED: Final = "recording_id"  # Delta keeps it out of the files
FILE_BYTES: Final = 64 << 20  # of streams that become one file, about; with fewer, each core has some
BUFFER_BYTES: Final = 1 << 20
LEAST_BYTES: Final = 16 << 20


class RowFile:
    """A file to which one task writes rows; it is there once it has rows."""

    def __init__(self, folder: Path) -> None:
        """Write into a folder, which is made."""
        self._folder = folder
        # Spark may run a task twice, and a table may keep the file: no other may ever have its name.
        self._name = f"part-{uuid.uuid4()}.snappy.parquet"
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0

    def add(self, rows: pa.Table) -> None:
        """Write rows, or hold few back until there are more."""
        self._waiting.append(rows.drop_columns(PARTITIONED))
        self._waiting_rows += len(rows)
        if self._waiting_rows >= GROUP_ROWS:
            self._write()

    def _write(self) -> None:
        rows = pa.concat_tables(self._waiting)
        self._waiting, self._waiting_rows = [], 0
        if self._writer is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._folder / self._name, rows.schema)
        self._writer.write_table(rows)

    def close(self) -> pa.Table:
        """Write what is left; return the file's name, if there is a file."""
        if self._waiting:
            self._write()
        if self._writer is None:
            return NAMES.empty_table()
        self._writer.close()
        return pa.table({"name": [self._name]}, NAMES)


def arrow_of(files: Sequence[Path], recording_id: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files, with these columns."""
    given = [name for name in schema.names if name != PARTITIONED]
    for file in files:
        for batch in pq.ParquetFile(file).iter_batches(columns=given):
            column = pa.repeat(pa.scalar(recording_id, pa.string()), len(batch))
            columns = [column if name == PARTITIONED else batch.column(name) for name in schema.names]
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
    spark: SparkSession, streams: Sequence[Path], folder: Path, recording_id: str, schema: pa.Schema
) -> list[Path] | None:
    """Let workers write the rows of streams as Parquet into a folder; None: some are of another recording.

    The streams' files lie on this machine, and so will those that are written: few, in the order of the streams.
    """

    def written(shares: Iterable[list[Path]]) -> Iterator[str | None]:
        for share in shares:
            file = RowFile(folder)
            for rows in streamed(share, schema):
                if rows[PARTITIONED].unique().to_pylist() != [recording_id]:
                    yield None
                    return
                file.add(pa.Table.from_batches([rows]))
            yield from file.close()["name"].to_pylist()

    shares = _shares(streams, spark.sparkContext.defaultParallelism)
    names = spark.sparkContext.parallelize(shares, len(shares)).mapPartitions(written).collect()
    files = [folder / name for name in names if name is not None]
    return files if len(files) == len(names) else None


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
