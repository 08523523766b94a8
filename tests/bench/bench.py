"""The benchmark: ratios, measured side by side in one run, as a table and as JSON.

./spark-submit.sh bench [CASE...] [--events N] [--rounds N] [--commit COMMIT] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from commit_case import case_commit
from hot_case import case_hot
from hourly_case import case_hourly
from ingest_cases import case_idle, case_order, case_parse
from limits_case import case_limits
from logs_case import case_logs
from quiet_case import case_quiet
from replay_cases import (
    case_growth,
    case_kernel,
    case_partitions,
    case_peers,
    case_replay,
    case_sizes,
    case_skew,
)
from run_case import case_run
from start_cases import case_start
from workbench import Bench

from pipelines.spark.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from workbench import Line

CASES: dict[str, Callable[[Bench, int], list[Line]]] = {
    "run": case_run,
    "kernel": case_kernel,
    "replay": case_replay,
    "parse": case_parse,
    "order": case_order,
    "idle": case_idle,
    "peers": case_peers,
    "logs": case_logs,
    "limits": case_limits,
    "commit": case_commit,
    "growth": case_growth,
    "skew": case_skew,
    "partitions": case_partitions,
    "sizes": case_sizes,
    "start": case_start,
    "hourly": case_hourly,
    "quiet": case_quiet,
    "hot": case_hot,
}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"which: {', '.join(CASES)} (default: all)")
    parser.add_argument("--events", type=int, default=1_000_000, help="events of a case (default: 1,000,000)")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds after the warm-up (default: 3)")
    parser.add_argument(
        "--work", type=Path, help="where made input is kept for the next time (default: a temporary folder)"
    )
    parser.add_argument(
        "--commit", default="HEAD~1", help="what the case `commit` compares this code with (default: HEAD~1)"
    )
    parser.add_argument("--out", type=Path, help="write the rows as JSON as well")
    asked = parser.parse_args()
    unknown = [name for name in asked.cases if name not in CASES]
    if unknown:
        parser.error(f"no case {unknown[0]!r}: {', '.join(CASES)}")
    return asked


def markdown(lines: list[Line]) -> str:
    """The table."""
    out = [
        "| measured | contender | ratio | bar | wall s | JVM CPU s | Python CPU s | JVM MB | worker MB | rate | note |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in lines:
        cost = one.cost
        ratio = "" if one.ratio is None else f"{one.ratio:.2f}"
        rate = "" if one.per_second is None else f"{one.per_second:,.0f} {one.unit}"
        out.append(
            f"| {one.case} | {one.what} | {ratio} | {one.bar} | {cost.wall:.1f} | {cost.jvm_cpu:.1f} | "
            f"{cost.python_cpu:.1f} | {cost.jvm_peak:.0f} | {cost.python_peak:.0f} | {rate} | {one.note} |"
        )
    return "\n".join(out)


def main() -> None:
    """Run the cases, print the table."""
    asked = arguments()
    spark = spark_session("tidemark bench", {"spark.sql.shuffle.partitions": "8"})
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as place:
        bench = Bench(spark, asked.work or Path(place), asked.rounds, asked.commit)
        for name in asked.cases or CASES:
            print(f"... {name}", file=sys.stderr, flush=True)
            found = CASES[name](bench, asked.events)
            print(markdown(found), file=sys.stderr, flush=True)
            lines += found
    print(f"{asked.events:,} events, {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
          f"Spark {version('pyspark')}\n")  # fmt: skip
    print(markdown(lines))
    if asked.out:
        asked.out.write_text(json.dumps([asdict(one) for one in lines], indent=1) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
