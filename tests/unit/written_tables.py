"""Tables on this machine as the driver writes them, without Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from deltalake import DeltaTable

from pipelines.spark.spark_schemas import spark_schema
from pipelines.warehouse import local_tables
from pipelines.warehouse.changes import Changes
from pipelines.warehouse.exchange import in_place_of
from pipelines.warehouse.migration import first_properties
from pipelines.warehouse.opened import Opened
from pipelines.warehouse.table_files import TableFiles
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pipelines.warehouse.exchange import Exchange
    from pipelines.warehouse.within import Within
    from schemas.model import Table

NO_SPARK = cast("SparkSession", None)  # the driver writes what it has in memory without it

MOVES = TABLES["leo_timeline"]
TOPICS = ("a", "o'clock", "b\\n")


def made(place: Path, name: str) -> Path:
    """Make an empty table, as a warehouse has it."""
    local_tables.make(place, spark_schema(TABLES[name]).json(), "", first_properties(TABLES[name]), None)
    return place


def stands_of(place: Path, name: str, recording_id: str = "r") -> TableFiles:
    """The files of a recording."""
    found = TableFiles.of(name, place, None, recording_id, Opened())
    assert found is not None
    return found


def taken_over(place: Path, table: Table, made: Exchange | None, mark: str | None = None) -> bool:
    """Let a table take over what was written; whether it did."""
    return made is not None and local_tables.take_over(DeltaTable(place), table, *made, "r", mark)


def exchanged(place: Path, table: Table, rows: pa.Table, within: Within | None, mark: str | None = None) -> bool:
    """Write rows in place of those that meet a condition; whether they were written."""
    stands = stands_of(place, table.name)
    return taken_over(place, table, in_place_of(NO_SPARK, stands, rows, within, place.parent / "files"), mark)


def moves(topics: tuple[str, ...], hours: tuple[int | None, ...]) -> pa.Table:
    """A row for each topic, partition and hour."""
    row = {"recording_id": "r", "incarnation": 0, "broker_id": 1, "leo": 1, "evidence": "observed"}
    row |= {"observer": "local", "step": "append"}
    rows = [
        {**row, "topic": topic, "partition": partition, "seq": hour or 0, "window": None if hour is None else at(hour)}
        for topic in topics
        for partition in (0, 1)
        for hour in hours
    ]
    return pa.Table.from_pylist(rows, MOVES.arrow_schema)


def at(hour: int) -> datetime:
    """An hour of a day."""
    return datetime(2026, 1, 1, hour, tzinfo=UTC)


def keys(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Which rows these are."""
    found = (rows[name].to_pylist() for name in ("topic", "partition", "window"))
    return sorted(zip(*found, strict=True), key=repr)


def from_hour(hour: int, topics: tuple[str, ...]) -> Within:
    """The condition that a row is of this hour or a later one."""
    begin = round(at(hour).timestamp()) * 1_000_000
    return Changes({(topic, 0, partition): begin for topic in topics for partition in (0, 1)}).within(MOVES)


RESULTS = TABLES["expectation_results"]


def result(run: int, recording_id: str = "r") -> pa.Table:
    """What a run adds."""
    row = {"recording_id": recording_id, "run_id": f"{run:032x}", "table": "t", "expectation": "e", "meaning": "m"}
    return pa.Table.from_pylist([{**row, "severity": "error", "success": True}], RESULTS.arrow_schema)


def log_of(table: Path) -> list[list[dict[str, Any]]]:
    """The actions of each commit of a table."""
    commits = sorted((table / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in commit.read_text().splitlines()] for commit in commits]


def has_put_together(commit: list[dict[str, Any]]) -> bool:
    """Whether files of a table were put together, and it shows no other change."""
    told = [told for action in commit for what, told in action.items() if what in {"add", "remove"}]
    return any("remove" in action for action in commit) and not any(one["dataChange"] for one in told)
