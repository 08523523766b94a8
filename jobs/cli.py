"""What the jobs share: flags, settings, progress, errors in one sentence, exit codes.

Pipelines are imported where they are called, so that `--help` needs neither Spark nor any package.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import tomllib
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from schemas.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pipelines.recording.recording import Recording
    from pipelines.stages.run import Run

DONE: Final = 0
FAILED: Final = 1
BAD_INPUT: Final = 2
EXPECTATIONS_FAILED: Final = 3
LOSSES_FOUND: Final = 4
_BEST_TO_WORST: Final = (DONE, LOSSES_FOUND, EXPECTATIONS_FAILED, BAD_INPUT, FAILED)

SETTINGS_FILE: Final = Path(__file__).parent.parent / "conf" / "tidemark.toml"
_SETTINGS: Final = {
    "shuffle_partitions": int,
    "conformance_ties": int,
}
_MOST_BROKER: Final = 2**31 - 1
_EXIT_CODES: Final = (
    "exit codes: 0 done; 1 failed; 2 bad usage or input; 3 an expectation failed (tables and report are there);\n"
    "4 losses found, or nothing can be told, and --fail-on-loss given. Everything after -- goes to spark-submit."
)


def job_parser(job: str, description: str, examples: Sequence[str]) -> argparse.ArgumentParser:
    """A parser that names the job as one types it, and shows examples."""
    shown = "\n".join(f"  ./spark-submit.sh {job} {example}".rstrip() for example in examples)
    return argparse.ArgumentParser(
        prog=f"./spark-submit.sh {job}",
        description=description,
        epilog=f"examples:\n{shown}\n\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_input_flags(parser: argparse.ArgumentParser) -> None:
    """Flags that say what to read."""
    group = parser.add_argument_group("what to read")
    group.add_argument(
        "--recording", nargs="+", action="extend", default=[], metavar="DIR", help="folders of recordings"
    )
    group.add_argument("--recording-id", metavar="ID", help="what the evidence is called (default: the folder's name)")
    group.add_argument(
        "--logs", nargs="+", action="extend", type=_of_broker, default=[], metavar="BROKER=PATH",
        help="instead of --recording: logs that lie elsewhere, files or folders",
    )  # fmt: skip
    group.add_argument(
        "--metadata",
        nargs="+",
        action="extend",
        default=[],
        metavar="PATH",
        help="with --logs: dumps of __cluster_metadata and of its snapshots, files or folders",
    )
    group.add_argument(
        "--segments", nargs="+", action="extend", type=_of_broker, default=[], metavar="BROKER=PATH",
        help="with --logs: dumps of segments, checkpoints",
    )  # fmt: skip
    group.add_argument(
        "--time-zone", nargs="+", action="extend", type=_zone, default=[], metavar="[BROKER=]ZONE",
        help="zone of the brokers' clocks, as Europe/Berlin (default: the manifest's, else UTC)",
    )  # fmt: skip
    group.add_argument(
        "--kafka-version",
        metavar="V",
        help="Kafka's version, as 3.9.0 (default: the manifest's, else what the logs tell)",
    )
    group.add_argument(
        "--log-layout",
        metavar="NAME",
        help="what log lines are taken for where they could be of two layouts, as apache, strimzi4, ecs "
        "(default: told from the lines; docs/recording.md names all)",
    )


def only_recording(root: str) -> argparse.Namespace:
    """Values of the input flags for one folder, for a job without these flags."""
    parser = argparse.ArgumentParser()
    add_input_flags(parser)
    return parser.parse_args(["--recording", root])


def add_warehouse_flags(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """Flags that say where the tables are, and how to work on them."""
    group = parser.add_argument_group("where the tables are")
    group.add_argument(
        "--warehouse", metavar="DIR", default=default, required=default is None,
        help=f"folder or URI of the tables{f' (default: {default})' if default else ''}",
    )  # fmt: skip
    group = parser.add_argument_group("how")
    group.add_argument(
        "--topic",
        nargs="+",
        action="extend",
        type=_pattern,
        default=[],
        metavar="PATTERN",
        help="replay only topics whose whole name matches",
    )
    group.add_argument(
        "--from",
        dest="from_",
        type=_time,
        metavar="TIME",
        help="keep timelines from here on, as 2025-03-01T10:00 (UTC, or with an offset)",
    )
    group.add_argument("--to", type=_time, metavar="TIME", help="keep timelines up to here")
    group.add_argument("--settings", type=Path, metavar="FILE", help="settings other than conf/tidemark.toml")
    group.add_argument("--dry-run", action="store_true", help="say what would be read and written, and do nothing")


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    """Flags that say what to print."""
    group = parser.add_argument_group("what to print")
    group.add_argument("--json", action="store_true", help="one JSON object on standard output instead of text")
    group.add_argument(
        "--fail-on-loss", action="store_true", help="exit with 4 if records were lost, or the logs cannot tell"
    )
    group.add_argument("--quiet", action="store_true", help="no progress")


def recordings(args: argparse.Namespace) -> list[Callable[[], Recording]]:
    """Finders of the recordings that the flags name, called in turn: one that is missing does not stop the others."""
    from pipelines.recording.recording import discover, from_paths

    told: dict[str, Any] = {
        "time_zones": dict(args.time_zone) or None,
        "kafka_version": args.kafka_version,
        "log_layout": args.log_layout,
    }
    if args.recording and (args.logs or args.metadata or args.segments):
        message = "--recording names a whole folder: leave out --logs, --metadata and --segments"
        raise InputError(message)
    if args.recording_id and len(args.recording) > 1:
        message = "--recording-id names one recording: give one --recording with it"
        raise InputError(message)
    if args.logs or args.metadata or args.segments:
        if not args.recording_id:
            message = "with --logs, say what the evidence is called: --recording-id NAME"
            raise InputError(message)
        logs, segments = _by_broker(args.logs), _by_broker(args.segments)
        return [lambda: from_paths(args.recording_id, logs, metadata=args.metadata, segments=segments, **told)]
    return [lambda root=root: discover(root, recording_id=args.recording_id, **told) for root in args.recording]  # type: ignore[misc]


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Settings from the file, and limits from the flags. Raises InputError for an unknown or invalid setting."""
    path = args.settings or SETTINGS_FILE
    found: dict[str, Any] = {}
    if args.settings or path.exists():  # a job that was shipped to a cluster alone has no conf/
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(str(error), source=str(path)) from error
    for name, value in found.items():
        if name not in _SETTINGS:
            message = f"there is no setting '{name}': {', '.join(_SETTINGS)}"
            raise InputError(message, source=str(path))
        if type(value) is not _SETTINGS[name]:
            wanted = "a whole number" if _SETTINGS[name] is int else "true or false"
            message = f"{name} is {value!r}, and should be {wanted}"
            raise InputError(message, source=str(path))
    narrow = {"topics": args.topic or None, "from": args.from_, "to": args.to}
    return {**found, **{name: value for name, value in narrow.items() if value is not None}}


