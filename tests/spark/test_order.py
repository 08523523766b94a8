"""What the order stage asks of all facts at once, through Spark: the same as of facts that lie in one table."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from silent_lines import Line, lines_of

from pipelines.intake.collect import collect
from pipelines.overview import coverage
from pipelines.overview.cluster import collected_by_spark, connection_ends, first_shrinks, silences_of_brokers
from pipelines.overview.deposed import records_set_aside
from pipelines.recording.recording import discover
from replay.evidence import expiry_runs, standstills
from replay.evidence.broker_pauses import AWAKE_US
from replay.evidence.cluster import cluster_told, collected_of
from replay.evidence.metadata_log import LOG_PART, PART
from replay.evidence.missing_lines import missing_requests
from replay.evidence.standstills import by_broker, pieces_of, silences_of_all

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = "broker_id int, kind string, ts timestamp, ts_error_us bigint, connection string, total_us bigint"
BEGIN = round(START.timestamp() * 1_000_000)
SCHEMA = pa.schema(
    [
        pa.field("broker_id", pa.int32()),
        pa.field("kind", pa.string()),
        pa.field("ts", pa.timestamp("us", "UTC")),
        pa.field("ts_error_us", pa.int64()),
        pa.field("connection", pa.string()),
        pa.field("total_us", pa.int64()),
    ]
)


def row(broker: int, kind: str, line: Line, connection: str = "c", total: int = 0) -> tuple[object, ...]:
    at, error, asked = line
    return broker, kind, START + timedelta(microseconds=at), error or None, connection if asked else None, total


def in_one_table(rows: list[tuple[object, ...]]) -> pa.Table:
    names = [column.split(" ")[0] for column in COLUMNS.split(", ")]
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=SCHEMA)


def test_of_each_minute_the_first_shrink_is_taken(spark: SparkSession) -> None:
    seconds = [(1, 59.9), (1, 60.0), (1, 60.1), (1, 119.999), (2, 61.0), (1, 3600.0)]
    lines = [(broker, "shrink", START + timedelta(seconds=at), None) for broker, at in seconds]
    lines += [
        (1, "expand", START, None),
        (1, "shrink", START, 1_000_000),
    ]  # no shrink; inexact
    rows = [(broker, "isr_update", name, ts, error) for broker, name, ts, error in lines]
    frame = spark.createDataFrame(rows, "broker_id int, kind string, name string, ts timestamp, ts_error_us bigint")
    found = sorted((row["broker_id"], row["us"] - BEGIN) for row in first_shrinks(frame).to_pylist())
    assert found == [(1, 59_900_000), (1, 60_000_000), (1, 3_600_000_000), (2, 61_000_000)]
    told = expiry_runs.first_shrinks(frame.toArrow()).to_pylist()
    assert sorted((row["broker_id"], row["us"] - BEGIN) for row in told) == found


def test_standstills_are_those_of_the_lines_one_by_one(spark: SparkSession) -> None:
    rows = [row(broker, "fetch", line) for broker in range(1, 6) for line in lines_of(broker)]
    rows += [row(1, "checkpoint", (at + 5, 0, False)) for at in range(0, 10**8, 10**6)]
    found = by_broker(silences_of_brokers(spark.createDataFrame(rows[::-1], COLUMNS)))
    assert found == by_broker(silences_of_all(pieces_of(in_one_table(rows))))
    assert all(found[0][broker] for broker in range(1, 6))


def test_a_connection_ends_with_its_last_line_where_a_standstill_ended_in_a_produce(spark: SparkSession) -> None:
    busy = [(at, 0, True) for at in range(0, 3_000_000, 400_000)]
    rows = [row(1, "fetch", line, "follower") for line in busy]
    rows += [row(1, "produce", (9_000_000, 0, True), "woken"), row(1, "api", (20_000_000, 0, True), "woken")]
    rows += [row(1, "produce", (9_000_000 + 11 * AWAKE_US, 0, True), "later"), row(2, "produce", busy[3], "other")]
    rows += [row(1, "produce", (9_900_000, 999_999, True), "off")]
    rows += [row(1, "produce", (9_950_000, 0, True), "late", total=1_500_000)]  # it came before the broker went on
    facts = spark.createDataFrame(rows, COLUMNS)
    found = connection_ends(facts, silences_of_brokers(facts))
    told = in_one_table(rows)
    assert found == standstills.connection_ends(told, silences_of_all(pieces_of(told)))
    assert found == {(1, "woken"): BEGIN + 20_000_000, (1, "off"): BEGIN + 9_900_000, (1, "late"): BEGIN + 9_950_000}


def test_no_standstill_is_told_where_no_line_was_due(spark: SparkSession) -> None:
    """A request now and then: thousands of silences, in none of which a line was due."""
    rows = [row(1, "produce", (43_000_000 * k, 0, True), f"c{k}") for k in range(5_000)]
    facts = spark.createDataFrame(rows, COLUMNS)
    silences = silences_of_brokers(facts)
    assert by_broker(silences)[0] == {}
    assert connection_ends(facts, silences) == {}


RECORD_COLUMNS = (
    "fact_id string, kind string, name string, ts timestamp, metadata_offset bigint, last_offset bigint, "
    "controller_epoch int, in_snapshot boolean"
)


def test_records_that_a_later_controller_overwrote_are_counted_once(spark: SparkSession) -> None:
    parts = [(PART, LOG_PART, 0, 120, 1), (PART, LOG_PART, 110, 130, 2)]
    records = [("partition_change", None, offset, None, epoch) for offset, epoch in ((109, 1), (110, 1), (110, 2))]
    records += [("broker_change", None, 110, None, 1), ("broker_change", None, 111, None, 1)]
    rows = [(f"f{k}", *row[:2], START, *row[2:], False) for k, row in enumerate((*parts, *records))]
    some, others = (spark.createDataFrame(told, RECORD_COLUMNS) for told in (rows, rows[2:]))
    assert records_set_aside(some) == records_set_aside(some.toArrow()) == len({110, 111})
    assert records_set_aside(others) == records_set_aside(others.toArrow()) == 0


@pytest.mark.parametrize("name", ["last-replica", "unclean-election"])
def test_what_holds_for_the_cluster_is_the_same_through_spark(spark: SparkSession, recordings: Path, name: str) -> None:
    recording = discover(str(recordings / name), recording_id=name)
    facts = collect(recording).facts
    stated = {"kafka_version": recording.manifest.kafka, "broker_config": recording.manifest.broker_config}
    expected, missing = cluster_told(collected_of(facts), stated, missing_requests(facts)), missing_requests(facts)
    frame = spark.createDataFrame(facts)
    assert coverage.missing_requests(frame) == missing
    found = cluster_told(collected_by_spark(frame), stated, missing)
    assert [row["fact_id"] for row in found.rows] == [row["fact_id"] for row in expected.rows]
    assert replace(found, rows=[]) == replace(expected, rows=[])
