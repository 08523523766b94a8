"""One stage: Great Expectations over the tables, results in expectation_results and Data Docs.

How to start it:

    ./spark-submit.sh validate --warehouse DIR [--recording-id ID]
    spark-submit --properties-file conf/spark-defaults.conf jobs/validate.py --warehouse DIR [--recording-id ID]
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from jobs import cli, endings, stage_jobs

if TYPE_CHECKING:
    import argparse

DESCRIPTION = "Checks the tables of a warehouse. An error-level expectation that fails makes the exit code 3."
EXAMPLES = (
    "--warehouse /lake/tidemark",
    "--warehouse /lake/tidemark --recording-id prod --json",
)


def parser() -> argparse.ArgumentParser:
    """Return the job's parser."""
    found = cli.job_parser("validate", DESCRIPTION, EXAMPLES)
    cli.add_input_flags(found)
    cli.add_warehouse_flags(found)
    cli.add_output_flags(found)
    cli.add_watch_flags(found)
    return found


def main() -> int:
    """Parse the arguments, run the stages, and say how it ended."""
    return stage_jobs.run_stages(parser().parse_args(), "validate", ("validate",))


if __name__ == "__main__":
    sys.exit(endings.guarded(main))
