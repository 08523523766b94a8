"""A run: the stages in turn on one recording, and the row in `runs` that says which table versions belong together.

Each table's write is atomic, but the run as a whole is not. `runs` is written last, so a table version that no row of
`runs` names belongs to a run that was killed; the next run of the recording mends what it left.
"""

from __future__ import annotations

import json
import logging
import platform
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F

from pipelines.intake.inspection import versions_seen
from pipelines.overview import metrics
from pipelines.recording.names import recording_name
from pipelines.spark.held import driver_facts
from pipelines.spark.session import VERSION
from pipelines.spark.termination import TERMINATION
from pipelines.stages import bringing_in, compiling, incident_page, incident_reports, report, tending
from pipelines.stages.event_streams import EventStreams
from pipelines.stages.news import UNKNOWN, News
from pipelines.stages.renewal import Renewal
from pipelines.stages.thinning import Retention
from pipelines.stages.watch import Watch
from pipelines.warehouse.commit_point import last_complete, pinned, take_back_reading, versions_after
from pipelines.warehouse.commits import MARK, mark_of
from pipelines.warehouse.contract import sql_string
from pipelines.warehouse.delta_io import Warehouse
from pipelines.warehouse.narrowing import Narrowing
from pipelines.warehouse.superseded import engine_version
from replay.evidence.cluster import MANIFEST_SETTINGS
from schemas.errors import HeldError, InputError
from schemas.runs import FAILED
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from pipelines.recording.recording import Recording
    from pipelines.stages.validation import Validation

# Stages that write tables; the report only reads them.
WRITING: Final = frozenset({"ingest", "replay", "validate", tending.STAGE})
MENDING: Final = frozenset({"ingest", "replay"})  # stages that make anew what a killed run left half done


@dataclass(slots=True)
class Run:
    """One run on one recording: its input, its settings, and its results so far."""

    spark: SparkSession
    warehouse: Warehouse
    recording_id: str
    recording: Recording | None  # None: the input is the tables in the warehouse
    settings: dict[str, Any]
    progress: Callable[[str, float | None], None] | None = None  # called as a step starts (None), and with its seconds
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    inputs: list[dict[str, Any]] = field(default_factory=list)  # files that this run read,
    known: list[dict[str, Any]] = field(default_factory=list)  # and all that are in the recording's folder now
    skipped: tuple[str, ...] = ()  # stages whose tables stand as they are, since nothing is new
    remarks: list[str] = field(default_factory=list)
    validation: Validation | None = None
    report: report.Report | None = None
    report_path: str | None = None
    page_path: str | None = None
    will_report: bool = False
    will_validate: bool = False
    compiled: Callable[[], object] | None = None  # waits until the replay's rules are; None: replay is no stage of it
    begun_page: incident_page.Begun | None = None  # None: nothing of it is being drawn yet
    ordered: EventStreams = field(default_factory=EventStreams)  # the events that were ordered now
    narrowed: Narrowing | None = None  # what was replayed; None: this run has replayed nothing
    told: incident_reports.Told | None = None  # what it says of incidents; None: replay is no stage of this run
    tended: tending.Tended | None = None  # None: maintain is no stage of this run
    counts: dict[str, int] = field(default_factory=dict)  # rows by table, once the run is over
    unfinished: tuple[str, ...] = ()  # runs before that did not come to their end
    last: dict[str, int] = field(default_factory=dict)  # then the versions of the last one that did
    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        """Begin to watch."""
        self.watch = Watch(self.spark, self.recording_id, self.run_id)

    @property
    def goes_on(self) -> bool:
        """Whether what the last complete run left stands as it was, and need not be made again."""
        return not self.unfinished and not self.settings.get("full")

    @property
    def durations(self) -> dict[str, float]:
        """Seconds of each step."""
        return {name: cost["seconds"] for name, cost in self.watch.costs.items()}

    @property
    def counters(self) -> dict[str, Any]:
        """What the run did, in numbers: lines read and rejected, events, incidents, and what each step cost."""
        read = ("bytes", "lines", "facts", "rejected")
        return {
            "files": len(self.inputs),
            **{name: sum(one.get(name) or 0 for one in self.inputs) for name in read},
            "events": self.counts.get("replication_events"),
            "incidents": self.counts.get("data_loss_incidents"),
            "new_incidents": None if self.told is None else len(self.told.new),
            "revised_incidents": None if self.told is None else len(self.told.revised),
            "withdrawn_incidents": None if self.told is None else len(self.told.withdrawn),
            "severities": None if self.told is None else self.told.severities,
            "rows": self.counts,
            "steps": self.watch.costs,
        }

    def leave_as_they_are(self, stands: bringing_in.LastReplay | None, *, are_files_as_before: bool) -> None:
        """Skip the stages whose tables a run before made of the same evidence; None: it made none of them.

        If the report would be the same as well, it is read and not made again.
        """
        if stands is None or Narrowing.of(self.settings):
            self.remarks.append("nothing new to read")
            return
        self.skipped = ("replay", "validate")
        self.validation = stands.validation
        if are_files_as_before and not stands.differs:
            self.report = report.stored(self.warehouse, self.recording_id, stands.alike)
            self.counts = stands.counts
        self.remarks.append(stands.sentence(len(self.known)))

    @contextmanager
    def step(self, name: str) -> Iterator[dict[str, Any]]:
        """Report that a step runs, and record what it took; counts of what it did go into the dict."""
        TERMINATION.check()
        told = self.progress or (lambda _name, _seconds: None)
        told(name, None)
        with self.watch.step(name) as counts:
            yield counts
        told(name, self.durations[name])


