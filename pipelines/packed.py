"""Rows of many tables in one frame of Spark's, as bytes: `output` names the table, `rows` is an Arrow stream of them.

Apart from the engine, for the workers that unpack need nothing of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F

from pipelines.spark_schemas import spark_ddl
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections import defaultdict
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame

STREAM: Final = pa.schema([pa.field("output", pa.string()), pa.field("rows", pa.binary())])
COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")


def packed(kept: defaultdict[str, list[pa.Table]]) -> Iterator[pa.RecordBatch]:
    """What was kept of each table, as one row with a stream of its rows; nothing is kept then."""
    for name in sorted(kept):
        out = pa.BufferOutputStream()
        rows = pa.concat_tables(kept.pop(name)).combine_chunks()
        with pa.ipc.new_stream(out, rows.schema, options=COMPRESSED) as stream:
            stream.write_table(rows)
        yield pa.RecordBatch.from_pydict({"output": [name], "rows": [out.getvalue().to_pybytes()]}, schema=STREAM)


def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """Streams of one table's rows -> the rows."""
    for batch in batches:
        for rows in batch.column("rows"):
            with pa.ipc.open_stream(rows.as_buffer()) as stream:
                yield from stream


def table_rows(frame: DataFrame, table_name: str) -> DataFrame:
    """The rows of one table out of the stream of all."""
    mine = frame.where(F.col("output") == table_name).select("rows")
    return mine.mapInArrow(unpacked, spark_ddl(TABLES[table_name].arrow_schema))
