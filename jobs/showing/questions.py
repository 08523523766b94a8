"""What can be asked of `show`: its parser, with a part of its own for each kind of question."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final, NamedTuple

from jobs import cli, values

if TYPE_CHECKING:
    from collections.abc import Sequence

DESCRIPTION: Final = (
    "Answers what one asks when a report has said that something was lost: how an incident came about, what state a\n"
    "partition was in at any moment, what became of a record, what a broker did. Reads the tables that the last\n"
    "complete run left, without Spark."
)
EXAMPLES: Final = (
    "incident --warehouse /lake/tidemark",
    "incident fff3134e --warehouse /lake/tidemark",
    "partition orders-0 --at 2025-03-01T10:00:05 --warehouse /lake/tidemark",
    "record orders-0@1234 --warehouse /lake/tidemark --recording-id prod --json",
    "broker 2 --warehouse /lake/tidemark",
)
EXIT_CODES: Final = (
    "exit codes: 0 done; 1 failed; 2 bad usage, or the tables know nothing of that name (it is said what there is).\n"
    "docs/show.md explains each answer."
)


class Question(NamedTuple):
    """One thing that can be asked for."""

    metavar: str
    name_help: str
    is_list: bool  # whether a list is the answer where no name is given
    summary: str
    description: str
    examples: Sequence[str]


WHAT: Final = {
    "incident": Question(
        metavar="ID",
        name_help="an incident's id or the beginning of it (default: list all incidents)",
        is_list=True,
        summary="one loss, from its causes to its cure",
        description="One loss: what was lost, how sure that is, what led to it with the lines that say so, and what\n"
        "would have kept the records.",
        examples=("--warehouse /lake/tidemark", "fff3134e --warehouse /lake/tidemark"),
    ),
    "partition": Question(
        metavar="NAME",
        name_help="topic and partition as orders-0; orders-0#1: its second incarnation (default: list all partitions)",
        is_list=True,
        summary="a partition's replicas at a moment, and what happened",
        description="The state of every replica (role, log end, high watermark, ISR, leader epoch) at its end or at a\n"
        "moment, and what happened: its milestones, or step by step around the moment, each with its source line.",
        examples=(
            "orders-0 --warehouse /lake/tidemark",
            "orders-0 --at 2025-03-01T10:00:05 --warehouse /lake/tidemark",
            "orders-0 --around 15449 --steps 30 --warehouse /lake/tidemark",
        ),
    ),
    "record": Question(
        metavar="NAME",
        name_help="topic, partition and offset as orders-0@1234",
        is_list=False,
        summary="what became of a record",
        description="The fate of a record: who appended it in which leader epoch, what its producer was told, which\n"
        "replicas took it and when, when it was committed, who read it, and whether it is there, lost, cut or\n"
        "removed. If several records were at that offset one after the other, each is told.",
        examples=("orders-0@1234 --warehouse /lake/tidemark", "'orders-0#1@7' --warehouse /lake/tidemark"),
    ),
    "broker": Question(
        metavar="ID",
        name_help="a broker's id",
        is_list=False,
        summary="what a broker did, and its part in losses",
        description="What a broker did: for which times there are logs of it, when it started, was fenced or shut\n"
        "down, what it led, when it was out of the ISR, what it cut from its logs, and its part in incidents.",
        examples=("2 --warehouse /lake/tidemark",),
    ),
}


def parser() -> argparse.ArgumentParser:
    """Return the job's parser."""
    top = cli.job_parser("show", DESCRIPTION, EXAMPLES, EXIT_CODES)
    jobs = top.add_subparsers(dest="what", required=True, metavar="WHAT", title="what to show")
    for what, asked in WHAT.items():
        shown = "\n".join(f"  ./spark-submit.sh show {what} {example}" for example in asked.examples)
        sub = jobs.add_parser(
            what,
            help=asked.summary,
            description=asked.description,
            epilog=f"examples:\n{shown}\n\n{EXIT_CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        sub.add_argument("name", metavar=asked.metavar, help=asked.name_help, nargs="?" if asked.is_list else None)
        if what == "partition":
            _add_moment_flags(sub)
        group = sub.add_argument_group("where the tables are")
        group.add_argument("--warehouse", metavar="DIR", required=True, help="folder or URI of the tables")
        group.add_argument(
            "--recording-id", metavar="ID", help="which recording (default: the only one in the warehouse)"
        )
        sub.add_argument_group("what to print").add_argument(
            "--json", action="store_true", help="one JSON object on standard output instead of text, whatever happens"
        )
    return top


def _add_moment_flags(sub: argparse.ArgumentParser) -> None:
    group = sub.add_argument_group("when (default: at the end of the recording, with the milestones up to there)")
    group.add_argument(
        "--at", type=values.time, metavar="TIME", help="after all that happened up to then, as 2025-03-01T10:00 (UTC)"
    )
    group.add_argument(
        "--around", type=int, metavar="SEQ", help="after the event of this number in the partition's order"
    )
    group.add_argument(
        "--steps", type=int, metavar="N", default=12, help="tell so many events before and after (default: 12)"
    )
