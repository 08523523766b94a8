"""Whose commits a table has: each names its recording and its run, in Delta's `userMetadata`."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from py4j.protocol import Py4JJavaError

from pipelines.spark.hadoop import is_missing, on_hadoop
from pipelines.warehouse.opened import file_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

MARK: Final = "spark.databricks.delta.commitInfo.userMetadata"
# What a migration commits is marked as well, by the run that needed the table first; it brings no rows.
_OF_FORM: Final = frozenset(
    {"CREATE TABLE", "CHANGE COLUMN", "CHANGE COLUMNS", "ADD CONSTRAINT", "DROP CONSTRAINT", "SET TBLPROPERTIES"}
)


class Commit(NamedTuple):
    """A version of a table, and the run that made it."""

    version: int
    run_id: str


def mark_of(recording_id: str, run_id: str) -> str:
    """Return what a run writes into its commits."""
    return json.dumps({"recording_id": recording_id, "run_id": run_id})


def commits_of(
    spark: SparkSession, path: str, place: Path | None, recording_id: str, newest: int, since: int
) -> Iterator[Commit]:
    """Yield the commits after the version `since` that changed a recording's rows in a table, newest first.

    They are read from the files of Delta's log: its own ways to the history of a table run a job for each. `place`: the
    path, if it is on this machine.
    """
    for version, told in _told(spark, path, place, newest, since):
        if told is None:
            return  # Delta has cleaned its log up to here
        if told.get("recording_id") == recording_id:
            yield Commit(version, told["run_id"])


def is_left_alone(  # noqa: PLR0913, PLR0917 - as of `commits_of`
    spark: SparkSession, path: str, place: Path | None, recording_id: str, newest: int, since: int, run_id: str
) -> bool:
    """Whether no commit after the version `since` can have changed a recording's rows, but for those of this run."""
    return all(
        told is not None
        and "recording_id" in told
        and (told["recording_id"] != recording_id or told["run_id"] == run_id)
        for _, told in _told(spark, path, place, newest, since)
    )


def _told(
    spark: SparkSession, path: str, place: Path | None, newest: int, since: int
) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield commits that may have changed rows, with what they say of their runs, newest first; None: it is gone."""
    first_line = _by_hadoop(spark, path) if place is None else partial(_first_line, place / "_delta_log")
    for version in range(newest, since, -1):
        line = first_line(file_of(version))
        if line is None:
            yield version, None
            return
        info = json.loads(line or "{}").get("commitInfo", {})
        told = json.loads(info.get("userMetadata") or "null")
        if info.get("operation") not in _OF_FORM:
            yield version, told if isinstance(told, dict) else {}


def _first_line(log: Path, name: str) -> str | None:
    try:
        with (log / name).open(encoding="utf-8") as file:
            return file.readline()
    except FileNotFoundError:
        return None


def _by_hadoop(spark: SparkSession, path: str) -> Callable[[str], str | None]:
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - Spark has no public way to Hadoop's file systems
    log, system = on_hadoop(spark, f"{path}/_delta_log")

    def first_line(name: str) -> str | None:
        try:
            stream = system.open(jvm.org.apache.hadoop.fs.Path(log, name))
        except Py4JJavaError as error:
            if is_missing(error):
                return None
            raise
        try:
            line: str | None = jvm.java.io.BufferedReader(jvm.java.io.InputStreamReader(stream, "UTF-8")).readLine()
        finally:
            stream.close()
        return line or ""

    return first_line
