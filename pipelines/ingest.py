"""Parse, on Spark: the files of a recording to facts and rejected lines, each file read by one task as a stream.

Spark's own text source knows no line numbers and dies of a cut gzip stream. So the list of files goes through
`mapInArrow`, and what the parsers say leaves it as one stream with a tag per row, staged once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pipelines.clocks import together, turns_of
from pipelines.coverage import COVERAGE_COLUMNS, coverage_of, not_covered
from pipelines.inputs import inputs_of, told
from pipelines.inspection import findings
from pipelines.parse.files import Range, parse_file
from pipelines.parse.reading import newlines
from pipelines.parse.rows import FACT_SCHEMA, REJECTED_SCHEMA
from pipelines.parse.splits import may_split
from pipelines.spark_schemas import spark_type
from pipelines.staging import stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from pipelines.clocks import Turns
    from pipelines.recording import Recording, Source

FACT, REJECTED, COUNTS = "fact", "rejected", "counts"
RANGE_BYTES: Final = 128 << 20  # of a large plain file, one task's part
TASK_BYTES: Final = 64 << 20  # small files share a task up to so many bytes, decompressed
PACKED_RATIO: Final = 12  # how much larger logs are than their gzip or zstd files

_REASON = pa.field("reason", pa.string())
_COUNTS = pa.field("counts", pa.string())
_TAG = pa.field("tag", pa.string())
STREAM_SCHEMA: pa.Schema = pa.schema(
    [_TAG, *(pa.field(item.name, item.type) for item in FACT_SCHEMA), _REASON, _COUNTS]
)
_SPARK_STREAM = T.StructType([T.StructField(item.name, spark_type(item.type)) for item in STREAM_SCHEMA])


@dataclass(frozen=True, slots=True)
class Parsed:
    """What the files of a recording say; both frames read what is staged, and may be read again."""

    facts: DataFrame
    rejected: DataFrame
    inputs: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Work:
    """One file, or one range of a large one."""

    source: Source
    part: Range | None
    weight: int  # bytes to parse, decompressed


def parse(spark: SparkSession, recording: Recording, staging_dir: str) -> Parsed:
    """Parse all files once, stage the outcome under `staging_dir`, and hand out each fact once.

    A fact that several files tell counts for the file and line that come first by name and number.
    """
    path = f"{staging_dir.rstrip('/')}/parsed"
    frame = _stream(spark, recording, plan(spark, recording))
    staged = stage(frame, path, "tag", len((FACT, REJECTED, COUNTS)))
    counts = [json.loads(row[0]) for row in staged.where(F.col("tag") == COUNTS).select("counts").collect()]
    facts = staged.where(F.col("tag") == FACT).select(*FACT_SCHEMA.names)
    rejected = staged.where(F.col("tag") == REJECTED).select(*REJECTED_SCHEMA.names)
    rejected = rejected.dropDuplicates(["source_file", "source_line", "reason"])
    return Parsed(_distinct(facts).select(*FACT_SCHEMA.names), rejected, inputs_of(counts))


def inspect(spark: SparkSession, recording: Recording) -> dict[str, Any]:
    """What the recording holds, what it does not cover, and so what it can answer; reads all files, writes none."""
    stream = _stream(spark, recording, plan(spark, recording)).select("tag", "counts", *COVERAGE_COLUMNS).persist()
    try:
        counts = [json.loads(row[0]) for row in stream.where(F.col("tag") == COUNTS).select("counts").collect()]
        covered = coverage_of(stream.where(F.col("tag") == FACT))
    finally:
        stream.unpersist()
    return {**findings(inputs_of(counts), recording.manifest), "not_covered": not_covered(covered.rows)}


def plan(spark: SparkSession, recording: Recording) -> list[Work]:
    """What there is to read, the biggest first: packed files whole, large plain ones in ranges."""
    works, large = [], []
    for source in recording.sources:
        if source.size > RANGE_BYTES + RANGE_BYTES // 2 and may_split(recording, source):
            large.append(source)
        else:
            packed = source.name.endswith((".gz", ".zst"))
            weight = source.size * (PACKED_RATIO if packed else 1)
            works.append(Work(source, None, weight))
    works += _ranges(spark, large)
    return sorted(works, key=lambda work: (-work.weight, work.source.name, work.part or (0, 0, 0)))


def _ranges(spark: SparkSession, sources: list[Source]) -> list[Work]:
    """Large files in ranges, each with the number of its first line: newlines are counted first, in parallel."""
    spans = [
        (source, start, min(start + RANGE_BYTES, source.size))
        for source in sources
        for start in range(0, source.size, RANGE_BYTES)
    ]
    if not spans:
        return []
    asked = [(source.path, max(start - 1, 0), end - 1) for source, start, end in spans]
    found = spark.sparkContext.parallelize(asked, len(asked)).map(lambda span: newlines(*span)).collect()
    works, before = [], 0
    for (source, start, end), count_ in zip(spans, found, strict=True):
        before = 0 if start == 0 else before
        first = 1 if start == 0 else before + 2
        works.append(Work(source, Range(start, end, first), end - start))
        before += count_
    return works


def _stream(spark: SparkSession, recording: Recording, works: list[Work]) -> DataFrame:
    """The tagged stream of everything that the works say."""
    tasks = _tasks(works, spark.sparkContext.defaultParallelism)
    numbers = spark.sparkContext.parallelize([(number,) for number in range(len(tasks))], len(tasks))
    frame = spark.createDataFrame(numbers, T.StructType([T.StructField("task", T.IntegerType())]))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for work in tasks[number]:
                    yield from _tagged(recording, work)

    return frame.mapInArrow(run, _SPARK_STREAM)


def _tasks(works: list[Work], parallelism: int) -> list[list[Work]]:
    """Works by task: a big one has its own, small ones share. Biggest first, so that the last to start is short."""
    limit = min(TASK_BYTES, max(sum(work.weight for work in works) // (4 * parallelism), 1))
    tasks: list[list[Work]] = []
    room = 0
    for work in works:
        if work.weight > room:
            tasks.append([])
            room = limit
        tasks[-1].append(work)
        room -= work.weight
    return tasks


def _tagged(recording: Recording, work: Work) -> Iterator[pa.RecordBatch]:
    notes: set[tuple[str, str]] = set()
    turns: Turns = {}
    for batch in parse_file(recording, work.source, work.part):
        if batch.facts is not None:
            notes |= _noted(batch.facts)
            turns = together(turns, turns_of(batch.facts))
            yield _widened(batch.facts, FACT)
        if batch.rejected is not None:
            yield _widened(batch.rejected, REJECTED)
        if batch.counts is not None:
            row = {"counts": [told(work.source, work.part, batch.counts, notes, turns)]}
            yield _widened(pa.RecordBatch.from_pydict(row), COUNTS)


def _noted(facts: pa.RecordBatch) -> set[tuple[str, str]]:
    """What brokers say about themselves: Kafka versions and the cluster's id."""
    named = facts.filter(pc.is_in(facts.column("name"), pa.array(["version", "cluster_id"])))
    return set(zip(named.column("name").to_pylist(), named.column("value").to_pylist(), strict=True))


def _widened(batch: pa.RecordBatch, tag: str) -> pa.RecordBatch:
    """The batch with all columns of the stream."""
    rows = batch.num_rows
    present = set(batch.schema.names)
    columns = [
        pa.repeat(pa.scalar(tag), rows)
        if item.name == "tag"
        else batch.column(item.name)
        if item.name in present
        else pa.nulls(rows, item.type)
        for item in STREAM_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=STREAM_SCHEMA)


def _distinct(facts: DataFrame) -> DataFrame:
    """Each fact once. Only its key and place are shuffled to find the repeated ones, which are few."""
    place = F.struct("source_file", "source_line")
    repeated = (
        facts.groupBy("fact_id")
        .agg(F.count(F.lit(1)).alias("times"), F.min(place).alias("first"))
        .where("times > 1")
        .select("fact_id", "first")
    )
    return (
        facts.join(repeated, "fact_id", "left").where(F.col("first").isNull() | (F.col("first") == place)).drop("first")
    )
