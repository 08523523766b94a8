"""What one stage hands to the next: rows of several kinds as streams (`packed`), written once, one folder per kind."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame

from pipelines.spark.configured import configured
from pipelines.spark.hadoop import on_this_machine
from pipelines.spark.packed import STREAM, rows_of, stream_of
from pipelines.spark.row_files import NAMES, streamed
from pipelines.spark.spark_schemas import spark_ddl

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

SMALL_BYTES: Final = 48 << 20  # up to this size, compressed, rows are looked at, and written, by the driver
STREAM_BYTES: Final = 16 << 20  # up to this size a kind's streams become rows in its memory, which take ten times that
BATCH_BYTES: Final = 4 << 20  # of streams that Python is handed at once: a row may be thousands of facts
_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_WRITERS: Final = "spark.sql.maxConcurrentOutputFileWriters"
# A page ends where its bytes are enough. Parquet would first look after a hundred rows, and a row is a stream of up to
# thousands of events: who reads one has to have the whole page in memory, packed and unpacked.
_PAGES: Final = {"parquet.page.size.row.check.min": "1"}
_FOLDER: Final = re.compile(r"/output=([^/]+)/")

Rows: TypeAlias = DataFrame | pa.Table  # many, or few that are in the driver's memory


@dataclass(frozen=True, slots=True)
class Staged:
    """Streams that were staged: a frame that reads all, and where they lie on this machine; None: in another store."""

    frame: DataFrame
    folder: Path | None

    def rows(self, kind: str, schema: pa.Schema) -> Rows:
        """Return the rows of one kind with these columns, which are null where a stream lacks them."""
        files = self.streams(kind)
        if self.folder is None or size_of(files) > STREAM_BYTES:
            return rows_of(self.frame, kind, schema)
        return pa.Table.from_batches(streamed(files, schema), schema)

    def streams(self, kind: str) -> list[Path]:
        """Return the files of one kind on this machine, in the order of the tasks that wrote them, if there are any."""
        return [] if self.folder is None else sorted((self.folder / f"output={kind}").glob("*.parquet"))

    def files(self, kind: str, folder: Path) -> list[Path]:
        """Return the files in a folder that streams of one kind name (`row_files`)."""
        return [folder / name for name in sorted(as_arrow(self.rows(kind, NAMES), NAMES.names)["name"].to_pylist())]

    @property
    def kinds(self) -> set[str]:
        """The kinds of rows that there are, by the names of their folders."""
        return {found[1] for file in self.frame.inputFiles() if (found := _FOLDER.search(file)) is not None}


def stage(frame: DataFrame, path: str, kinds: int, batch_bytes: int | None = None) -> Staged:
    """Write streams of `kinds` kinds of rows under `path`, one folder per kind.

    A task writes its few kinds side by side; otherwise Spark would sort all streams by kind first. `batch_bytes`: after
    so many bytes, Python's functions in the frame are handed a batch; only for rows without lists, of which Spark
    counts all bytes for each row.
    """
    told = {_WRITERS: str(kinds)} | ({} if batch_bytes is None else {_BYTES: f"{batch_bytes}b"})
    spark = frame.sparkSession
    with configured(spark, told):
        frame.write.mode("overwrite").options(**_PAGES).partitionBy("output").parquet(path)
    return Staged(spark.read.schema(frame.schema).parquet(path), on_this_machine(spark, path))


def are_small(files: Iterable[Path]) -> bool:
    """Whether the rows of files may be in the driver's memory together."""
    return size_of(files) <= SMALL_BYTES


def size_of(files: Iterable[Path]) -> int:
    """Return the bytes of files together."""
    return sum(file.stat().st_size for file in files)


def estimated_bytes(frame: DataFrame) -> int:
    """Return the optimizer's estimate of the frame's size: exact for files and literals, huge if unknown."""
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))  # noqa: SLF001 - not in the API


def as_frame(spark: SparkSession, rows: Rows) -> DataFrame:
    """Return rows as a frame, of which any column may be null: otherwise Spark would not look for nulls.

    They go by way of a stream. Spark would put a table of Arrow's into its plans, and think for minutes about them.
    """
    if not isinstance(rows, pa.Table):
        return rows
    kind = "rows"
    streams = spark.sparkContext.parallelize([(kind, stream_of(rows))], 1)
    return rows_of(spark.createDataFrame(streams, spark_ddl(STREAM)), kind, rows.schema)


def may_be_null(schema: pa.Schema) -> pa.Schema:
    """Return the same columns, each of which may be null."""
    return pa.schema([field.with_nullable(True) for field in schema])  # noqa: FBT003 - Arrow's own


def as_arrow(rows: Rows, columns: list[str]) -> pa.Table:
    """Return these columns of rows in the driver's memory."""
    return rows.select(columns) if isinstance(rows, pa.Table) else rows.select(*columns).toArrow()
