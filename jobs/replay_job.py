"""One stage: fold replication_events into timelines, truncations, incidents and conformance.

How to start it:

    ./spark-submit.sh replay --warehouse DIR [--recording-id ID]
    spark-submit --properties-file conf/spark-defaults.conf jobs/replay_job.py --warehouse DIR [--recording-id ID]
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from jobs import cli, endings, stage_jobs

if TYPE_CHECKING:
    import argparse

DESCRIPTION = "Replays the events of a warehouse: of one recording, or of all that stand there."
EXAMPLES = (
    "--warehouse /lake/tidemark",
    "--warehouse /lake/tidemark --recording-id prod --topic payments orders-.*",
)


def parser() -> argparse.ArgumentParser:
    """Return the job's parser."""
    found = cli.job_parser("replay", DESCRIPTION, EXAMPLES)
    cli.add_input_flags(found)
    cli.add_warehouse_flags(found)
    cli.add_output_flags(found)
    cli.add_watch_flags(found)
    return found


def main() -> int:
    """Parse the arguments, run the stages, and say how it ended."""
    return stage_jobs.run_stages(parser().parse_args(), "replay", ("replay",))


if __name__ == "__main__":
    sys.exit(endings.guarded(main))