def guarded(main: Callable[[], int]) -> int:
    """Run a job; whatever happens, it ends with one sentence and not with a stack trace."""
    try:
        return main()
    except KeyboardInterrupt:
        print("tidemark: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:  # noqa: BLE001 - the outermost frame
        return tell(error, as_json="--json" in sys.argv[1:])


def tell(error: Exception, *, as_json: bool = False) -> int:
    """Print what went wrong in one line, and return the exit code for it."""
    code, message = explained(error)
    if as_json:  # nothing else: spark-submit merges both streams
        print(json.dumps({"recordings": [], "error": message, "exit_code": code}, indent=2))
    else:
        print(f"tidemark: {message}", file=sys.stderr)
    return code


def explained(error: Exception) -> tuple[int, str]:
    """The exit code of an error and its message in one line. The stack trace of a bug goes to a file."""
    if isinstance(error, InputError):
        return BAD_INPUT, str(error)
    handle, path = tempfile.mkstemp(prefix="tidemark-error-", suffix=".txt", text=True)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.writelines(traceback.format_exception(error))
    return FAILED, f"{_one_line(error)} (details: {path})"


def worst(codes: Sequence[int]) -> int:
    """The exit code of the worst outcome."""
    return max(codes, key=_BEST_TO_WORST.index, default=DONE)


class Progress:
    """Steps and their seconds on standard error: overwritten in place on a terminal, one line per step elsewhere."""

    def __init__(self, *, quiet: bool) -> None:
        """Print nothing at all if quiet."""
        self.quiet = quiet

    def __call__(self, step: str, seconds: float | None) -> None:
        """Report that a step starts (no seconds) or is over."""
        terminal = sys.stderr.isatty()
        if self.quiet or (seconds is None and not terminal):
            return
        if seconds is None:
            print(f"  {step} ...", end="", file=sys.stderr, flush=True)
        else:
            start = "\r" if terminal else ""
            print(f"{start}  {step:<10}{seconds:7.1f} s", file=sys.stderr, flush=True)


def run_stages(args: argparse.Namespace, job: str, stages: Sequence[str]) -> int:
    """Run the stages on each recording that the flags name, or on all recordings in the warehouse."""
    configuration, wanted = settings(args), recordings(args)
    if args.dry_run:
        return _dry_run(args, wanted, stages)
    if not wanted and "ingest" in stages:
        message = f"name what to read: --recording DIR, or --logs BROKER=PATH; see ./spark-submit.sh {job} --help"
        raise InputError(message)
    from pipelines.spark.session import spark_session
    from pipelines.stages.run import execute, recorded_ids

    spark = spark_session(f"tidemark {job}")
    named: list[Callable[[], tuple[str, Recording | None]]] = [
        lambda find=find: ((found := find()).recording_id, found)  # type: ignore[misc]
        for find in wanted
    ]
    if not wanted:
        ids = [args.recording_id] if args.recording_id else recorded_ids(spark, args.warehouse)
        named = [lambda name=name: (name, None) for name in ids]  # type: ignore[misc]
    quiet = args.quiet or args.json  # spark-submit merges both streams, so JSON output must stand alone
    progress = Progress(quiet=quiet)
    codes: list[int] = []
    reports: list[dict[str, Any]] = []
    for find in named:
        try:
            recording_id, recording = find()
            if not quiet:
                print(f"{recording_id}: {', '.join(stages)}", file=sys.stderr)
            run = execute(spark, args.warehouse, recording_id, recording, stages, configuration, progress)
        except Exception as error:  # noqa: BLE001 - one recording's failure must not stop the others
            code, message = explained(error)
            codes.append(code)
            if args.json:
                reports.append({"error": message, "exit_code": code})
            else:
                print(f"tidemark: {message}", file=sys.stderr)
            continue
        reports.append(_summary(run))
        if not args.json:
            _print_outcome(run)
        codes.append(_exit_code(run, fail_on_loss=args.fail_on_loss))
    if args.json:
        print(json.dumps({"recordings": reports}, indent=2, default=str))
    return worst(codes)


def _summary(run: Run) -> dict[str, Any]:
    """A run's outcome for machines."""
    validation = run.validation
    return {
        "recording_id": run.recording_id,
        "run_id": run.run_id,
        "warehouse": run.warehouse.path,
        "durations": run.durations,
        "warnings": _warnings(run),
        "validation": {"errors": validation.errors, "warnings": validation.warnings} if validation else None,
        "report": run.report.as_dict() if run.report else None,
    }


def _print_outcome(run: Run) -> None:
    """Print a run's outcome for people: what was found, and where to look."""
    if run.report is not None:
        print(run.report.terminal(sys.stdout.isatty() and "NO_COLOR" not in os.environ))
    for sentence in _warnings(run):
        print(f"warning:    {sentence}")
    print(f"tables:     {run.warehouse.path}")
    if run.report_path is not None:
        print(f"report:     {run.report_path}")
    if run.validation is not None:
        failed = f"{_counted(run.validation.errors, 'error')}, {_counted(run.validation.warnings, 'warning')}"
        pages = f"; see {run.validation.docs_path}" if run.validation.docs_path else ""
        print(f"validation: {failed}{pages}")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _warnings(run: Run) -> list[str]:
    """One warning for each broker whose clock is off."""
    from pipelines.intake.clocks import sentences

    return sentences(run.inputs)


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
        "ingest": ("facts", "rejected_lines", "replication_events", "coverage"),
        "replay": [table.name for table in REPLAY_TABLES],
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


def _of_broker(text: str) -> tuple[int, str]:
    broker, equals, path = text.partition("=")
    if not (equals and broker.isdecimal() and int(broker) <= _MOST_BROKER and path):
        message = f"'{text}' should be BROKER=PATH, as 1=/var/log/kafka"
        raise argparse.ArgumentTypeError(message)
    return int(broker), path


def _by_broker(pairs: Sequence[tuple[int, str]]) -> dict[int | None, list[str]]:
    paths: dict[int | None, list[str]] = {}
    for broker, path in pairs:
        paths.setdefault(broker, []).append(path)
    return paths


def _zone(text: str) -> tuple[int | None, str]:
    from zoneinfo import ZoneInfo

    broker, equals, zone = text.rpartition("=")
    try:
        ZoneInfo(zone)
        number = int(broker) if equals else None
    except (ValueError, KeyError, OSError):
        number = -1
    if number is not None and not 0 <= number <= _MOST_BROKER:
        message = f"'{text}' should be ZONE or BROKER=ZONE with a zone as Europe/Berlin or UTC"
        raise argparse.ArgumentTypeError(message)
    return number, zone


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        message = f"'{text}' is not a regular expression: {error}"
        raise argparse.ArgumentTypeError(message) from None
    return text


def _time(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = f"'{text}' should be a time as 2025-03-01T10:00 or 2025-03-01T10:00:00+01:00"
        raise argparse.ArgumentTypeError(message) from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat()


def _one_line(error: Exception) -> str:
    """An error's message: its first line, or the last error line if a worker's traceback comes first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any(line.startswith("Traceback") for line in lines):
        told = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
        lines = told[-1:] or lines
    return f"{type(error).__name__}: {lines[0][:300] if lines else 'no message'}"
