"""What the order stage asks of all facts at once, by Spark's aggregates: the same as by looking at line after line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
from without_spark import standstills_of

from pipelines.order import standstills_of_brokers
from replay.standstill import STANDSTILL_US

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = "broker_id int, kind string, ts timestamp, ts_error_us bigint"


def stamps(seed: int) -> list[tuple[int, int]]:
    """Stamps of one broker's lines and how far each may be off: steps of about the length of a standstill, and ties."""
    random = np.random.default_rng(seed)
    steps = [0, 1, STANDSTILL_US - 1, STANDSTILL_US, STANDSTILL_US + 1, 3 * STANDSTILL_US, 700_000]
    at = random.integers(STANDSTILL_US) + np.cumsum(random.choice(steps, 60))
    return list(zip(at.tolist(), random.choice([0, 0, 999_999], 60).tolist(), strict=True))


def test_standstills_are_between_neighbouring_lines(spark: SparkSession) -> None:
    lines = {broker: stamps(broker) for broker in range(1, 6)}
    rows = [
        (broker, "fetch", START + timedelta(microseconds=at), error or None)
        for broker, found in lines.items()
        for at, error in found
    ]
    rows += [(1, "checkpoint", START + timedelta(microseconds=at + 5), None) for at in range(0, 10**8, 10**6)]
    begin = round(START.timestamp() * 1_000_000)
    expected = {
        broker: standstills_of(sorted((begin + at, error) for at, error in found)) for broker, found in lines.items()
    }
    assert all(expected.values())
    assert standstills_of_brokers(spark.createDataFrame(rows[::-1], COLUMNS)) == expected
