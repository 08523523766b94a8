"""One stage: parse a recording's files into facts, and order them into replication_events.

How to start it:

    ./spark-submit.sh ingest --recording DIR... --warehouse DIR
    spark-submit --properties-file conf/spark-defaults.conf jobs/ingest.py --recording DIR... --warehouse DIR
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from jobs import cli, endings, stage_jobs

if TYPE_CHECKING:
    import argparse

DESCRIPTION = (
    "Parses logs and dumps into facts, and puts them into replay order: facts, rejected_lines, replication_events."
)
EXAMPLES = (
    "--recording /evidence/2025-03-01 --warehouse /lake/tidemark",
    "--logs 1=/var/log/kafka-1 --time-zone Europe/Berlin --recording-id prod --warehouse /lake/tidemark",
)


def parser() -> argparse.ArgumentParser:
    """Return the job's parser."""
    return cli.reading_parser("ingest", DESCRIPTION, EXAMPLES)


def main() -> int:
    """Parse the arguments, run the stages, and say how it ended."""
    return stage_jobs.run_stages(parser().parse_args(), "ingest", ("ingest",))


if __name__ == "__main__":
    sys.exit(endings.guarded(main))
