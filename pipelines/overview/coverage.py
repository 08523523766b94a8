"""What the logs do not cover: missing lines, and brokers and times without any.

Two small aggregations over the facts: each client's requests, for the gaps in its correlation ids; and how many lines
each broker wrote per second, with what other sources say about it meanwhile. Both result in a few rows per broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F

from pipelines.spark.spark_schemas import spark_ddl
from replay.evidence.choices import FETCHES, any_sql
from replay.evidence.coverage import (
    BY_ITSELF,
    BY_OTHERS,
    LIFE,
    MEMBER,
    heard_of,
    windows_of,
    with_windows,
)
from replay.evidence.heard import BY_ZOOKEEPER, SERVED, WRITTEN, heard_in, is_by_zookeeper, span_in
from replay.evidence.kept_requests import KEPT
from replay.evidence.missing_lines import (
    APPENDS,
    CLIENT_REQUEST_SCHEMA,
    CONNECTION,
    GAP_SCHEMA,
    REQUESTS,
    MissingLines,
    gaps_of_client,
    missing_lines,
)
from replay.evidence.missing_lines import missing_requests as gaps_in
from replay.evidence.rows import Row
from replay.evidence.sources import SOURCES
from schemas.model import INT64, TIMESTAMP
from schemas.runs import COVERAGE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pipelines.spark.staging import Rows

COVERAGE_COLUMNS: Final = (  # columns of the facts that coverage is computed from
    "kind", "name", "broker_id", "source_file", "source_line", "ts", "connection", "correlation_id", "client_id",
    "api_key", "total_us", "queue_us", "metadata_offset", "replica_id", "replicas", "isr",
)  # fmt: skip
HOLES: Final = ("missing", "lossy")  # states that mean that something happened and is not in the logs
FETCHED: Final = "kind = 'fetch' AND replica_id >= 0"
WINDOW_SCHEMA: Final = pa.schema(  # times as microseconds: Python's own would lose their zone in between
    [
        pa.field(field.name, INT64 if field.type == TIMESTAMP else field.type)
        for field in COVERAGE.arrow_schema
        if field.name != "recording_id"
    ]
)


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the logs cover, and what is missing."""

    rows: list[dict[str, Any]]  # rows of the table `coverage`, without recording_id
    missing: MissingLines

    def table(self, recording_id: str) -> pa.Table:
        """Return the rows of the table."""
        named = [{**row, "recording_id": recording_id} for row in self.rows]
        return pa.Table.from_pylist(named, schema=COVERAGE.arrow_schema)


def coverage_of(facts: Rows) -> Coverage:
    """Return what the facts of one recording cover."""
    if isinstance(facts, pa.Table):
        return _coverage_in(facts)
    missing = missing_requests(facts)
    span, by_zookeeper = span_of(facts)
    if span is None:
        return Coverage([], missing)
    brokers = heard(facts).groupBy("broker_id")
    schema = spark_ddl(WINDOW_SCHEMA)
    found = brokers.applyInArrow(lambda key, table: windows_of_group(key, table, missing, span), schema)
    rows = [row.asDict() for row in found.collect()]
    return _in_turn(rows, missing, span, by_zookeeper=by_zookeeper)


def _coverage_in(facts: pa.Table) -> Coverage:
    """Return the same of facts in the driver's memory: to plan Spark's queries would take seconds."""
    facts = facts.select([*COVERAGE_COLUMNS])  # each filter copies what there is
    missing, span = gaps_in(facts), span_in(facts)
    if span is None:
        return Coverage([], missing)
    rows = [row for broker, spoke in heard_in(facts).items() for row in windows_of(broker, spoke, missing, span)]
    return _in_turn(rows, missing, span, by_zookeeper=is_by_zookeeper(facts))


def _in_turn(
    rows: list[dict[str, Any]], missing: MissingLines, span: tuple[int, int], *, by_zookeeper: bool
) -> Coverage:
    if not by_zookeeper and all(row["broker_id"] is not None for row in rows):
        rows += windows_of(None, {}, missing, span)
    rows.sort(key=lambda row: (row["broker_id"] is None, row["broker_id"] or 0, row["source"], row["start_ts"]))
    return Coverage(rows, with_windows(missing, rows))


def not_covered(rows: list[dict[str, Any]]) -> list[str]:
    """Describe what is not covered, one line of text each; `rows` are of `coverage` with times in microseconds."""
    return [in_words(row) for row in rows if row["state"] in HOLES]


def in_words(row: dict[str, Any]) -> str:
    """Describe one stretch of one log."""
    who = "the cluster" if row["broker_id"] is None else f"broker {row['broker_id']}"
    begin, end = (
        f"{datetime.fromtimestamp(row[name] // 1000 / 1000, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]
        for name in ("start_ts", "end_ts")
    )
    many = f" (at least {row['lines_missing']:,})" if row["lines_missing"] else ""
    return f"{who}, {row['source'].replace('_', ' ')}, {begin} to {end}: {row['reason']}{many}"


