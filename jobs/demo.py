"""The main job on the real recording that comes with Tidemark, and what to look at next.

How to start it:

    ./spark-submit.sh demo [--warehouse DIR]
    spark-submit --properties-file conf/spark-defaults.conf jobs/demo.py [--warehouse DIR]
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from jobs import cli, endings, stage_jobs

if TYPE_CHECKING:
    import argparse

RECORDING = Path(__file__).parent.parent / "tests" / "recordings" / "unclean-election"
STORY = """\
Three brokers, acks=all, min.insync.replicas=1. Two followers stood still and left the ISR; the leader went on alone
and was killed. The topic payments allows unclean elections: a follower that had missed everything since came to lead.
"""
NEXT = """
What to look at next:
  the incident page         {page} (open it in a browser)
  the losses as rows        {python} -c "{program}"
  the whole report          less {report}
  the same of your cluster  docs/recording.md, then ./spark-submit.sh run --recording DIR --warehouse DIR"""
PROGRAM = "import deltalake; print(deltalake.DeltaTable('{warehouse}/data_loss_incidents').to_pandas().T.to_string())"


def parser() -> argparse.ArgumentParser:
    """Return the job's parser."""
    found = cli.job_parser(
        "demo",
        "Runs the whole of Tidemark on a real recording of a cluster that lost data.",
        ("", "--warehouse /tmp/demo"),
    )
    cli.add_warehouse_flags(found, default="tidemark-demo")
    cli.add_output_flags(found)
    cli.add_watch_flags(found)
    return found


def main() -> int:
    """Run every stage on the bundled recording."""
    args = parser().parse_args(namespace=cli.only_recording(str(RECORDING)))
    if not args.json:
        print(STORY, file=sys.stderr)
    code = stage_jobs.run_stages(args, "demo", ("ingest", "replay", "validate", "report"))
    if not args.json and not args.dry_run and code != endings.FAILED:
        warehouse = str(Path(args.warehouse).absolute())
        report, page = (shlex.quote(f"{warehouse}/reports/{RECORDING.name}.{suffix}") for suffix in ("md", "html"))
        program = PROGRAM.format(warehouse=warehouse)
        print(NEXT.format(python=shlex.quote(sys.executable), program=program, report=report, page=page))
    return code


if __name__ == "__main__":
    sys.exit(endings.guarded(main))
