"""What one stage hands to the next: rows of several kinds as streams (`packed`), written once, one folder per kind."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WRITERS: Final = "spark.sql.maxConcurrentOutputFileWriters"
_FOLDER: Final = re.compile(r"/output=([^/]+)/")


def stage(frame: DataFrame, path: str, kinds: int) -> DataFrame:
    """Write streams of `kinds` kinds of rows under `path`, one folder per kind, and return a frame that reads them.

    A task writes its few kinds side by side; otherwise Spark would sort all streams by kind first.
    """
    spark = frame.sparkSession
    before = spark.conf.get(_WRITERS)
    spark.conf.set(_WRITERS, str(kinds))
    try:
        frame.write.mode("overwrite").partitionBy("output").parquet(path)
    finally:
        spark.conf.set(_WRITERS, before or "0")
    return spark.read.schema(frame.schema).parquet(path)


def kinds_of(staged: DataFrame) -> set[str]:
    """Return the kinds of rows that were staged, by the names of their folders."""
    return {found[1] for file in staged.inputFiles() if (found := _FOLDER.search(file)) is not None}