def span_of(facts: DataFrame) -> tuple[tuple[int, int] | None, bool]:
    """Return the first and last stamp of the brokers' logs, else of the metadata log, in microseconds; None: no times.

    The second value says whether ZooKeeper kept the cluster's state.
    """
    stamp = F.unix_micros("ts")
    own = F.when(F.col("broker_id").isNotNull(), stamp)
    told = facts.agg(F.min(own), F.max(own), F.min(stamp), F.max(stamp), F.max(F.expr(any_sql(BY_ZOOKEEPER)))).head()
    if told is None:
        return None, False
    span = next(((first, last) for first, last in (told[:2], told[2:4]) if first is not None), None)
    return span, bool(told[4])


# The source (of `SOURCES`) that a fact comes from; null if two might state it.
_WHEN = (f"WHEN {choice.sql} THEN '{name}'" for name, choice in SOURCES.items())
SOURCE_SQL: Final = f"CASE {' '.join(_WHEN)} END"


def source_of_fact() -> Column:
    """Return the source that a fact comes from."""
    return F.expr(SOURCE_SQL)


def heard(facts: DataFrame) -> DataFrame:
    """Return per second what each broker wrote, and signs that it was at work; broker null: the metadata log.

    This takes one pass: a fact is a line of its own source and may also be a sign of other brokers.
    """
    stamp = F.unix_micros("ts")
    own = F.when(source_of_fact().isin(*WRITTEN), told(source_of_fact(), F.col("broker_id")))
    fetched = F.when(F.expr(FETCHED), told(F.lit(BY_OTHERS), F.col("replica_id")))
    served = F.when(F.expr(SERVED.sql), told(F.lit(BY_ITSELF), F.col("broker_id")))
    life = (F.when(F.expr(one.sql), told(F.lit(source), F.col("broker_id"))) for source, one in LIFE.items())
    named = F.array_union(F.coalesce("replicas", F.array()), F.coalesce("isr", F.array()))
    members = F.transform(named, lambda broker: told(F.lit(MEMBER), broker))
    everything = F.inline(F.concat(F.array_compact(F.array(own, fetched, served, *life)), members))
    when = (stamp.alias("us"), F.floor(stamp / 1_000_000).alias("second"))
    rows = facts.where(F.col("ts").isNotNull()).select(everything, *when, "source_file", "source_line")
    # Hashes, because otherwise the name and number of every line would be shuffled. Signs are not counted.
    line = F.when(F.col("source").isin(*WRITTEN), F.xxhash64("source_file", "source_line"))
    return rows.groupBy("broker_id", "source", "second").agg(
        F.min("us").alias("first"), F.max("us").alias("last"), F.count_distinct(line).alias("lines")
    )


def told(source: Column, broker: Column) -> Column:
    """Return an expression for one statement of a source about a broker."""
    return F.struct(source.alias("source"), broker.alias("broker_id"))


def windows_of_group(key: tuple[Any, ...], table: pa.Table, missing: MissingLines, span: tuple[int, int]) -> pa.Table:
    """Turn one broker's seconds into its rows of `coverage`."""
    return pa.Table.from_pylist(windows_of(key[0].as_py(), heard_of(table), missing, span), schema=WINDOW_SCHEMA)


def missing_requests(facts: DataFrame) -> MissingLines:
    """Find where the request logs miss lines, by gaps in the correlation ids of their clients."""
    lines = facts.where(REQUESTS.sql).withColumns(
        {
            "client_id": F.coalesce("client_id", F.lit("")),
            "fetches": F.expr(FETCHES.sql),
            "replicates": F.expr(f"coalesce({FETCHED}, false)"),
            "appends": F.expr(APPENDS.sql),
            "unkept": ~F.coalesce("api_key", F.lit(min(KEPT))).isin(*KEPT),
        }
    )
    requests = lines.select(*CLIENT_REQUEST_SCHEMA.names)
    users = requests.groupBy(*CONNECTION).agg(F.min("client_id").alias("one"), F.max("client_id").alias("other"))
    forwarding = users.where("one <> other")
    own = requests.join(F.broadcast(forwarding), on=CONNECTION, how="left_anti")
    gaps = own.distinct().groupBy("client_id").applyInArrow(gaps_of_client, spark_ddl(GAP_SCHEMA)).persist()
    try:
        found = gaps.where("lines > 0").toArrow().to_pylist()
        # Every connection ends; its end means something only for brokers whose logs miss lines.
        lossy = sorted({row["broker_id"] for row in found if row["broker_id"] is not None})
        ends = gaps.where((F.col("lines") == 0) & ~F.col("fetches") & F.col("broker_id").isin(lossy)) if lossy else None
        return missing_lines(map(Row, (*found, *(ends.toArrow().to_pylist() if ends is not None else ()))))
    finally:
        gaps.unpersist()
