"""The parse stage: turns the files of a recording into facts and rejected lines; one task reads each file as a stream.

Spark's own text source has no line numbers and fails on a gzip stream that is cut off. So the list of files goes
through `mapInArrow`, and facts, rejected lines and counts leave it as Arrow streams, which are staged once.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pipelines.intake.attribution import by_their_writers, refuse_two_clusters
from pipelines.intake.clocks import together, turns_of
from pipelines.intake.inputs import inputs_of, notes_of, refuse_unreadable, told, widened
from pipelines.intake.inspection import findings
from pipelines.lines.rows import FACT_SCHEMA, REJECTED_SCHEMA
from pipelines.overview.coverage import COVERAGE_COLUMNS, coverage_of, not_covered
from pipelines.parse.files.file_parser import Range, parse_file, survey_file
from pipelines.parse.files.splits import may_split
from pipelines.recording.reading import newlines
from pipelines.spark.packed import STREAM, packed, rows_of
from pipelines.spark.spark_schemas import spark_ddl
from pipelines.spark.staging import stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from pipelines.intake.clocks import Turns
    from pipelines.intake.inputs import Notes
    from pipelines.lines.writers import Ties
    from pipelines.recording.recording import Recording, Source

FACT, REJECTED, COUNTS = "fact", "rejected", "counts"
RANGE_BYTES: Final = 128 << 20  # what one task reads of a large plain file
TASK_BYTES: Final = 64 << 20  # small files share a task up to so many decompressed bytes
PACKED_RATIO: Final = 12  # how much larger logs are than their gzip or zstd files

COUNTS_SCHEMA: Final = pa.schema([pa.field("counts", pa.string())])
COVERAGE_SCHEMA: Final = pa.schema([FACT_SCHEMA.field(name) for name in COVERAGE_COLUMNS])
ID_SCHEMA: Final = pa.schema([FACT_SCHEMA.field("fact_id")])
PLACE_SCHEMA: Final = pa.schema([FACT_SCHEMA.field(name) for name in ("fact_id", "source_file", "source_line")])


@dataclass(frozen=True, slots=True)
class Parsed:
    """What the files of a recording say; both frames read staged data and may be read more than once."""

    facts: DataFrame
    rejected: DataFrame
    inputs: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Work:
    """One file, or one range of a large file."""

    source: Source
    part: Range | None
    weight: int  # bytes to parse, decompressed


def parse(spark: SparkSession, recording: Recording, staging_dir: str) -> Parsed:
    """Parse all files once, stage the result under `staging_dir`, and return each fact once.

    A fact that several files state is taken from the first of them, by name and line number.
    """
    path, outputs = f"{staging_dir.rstrip('/')}/parsed", len((FACT, REJECTED, COUNTS))
    staged = stage(_stream(spark, recording, FACT_SCHEMA), path, outputs)
    counts = _counts(staged)
    refuse_unreadable(counts, recording.root)
    written = by_their_writers(recording, counts, partial(_surveyed, spark, recording))
    if written is not recording:
        staged = stage(_stream(spark, written, FACT_SCHEMA), f"{path}-by-writers", outputs)
        counts = _counts(staged)
    inputs = inputs_of(counts)
    refuse_two_clusters(inputs, recording.root or None)
    rejected = rows_of(staged, REJECTED, REJECTED_SCHEMA).dropDuplicates(["source_file", "source_line", "reason"])
    return Parsed(_distinct(staged), rejected, inputs)


def _surveyed(spark: SparkSession, recording: Recording, sources: list[Source]) -> list[Ties]:
    """Return what each of these files says that ties directories and addresses to brokers."""
    if not sources:
        return []
    survey = partial(survey_file, replace(recording, sources=()))
    return spark.sparkContext.parallelize(sources, len(sources)).map(survey).collect()


def inspect(spark: SparkSession, recording: Recording) -> dict[str, Any]:
    """Return what the recording holds, what it does not cover, and what it can answer; reads all files, writes none."""
    stream = _stream(spark, recording, COVERAGE_SCHEMA).persist()
    try:
        counts = _counts(stream)
        refuse_unreadable(counts, recording.root)
        written = by_their_writers(recording, counts, partial(_surveyed, spark, recording))
        if written is not recording:
            stream.unpersist()
            stream = _stream(spark, written, COVERAGE_SCHEMA).persist()
            counts = _counts(stream)
        covered = coverage_of(rows_of(stream, FACT, COVERAGE_SCHEMA))
    finally:
        stream.unpersist()
    return {**findings(inputs_of(counts), recording.manifest), "not_covered": not_covered(covered.rows)}


def _counts(stream: DataFrame) -> list[dict[str, Any]]:
    """Return the counts of each file, or part of a file."""
    return [json.loads(row.counts) for row in rows_of(stream, COUNTS, COUNTS_SCHEMA).collect()]


def plan(spark: SparkSession, recording: Recording) -> list[Work]:
    """Return what is to be read, largest first: compressed files whole, large plain ones in ranges."""
    works, large = [], []
    for source in recording.sources:
        if source.size > RANGE_BYTES + RANGE_BYTES // 2 and _splits(recording, source):
            large.append(source)
        else:
            packed = source.name.endswith((".gz", ".zst"))
            weight = source.size * (PACKED_RATIO if packed else 1)
            works.append(Work(source, None, weight))
    works += _ranges(spark, large)
    return sorted(works, key=lambda work: (-work.weight, work.source.name, work.part or (0, 0, 0)))


def _splits(recording: Recording, source: Source) -> bool:
    try:
        return may_split(recording, source)
    except OSError:  # reported when the file is read
        return False


def _ranges(spark: SparkSession, sources: list[Source]) -> list[Work]:
    """Split large files into ranges with their first line's number; newlines are counted first, in parallel."""
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