def execute(  # noqa: PLR0913, PLR0917 - what a run is made of
    spark: SparkSession,
    warehouse_path: str,
    recording_id: str,
    recording: Recording | None,
    stages: Sequence[str],
    settings: Mapping[str, Any],
    progress: Callable[[str, float | None], None] | None = None,
    wait: float = 0.0,
) -> Run:
    """Run these stages on one recording. A failure is recorded in `runs`, if that is possible, and raised.

    HeldError if another driver works on it, and still does after so many seconds of `wait`.
    """
    recording_name(recording_id)
    run = Run(spark, Warehouse(spark, warehouse_path), recording_id, recording, dict(settings), progress)
    run.warehouse.run_id = run.run_id
    if "shuffle_partitions" in settings:
        spark.conf.set("spark.sql.shuffle.partitions", str(settings["shuffle_partitions"]))
    if not WRITING.intersection(stages):
        _execute(run, stages)
        return run
    with run.warehouse.lease(recording_id, wait, lambda sentence: run.watch.log("waiting", sentence)) as lease:
        run.unfinished = lease.before
        run.warehouse.drop_staging(recording_id)
        spark.conf.set(MARK, mark_of(recording_id, run.run_id))
        try:
            with TERMINATION.in_order(spark):
                _execute(run, stages)
            lease.has_mended = MENDING.issubset(stages)
        finally:
            spark.conf.unset(MARK)
            with suppress(Exception):
                run.warehouse.drop_staging(recording_id)
    return run


def _execute(run: Run, stages: Sequence[str]) -> None:
    """Run these stages; only one driver does so at a time, but for those that only read."""
    started, warehouse, recording_id = datetime.now(UTC), run.warehouse, run.recording_id
    is_writer = bool(WRITING.intersection(stages))
    if run.unfinished or not is_writer:  # else nobody has written since the last run that came to its end, nor does now
        runs = {} if is_writer else {"runs": warehouse.version("runs")}
        warehouse.pin(runs)
        run.last = last_complete(warehouse, recording_id)
        warehouse.pin({**runs, **pinned(stages, run.last)})
    run.settings = with_recording(run.settings, warehouse, recording_id, run.recording)
    run.will_report, run.will_validate = "report" in stages, "validate" in stages
    run.compiled = compiling.begin() if "replay" in stages else None
    run.watch.log("run_started", f"{recording_id}: {', '.join(stages)} (run {run.run_id})", stages=list(stages))
    try:
        for stage in stages:
            run.watch.about["stage"] = stage
            if stage not in run.skipped:
                _STAGES[stage](run)
            if stage == "replay":
                before = run.last if run.unfinished else None
                run.told = incident_reports.tell(warehouse, recording_id, run.run_id, started, before)
        run.watch.about.pop("stage", None)
        failed = run.validation is not None and run.validation.errors > 0
        _record(run, started, stages, "expectations_failed" if failed else "ok", None)
    except BaseException as error:
        was_asked = TERMINATION.is_asked
        TERMINATION.end()
        with suppress(Exception):  # the first error is the one to raise
            message = "the driver was told to end" if was_asked else str(error)[:1000] or type(error).__name__
            _record(run, started, stages, FAILED, message)
        if was_asked:
            TERMINATION.exit()
        raise
    finally:
        run.spark.catalog.clearCache()


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
    """Parse what is new, and order: facts, rejected_lines, files, replication_events, coverage."""
    if run.recording is None:
        message = "name what to read: --recording DIR, or --logs BROKER=PATH"
        raise InputError(message)
    with run.step("parse") as counts:
        if run.unfinished:
            take_back_reading(run.warehouse, run.recording_id)
        staging = f"{run.warehouse.staging_dir(run.recording_id)}/parse"
        full, few = bool(run.settings.get("full")), driver_facts(run.settings)
        found = bringing_in.bring_in(run.warehouse, run.recording, run.run_id, staging, full=full, few=few)
        run.inputs, run.known = found.read, found.every
        counts.update({name: run.counters[name] for name in ("files", "lines", "facts", "rejected")})
    if found.is_nothing_new and not run.unfinished:
        stands = bringing_in.last_replay(run.warehouse, run.recording_id, run.settings)
        run.leave_as_they_are(stands, are_files_as_before=found.are_files_as_before)
        return
    if run.will_validate:  # meanwhile: it takes seconds
        Thread(target=import_module, args=("pipelines.stages.validate",), daemon=True).start()
    with run.step("order"):
        news = News.since_handed_on(run.warehouse, run.recording_id) if run.unfinished else found.news
        renewal = renewal_of(run, news)
        seen, rows, carried = renewal.look()
        run.ordered = renewal.order(seen, rows, carried)
        run.warehouse.replace("coverage", seen.coverage.table(run.recording_id), run.recording_id)


