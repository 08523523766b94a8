"""One stage: what was lost, on the terminal, as JSON and as a Markdown file.

How to start it:

    ./spark-submit.sh report --warehouse DIR [--recording-id ID]
    spark-submit --properties-file conf/spark-defaults.conf jobs/report.py --warehouse DIR [--recording-id ID]
"""

from __future__ import annotations

import sys

from jobs import cli, endings, stage_jobs

DESCRIPTION = (
    "Says what the tables of a warehouse tell: what was lost, when, by which mechanism, and what would have kept it."
)
EXAMPLES = (
    "--warehouse /lake/tidemark",
    "--warehouse /lake/tidemark --recording-id prod --json",
)


def main() -> int:
    """Parse the arguments, run the stages, and say how it ended."""
    parser = cli.job_parser("report", DESCRIPTION, EXAMPLES)
    cli.add_input_flags(parser)
    cli.add_warehouse_flags(parser)
    cli.add_output_flags(parser)
    cli.add_watch_flags(parser)
    return stage_jobs.run_stages(parser.parse_args(), "report", ("report",))


if __name__ == "__main__":
    sys.exit(endings.guarded(main))
