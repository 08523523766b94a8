"""Keeps a warehouse small and quick: lets go of what nothing is made of, and puts small files together.

How to start it:

    ./spark-submit.sh maintain --warehouse DIR
    spark-submit --properties-file conf/spark-defaults.conf jobs/maintain.py --warehouse DIR
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from jobs import cli, endings, upkeep_text

if TYPE_CHECKING:
    import argparse

    from pipelines.stages.upkeep import Outcome

DESCRIPTION = """\
Keeps a warehouse small and quick, for example once a week. Findings and their evidence stay as they are.

  thin      old rejected lines, results of older validations and states that no run can go on from are let go
            ([retention] in conf/tidemark.toml says how old)
  compact   small files that follow each other in time become few, in the order that queries ask for
  vacuum    files that no version of the last days needs are deleted, and what dead runs had staged

Each recording is tended as a run of its own, and readers go over to what that run leaves. A recording that a run works
on, or whose last run did not come to its end, is left as it is and named."""
EXAMPLES = (
    "--warehouse /lake/tidemark --dry-run",
    "--warehouse /lake/tidemark --json",
    "--warehouse s3a://lake/tidemark --settings upkeep.toml -- --master yarn",
)
EXIT_CODES = "exit codes: 0 done (recordings that were left as they are are named); 1 failed; 2 bad usage or input."


def parser() -> argparse.ArgumentParser:
    """Return the job's parser."""
    cli.add_place_flags(found := cli.job_parser("maintain", DESCRIPTION, EXAMPLES, EXIT_CODES))
    cli.add_print_flags(found)
    return found


def main() -> int:
    """Parse the arguments, tend the warehouse, and say what came of it."""
    args = parser().parse_args()
    settings = cli.settings(args)
    from jobs.watching import logs
    from pipelines.spark.session import spark_session
    from pipelines.spark.standard_error import standard_error
    from pipelines.stages.upkeep import maintain, planned

    spark = spark_session("tidemark maintain")
    logs.begin(standard_error(spark), args.log_format, quiet=args.quiet, as_json=args.json)
    if args.dry_run:
        upkeep = planned(spark, args.warehouse, settings)
    else:
        upkeep = maintain(spark, args.warehouse, settings, log, args.wait)
    failures = {one.recording_id: endings.failure_of(one.error) for one in upkeep.outcomes if one.error}
    code = endings.worst([failure.exit_code for failure in failures.values()])
    if args.json:
        recordings = [upkeep_text.told(one, failures.get(one.recording_id)) for one in upkeep.outcomes]
        print(json.dumps({"recordings": recordings, **upkeep.as_dict(), "exit_code": code}, indent=2))
    else:
        print("\n".join(upkeep_text.lines(upkeep, failures)))
    return code


def log(outcome: Outcome) -> None:
    """Say at once that a recording was left as it is."""
    if outcome.skipped:
        about = {"event": "skipped", "recording_id": outcome.recording_id}
        endings.LOG.warning(f"{outcome.recording_id}: {outcome.skipped}", extra={"told": about})


if __name__ == "__main__":
    sys.exit(endings.guarded(main))
