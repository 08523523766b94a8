"""The jobs that run stages: on each recording that the flags name, then what came of it, for people or as JSON.

Pipelines are imported where they are called, so that `--help` needs neither Spark nor any package.
"""

from __future__ import annotations

import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, Any

from jobs.cli import recordings, settings
from jobs.endings import DONE, EXPECTATIONS_FAILED, LOSSES_FOUND, Failure, failure_of, interruption, worst
from jobs.terminal import has_colour, width
from jobs.watching import logs
from jobs.watching.incident_hooks import message, post, run_command
from jobs.watching.metrics import Metrics
from schemas.errors import InputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from pipelines.recording.recording import Recording
    from pipelines.stages.run import Run


def run_stages(args: argparse.Namespace, job: str, stages: Sequence[str]) -> int:
    """Run the stages on each recording that the flags name, or on all recordings in the warehouse."""
    configuration, wanted = settings(args), recordings(args)
    if args.dry_run:
        return _dry_run(args, wanted, stages)
    if not wanted and "ingest" in stages:
        message = f"name what to read: --recording DIR, or --logs BROKER=PATH; see ./spark-submit.sh {job} --help"
        raise InputError(message)
    metrics = Metrics(args.metrics_file, job) if args.metrics_file else None
    from pipelines.spark.session import spark_session
    from pipelines.spark.standard_error import standard_error
    from pipelines.spark.termination import TERMINATION

    with ThreadPoolExecutor(1) as beside:  # to import the stages takes nearly as long as to start a session
        imported = beside.submit(import_module, "pipelines.stages.run")
        spark = spark_session(f"tidemark {job}")
        imported.result()
    from pipelines.stages.run import execute, recorded_ids

    TERMINATION.listen(spark)
    logs.begin(standard_error(spark), args.log_format, quiet=args.quiet, as_json=args.json)
    named: list[Callable[[], tuple[str, Recording | None]]] = [
        lambda find=find: ((found := find()).recording_id, found)  # type: ignore[misc]
        for find in wanted
    ]
    if not wanted:
        ids = [args.recording_id] if args.recording_id else recorded_ids(spark, args.warehouse)
        named = [lambda name=name: (name, None) for name in ids]  # type: ignore[misc]
    outcomes = Outcomes(args, metrics)
    try:
        for find in named:
            outcomes.add(
                find,
                lambda name, it: execute(spark, args.warehouse, name, it, stages, configuration, wait=args.wait),
            )
    except (KeyboardInterrupt, SystemExit) as error:
        outcomes.interrupted = interruption(error)
    return outcomes.finish()


class Outcomes:
    """What came of each recording: exit codes, and what is to be printed as JSON."""

    def __init__(self, args: argparse.Namespace, metrics: Metrics | None) -> None:
        """Nothing has come of anything yet."""
        self.args, self.metrics = args, metrics
        self.codes: list[int] = []
        self.reports: list[dict[str, Any]] = []
        self.interrupted: Failure | None = None

    @property
    def code(self) -> int:
        """The exit code so far."""
        return self.interrupted.exit_code if self.interrupted else worst(self.codes)

    def add(
        self,
        find: Callable[[], tuple[str, Recording | None]],
        execute: Callable[[str, Recording | None], Run],
    ) -> None:
        """Run one recording, and say what came of it. Its failure does not stop the others."""
        name, began = None, time.monotonic()
        try:
            name, recording = find()
            run = execute(name, recording)
            _tell(run, self.args)
            self.codes.append(_exit_code(run, fail_on_loss=self.args.fail_on_loss))
            self.reports.append(_summary(run))
            if self.metrics:
                _measure(run, self.metrics)
        except Exception as error:  # noqa: BLE001 - whatever it is
            failure = failure_of(error)
            failure.log(name)
            self.codes.append(failure.exit_code)
            self.reports.append({**({"recording_id": name} if name else {}), **failure.as_dict()})
        else:
            if not self.args.json:
                _print_outcome(run)
        if self.metrics:
            if name:
                went_through = self.codes[-1] in {DONE, LOSSES_FOUND}
                self.metrics.run(name, time.monotonic() - began, went_through=went_through)
            self.metrics.write(self.code)

    def finish(self) -> int:
        """Say how all of it ended."""
        if self.metrics:
            self.metrics.write(self.code)
        if self.args.json:
            told = self.interrupted.as_dict() if self.interrupted else {}
            print(json.dumps({"recordings": self.reports, **told}, indent=2, default=str))
        if self.interrupted:
            self.interrupted.log()
        return self.code


