"""What the order stage asks of all facts at once, by Spark's aggregates: the same as by looking at line after line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from without_spark import standstills_of

from pipelines.overview.deposed import records_set_aside
from pipelines.stages.order import collected, connection_ends, standstills_of_brokers
from replay.evidence.broker_pauses import AWAKE_US, STANDSTILL_US
from replay.evidence.metadata_log import LOG_PART, PART

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = "broker_id int, kind string, ts timestamp, ts_error_us bigint, connection string, total_us bigint"
BEGIN = round(START.timestamp() * 1_000_000)
Line = tuple[int, int, bool]  # microseconds since `START`, how far it may be off, whether it is a request's


def lines_of(seed: int) -> list[Line]:
    """One broker's lines: steps of about the length of a standstill, and ties; often no request for long."""
    random = np.random.default_rng(seed)
    steps = [0, 1, STANDSTILL_US - 1, STANDSTILL_US, STANDSTILL_US + 1, 3 * STANDSTILL_US, 700_000, 300_000, 300_000]
    at = random.integers(STANDSTILL_US) + np.cumsum(random.choice(steps, 150))
    errors, asked = random.choice([0, 0, 999_999], 150), random.random(150) < 0.7
    return list(zip(at.tolist(), errors.tolist(), asked.tolist(), strict=True))


def row(broker: int, kind: str, line: Line, connection: str = "c", total: int = 0) -> tuple[object, ...]:
    at, error, asked = line
    return broker, kind, START + timedelta(microseconds=at), error or None, connection if asked else None, total


def test_standstills_are_between_neighbouring_lines_where_lines_were_due(spark: SparkSession) -> None:
    lines = {broker: lines_of(broker) for broker in range(1, 6)}
    rows = [row(broker, "fetch", line) for broker, found in lines.items() for line in found]
    rows += [row(1, "checkpoint", (at + 5, 0, False)) for at in range(0, 10**8, 10**6)]
    shifted = {broker: sorted((BEGIN + at, *rest) for at, *rest in found) for broker, found in lines.items()}
    expected = {broker: standstills_of(found) for broker, found in shifted.items()}  # type: ignore[arg-type]
    silences = {b: sum(y[0] - x[0] >= STANDSTILL_US for x, y in pairwise(found)) for b, found in shifted.items()}
    assert all(0 < len(expected[broker]) < silences[broker] for broker in lines)
    found, begins = collected(standstills_of_brokers(spark.createDataFrame(rows[::-1], COLUMNS)))
    assert found == expected
    assert begins == {broker: lines[0][0] + lines[0][1] for broker, lines in shifted.items()}


def test_a_connection_ends_with_its_last_line_where_a_standstill_ended_in_a_produce(spark: SparkSession) -> None:
    busy = [(at, 0, True) for at in range(0, 3_000_000, 400_000)]
    rows = [row(1, "fetch", line, "follower") for line in busy]
    rows += [row(1, "produce", (9_000_000, 0, True), "woken"), row(1, "api", (20_000_000, 0, True), "woken")]
    rows += [row(1, "produce", (9_000_000 + 11 * AWAKE_US, 0, True), "later"), row(2, "produce", busy[3], "other")]
    rows += [row(1, "produce", (9_900_000, 999_999, True), "off")]
    rows += [row(1, "produce", (9_950_000, 0, True), "late", total=1_500_000)]  # it came before the broker went on
    facts = spark.createDataFrame(rows, COLUMNS)
    found = connection_ends(facts, standstills_of_brokers(facts))
    assert found == {(1, "woken"): BEGIN + 20_000_000, (1, "off"): BEGIN + 9_900_000, (1, "late"): BEGIN + 9_950_000}


def test_no_plan_grows_with_the_silences(spark: SparkSession) -> None:
    """A request now and then: thousands of silences, in none of which a line was due."""
    rows = [row(1, "produce", (43_000_000 * k, 0, True), f"c{k}") for k in range(5_000)]
    facts = spark.createDataFrame(rows, COLUMNS)
    silences = standstills_of_brokers(facts)
    assert collected(silences)[0] == {}
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
    assert records_set_aside(spark.createDataFrame(rows, RECORD_COLUMNS)) == len({110, 111})
    assert records_set_aside(spark.createDataFrame(rows[2:], RECORD_COLUMNS)) == 0
