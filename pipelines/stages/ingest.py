"""The parse stage: turns the files of a recording into facts and rejected lines; one task reads each file as a stream.

Spark's own text source has no line numbers and fails on a gzip stream that is cut off. So the list of files goes
through `mapInArrow`, and facts, rejected lines and counts leave it as Arrow streams, which are staged once. Few bytes
are parsed without Spark (`held_files`).
"""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pipelines.intake.attribution import by_their_writers, refuse_two_clusters
from pipelines.intake.collect import distinct
from pipelines.intake.inputs import inputs_of, refuse_unreadable
from pipelines.intake.inspection import findings
from pipelines.intake.ledger import after, counts_of, decided, heads_of, listed, to_look_at
from pipelines.intake.pieces import COUNTS, FACT, REJECTED, Look, Work, rest_of, said_of, seen
from pipelines.lines.rows import FACT_SCHEMA, REJECTED_SCHEMA
from pipelines.overview.cluster import coverage_by_workers
from pipelines.overview.coverage import not_covered
from pipelines.parse.files.file_parser import Range, survey_file
from pipelines.parse.files.splits import may_split
from pipelines.recording.reading import newlines
from pipelines.spark.counted import count_of
from pipelines.spark.hadoop import on_this_machine
from pipelines.spark.held import DRIVER_FACTS, LOG_BYTES, Held
from pipelines.spark.packed import STREAM, packed, rows_of
from pipelines.spark.row_files import RowFile, arrow_of, frame_of
from pipelines.spark.spark_schemas import spark_ddl
from pipelines.spark.staging import Rows, Staged, are_small, as_arrow, as_frame, stage
from pipelines.stages.compiling import compile_parse
from pipelines.stages.held_files import held, weight_of
from pipelines.warehouse.superseded import parser_version
from replay.evidence.summary import SUMMED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pipelines.intake.ledger import Entry, Plan
    from pipelines.lines.writers import Ties
    from pipelines.recording.recording import Recording, Source
    from pipelines.warehouse.spans import Span

    # Looks up facts that stand: these columns of those whose time is around some spans.
    Stand = Callable[[Sequence[Span | None], Sequence[str]], Rows]

RANGE_BYTES: Final = 128 << 20  # what one task reads of a large plain file
LOOKED: Final = 8  # times as many bytes as the driver parses itself, it looks through for known contents
TASK_BYTES: Final = 64 << 20  # small files share a task up to so many decompressed bytes

FACT_FILES: Final = "fact_files"
_NAMING: Final = ("kind", "name")  # columns that say whether a fact names topics

COUNTS_SCHEMA: Final = pa.schema([pa.field("counts", pa.string())])
SUMMED_SCHEMA: Final = pa.schema([FACT_SCHEMA.field(name) for name in SUMMED])
ID_SCHEMA: Final = pa.schema([FACT_SCHEMA.field("fact_id")])
PLACE_SCHEMA: Final = pa.schema([FACT_SCHEMA.field(name) for name in ("fact_id", "source_file", "source_line")])


@dataclass(frozen=True, slots=True)
class Parsed:
    """What the files of a recording say that is new; it is read from staged data, and may be read more than once."""

    facts: Rows
    files: Sequence[Path]  # that hold exactly these facts, as a table may take them over; none: no files do
    rejected: Rows
    plan: Plan
    known: Sequence[Entry]  # the ledger as it was,
    entries: list[Entry]  # and as it is then
    counts: list[dict[str, Any]]  # of all files that are listed

    @property
    def is_nothing_new(self) -> bool:
        """Whether no fact has come, gone or got another name."""
        return self.plan.is_nothing_new

    @property
    def every(self) -> list[dict[str, Any]]:
        """The counts of each file, read now or before."""
        return inputs_of(self.counts)

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """The counts of each file that was read now."""
        read = {one.source.name for one in self.plan.reads}
        return [whole for whole in self.every if whole["path"] in read]


