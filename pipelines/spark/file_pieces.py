"""Hands Parquet files on this machine to workers, in pieces: they read the rows, past the JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.spark.row_files import parquet_file
from replay.arrays.columns import completed_to

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from replay.evidence.choices import Choice

PIECE_ROWS: Final = 200_000  # that a task reads from a file, about
READ_ROWS: Final = 16_384  # in memory at once with all their columns, of which there are a hundred


def pieces_of(spark: SparkSession, files: Sequence[Path], since_us: int | None = None) -> DataFrame:
    """Return what `rows_in` reads: stretches of files, about as many as are worth a task each.

    `since_us`: rows with a time before may be left out, as far as whole groups of rows have no others.
    """
    pieces = []
    for file in files:
        told, first, rows = pq.read_metadata(file), 0, 0
        for group in range(told.num_row_groups):
            if since_us is not None and is_before(told.row_group(group), since_us):
                if rows:
                    pieces.append((str(file), first, group))
                first, rows = group + 1, 0
                continue
            rows += told.row_group(group).num_rows
            if rows >= PIECE_ROWS or group == told.num_row_groups - 1:
                pieces.append((str(file), first, group + 1))
                first, rows = group + 1, 0
    tasks = spark.sparkContext.parallelize(pieces, max(len(pieces), 1))
    return spark.createDataFrame(tasks, "file string, first int, stop int")


def is_before(group: pq.RowGroupMetaData, us: int) -> bool:
    """Whether all rows of a group have a time before another, by what the file says of them."""
    places = range(group.num_columns)
    found = next((group.column(k) for k in places if group.column(k).path_in_schema == "ts"), None)
    told = None if found is None else found.statistics
    if told is None or not told.has_min_max or told.null_count:
        return False
    return bool(pa.scalar(told.max, pa.timestamp("us", "UTC")).cast(pa.int64()).as_py() < us)


def rows_in(pieces: Iterable[pa.RecordBatch], schema: pa.Schema, choice: Choice | None = None) -> Iterator[pa.Table]:
    """Yield the rows of pieces with these columns, some at a time; `choice`: only those that are chosen.

    Where nothing is chosen, only the columns are read that the choice looks at.
    """
    for piece in (row for batch in pieces for row in batch.to_pylist()):
        file = parquet_file(piece["file"])
        groups = [*range(piece["first"], piece["stop"])]
        if choice is not None:
            looked_at = pa.schema([schema.field(name) for name in choice.columns])
            groups = [one for one in groups if any(_are_any(choice, rows) for rows in _read(file, [one], looked_at))]
        for rows in _read(file, groups, schema):
            yield rows if choice is None else choice.of(rows)


def _are_any(choice: Choice, rows: pa.Table) -> bool:
    return bool(pc.any(choice.mask(rows)).as_py())


def _read(file: Any, groups: list[int], schema: pa.Schema) -> Iterator[pa.Table]:  # noqa: ANN401 - not typed
    for batch in file.iter_batches(READ_ROWS, groups, schema.names):
        # Of Spark's files times have other digits; of older ones columns may be missing.
        told = [pa.Table.from_batches([batch])]
        given = pa.schema([schema.field(name) for name in batch.schema.names])
        del batch  # who gets the rows may release them
        yield completed_to(told.pop().cast(given), schema)
