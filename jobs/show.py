"""Answers what an operator asks of the tables, one thing at a time: an incident, a partition, a record, a broker.

How to start it (no Spark is involved, and no JVM):

    ./spark-submit.sh show incident|partition|record|broker [NAME] --warehouse DIR
    python jobs/show.py incident|partition|record|broker [NAME] --warehouse DIR
"""

from __future__ import annotations

import json
import sys

from jobs import endings
from jobs.showing.questions import parser
from schemas.errors import InputError


def main() -> int:
    """Parse the arguments, look it up, and print it."""
    args = parser().parse_args()
    if args.what == "partition" and args.at and args.around is not None:
        message = "--at and --around both name a moment: give one of them"
        raise InputError(message)
    if args.what == "partition" and args.steps < 0:
        message = f"--steps is {args.steps}, and should be 0 or more"
        raise InputError(message)
    if args.what == "broker" and not args.name.isdecimal():
        message = f"'{args.name}' should be a broker's id, as 2"
        raise InputError(message)
    from jobs.showing.finding import as_json, found_in, tables_of

    tables, about = tables_of(args)
    kind, found = found_in(tables, args)
    if args.json:
        print(json.dumps({**about, "what": kind, **found}, indent=2, default=as_json))
        return endings.DONE
    from jobs.showing import answers
    from jobs.terminal import has_colour, width
    from pipelines.stages.screen import Screen

    screen = Screen(width(), colour=has_colour())
    getattr(answers, kind)(screen, {**about, **found})
    print(screen.text())
    return endings.DONE


if __name__ == "__main__":
    sys.exit(endings.guarded(main))
