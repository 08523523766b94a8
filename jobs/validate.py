"""One stage: Great Expectations over the tables, results in expectation_results and Data Docs.

How to start it:

    ./spark-submit.sh validate --warehouse DIR [--recording-id ID]
    spark-submit --properties-file conf/spark-defaults.conf jobs/validate.py --warehouse DIR [--recording-id ID]
"""

from __future__ import annotations

import sys

from jobs import cli, endings, stage_jobs

DESCRIPTION = "Checks the tables of a warehouse. An error-level expectation that fails makes the exit code 3."
EXAMPLES = (
    "--warehouse /lake/tidemark",
    "--warehouse /lake/tidemark --recording-id prod --json",
)


def main() -> int:
    """Parse the arguments, run the stages, and say how it ended."""
    parser = cli.job_parser("validate", DESCRIPTION, EXAMPLES)
    cli.add_input_flags(parser)
    cli.add_warehouse_flags(parser)
    cli.add_output_flags(parser)
    cli.add_watch_flags(parser)
    return stage_jobs.run_stages(parser.parse_args(), "validate", ("validate",))


if __name__ == "__main__":
    sys.exit(endings.guarded(main))
