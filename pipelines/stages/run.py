"""A run: the stages in turn on one recording, and the row in `runs` that says which table versions belong together.

Each table's write is atomic, but the run as a whole is not. `runs` is written last, so a table version that no row of
`runs` names belongs to a run that was killed.
"""

from __future__ import annotations

import json
import platform
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from pipelines.intake.attribution import clusters_of
from pipelines.intake.inspection import versions_seen
from pipelines.overview.coverage import coverage_of
from pipelines.recording.names import recording_name
from pipelines.spark.packed import table_rows
from pipelines.spark.session import VERSION
from pipelines.spark.spark_schemas import spark_schema
from pipelines.spark.staging import stage
from pipelines.stages import ingest, order, replay, report, validate
from pipelines.warehouse.delta_io import Warehouse
from pipelines.warehouse.narrowing import Narrowing
from pipelines.warehouse.superseded import superseded_facts, with_said
from replay.evidence.cluster import MANIFEST_SETTINGS
from schemas.errors import InputError
from schemas.tables import REPLAY_TABLES, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from pipelines.recording.recording import Recording


@dataclass(slots=True)
class Run:
    """One run on one recording: its input, its settings, and its results so far."""

    spark: SparkSession
    warehouse: Warehouse
    recording_id: str
    recording: Recording | None  # None: the input is the tables in the warehouse
    settings: dict[str, Any]
    progress: Callable[[str, float | None], None]
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    inputs: list[dict[str, Any]] = field(default_factory=list)
    durations: dict[str, float] = field(default_factory=dict)
    validation: validate.Validation | None = None
    report: report.Report | None = None
    report_path: str | None = None
    narrowed: Narrowing | None = None  # what was replayed; None: this run has replayed nothing

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Report that a step runs, and record how long it took."""
        self.progress(name, None)
        start = time.monotonic()
        try:
            yield
        finally:
            self.durations[name] = round(time.monotonic() - start, 3)
        self.progress(name, self.durations[name])


def execute(  # noqa: PLR0913, PLR0917 - what a run is made of
    spark: SparkSession,
    warehouse_path: str,
    recording_id: str,
    recording: Recording | None,
    stages: Sequence[str],
    settings: Mapping[str, Any],
    progress: Callable[[str, float | None], None],
) -> Run:
    """Run these stages on one recording. A failure is recorded in `runs`, if that is possible, and raised."""
    started = datetime.now(UTC)
    recording_name(recording_id)
    warehouse = Warehouse(spark, warehouse_path)
    in_force = with_recording(settings, warehouse, recording_id, recording)
    run = Run(spark, warehouse, recording_id, recording, in_force, progress)
    warehouse.run_id = run.run_id
    if "shuffle_partitions" in settings:
        spark.conf.set("spark.sql.shuffle.partitions", str(settings["shuffle_partitions"]))
    try:
        for stage in stages:
            _STAGES[stage](run)
        failed = run.validation is not None and run.validation.errors > 0
        _record(run, started, stages, "expectations_failed" if failed else "ok", None)
    except Exception as error:
        with suppress(Exception):  # the first error is the one to raise
            _record(run, started, stages, "failed", str(error)[:1000])
        raise
    finally:
        with suppress(Exception):
            warehouse.drop_staging(run.run_id)
        spark.catalog.clearCache()
    return run


def recorded_ids(spark: SparkSession, warehouse_path: str) -> list[str]:
    """Return the recordings in a warehouse; InputError if there are none."""
    rows = Warehouse(spark, warehouse_path).read("runs").select("recording_id").distinct().collect()
    if not rows:
        message = "the warehouse has no recordings yet; bring one in with `./spark-submit.sh run --recording DIR`"
        raise InputError(message, source=warehouse_path)
    return sorted(row.recording_id for row in rows)


def with_recording(
    settings: Mapping[str, Any], warehouse: Warehouse, recording_id: str, recording: Recording | None
) -> dict[str, Any]:
    """Return the settings with what the manifest says about the cluster, now or when the recording was last ingested.

    Of the brokers' configuration only settings that are used are kept: others may hold secrets that `runs` would show.
    """
    if recording is not None:
        stated = recording.manifest.broker_config
        config = {name: stated[name] for name in MANIFEST_SETTINGS if name in stated}
        return {**settings, "kafka_version": recording.manifest.kafka, "broker_config": config}
    of_recording = warehouse.read("runs", recording_id).where(F.array_contains("stages", "ingest"))
    latest = of_recording.orderBy(F.desc("finished")).select("configuration").head()
    then: dict[str, Any] = json.loads(latest.configuration) if latest else {}
    return {**settings, **{name: then.get(name) for name in ("kafka_version", "broker_config")}}


def _ingest(run: Run) -> None:
    """Parse and order: facts, rejected_lines, replication_events, coverage."""
    if run.recording is None:
        message = "name what to read: --recording DIR, or --logs BROKER=PATH"
        raise InputError(message)
    with run.step("parse"):
        parsed = ingest.parse(run.spark, run.recording, f"{run.warehouse.staging_dir(run.run_id)}/parse")
        run.inputs = with_said(parsed.inputs, run.recording.manifest)
        _refuse_other_cluster(run, parsed.facts)
        superseded = superseded_facts(run.warehouse, run.recording_id, run.inputs)
        run.warehouse.append_facts(parsed.facts, run.recording_id, superseded)
        named = {"recording_id": F.lit(run.recording_id), "run_id": F.lit(run.run_id)}
        rejected = parsed.rejected.withColumns(named)
        run.warehouse.append("rejected_lines", rejected)
    with run.step("order"):
        facts = run.warehouse.read("facts", run.recording_id)
        covered = coverage_of(facts)
        events = order.order(run.spark, facts, run.settings, covered.missing)
        run.warehouse.replace("replication_events", events, run.recording_id, arranged=True)
        run.warehouse.replace("coverage", covered.table(run.spark, run.recording_id), run.recording_id)


def _refuse_other_cluster(run: Run, facts: DataFrame) -> None:
    """Raise InputError if the recording in the warehouse is of another cluster, by its id or by its topics' ids."""
    source = run.recording.root or None if run.recording else None
    named = set(clusters_of(run.inputs))
    if named:
        stand = run.warehouse.read("facts", run.recording_id).where("name = 'cluster_id' AND value IS NOT NULL")
        others = {row.value for row in stand.select("value").distinct().collect()} - named
        if others:
            message = (
                f"its logs are of the cluster {', '.join(sorted(named))}, and what stands in the recording "
                f"'{run.recording_id}' of this warehouse is of {', '.join(sorted(others)[:5])}: give it a name of its "
                "own with --recording-id"
            )
            raise InputError(message, source=source)
    known = run.warehouse.read("facts", run.recording_id).where("topic_id IS NOT NULL").select("topic_id").distinct()
    if not known.head(1):
        return
    ids = facts.where("topic_id IS NOT NULL").select("topic_id").distinct()
    if ids.head(1) and not ids.join(known, on="topic_id", how="left_semi").head(1):
        message = (
            f"none of its topics stands in the recording '{run.recording_id}' of this warehouse: "
            "they are of different clusters; give it a name of its own with --recording-id"
        )
        raise InputError(message, source=source)


