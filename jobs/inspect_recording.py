"""What a recording contains, and what it can therefore answer. Reads files, writes no table.

How to start it:

    ./spark-submit.sh inspect --recording DIR...
    spark-submit --properties-file conf/spark-defaults.conf jobs/inspect_recording.py --recording DIR...
"""

from __future__ import annotations

import json
import sys
from typing import Any

from jobs import cli, endings
from schemas.errors import InputError

DESCRIPTION = "Says which brokers, times and logs a recording holds, and what that can answer."
EXAMPLES = ("--recording /evidence/2025-03-01", "--recording /evidence/2025-03-01 --json")


def main() -> int:
    """Parse the arguments, look into each recording, and print what is there."""
    parser = cli.job_parser("inspect", DESCRIPTION, EXAMPLES)
    cli.add_input_flags(parser)
    cli.add_output_flags(parser)
    args = parser.parse_args()
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


def outline(finding: dict[str, Any], depth: int = 0) -> list[str]:
    """A nested finding as indented lines: names in words, lists of words on one line."""
    lines = []
    for name, value in finding.items():
        label = f"{'  ' * depth}{str(name).replace('_', ' ')}:"
        if isinstance(value, dict):
            lines += [label, *outline(value, depth + 1)]
        elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
            lines.append(label)
            for item in value:
                lines.append(f"{'  ' * (depth + 1)}- {', '.join(f'{key} {part}' for key, part in item.items())}")
        elif isinstance(value, list) and any(" " in str(item) for item in value):
            lines += [label, *(f"{'  ' * (depth + 1)}- {item}" for item in value)]
        else:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            lines.append(f"{label} {'-' if shown in (None, '') else shown}")
    return lines


if __name__ == "__main__":
    sys.exit(endings.guarded(main))
