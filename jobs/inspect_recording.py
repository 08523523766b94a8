"""What a recording contains, and what it can therefore answer. Reads files, writes no table.

How to start it:

    ./spark-submit.sh inspect --recording DIR...
    spark-submit --properties-file conf/spark-defaults.conf jobs/inspect_recording.py --recording DIR...
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from jobs import cli, endings
from jobs.showing.outline import outline
from schemas.errors import InputError

if TYPE_CHECKING:
    import argparse

DESCRIPTION = "Says which brokers, times and logs a recording holds, and what that can answer."
EXAMPLES = ("--recording /evidence/2025-03-01", "--recording /evidence/2025-03-01 --json")


def parser() -> argparse.ArgumentParser:
    """Return the job's parser."""
    found = cli.job_parser("inspect", DESCRIPTION, EXAMPLES)
    cli.add_input_flags(found)
    cli.add_output_flags(found)
    return found


def main() -> int:
    """Parse the arguments, look into each recording, and print what is there."""
    args = parser().parse_args()
    wanted = cli.recordings(args)
    if not wanted:
        message = "name what to look at: --recording DIR, or --logs BROKER=PATH"
        raise InputError(message)
    from pipelines.spark.session import spark_session
    from pipelines.stages.ingest import inspect

    spark = spark_session("tidemark inspect")
    codes, findings = [endings.DONE], []
    for find in wanted:
        try:
            recording = find()
            findings.append({"recording_id": recording.recording_id, **inspect(spark, recording)})
        except Exception as error:  # noqa: BLE001 - one recording's failure must not stop the others
            failure = endings.failure_of(error)
            codes.append(failure.exit_code)
            findings.append(failure.as_dict())
            if not args.json:
                failure.tell(as_json=False)
            continue
        if not args.json:
            print("\n".join(outline(findings[-1])))
    if args.json:
        print(json.dumps({"recordings": findings}, indent=2, default=str))
    return endings.worst(codes)


if __name__ == "__main__":
    sys.exit(endings.guarded(main))
