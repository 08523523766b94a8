"""Rows of many tables in one Spark frame, as bytes: `output` names the table, `rows` is an Arrow stream of its rows.

This module does not import the engine, because workers that only unpack do not need it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from pipelines.spark.spark_schemas import spark_ddl
from replay.arrays.columns import completed_to
from replay.evidence.rows import used_columns
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from pyspark.sql import DataFrame

STREAM: Final = pa.schema([pa.field("output", pa.string()), pa.field("rows", pa.binary())])
COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")


def packed(kept: dict[str, list[pa.Table]]) -> Iterator[pa.RecordBatch]:
    """Yield one row per table with a stream of its kept rows, if there are any; `kept` is emptied."""
    for name in sorted(kept):
        rows = pa.concat_tables(kept.pop(name))
        if len(rows):
            yield pa.RecordBatch.from_arrays([pa.array([name]), alone(buffer_of(rows))], schema=STREAM)


def alone(stream: pa.Buffer) -> pa.Array:
    """Return one stream as a column, which does not copy it."""
    ends = pa.py_buffer(np.array([0, stream.size], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, stream])


def stream_of(rows: pa.Table) -> bytes:
    """Return rows as one Arrow stream, without columns that are null in all of them."""
    found: bytes = buffer_of(rows).to_pybytes()
    return found


def buffer_of(rows: pa.Table) -> pa.Buffer:
    """Return the same where Arrow has it."""
    rows = used_columns(rows)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema, options=COMPRESSED) as stream:
        stream.write_table(rows.combine_chunks())
    return out.getvalue()


def rows_of_stream(stream: pa.Scalar, wanted: Container[str] | None = None) -> pa.Table:
    """Return the rows of one stream, with all its columns or only the wanted ones."""
    return rows_of_buffer(stream.as_buffer(), wanted)


def rows_of_buffer(source: pa.Buffer, wanted: Container[str] | None = None) -> pa.Table:
    """Return the same of a stream's bytes."""
    options = pa.ipc.IpcReadOptions()
    if wanted is not None:
        names = pa.ipc.read_schema(source).names
        options.included_fields = [place for place, name in enumerate(names) if name in wanted]
    with pa.ipc.open_stream(source, options=options) as rows:
        return rows.read_all()


def rows_of(frame: DataFrame, output: str, schema: pa.Schema) -> DataFrame:
    """Return the rows of one kind from the stream of all, with these columns; a column that a stream lacks is null."""
    mine = frame.where(F.col("output") == output).select("rows")
    return mine.mapInArrow(partial(unpacked, schema=schema), spark_ddl(schema))


def table_rows(frame: DataFrame, table_name: str) -> DataFrame:
    """Return the rows of one table from the stream of all."""
    return rows_of(frame, table_name, TABLES[table_name].arrow_schema)


def unpacked(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterable[pa.RecordBatch]:
    """Yield the rows of the streams with these columns."""
    wanted = set(schema.names)
    for batch in batches:
        for stream in batch.column("rows"):
            yield from completed_to(rows_of_stream(stream, wanted), schema).to_batches()