def _replay(run: Run) -> None:
    """Turn events into timelines, truncations, incidents and conformance, in one pass over the partitions."""
    looked_at = run.narrowed = Narrowing.of(run.settings)
    if looked_at:
        _replay_narrowed(run, looked_at)
        return
    renewal = renewal_of(run)
    with run.step("replay"):
        if run.compiled:
            run.compiled()
        plan = renewal.plan(run.ordered)
        is_due = plan is None or plan.since or plan.gone
        staged = renewal.replay(plan, run.ordered) if is_due else None
    if staged is not None:
        with run.step("write"):
            renewal.write_replay(plan, staged)
    with run.step("metrics"):
        metrics.renew(run.warehouse, run.recording_id, goes_on=run.goes_on)


def renewal_of(run: Run, news: News = UNKNOWN) -> Renewal:
    """Return what writes the run's events and replayed rows; `news`: what is new to it, as far as that is known."""
    staging = run.warehouse.staging_dir(run.recording_id)
    full = bool(run.settings.get("full"))
    return Renewal(run.spark, run.warehouse, run.recording_id, staging, run.settings, full, news, run.remarks.append)


def _replay_narrowed(run: Run, looked_at: Narrowing) -> None:
    """Replay some topics, and write the rows of some time; whatever time was asked for, it starts at the beginning."""
    renewal = renewal_of(run)
    with run.step("replay"):
        staged = renewal.staged(renewal.read("replication_events").where(looked_at.of_topics or "true"))
    with run.step("write"):
        renewal.write_tables(staged, looked_at.condition)
    with run.step("metrics"):
        metrics.renew(run.warehouse, run.recording_id)


def _validate(run: Run) -> None:
    """Run Great Expectations over the tables as they are; the pictures of incidents are drawn at the same time."""
    if run.will_report:
        _begin_page(run)
    with run.step("validate"):
        from pipelines.stages import validate  # noqa: PLC0415 - Great Expectations is there only if it is needed

        # Which rows came and went is read from Delta's log, whichever run wrote them.
        goes_on = run.recording is not None and not run.settings.get("full")
        run.validation = validate.validate(
            run.spark, run.warehouse, run.recording_id, run.run_id, run.settings, goes_on=goes_on
        )
        results = pa.Table.from_pylist(run.validation.results, TABLES["expectation_results"].arrow_schema)
        if not run.unfinished:
            run.warehouse.append("expectation_results", results)
            return
        mine = f"run_id IN ({', '.join(map(sql_string, (run.run_id, *run.unfinished)))})"
        run.warehouse.replace("expectation_results", results, run.recording_id, within=mine)


