"""What is not covered, as Spark finds it: a source that cannot be there is not missing, nor is a request never sent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructField, StructType

from pipelines.overview.coverage import COVERAGE_COLUMNS, HOLES, coverage_of
from pipelines.spark.spark_schemas import spark_schema
from schemas.facts import FACTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 1, 1, tzinfo=UTC)


def fact(second: float, **fields: Any) -> dict[str, Any]:
    line = {"source_file": "server.log", "source_line": round(second * 1000), "broker_id": 1}
    return {**dict.fromkeys(COVERAGE_COLUMNS), **line, "ts": START + timedelta(seconds=second), **fields}


def fetches(numbers: list[int], client: str) -> list[dict[str, Any]]:
    asked = {"kind": "fetch", "client_id": client, "connection": "a:9092-b:1000-0-0"}
    return [fact(k / 10, **asked, correlation_id=number) for k, number in enumerate(numbers)]


def holes(spark: SparkSession, facts: list[dict[str, Any]]) -> list[tuple[int | None, str]]:
    every = spark_schema(FACTS)
    schema = StructType([StructField(name, every[name].dataType) for name in COVERAGE_COLUMNS])
    rows = coverage_of(spark.createDataFrame([tuple(one[n] for n in COVERAGE_COLUMNS) for one in facts], schema)).rows
    return [(row["broker_id"], row["source"]) for row in rows if row["state"] in HOLES]


@pytest.mark.parametrize(
    ("told", "missing"),
    [
        ({"kind": "leader_and_isr"}, []),
        ({"kind": "broker_lifecycle", "name": "live_brokers"}, []),
        ({"kind": "isr_update", "name": "zookeeper_write"}, []),
        ({"kind": "isr_update", "name": "committed"}, [(None, "metadata")]),
    ],
)
def test_where_zookeeper_keeps_the_state_no_metadata_log_is_missing(
    spark: SparkSession, told: dict[str, Any], missing: list[tuple[int | None, str]]
) -> None:
    lines = [fact(0, kind="role_change"), fact(2, **told), *fetches([1, 2, 3], "shop")]
    assert holes(spark, lines) == missing


def test_a_request_that_the_quorums_client_never_sent_is_no_hole(spark: SparkSession) -> None:
    numbers = [*range(10), 11, 12, 14, 17]
    zookeeper = fact(0, kind="leader_and_isr")
    assert holes(spark, [zookeeper, *fetches(numbers, "raft-client-1")]) == []
    assert set(holes(spark, [zookeeper, *fetches(numbers, "raft")])) == {(1, "request_log")}
