"""Upkeep changes files and lets go of what nothing is made of; what the tables say stays."""

from __future__ import annotations

import json
import os
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from whole_run import DERIVED, NAME, STAGES, rows, run

from pipelines.stages.tending import past_runs, unfinished
from pipelines.stages.thinning import newest
from pipelines.stages.upkeep import maintain, planned
from pipelines.warehouse import care
from pipelines.warehouse.delta_io import Warehouse
from schemas.errors import InputError
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipelines.stages.run import Run

pytestmark = pytest.mark.spark

TABLE = "log_truncations"
START = datetime(2024, 5, 1, tzinfo=UTC)
LEDGERS = ("facts", "files", "coverage", "event_windows", "rejected_lines")  # what the next run goes by


@pytest.fixture
def warehouse(spark: SparkSession, tmp_path: Path) -> Warehouse:
    return Warehouse(spark, str(tmp_path / "ware house's"))


def hourly(warehouse: Warehouse, recording_id: str, hours: int) -> None:
    """A table as hourly runs leave it: a file an hour, with a row of each of three partitions."""
    for hour in range(hours):
        row = {"recording_id": recording_id, "topic": "t", "incarnation": 0, "broker_id": 1, "leo_after": 5}
        row |= {"cause": "recovery", "evidence": "observed", "seq": hour, "window": START + timedelta(hours=hour)}
        made = pa.Table.from_pylist([{**row, "partition": n} for n in (2, 0, 1)], TABLES[TABLE].arrow_schema)
        warehouse.append(TABLE, warehouse.spark.createDataFrame(made))


def at(hour: int) -> int:
    return int((START + timedelta(hours=hour)).timestamp()) * 1_000_000


def files(frame: DataFrame) -> set[str]:
    return {row.file for row in frame.select(F.col("_metadata.file_path").alias("file")).distinct().collect()}


def lines(frame: DataFrame) -> list[str]:
    return sorted(str(row) for row in frame.collect())


def test_small_files_become_few_by_time_and_the_last_day_stays_as_it_is(warehouse: Warehouse) -> None:
    hourly(warehouse, "o'clock", 28)
    hourly(warehouse, "other", 2)
    stood, others = warehouse.read(TABLE, "o'clock"), files(warehouse.read(TABLE, "other"))
    told, last_day = lines(stood), files(stood.where(F.col("window") >= START + timedelta(hours=3)))
    held = care.files_of(warehouse, TABLE)["o'clock"]
    assert sorted((one.rows, one.first_us, one.last_us) for one in held) == [
        (3, at(hour), at(hour)) for hour in range(28)
    ]
    one = max(file.size for file in held)
    assert [(one.since_us, one.until_us) for one in care.due(TABLE, held)] == [(at(0), at(3))]

    care.compact(warehouse, TABLE, "o'clock", file_bytes=one * 20)
    now = warehouse.read(TABLE, "o'clock")
    assert lines(now) == told
    assert last_day < files(now)
    assert len(files(now)) == len(last_day) + 1
    new = now.where(F.col("window") < START + timedelta(hours=3))
    assert [row.partition for row in new.collect()] == [0, 0, 0, 1, 1, 1, 2, 2, 2]  # in the order of its key
    assert files(warehouse.read(TABLE, "other")) == others

    version = warehouse.version(TABLE)
    care.compact(warehouse, TABLE, "o'clock", file_bytes=one * 20)
    assert warehouse.version(TABLE) == version


def test_vacuum_keeps_what_versions_of_the_time_asked_for_need(warehouse: Warehouse) -> None:
    hourly(warehouse, "r", 3)
    then, path = warehouse.version(TABLE), warehouse.table_path(TABLE)
    told = lines(warehouse.read(TABLE, "r"))
    care.forget(warehouse, TABLE, "r", "seq < 2")
    age(Path(path), days=20)
    jvm: Any = warehouse.spark.sparkContext._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # it has read the times

    def before() -> DataFrame:
        return warehouse.spark.read.format("delta").option("versionAsOf", then).load(path)

    care.vacuum(warehouse, [TABLE], 24 * 7)
    assert lines(before()) == told  # though the version itself is older: its files were taken out now
    care.vacuum(warehouse, [TABLE], 0)
    assert len([*Path(path).rglob("*.parquet")]) == 1
    with pytest.raises(Exception, match=r"DELTA_FILE_NOT_FOUND|FileNotFound|FILE_NOT_EXIST"):
        before().collect()
    assert len(warehouse.read(TABLE, "r").collect()) == 3


