"""What the jobs' command lines share: parsers, flags, settings, and the recordings that flags name.

Pipelines are imported where they are called, so that `--help` needs neither Spark nor any package.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from jobs import values
from jobs.endings import BAD_INPUT, Failure
from schemas.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pipelines.recording.recording import Recording
SETTINGS_FILE: Final = Path(__file__).parent.parent / "conf" / "tidemark.toml"
EXPECTATIONS_FILE: Final = SETTINGS_FILE.with_name("expectations.toml")
# Whole numbers, from these on.
_SETTINGS: Final = {"shuffle_partitions": 1, "driver_facts": 0, "conformance_ties": 0, "window_minutes": 1}
# Of what a warehouse may do without. Of any other table a later run makes its own rows.
_RETENTION: Final = {"vacuum_days": 1, "rejected_lines_days": 0, "expectation_results_runs": 0}
_EXIT_CODES: Final = (
    "exit codes: 0 done; 1 failed; 2 bad usage or input; 3 an expectation failed (tables and report are there);\n"
    "4 losses found, or nothing can be told, and --fail-on-loss given;\n"
    "5 another run works on the recording (see --wait). Everything after -- goes to spark-submit."
)


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments as JSON if they ask for JSON."""

    given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - as its parent has it
        """Remember what was given, in case it cannot be parsed."""
        self.given = sys.argv[1:] if args is None else [*args]
        return super().parse_known_args(self.given, namespace)

    def error(self, message: str) -> NoReturn:
        """End the job."""
        if "--json" in self.given:
            sys.exit(Failure("usage", message, BAD_INPUT).tell(as_json=True))
        super().error(message)


