"""Settings of Spark's that hold for a while."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession


@contextmanager
def configured(spark: SparkSession, told: Mapping[str, object]) -> Iterator[None]:
    """Set these settings of the session, and put back what they were."""
    before = {name: spark.conf.get(name, None) for name in told}
    for name, value in told.items():
        spark.conf.set(name, str(value))
    try:
        yield
    finally:
        for name, stood in before.items():
            if stood is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, stood)