def _report(run: Run) -> None:
    """Build the report, and write it next to the tables, with its page; what stands there already is kept."""
    with run.step("report"):
        is_new = run.report is None
        if run.report is None:
            said = run.settings.get("kafka_version")
            run.report = report.build(
                run.warehouse, run.recording_id, run.run_id, run.known, said, run.narrowed, told=run.told
            )
            report.write(run.warehouse, run.recording_id, run.run_id, run.report)
        run.report_path = report.path_of(run.warehouse, run.recording_id)
        if is_new or not incident_page.is_there(run.warehouse, run.recording_id):
            _draw(run, run.report)
        else:
            run.page_path = incident_page.path_of(run.warehouse, run.recording_id)


def _begin_page(run: Run) -> None:
    """Have pictures drawn. If that fails, it is tried again, and told, when the page is made."""
    with run.step("draw"), suppress(Exception):
        narrowed = Narrowing() if run.narrowed is None else run.narrowed
        incidents = report.incidents_of(run.warehouse, run.recording_id, narrowed)
        run.begun_page = incident_page.begin(run.warehouse, run.recording_id, incidents)


def _draw(run: Run, made: report.Report) -> None:
    """Make the page. If that fails, the run says so and goes on: tables and report are worth more."""
    read = run.recording if run.known else None  # else what lies in the folder may not be what the tables tell
    try:
        incident_page.write(run.warehouse, made.findings, read, run.begun_page)
    except Exception as error:  # noqa: BLE001 - whatever it is
        sentence = f"the incident page could not be made, and the report has all that it says: {error!r:.300}"
        run.watch.log("page_failed", sentence, logging.WARNING)
        run.remarks.append(sentence)
        incident_page.write_why_not(run.warehouse, run.recording_id, sentence)
    run.page_path = incident_page.path_of(run.warehouse, run.recording_id)


def _maintain(run: Run) -> None:
    """Let rows go that nothing is made of, and put small files together; HeldError if tables were left half made."""
    if run.unfinished:
        why = tending.unfinished(run.warehouse, run.recording_id, tending.past_runs(run.warehouse))
        if why is not None:
            raise HeldError(why)
    now_us = time.time_ns() // 1000
    run.tended = tending.tend(run.warehouse, run.recording_id, Retention.of(run.settings), now_us, run.step)


_STAGES: Final[dict[str, Callable[[Run], None]]] = {
    "ingest": _ingest,
    "replay": _replay,
    "validate": _validate,
    "report": _report,
    tending.STAGE: _maintain,
}


def _record(run: Run, started: datetime, stages: Sequence[str], status: str, message: str | None) -> None:
    """Write the run's row, from which readers know which table versions belong together."""
    has_failed = status == FAILED
    if not has_failed and not run.counts:  # else what stands is half made, and its driver may have little time
        run.counts = run.warehouse.row_counts(run.recording_id)
    by = {"rules": run.validation.rules} if run.validation and run.validation.rules else {}
    software = {name: version(name) for name in ("pyspark", "delta-spark", "great-expectations", "numba", "pyarrow")}
    finished = datetime.now(UTC)
    row = {
        "recording_id": run.recording_id,
        "run_id": run.run_id,
        "started": started,
        "finished": finished,
        "status": status,
        "stages": [stage for stage in stages if stage not in run.skipped],
        "versions": _json(
            {"tidemark": VERSION, "engine": engine_version(), "python": platform.python_version(), **software, **by}
        ),
        "configuration": _json(run.settings),
        "inputs": _json([_in_short(one) for one in run.inputs]),
        "kafka_versions": _json(versions_seen(run.known)) if run.known else None,
        "counts": _json(run.counts),
        "durations": _json(run.durations),
        "counters": _json(run.counters),
        "new_incidents": None if has_failed or run.told is None else run.told.new,
        "table_versions": _json(
            {} if has_failed else versions_after(run.warehouse, run.recording_id, stages, run.last)
        ),
        "message": message,
    }
    if WRITING.intersection(stages):
        run.warehouse.append("runs", pa.Table.from_pylist([row], TABLES["runs"].arrow_schema))
    seconds = round((finished - started).total_seconds(), 3)
    did = {name: value for name, value in run.counters.items() if name != "steps"}  # they have lines of their own
    run.watch.log("run_ended", f"{status} after {seconds:.1f} s", status=status, seconds=seconds, counters=did)


def _in_short(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is told of a file without what grows with its length; the ledger `files` has all of it."""
    return {name: value for name, value in told.items() if name != "silences"}


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)
