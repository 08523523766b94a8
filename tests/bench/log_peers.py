"""HW and LEO of each broker straight from the request logs, by what an engineer has at hand: DuckDB, Polars, Spark.

Each is told to do the same: of every line that ends a request, parse the JSON, and take what answers say of the HW,
and what followers ask for and producers were told of the LEO; the highest so far, by broker and partition. None knows
sessions (a partition that an incremental fetch does not name again is not there), an order among brokers, elections
or loss. Each reads the logs `RECORDING/logs/node-N/kafka-request.log*` and writes `hw.parquet` and `leo.parquet`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import duckdb
import polars as pl

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

LOGS = "logs/*/kafka-request.log*"
ASKED = {"topicId": "VARCHAR", "partitions": [{"partition": "INTEGER", "fetchOffset": "BIGINT"}]}
ANSWERED = {
    "topicId": "VARCHAR",
    "name": "VARCHAR",
    "partitions": [{"partitionIndex": "INTEGER", "highWatermark": "BIGINT"}],
    "partitionResponses": [{"index": "INTEGER", "baseOffset": "BIGINT"}],
}
LINE = {
    "requestHeader": {"requestApiKeyName": "VARCHAR"},
    "request": {"replicaState": {"replicaId": "INTEGER"}, "topics": [ASKED]},
    "response": {"responses": [ANSWERED]},
}
READ = r"""
CREATE TABLE lines AS
SELECT CAST(regexp_extract(filename, 'node-([0-9]+)', 1) AS INTEGER) AS broker_id,
       strptime(line[2:24], '%Y-%m-%d %H:%M:%S,%g') AS ts,
       from_json(substr(line, strpos(line, '{'), strpos(line, ' (kafka.request') - strpos(line, '{')), ?) AS said
FROM read_csv(?, columns = {'line': 'VARCHAR'}, delim = '\x01', quote = '', escape = '', header = false,
              filename = true, max_line_size = 10000000)
WHERE line LIKE '%Completed request:{%'
"""
READ_BY_SPARK = r"""
CREATE OR REPLACE TEMPORARY VIEW lines AS
SELECT CAST(regexp_extract(_metadata.file_path, 'node-([0-9]+)', 1) AS INT) AS broker_id,
       to_timestamp(substr(value, 2, 23), 'yyyy-MM-dd HH:mm:ss,SSS') AS ts,
       from_json(substr(value, instr(value, '{{'), instr(value, ' (kafka.request') - instr(value, '{{')),
                 '{said}') AS said
FROM text.`{logs}`
WHERE value LIKE '%Completed request:{{%'
"""
HW = """
SELECT topic, one.partitionIndex AS partition, broker_id, ts,
       max(one.highWatermark) OVER (PARTITION BY topic, one.partitionIndex, broker_id ORDER BY ts) AS hw
FROM (SELECT broker_id, ts, answer.topicId AS topic, {explode}(answer.partitions) AS one
      FROM (SELECT broker_id, ts, {explode}(said.response.responses) AS answer FROM lines
            WHERE said.requestHeader.requestApiKeyName = 'FETCH'))
