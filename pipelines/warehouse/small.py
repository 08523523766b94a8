"""Rows that fit in the driver's memory."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class Small:
    """The rows of a small table: for Python, and for Spark."""

    def __init__(self, spark: SparkSession, rows: pa.Table) -> None:
        """Remember the rows; Spark learns of them when it is asked."""
        self._spark = spark
        # Spark does not take columns of no chunks, which is how Arrow reads a table without files.
        self.rows = rows if len(rows) else rows.schema.empty_table()

    @cached_property
    def frame(self) -> DataFrame:
        """The rows as a frame, which Spark keeps in columns once it has read it."""
        return self._spark.createDataFrame(self.rows).coalesce(1).persist()

    def forget(self) -> None:
        """Let Spark free what it keeps."""
        if "frame" in vars(self):
            self.frame.unpersist()
