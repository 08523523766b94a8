"""The driver's true standard error. Started by spark-submit, Python's own is mixed into Spark's standard output."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class DriverErrors:
    """Writes to the standard error of the driver's JVM, which spark-submit leaves as the user has set it."""

    def __init__(self, spark: SparkSession) -> None:
        """Remember the JVM's stream."""
        context: Any = spark.sparkContext
        self._stream = context._jvm.System.err  # noqa: SLF001 - no public way to ask for a class

    def write(self, text: str) -> int:
        """Write the text."""
        self._stream.print(text)  # not append: py4j would take the one for a single character
        return len(text)

    def flush(self) -> None:
        """Write what may be kept back."""
        self._stream.flush()


def is_mixed() -> bool:
    """Whether spark-submit started this process, and so reads both its streams as one."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return False
    out, err = os.fstat(1), os.fstat(2)
    return (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino)


def standard_error(spark: SparkSession) -> TextIO | DriverErrors:
    """Return the stream that ends where the user expects standard error."""
    return DriverErrors(spark) if is_mixed() else sys.stderr
