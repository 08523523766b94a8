"""Gathers logs, dumps and checkpoints from brokers' folders into a recording; run again, it adds what is new.

How to start it (no Spark is involved, and no JVM but that of Kafka's own dump tool):

    ./spark-submit.sh collect --broker ID=FOLDER[,FOLDER..].. --into DIR [--kafka-home DIR] [--redact]
    python jobs/collect.py --broker ID=FOLDER[,FOLDER..].. --into DIR
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from jobs import cli, collect_flags, endings
from schemas.errors import InputError

if TYPE_CHECKING:
    import argparse

DESCRIPTION = (
    "Gathers what brokers left on their disks into a recording: logs, dumps of the metadata log and of telling\n"
    "segments, checkpoints, settings. It changes nothing where it reads, and takes only what is new when run again."
)
EXAMPLES = (
    "--broker 1=/var/log/kafka,/var/lib/kafka/data --into /evidence/prod --kafka-home /opt/kafka",
    "--broker 1=/mnt/kafka-1 2=/mnt/kafka-2 3=/mnt/kafka-3 --into /evidence/prod --topic 'payments.*' --redact",
    "--recording /evidence/prod --into /to-send/prod --redact",
)


def parser() -> argparse.ArgumentParser:
    """Return the job's parser."""
    found = cli.job_parser("collect", DESCRIPTION, EXAMPLES, collect_flags.EXIT_CODES)
    collect_flags.add(found)
    return found


def main() -> int:
    """Parse the arguments, gather, and say what came of it."""
    args = parser().parse_args()
    if bool(args.broker) == bool(args.recording):
        message = "say what to collect: --broker ID=FOLDER[,FOLDER..] for each broker, or --recording DIR to redact one"
        raise InputError(message)
    if args.recording and not args.redact:
        message = "--recording makes a redacted copy of a recording: give --redact with it"
        raise InputError(message)
    from pipelines.collecting.again import redacted_copy
    from pipelines.collecting.collector import Order, gather
    from pipelines.collecting.pseudonyms import Pseudonyms
    from pipelines.collecting.redaction import Redactor

    redactor = None
    if args.redact:
        redactor = Redactor(Pseudonyms.of_file(args.redact_key, redacts_topics=args.redact_topics))
    order = Order(
        into=args.into,
        brokers=collect_flags.by_broker(args.broker),
        kafka_home=args.kafka_home,
        dump_tool=args.dump_tool,
        topics=[re.compile(pattern) for pattern in args.topic],
        max_bytes=args.max_bytes,
        kafka_version=args.kafka_version,
        time_zones=dict(args.time_zone),
        redactor=redactor,
    )
    gathered = redacted_copy(Path(args.recording), order) if args.recording else gather(order)
    code = endings.BAD_INPUT if gathered.is_empty else endings.DONE
    if args.json:
        print(json.dumps({"into": str(args.into), **asdict(gathered), "exit_code": code}, indent=2))
    else:
        print("\n".join(gathered.lines(args.into)))
    return code


if __name__ == "__main__":
    sys.exit(endings.guarded(main))
