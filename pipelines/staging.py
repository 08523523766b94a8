"""What one stage hands to the next: a stream of rows of several kinds, written once, a folder for each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WRITERS: Final = "spark.sql.maxConcurrentOutputFileWriters"
_ROWS_A_FILE: Final = 1_000_000


def stage(frame: DataFrame, path: str, tag: str, kinds: int) -> DataFrame:
    """Write the frame under `path`, a folder for each of the `kinds` values of the column `tag`; -> the staged rows.

    A task writes its few kinds side by side: else Spark sorts all rows by kind first.
    """
    spark = frame.sparkSession
    before = spark.conf.get(_WRITERS)
    spark.conf.set(_WRITERS, str(kinds))
    try:
        frame.write.mode("overwrite").option("maxRecordsPerFile", _ROWS_A_FILE).partitionBy(tag).parquet(path)
    finally:
        spark.conf.set(_WRITERS, before or "0")
    return spark.read.schema(frame.schema).parquet(path)