def age(folder: Path, days: int) -> None:
    """Let everything below look older."""
    then = time.time() - days * 86_400
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (then, then))


def test_where_there_is_no_warehouse_none_is_made(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no warehouse here"):
        maintain(spark, str(tmp_path / "none"), {})
    assert not (tmp_path / "none").exists()


def earlier_run(warehouse: Warehouse, last: Run, days: int) -> str:
    """Give a warehouse the rows of a run before, with what it validated, and a state of another engine."""
    run_id = f"{days}-days-ago"
    as_run(warehouse, last, run_id, days)
    results = warehouse.read("expectation_results", NAME).where(F.col("run_id") == last.run_id)
    warehouse.append("expectation_results", results.withColumn("run_id", F.lit(run_id)))
    states = warehouse.read("replay_checkpoints", NAME).where("place = -1").limit(1)
    dead = {"place": F.lit(3), "engine": F.lit("another"), "state": F.lit(b"state").cast("binary")}
    warehouse.append("replay_checkpoints", states.withColumns({**dead, "window": F.lit(START)}))
    return run_id


def as_run(warehouse: Warehouse, last: Run, run_id: str, days: int = 0) -> None:
    """Add a row of `runs` that names the tables as they are."""
    row = warehouse.read("runs", NAME).where(F.col("run_id") == last.run_id)
    moved = {name: F.current_timestamp() - F.lit(timedelta(days=days)) for name in ("started", "finished")}
    versions = {name: warehouse.version(name) for name in TABLES if name != "runs"}
    told = {"run_id": F.lit(run_id), "table_versions": F.lit(json.dumps(versions))}
    warehouse.append("runs", row.withColumns({**moved, **told}))


def test_a_tended_warehouse_says_the_same_and_the_next_run_has_nothing_to_do(
    spark: SparkSession, first: Run, recordings: Path, tmp_path: Path
) -> None:
    place = tmp_path / "warehouse"
    shutil.copytree(first.warehouse.path, place)
    warehouse = Warehouse(spark, str(place))
    old = earlier_run(warehouse, first, days=40)
    held = warehouse.read("expectation_results", NAME).where(F.col("run_id") == old).count()
    why = unfinished(warehouse, NAME, past_runs(warehouse))
    assert why is not None
    assert "(expectation_results, replay_checkpoints changed since run " in why
    as_run(warehouse, first, "the-last")
    staging = place / "_staging"
    for name in (old, "at-work"):
        (staging / name / "replay").mkdir(parents=True)
    age(staging / old, days=40)
    names = (*DERIVED, *LEDGERS)
    before = {name: rows(warehouse, name) for name in names}

    asked = {"retention": {"expectation_results_runs": 2}}  # those of the last, and of the first
    would = planned(spark, str(place), asked)
    done = maintain(spark, str(place), asked)
    (outcome,) = done.outcomes
    assert (outcome.skipped, outcome.error) == (None, None)
    assert outcome.tended == would.outcomes[0].tended
    assert outcome.tended.thinned == {"expectation_results": held, "replay_checkpoints": 1}
    assert rows(warehouse, "expectation_results", old) == []
    assert done.staged == would.staged == [old]
    assert sorted(path.name for path in staging.iterdir()) == ["at-work"]
    assert done.after is not None
    assert done.after["runs"].rows == done.before["runs"].rows + 1

    last = newest(past_runs(warehouse))
    assert last is not None
    assert last.stages == ("maintain",)
    assert unfinished(warehouse, NAME, [last]) is None
    again = run(spark, recordings / NAME, place, STAGES)
    assert "nothing new to read" in again.remarks[0]
    assert {name: rows(warehouse, name) for name in names} == before