def parse(  # noqa: PLR0913 - what was read before, and what it told
    spark: SparkSession,
    recording: Recording,
    staging_dir: str,
    entries: Sequence[Entry] = (),
    stand: Stand | None = None,
    run_id: str = "",
    *,
    full: bool = False,
    few: int = DRIVER_FACTS,
) -> Parsed:
    """Parse what is new once, stage the result under `staging_dir`, and return each fact once.

    A fact that several files state is taken from the first of them, by name and line number. `entries`: the ledger of
    what was read before, and `stand`: looks up facts that it told. `full`: read everything again. `few`: the driver
    itself reads what has about so many facts at most, and then nothing is staged.
    """
    few_bytes = few * LOG_BYTES
    looks = _looks(spark, recording, entries, few_bytes)
    version, path, outputs = parser_version(), f"{staging_dir.rstrip('/')}/parsed", len((FACT, REJECTED, COUNTS))

    def read(written: Recording, plan: Plan, path: str) -> tuple[Staged | Held, _Facts, list[Entry]]:
        works = _works(written, plan, stand)
        staged: Staged | Held | None = held(written, works, few) if sum(map(weight_of, works)) <= few_bytes else None
        folder = None if staged is not None else on_this_machine(spark, f"{path}-facts")
        if staged is None:
            compile_parse(spark.sparkContext.master)
            staged = stage(_stream(spark, written, works, FACT_SCHEMA, folder), path, outputs)
        counted = _counts(staged.rows(COUNTS, COUNTS_SCHEMA))
        facts = _Facts.of(spark, staged, recording.recording_id, folder)
        return staged, facts, after(plan, counted, recording.manifest, version, run_id, recording.listed_us)

    plan = decided(recording, entries, looks, version, full=full)
    if plan.is_nothing_new:
        none = pa.table({})
        found = after(plan, (), recording.manifest, version, run_id, recording.listed_us)
        return Parsed(none, (), none, plan, entries, found, counts_of(listed(found, recording)))
    staged, facts, found = read(recording, plan, path)
    counts = counts_of(listed(found, recording))
    refuse_unreadable(counts, recording.root)
    written = by_their_writers(recording, counts, partial(_surveyed, spark, recording, few_bytes=few_bytes))
    if written is not recording:
        plan = decided(recording, entries, looks, version, full=True)
        staged, facts, found = read(written, plan, f"{path}-by-writers")
        counts = counts_of(listed(found, recording))
    refuse_two_clusters(inputs_of(counts), recording.root or None)
    copies = [entry.path for entry in found if entry.same_as is not None]
    return Parsed(*_distinct(facts), _rejected_once(staged, copies), plan, entries, found, counts)


def _rejected_once(staged: Staged | Held, copies: list[str]) -> Rows:
    """Return each rejected line once, without those of files that are copies of others."""
    rejected = staged.rows(REJECTED, REJECTED_SCHEMA)
    once = ["source_file", "source_line", "reason"]
    if not isinstance(rejected, pa.Table):
        return rejected.where(~F.col("source_file").isin(copies)).dropDuplicates(once)
    mine = rejected.filter(pc.invert(pc.is_in(rejected["source_file"], pa.array(copies, pa.string()))))
    numbered = mine.append_column("row", pa.array(range(len(mine)), pa.int64()))
    return mine.take(numbered.group_by(once).aggregate([("row", "min")])["row_min"])


T_ = TypeVar("T_")
R_ = TypeVar("R_")


def _each(spark: SparkSession, do: Callable[[T_], R_], given: list[T_], tasks: int, *, are_few: bool) -> list[R_]:
    """Do it to each of what is given, in so many tasks, or here if that is little work."""
    if are_few:
        return [do(one) for one in given]
    return spark.sparkContext.parallelize(given, tasks).map(do).collect() if given else []


def _looks(spark: SparkSession, recording: Recording, entries: Sequence[Entry], few_bytes: int) -> list[Look]:
    """Look into the files of which the listing does not tell that they are as they were."""
    heads = heads_of(entries)
    some = to_look_at(recording, entries)
    if not heads or not some:
        return [Look(source.name) for source in some]
    begun = {entry.path: entry.begun for entry in entries}
    whole = replace(recording, sources=())
    asked = [(source, begun.get(source.name)) for source in some]
    tasks = min(len(asked), 4 * spark.sparkContext.defaultParallelism)
    # A file that grew is read from where reading ended, unless it turns out to be another one; and to look through a
    # file takes a tenth of the time that it takes to parse it.
    rest, every = sum(rest_of(*one) for one in asked), sum(source.size for source in some)
    are_few = rest <= few_bytes and every <= LOOKED * few_bytes
    return _each(spark, lambda one: seen(whole, *one, heads), asked, tasks, are_few=are_few)


