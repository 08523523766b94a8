"""What lets a shell complete spark-submit.sh: made by shtab from the parsers of all jobs."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any, Final

import shtab

JOBS: Final = {  # and the modules that have their parsers
    "demo": ("demo", "a real recording, from logs to report"),
    "collect": ("collect", "make a recording of what brokers left"),
    "inspect": ("inspect_recording", "what is in a recording"),
    "run": ("run", "parse, order, replay, validate, report"),
    "ingest": ("ingest", "parse and order"),
    "replay": ("replay_job", "replay what was ingested"),
    "validate": ("validate", "check the tables"),
    "report": ("report", "what was lost"),
    "show": ("show", "an incident, a partition, a record, a broker"),
    "maintain": ("maintain", "keep the tables small"),
    "views": ("views", "tables and views for SQL and BI tools"),
    "completion": ("completion", "what lets the shell complete this"),
}
OTHERS: Final = {"tests": "every check of this repository", "bench": "costs, measured", "help": "the jobs"}
PATHS: Final = {"DIR": "directory", "FILE": "file", "PATH": "file"}  # what a flag's metavar says of its values


def script(shell: str) -> str:
    """Return the script for a shell."""
    top = whole()
    _complete_paths(top, {"directory": shtab.DIRECTORY, "file": shtab.FILE})
    return str(shtab.complete(top, shell))


def whole() -> argparse.ArgumentParser:
    """Return a parser of spark-submit.sh itself, with every job."""
    top = argparse.ArgumentParser(prog="spark-submit.sh", description="Replays Kafka's replication protocol.")
    jobs = top.add_subparsers(dest="job")
    for name, (module, summary) in JOBS.items():
        of_job: argparse.ArgumentParser = import_module(f"jobs.{module}").parser()
        jobs.add_parser(name, help=summary, parents=[of_job], add_help=False)
    for name, summary in OTHERS.items():
        jobs.add_parser(name, help=summary)
    return top


def _complete_paths(of: argparse.ArgumentParser, ways: dict[str, Any]) -> None:
    """Let values be completed that are paths, in a parser and in those of its jobs."""
    for action in of._actions:  # noqa: SLF001 - argparse has no other way to them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            for below in action.choices.values():
                _complete_paths(below, ways)
        elif isinstance(action.metavar, str) and action.metavar in PATHS:
            action.complete = ways[PATHS[action.metavar]]  # type: ignore[attr-defined]