def _stream(spark: SparkSession, recording: Recording, columns: pa.Schema) -> DataFrame:
    """Return everything that the files say (`packed.STREAM`): facts with these columns, rejected lines, counts."""
    tasks = _tasks(plan(spark, recording), spark.sparkContext.defaultParallelism)
    # Each task gets only its own files, as its row: with all of them, task messages would grow with their number.
    works = spark.sparkContext.parallelize([(pickle.dumps(task),) for task in tasks], len(tasks))
    frame = spark.createDataFrame(works, T.StructType([T.StructField("works", T.BinaryType())]))
    whole = replace(recording, sources=())

    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for row in batch.column(0).to_pylist():
                for work in pickle.loads(row):  # noqa: S301 - our own, of a moment ago
                    for output, rows in _said(whole, work):
                        kept = rows.select(columns.names) if output == FACT else rows
                        yield from packed({output: [kept]})

    return frame.mapInArrow(run, spark_ddl(STREAM))


def _tasks(works: list[Work], parallelism: int) -> list[list[Work]]:
    """Divide works into tasks: a large one has its own, small ones share. Largest first, so the last is short."""
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


def _said(recording: Recording, work: Work) -> Iterator[tuple[str, pa.Table]]:
    """Yield what a work says: batches of facts and of rejected lines, and at the end its counts."""
    notes: Notes = {}
    turns: Turns = {}
    for batch in parse_file(recording, work.source, work.part):
        if batch.facts is not None:
            notes = widened(notes, notes_of(batch.facts))
            turns = together(turns, turns_of(batch.facts))
            yield FACT, pa.Table.from_batches([batch.facts])
        if batch.rejected is not None:
            yield REJECTED, pa.Table.from_batches([batch.rejected])
        if batch.counts is not None:
            yield COUNTS, pa.table({"counts": [told(work.source, work.part, batch.counts, notes, turns)]})


def _distinct(staged: DataFrame) -> DataFrame:
    """Return each fact once. Mostly no file repeats another; ids alone show this, and then no facts are moved."""
    facts = rows_of(staged, FACT, FACT_SCHEMA)
    times = F.count(F.lit(1)).alias("times")
    alike = rows_of(staged, FACT, ID_SCHEMA).groupBy(F.xxhash64("fact_id")).agg(times)
    if not alike.where("times > 1").head(1):
        return facts
    place = F.struct("source_file", "source_line")
    told = rows_of(staged, FACT, PLACE_SCHEMA).groupBy("fact_id").agg(times, F.min(place).alias("first"))
    repeated = told.where("times > 1").select("fact_id", "first")
    once = facts.join(repeated, "fact_id", "left").where(F.col("first").isNull() | (F.col("first") == place))
    return once.select(*FACT_SCHEMA.names)
