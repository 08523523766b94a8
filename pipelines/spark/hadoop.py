"""Hadoop's file systems, through Spark's JVM: Spark has no public way to them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def on_hadoop(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Return a Hadoop path and its file system, configured as for Spark itself."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - as said above
    hadoop_path = jvm.org.apache.hadoop.fs.Path(path)
    configuration = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - as said above
    return hadoop_path, hadoop_path.getFileSystem(configuration)


def on_this_machine(spark: SparkSession, path: str) -> Path | None:
    """Return a path of Hadoop's as a path of this machine; None: it is in another store."""
    found, system = on_hadoop(spark, path)
    return Path(found.toUri().getPath()) if system.getUri().getScheme() == "file" else None


def content_of(jvm: Any, system: Any, path: Any) -> bytes | None:  # noqa: ANN401 - Java's
    """Return what is in a file; None: it is not there."""
    try:
        stream = system.open(path)
    except Py4JJavaError as error:
        if is_missing(error):
            return None
        raise
    try:
        return bytes(jvm.org.apache.hadoop.io.IOUtils.readFullyToByteArray(stream))
    finally:
        stream.close()


def is_missing(error: Py4JJavaError) -> bool:
    """Whether a file was not there."""
    return str(error.java_exception.getClass().getName()) == "java.io.FileNotFoundException"
