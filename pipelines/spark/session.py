"""The Spark session and what Tidemark requires of it, whoever started it (spark-submit, a notebook, a test)."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import SparkConf
from pyspark.sql import SparkSession

from schemas.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION: Final = "0.1.0"  # of Tidemark

# Settings that results depend on; all others may be configured freely.
_NEEDED: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.executorEnv.TZ": "UTC",
    "spark.python.daemon.module": "pipelines.spark.daemon",
    # The versions that `runs` names are read however old they are; upkeep keeps their files.
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
}

# How one says where S3 is, and who one is. Spark hands it to Hadoop's S3A on all nodes, for the tables, but not to the
# Python of its executors, where Arrow reads the recording.
S3_ENVIRONMENT: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
)


def in_utc() -> None:
    """Set this process's local time to UTC: PySpark returns timestamps in local time, without a zone."""
    os.environ["TZ"] = "UTC"
    if hasattr(time, "tzset"):
        time.tzset()


@cache
def _nowhere() -> str:
    """Return a folder for Spark's own tables; it stays empty, but Spark would create one in the working directory."""
    folder = tempfile.mkdtemp(prefix="tidemark-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder).as_uri()


def for_executors() -> dict[str, str]:
    """Return settings that give executors what this process's environment says of S3, unless spark-submit was told."""
    said = {f"spark.executorEnv.{name}": os.environ[name] for name in S3_ENVIRONMENT if name in os.environ}
    if said and "PYSPARK_GATEWAY_PORT" in os.environ:  # started by spark-submit, so there is a JVM to ask
        stands = SparkConf()
        said = {key: value for key, value in said.items() if not stands.contains(key)}
    return said


# For the whole process. Python looks for cycles among new objects after 700 of them, and often among all: half a
# million, once Great Expectations is loaded. That was a twelfth of the driver's CPU in a run of a minute.
_NEW_OBJECTS: Final = 10_000


def spark_session(app_name: str, configuration: Mapping[str, str] | None = None) -> SparkSession:
    """Return the session of that name with Delta in it; InputError if Delta's jars are missing.

    `configuration` is for Spark settings that must be set before its JVM starts; tests use it.
    """
    in_utc()
    gc.set_threshold(_NEW_OBJECTS)
    # Otherwise Spark starts its workers with the PATH's python3, which may not have our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    for key, value in {
        **for_executors(),
        **_NEEDED,
        "spark.sql.warehouse.dir": _nowhere(),
        **(configuration or {}),
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - no public way to ask for a class
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if loader.getResource("io/delta/sql/DeltaSparkSessionExtension.class") is None:
        message = (
            "Delta's jars are not there: start with ./spark-submit.sh, or give spark-submit "
            "--properties-file conf/spark-defaults.conf"
        )
        raise InputError(message)
    return spark