def _surveyed(
    spark: SparkSession, recording: Recording, sources: list[Source], few_bytes: int = DRIVER_FACTS * LOG_BYTES
) -> list[Ties]:
    """Return what each of these files says that ties directories and addresses to brokers."""
    survey = partial(survey_file, replace(recording, sources=()))
    are_few = sum(weight_of(Work(source)) for source in sources) <= few_bytes
    return _each(spark, survey, sources, len(sources), are_few=are_few)


def inspect(spark: SparkSession, recording: Recording) -> dict[str, Any]:
    """Return what the recording holds, what it does not cover, and what it can answer; reads all files, writes none."""

    def read(written: Recording) -> DataFrame:
        works = [Work(source, is_last=False) for source in written.sources]
        return _stream(spark, written, works, SUMMED_SCHEMA).persist()

    stream = read(recording)
    try:
        counts = _counts(rows_of(stream, COUNTS, COUNTS_SCHEMA))
        refuse_unreadable(counts, recording.root)
        written = by_their_writers(recording, counts, partial(_surveyed, spark, recording))
        if written is not recording:
            stream.unpersist()
            stream = read(written)
            counts = _counts(rows_of(stream, COUNTS, COUNTS_SCHEMA))
        covered = coverage_by_workers(rows_of(stream, FACT, SUMMED_SCHEMA))
    finally:
        stream.unpersist()
    return {**findings(inputs_of(counts), recording.manifest), "not_covered": not_covered(covered.rows)}


def _counts(told: Rows) -> list[dict[str, Any]]:
    """Return the counts of each file, or part of a file."""
    return [json.loads(text) for text in as_arrow(told, COUNTS_SCHEMA.names)["counts"].to_pylist()]


def _works(recording: Recording, plan: Plan, stand: Stand | None) -> list[Work]:
    """Return what is to be read. A file of several brokers is several sources in the recording."""
    sources: dict[str, list[Source]] = defaultdict(list)
    for source in recording.sources:
        sources[source.name].append(source)
    named = _named_before(plan, stand)
    works = []
    for read in plan.reads:
        begun = read.entry.begun if read.entry is not None and read.goes_on else None
        works += [Work(one, begun=begun, named=named.get(one.name, ())) for one in sources[read.source.name]]
    return works


def _named_before(plan: Plan, stand: Stand | None) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return what the request lines of each file have named before the place where reading goes on."""
    going = {read.entry.path: (read.source.name, read.entry) for read in plan.reads if read.entry and read.goes_on}
    found: dict[str, list[tuple[str, ...]]] = {name: list(entry.named_clusters) for name, entry in going.values()}
    spans = [span for _, entry in going.values() if (span := entry.span()) is not None]
    if stand is not None and spans and _are_any(_topics_named(stand(spans, _NAMING))):
        columns = ("source_file", "source_line", "topic", "topic_id")
        for row in as_arrow(_topics_named(stand(spans, (*_NAMING, *columns))), [*columns]).to_pylist():
            name, entry = going.get(row["source_file"], ("", None))
            if entry is not None and row["source_line"] < entry.settled_line:
                found[name].append((row["topic"], row["topic_id"]))
    return {name: tuple(named) for name, named in found.items()}


def _are_any(facts: Rows) -> bool:
    """Whether there may be some: rows in the driver's memory are counted, to ask Spark twice would cost more."""
    return not isinstance(facts, pa.Table) or len(facts) > 0


def _topics_named(facts: Rows) -> Rows:
    """Return the facts of request lines that name topics with their ids."""
    if not isinstance(facts, pa.Table):
        return facts.where("kind = 'topic_change' AND name = 'metadata_response'")
    named = pc.and_kleene(pc.equal(facts["kind"], "topic_change"), pc.equal(facts["name"], "metadata_response"))
    return facts.filter(named)


def divided(spark: SparkSession, recording: Recording, works: list[Work]) -> list[Work]:
    """Return what is to be read, largest first: compressed files whole, large plain ones in ranges."""
    found, large = [], []
    for work in works:
        source = work.source
        if work.begun is None and source.size > RANGE_BYTES + RANGE_BYTES // 2 and _splits(recording, source):
            large.append(work)
        else:
            found.append(work._replace(weight=weight_of(work)))
    found += _ranges(spark, large)
    return sorted(found, key=lambda work: (-work.weight, work.source.name, work.part or (0, 0, 0)))