"""
LEO = """
SELECT topic, partition, broker_id, ts, max(leo) OVER (PARTITION BY topic, partition, broker_id ORDER BY ts) AS leo
FROM (
    SELECT asked.topicId AS topic, one.partition AS partition, broker_id, ts, one.fetchOffset AS leo
    FROM (SELECT broker_id, ts, asked, {explode}(asked.partitions) AS one
          FROM (SELECT said.request.replicaState.replicaId AS broker_id, ts, {explode}(said.request.topics) AS asked
                FROM lines WHERE said.requestHeader.requestApiKeyName = 'FETCH'))
    WHERE broker_id >= 0
    UNION ALL
    SELECT answer.name, one.index, broker_id, ts, one.baseOffset
    FROM (SELECT broker_id, ts, answer, {explode}(answer.partitionResponses) AS one
          FROM (SELECT broker_id, ts, {explode}(said.response.responses) AS answer
                FROM lines WHERE said.requestHeader.requestApiKeyName = 'PRODUCE'))
)
"""
QUERIES = {"hw": HW, "leo": LEO}
POLARS_TYPES = {"VARCHAR": pl.String, "INTEGER": pl.Int32, "BIGINT": pl.Int64}
KEYS = ("topic", "partition", "broker_id")


def by_duckdb(recording: Path, into: Path) -> None:
    """By DuckDB, on all cores."""
    into.mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as database:
        database.execute(READ, [json.dumps(LINE), f"{recording}/{LOGS}"])
        for name, query in QUERIES.items():
            database.execute(f"COPY ({query.format(explode='unnest')}) TO '{into}/{name}.parquet' (FORMAT parquet)")


def by_spark(spark: SparkSession, recording: Path, into: Path) -> None:
    """By Spark SQL, with functions that Spark has; folders of Parquet files."""
    spark.sql(READ_BY_SPARK.format(said=spark_type(LINE), logs=f"{recording}/{LOGS}"))
    for name, query in QUERIES.items():
        spark.sql(query.format(explode="explode")).write.mode("overwrite").parquet(f"{into}/{name}.parquet")


def by_polars(recording: Path, into: Path) -> None:
    """By Polars, on all cores."""
    into.mkdir(parents=True, exist_ok=True)
    line = pl.col("line")
    read = pl.scan_lines(str(recording / LOGS), name="line", include_file_paths="file")
    lines = (
        read.filter(line.str.contains("Completed request:{", literal=True))
        .select(
            broker_id=pl.col("file").str.extract("node-([0-9]+)").cast(pl.Int32),
            ts=line.str.slice(1, 23).str.to_datetime("%Y-%m-%d %H:%M:%S,%3f"),
            said=line.str.extract(r"(\{.*) \(kafka\.request").str.json_decode(polars_type(LINE)),
        )
        .with_columns(
            key=pl.col("said").struct.field("requestHeader").struct.field("requestApiKeyName"),
            asked=pl.col("said").struct.field("request"),
            answer=pl.col("said").struct.field("response").struct.field("responses"),
        )
        .collect()
        .lazy()
    )
    fetches, produces = (lines.filter(pl.col("key") == name) for name in ("FETCH", "PRODUCE"))
    told = unfolded(fetches, "answer", "partitions")
    hw = told.select(*place("topicId", "partitionIndex"), value=part("highWatermark"))
    follower = pl.col("asked").struct.field("replicaState").struct.field("replicaId")
    asking = fetches.with_columns(broker_id=follower, asked=pl.col("asked").struct.field("topics"))
    asked = unfolded(asking.filter(pl.col("broker_id") >= 0), "asked", "partitions")
    produced = unfolded(produces, "answer", "partitionResponses")
    leo = pl.concat(
        [
            asked.select(*place("topicId", "partition"), value=part("fetchOffset")),
            produced.select(*place("name", "index"), value=part("baseOffset")),
        ]
    )
    for name, rows in (("hw", hw), ("leo", leo)):
        so_far = rows.sort("ts").with_columns(pl.col("value").cum_max().over(KEYS))
        of_one_time = pl.col("value").max().over(*KEYS, "ts")  # as the windows of SQL have it
        so_far.select(*KEYS, "ts", of_one_time.alias(name)).sink_parquet(into / f"{name}.parquet")


def unfolded(lines: pl.LazyFrame, topics: str, partitions: str) -> pl.LazyFrame:
    """A row for each partition (`one`) of each topic of these lines."""
    by_topic = lines.explode(topics, empty_as_null=False, keep_nulls=False)
    inner = by_topic.with_columns(topic=pl.col(topics), one=pl.col(topics).struct.field(partitions))
    return inner.explode("one", empty_as_null=False, keep_nulls=False)


def place(topic: str, partition: str) -> list[pl.Expr]:
    """What a row of a partition belongs to."""
    name = pl.col("topic").struct.field(topic).alias("topic")
    return [name, part(partition).alias("partition"), pl.col("broker_id"), pl.col("ts")]


def part(field: str) -> pl.Expr:
    """A field of one partition."""
    return pl.col("one").struct.field(field)


def polars_type(shape: object) -> pl.DataType | type[pl.DataType]:
    """A type of Polars for the shape of a JSON value."""
    if isinstance(shape, dict):
        return pl.Struct({name: polars_type(inner) for name, inner in shape.items()})
    if isinstance(shape, list):
        return pl.List(polars_type(shape[0]))
    return POLARS_TYPES[str(shape)]


def spark_type(shape: object) -> str:
    """The same for Spark, as its DDL has it."""
    if isinstance(shape, dict):
        return f"STRUCT<{', '.join(f'`{name}`: {spark_type(inner)}' for name, inner in shape.items())}>"
    if isinstance(shape, list):
        return f"ARRAY<{spark_type(shape[0])}>"
    return "STRING" if shape == "VARCHAR" else str(shape)