def _replay(run: Run) -> None:
    """Turn events into timelines, truncations, incidents and conformance, in one pass over the partitions."""
    with run.step("replay"):
        events = run.warehouse.read("replication_events", run.recording_id)
        looked_at = run.narrowed = Narrowing.of(run.settings)
        if looked_at.of_topics:
            events = events.where(looked_at.of_topics)
        tagged = replay.replay(run.spark, events, run.settings)
        folder = f"{run.warehouse.staging_dir(run.run_id)}/replay"
        staged = stage(tagged, folder, len(REPLAY_TABLES))
    with run.step("write"):
        rows = {table.name: table_rows(staged, table.name) for table in REPLAY_TABLES}
        # Whatever time span was asked for, the replay itself starts at the beginning.
        run.warehouse.replace_all(
            rows, run.recording_id, {table.name: looked_at.condition(table) for table in REPLAY_TABLES}
        )


def _validate(run: Run) -> None:
    """Run Great Expectations over the tables as they are."""
    with run.step("validate"):
        ties = run.settings.get("conformance_ties")
        run.validation = validate.validate(run.spark, run.warehouse, run.recording_id, run.run_id, ties)
        schema = spark_schema(TABLES["expectation_results"])
        run.warehouse.append("expectation_results", run.spark.createDataFrame(run.validation.results, schema))


def _report(run: Run) -> None:
    """Build the report, and write it as a Markdown file next to the tables."""
    with run.step("report"):
        said = run.settings.get("kafka_version")
        run.report = report.build(run.warehouse, run.recording_id, run.run_id, run.inputs, said, run.narrowed)
        run.report_path = run.warehouse.write(f"reports/{run.recording_id}.md", run.report.markdown().encode())


_STAGES: Final[dict[str, Callable[[Run], None]]] = {
    "ingest": _ingest,
    "replay": _replay,
    "validate": _validate,
    "report": _report,
}


def _record(run: Run, started: datetime, stages: Sequence[str], status: str, message: str | None) -> None:
    """Write the run's row, from which readers know which table versions belong together."""
    written = [name for name in TABLES if name != "runs"]
    counts = [
        run.warehouse.read(name, run.recording_id).agg(F.lit(name).alias("name"), F.count("*").alias("rows"))
        for name in written
    ]
    rows = {row.name: row.rows for row in reduce(lambda one, other: one.unionAll(other), counts).collect()}
    software = {name: version(name) for name in ("pyspark", "delta-spark", "great-expectations", "numba", "pyarrow")}
    row = {
        "recording_id": run.recording_id,
        "run_id": run.run_id,
        "started": started,
        "finished": datetime.now(UTC),
        "status": status,
        "stages": list(stages),
        "versions": _json({"tidemark": VERSION, "python": platform.python_version(), **software}),
        "configuration": _json(run.settings),
        "inputs": _json(run.inputs),
        "kafka_versions": _json(versions_seen(run.inputs)) if run.inputs else None,
        "counts": _json(rows),
        "durations": _json(run.durations),
        "table_versions": _json({name: run.warehouse.version(name) for name in written}),
        "message": message,
    }
    run.warehouse.append("runs", run.spark.createDataFrame([row], spark_schema(TABLES["runs"])))


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)