def _splits(recording: Recording, source: Source) -> bool:
    try:
        return may_split(recording, source)
    except OSError:  # reported when the file is read
        return False


def _ranges(spark: SparkSession, works: list[Work]) -> list[Work]:
    """Split large files into ranges with their first line's number; newlines are counted first, in parallel."""
    spans = [
        (work, start, min(start + RANGE_BYTES, work.source.size))
        for work in works
        for start in range(0, work.source.size, RANGE_BYTES)
    ]
    if not spans:
        return []
    asked = [(work.source.path, max(start - 1, 0), end - 1) for work, start, end in spans]
    found = spark.sparkContext.parallelize(asked, len(asked)).map(lambda span: newlines(*span)).collect()
    ranges, before = [], 0
    for (work, start, end), count_ in zip(spans, found, strict=True):
        before = 0 if start == 0 else before
        first = 1 if start == 0 else before + 2
        is_last = work.is_last and end == work.source.size
        ranges.append(work._replace(part=Range(start, end, first), is_last=is_last, weight=end - start))
        before += count_
    return ranges


def _stream(
    spark: SparkSession, recording: Recording, works: list[Work], columns: pa.Schema, folder: Path | None = None
) -> DataFrame:
    """Return everything that the files say (`packed.STREAM`): facts with these columns, rejected lines, counts.

    `folder`: where workers write the facts themselves; in place of facts there are the names of the files then.
    """
    tasks = _tasks(divided(spark, recording, works), spark.sparkContext.defaultParallelism)
    # Each task gets only its own files, as its row: with all of them, task messages would grow with their number.
    read = count_of(spark, sum(work.weight for task in tasks for work in task), "bytes")
    rows = spark.sparkContext.parallelize([(pickle.dumps(task),) for task in tasks], max(len(tasks), 1))
    frame = spark.createDataFrame(rows, T.StructType([T.StructField("works", T.BinaryType())]))
    whole = replace(recording, sources=())

    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for row in batch.column(0).to_pylist():
                file = None if folder is None else RowFile(folder)
                for work in pickle.loads(row):  # noqa: S301 - our own, of a moment ago
                    for output, said in said_of(whole, work):
                        kept = said.select(columns.names) if output == FACT else said
                        if file is not None and output == FACT:
                            file.add(kept)
                        else:
                            yield from packed({output: [kept]})
                    read.add(work.weight)
                if file is not None:
                    yield from packed({FACT_FILES: [file.close()]})

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


@dataclass(frozen=True, slots=True)
class _Facts:
    """All facts that were read, some perhaps more than once: in files that workers wrote, in streams, or in memory."""

    spark: SparkSession
    staged: Staged | Held
    recording_id: str
    files: Sequence[Path]

    @classmethod
    def of(cls, spark: SparkSession, staged: Staged | Held, recording_id: str, folder: Path | None) -> _Facts:
        """Find them; `folder`: where the files are, if workers wrote any."""
        files = staged.files(FACT_FILES, folder) if isinstance(staged, Staged) and folder is not None else ()
        return cls(spark, staged, recording_id, files)

    def rows(self, schema: pa.Schema) -> Rows:
        """Return these columns of all of them."""
        if not self.files:
            return self.staged.rows(FACT, schema)
        if are_small(self.files):
            return pa.Table.from_batches(arrow_of(self.files, self.recording_id, schema), schema)
        return frame_of(self.spark, self.files, self.recording_id, schema)


def _distinct(told: _Facts) -> tuple[Rows, Sequence[Path]]:
    """Return each fact once, and the files that hold them like this.

    Mostly no file repeats another; ids alone show this, and then no facts are moved.
    """
    facts = told.rows(FACT_SCHEMA)
    if isinstance(facts, pa.Table):
        return distinct(facts), ()
    times = F.count(F.lit(1)).alias("times")
    ids, places = (as_frame(told.spark, told.rows(schema)) for schema in (ID_SCHEMA, PLACE_SCHEMA))
    if not ids.groupBy(F.xxhash64("fact_id")).agg(times).where("times > 1").head(1):
        return facts, told.files
    place = F.struct("source_file", "source_line")
    found = places.groupBy("fact_id").agg(times, F.min(place).alias("first"))
    repeated = found.where("times > 1").select("fact_id", "first")
    once = facts.join(repeated, "fact_id", "left").where(F.col("first").isNull() | (F.col("first") == place))
    return once.select(*FACT_SCHEMA.names), ()