def _tell(run: Run, args: argparse.Namespace) -> None:
    """Log warnings and remarks, and tell of incidents whoever is to be told."""
    for sentence in _warnings(run):
        run.watch.log("finding", sentence, logging.WARNING)
    for sentence in run.remarks:
        run.watch.log("remark", sentence)
    if not run.told or not (args.on_incident or args.webhook):
        return
    from pipelines.stages.incident_reports import incident_rows

    said = run.told.what_is_told(args.tell_of)
    if not said:
        return
    about = {"recording_id": run.recording_id, "run_id": run.run_id, "warehouse": run.warehouse.path}
    new = incident_rows(run.warehouse, run.recording_id, said.new) if said.new else []
    not_listed = len(run.told.revised + run.told.withdrawn) - len(said.revised + said.withdrawn)
    told = message(about, new, said.revised, said.withdrawn, not_listed)
    for way, where in ((run_command, args.on_incident), (post, args.webhook)):
        if where and (warning := way(where, told)):
            run.watch.log("not_told", warning, logging.WARNING)


def _measure(run: Run, metrics: Metrics) -> None:
    """Add what a run did to the metrics."""
    from pipelines.spark.session import VERSION

    metrics.counters(run.recording_id, run.run_id, VERSION, run.counters)
    if run.validation is not None:
        for severity in ("errors", "warnings"):
            failed = getattr(run.validation, severity)
            metrics.add("expectations_failed", failed, recording_id=run.recording_id, severity=severity[:-1])


def _summary(run: Run) -> dict[str, Any]:
    """A run's outcome for machines."""
    validation = run.validation
    return {
        "recording_id": run.recording_id,
        "run_id": run.run_id,
        "warehouse": run.warehouse.path,
        "durations": run.durations,
        "counters": run.counters,
        "new_incidents": None if run.told is None else run.told.new,
        "revised": None if run.told is None else run.told.revised,
        "withdrawn": None if run.told is None else run.told.withdrawn,
        "warnings": _warnings(run),
        "remarks": run.remarks,
        "validation": {"errors": validation.errors, "warnings": validation.warnings} if validation else None,
        "report": run.report.as_dict() if run.report else None,
        "page": run.page_path,
    }


def _print_outcome(run: Run) -> None:
    """Print a run's outcome for people: what was found, and where to look."""
    if run.report is not None:
        print(run.report.terminal(colour=has_colour(), width=width()))
        print()
    for sentence in _warnings(run):
        print(f"warning:    {sentence}")
    for sentence in run.remarks:
        print(f"note:       {sentence}")
    print(f"tables:     {run.warehouse.path}")
    if run.report_path is not None:
        print(f"report:     {run.report_path}")
    if run.page_path is not None:
        print(f"page:       {run.page_path}")
    if run.validation is not None:
        failed = f"{_counted(run.validation.errors, 'error')}, {_counted(run.validation.warnings, 'warning')}"
        pages = f"; see {run.validation.docs_path}" if run.validation.docs_path else ""
        print(f"validation: {failed}{pages}")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _warnings(run: Run) -> list[str]:
    """One warning for each broker whose clock is off."""
    from pipelines.intake.clocks import sentences

    return sentences(run.known)


def _exit_code(run: Run, *, fail_on_loss: bool) -> int:
    if run.validation is not None and run.validation.errors:
        return EXPECTATIONS_FAILED
    if fail_on_loss and (
        run.warehouse.read("data_loss_incidents", run.recording_id).head(1) or _verdict(run)["verdict"] == "unknown"
    ):
        return LOSSES_FOUND
    return DONE


def _verdict(run: Run) -> dict[str, Any]:
    """The report's findings, or what they would be."""
    if run.report is not None:
        return run.report.findings
    from pipelines.stages.report import verdict_of

    return verdict_of(run.warehouse, run.recording_id, run.settings.get("kafka_version"))


def _dry_run(args: argparse.Namespace, wanted: Sequence[Callable[[], Recording]], stages: Sequence[str]) -> int:
    from schemas.tables import REPLAY_TABLES

    tables: Mapping[str, Sequence[str]] = {
        "ingest": ("facts", "rejected_lines", "files", "replication_events", "coverage"),
        "replay": [*(table.name for table in REPLAY_TABLES), "cluster_metrics", "incident_reports"],
        "validate": ("expectation_results",),
        "report": (),
    }
    written = [name for stage in stages for name in tables[stage]] + ["runs"]
    found = [find() for find in wanted]
    if args.json:
        plan = [
            {
                "recording_id": one.recording_id,
                "bytes": sum(source.size for source in one.sources),
                "files": _files(one),
            }
            for one in found
        ]
        told = {"would_run": list(stages), "warehouse": args.warehouse, "would_write": written, "recordings": plan}
        print(json.dumps(told, indent=2))
        return DONE
    for one in found:
        size = sum(source.size for source in one.sources)
        print(f"{one.recording_id}: would read {len(one.sources)} files, {size:,} bytes")
        for source in one.sources:
            whose = "" if source.broker_id is None else f"broker {source.broker_id}"
            print(f"  {source.size:>14,}  {whose:<12} {source.name}")
    print(f"would run {', '.join(stages)}, and write to {args.warehouse}: {', '.join(written)}")
    return DONE


def _files(recording: Recording) -> list[dict[str, Any]]:
    """A recording's files for machines."""
    return [{"path": one.name, "broker_id": one.broker_id, "bytes": one.size} for one in recording.sources]
