"""The main job: parse, order, replay, validate and report recordings, in one Spark session.

How to start it:

    ./spark-submit.sh run --recording DIR... --warehouse DIR
    spark-submit --properties-file conf/spark-defaults.conf jobs/run.py --recording DIR... --warehouse DIR
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from jobs import cli, endings, stage_jobs

if TYPE_CHECKING:
    import argparse

DESCRIPTION = "Brings recordings in, replays them, checks the tables, and says what was lost."
EXAMPLES = (
    "--recording /evidence/2025-03-01 --warehouse /lake/tidemark",
    "--recording /evidence/* --warehouse /lake/tidemark --json --fail-on-loss",
    "--logs 1=/var/log/kafka-1 2=/var/log/kafka-2 --metadata dump.txt --recording-id prod --warehouse /lake/tidemark",
    "--recording DIR --warehouse s3a://lake/tidemark -- --master yarn --conf spark.sql.shuffle.partitions=200",
)


def parser() -> argparse.ArgumentParser:
    """Return the job's parser."""
    return cli.reading_parser("run", DESCRIPTION, EXAMPLES)


def main() -> int:
    """Parse the arguments, run the stages, and say how it ended."""
    return stage_jobs.run_stages(parser().parse_args(), "run", ("ingest", "replay", "validate", "report"))


if __name__ == "__main__":
    sys.exit(endings.guarded(main))