def job_parser(
    job: str, description: str, examples: Sequence[str], exit_codes: str = _EXIT_CODES
) -> argparse.ArgumentParser:
    """A parser that names the job as one types it, and shows examples."""
    shown = "\n".join(f"  ./spark-submit.sh {job} {example}".rstrip() for example in examples)
    return Parser(
        prog=f"./spark-submit.sh {job}",
        description=description,
        epilog=f"examples:\n{shown}\n\n{exit_codes}",
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
        "--logs", nargs="+", action="extend", type=values.of_broker, default=[], metavar="BROKER=PATH",
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
        "--segments", nargs="+", action="extend", type=values.of_broker, default=[], metavar="BROKER=PATH",
        help="with --logs: dumps of segments, checkpoints",
    )  # fmt: skip
    group.add_argument(
        "--time-zone", nargs="+", action="extend", type=values.zone, default=[], metavar="[BROKER=]ZONE",
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


def add_full_flag(parser: argparse.ArgumentParser) -> None:
    """The flag that makes a run begin anew."""
    parser.add_argument(
        "--full",
        action="store_true",
        help="read all files again and compute all tables anew (default: read what is new since the last run, "
        "and compute nothing if there is nothing new)",
    )


def reading_parser(job: str, description: str, examples: Sequence[str]) -> argparse.ArgumentParser:
    """A parser of a job that reads logs and writes tables."""
    parser = job_parser(job, description, examples)
    add_input_flags(parser)
    add_full_flag(parser)
    add_warehouse_flags(parser)
    add_output_flags(parser)
    add_watch_flags(parser)
    return parser


def only_recording(root: str) -> argparse.Namespace:
    """Values of the input flags for one folder, for a job without these flags."""
    parser = argparse.ArgumentParser()
    add_input_flags(parser)
    return parser.parse_args(["--recording", root])


def add_warehouse_flags(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """Flags that say where the tables are, and how to work on them."""
    group = add_place_flags(parser, default)
    group.add_argument(
        "--topic",
        nargs="+",
        action="extend",
        type=values.pattern,
        default=[],
        metavar="PATTERN",
        help="replay only topics whose whole name matches",
    )
    group.add_argument(
        "--from",
        dest="from_",
        type=values.time,
        metavar="TIME",
        help="keep timelines from here on, as 2025-03-01T10:00 (UTC, or with an offset)",
    )
    group.add_argument("--to", type=values.time, metavar="TIME", help="keep timelines up to here")
    group.add_argument(
        "--expectations",
        type=Path,
        metavar="FILE",
        help="severities, thresholds and expectations of one's own, other than conf/expectations.toml "
        "(docs/quality.md)",
    )


def add_place_flags(parser: argparse.ArgumentParser, default: str | None = None) -> argparse._ArgumentGroup:
    """Flags that say where the tables are; return the group of those that say how to work on them."""
    group = parser.add_argument_group("where the tables are")
    group.add_argument(
        "--warehouse", metavar="DIR", default=default, required=default is None,
        help=f"folder or URI of the tables{f' (default: {default})' if default else ''}",
    )  # fmt: skip
    group = parser.add_argument_group("how")
    group.add_argument(
        "--wait",
        type=values.seconds,
        default=0.0,
        metavar="SECONDS",
        help="wait so long if another run works on the recording (default: not at all: a run ends with exit code 5)",
    )
    group.add_argument("--settings", type=Path, metavar="FILE", help="settings other than conf/tidemark.toml")
    group.add_argument("--dry-run", action="store_true", help="say what would be read and written, and do nothing")
    return group


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    """Flags that say what to print, and how findings show in the exit code."""
    add_print_flags(parser).add_argument(
        "--fail-on-loss", action="store_true", help="exit with 4 if records were lost, or the logs cannot tell"
    )


def add_print_flags(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Flags that say what to print; return their group."""
    group = parser.add_argument_group("what to print")
    group.add_argument(
        "--json", action="store_true", help="one JSON object on standard output instead of text, whatever happens"
    )
    group.add_argument(
        "--log-format",
        choices=("text", "json"),
        help="log to standard error, one line per event, as key=value or as JSON, with time, run id, recording and "
        "step (default: progress for people, and nothing with --json)",
    )
    group.add_argument("--quiet", action="store_true", help="no progress: log only warnings and errors")
    return group


def add_watch_flags(parser: argparse.ArgumentParser) -> None:
    """Flags that say who is told of a run."""
    group = parser.add_argument_group("who is told (docs/monitoring.md)")
    group.add_argument(
        "--metrics-file",
        type=Path,
        metavar="PATH",
        help="write the run's numbers there as OpenMetrics text, as for node_exporter's textfile collector",
    )
    group.add_argument(
        "--on-incident",
        metavar="COMMAND",
        help="run this shell command if the run finds incidents that none before had found, or revises or withdraws "
        "some that one had; it reads them as JSON",
    )
    group.add_argument(
        "--webhook",
        type=values.url,
        metavar="URL",
        default=os.environ.get("TIDEMARK_WEBHOOK") or None,
        help="send the same JSON there by POST; a URL that is a secret goes into the environment variable "
        "TIDEMARK_WEBHOOK, as others can read command lines",
    )
    group.add_argument(
        "--tell-of",
        choices=("new", "changed", "all"),
        default="changed",
        help="tell them of new incidents only; or of those, too, that were withdrawn, or whose severity or mechanism "
        "changed, or that became surer (default: changed); or of all that was revised, as an incident that grew",
    )


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
        logs, segments = values.by_broker(args.logs), values.by_broker(args.segments)
        return [lambda: from_paths(args.recording_id, logs, metadata=args.metadata, segments=segments, **told)]
    return [lambda root=root: discover(root, recording_id=args.recording_id, **told) for root in args.recording]  # type: ignore[misc]


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Settings from the file, and limits from the flags. Raises InputError for an unknown or invalid setting."""
    path, found = args.settings or SETTINGS_FILE, _read(args.settings, SETTINGS_FILE)
    retention = found.get("retention", {})
    if not isinstance(retention, dict):
        message = f"retention is {retention!r}, and should be a section: [retention]"
        raise InputError(message, source=str(path))
    _check({name: value for name, value in found.items() if name != "retention"}, _SETTINGS, "", path)
    _check(retention, _RETENTION, "retention.", path)
    narrow = {"topics": getattr(args, "topic", None) or None}
    narrow |= {name: getattr(args, flag, None) for name, flag in (("from", "from_"), ("to", "to"))}
    full = {"full": True} if getattr(args, "full", False) else {}
    narrow["expectations"] = _expectations(args) or None
    return {**found, **full, **{name: value for name, value in narrow.items() if value is not None}}


def _expectations(args: argparse.Namespace) -> dict[str, Any]:
    """What the expectations file says, once it is known to be understood."""
    named = getattr(args, "expectations", None)
    said = _read(named, EXPECTATIONS_FILE)
    if said:  # else nobody waits for Great Expectations to be imported
        from pipelines.expectations.suites import all_rules

        all_rules(said=said, source=str(named or EXPECTATIONS_FILE))
    return said


def _read(named: Path | None, default: Path) -> dict[str, Any]:
    """Return what stands in a file of TOML: the one that is named, else ours."""
    path = named or default
    if named is None and not path.exists():  # a job that was shipped to a cluster alone has no conf/
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(str(error), source=str(path)) from error


def _check(found: dict[str, Any], least: dict[str, int], section: str, path: Path) -> None:
    for name, value in found.items():
        if name not in least:
            why = "; all other rows stay, since later runs make theirs of them" if section else ""
            message = f"there is no setting '{section}{name}': {', '.join(least)}{why}"
            raise InputError(message, source=str(path))
        if type(value) is not int or value < least[name]:
            message = f"{section}{name} is {value!r}, and should be a whole number, {least[name]} or more"
            raise InputError(message, source=str(path))
