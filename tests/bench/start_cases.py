"""What a start costs before any work: interpreter, JVM, session, compiled rules; and the demo as a whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from made_history import History
from made_shape import Shape
from measure import Cost, median
from workbench import Line

if TYPE_CHECKING:
    from workbench import Bench

ROOT = Path(__file__).parents[2]
SESSION = "from pipelines.spark.session import spark_session; s = spark_session('start'); s.range(1).count(); s.stop()"
FOLD = "import replay_cases as r, pyarrow.parquet as q; r.fold_alone(q.read_table({place!r}))"


def run(command: list[str], **changed: str) -> Cost:
    """A command in a process of its own, not as a part of this session."""
    ours = f"{ROOT / 'tests' / 'bench'}:{ROOT}"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")}
    inherited["PYTHONPATH"] = ours  # what spark-submit put there is not a new user's
    before = os.times()
    subprocess.run(command, env={**inherited, **changed}, cwd=ROOT, check=True, capture_output=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(after.elapsed - before.elapsed, 0, cpu, 0, 0)


def case_start(bench: Bench, events: int) -> list[Line]:
    """The demo's second start, and what it is made of; all CPU of a start stands in Python's column."""
    del events
    python = sys.executable
    kept = str(bench.place / "start")
    pq.write_table(pa.concat_tables(History(Shape(events=2_000, partitions=1), 0).tables()), kept)
    fold = [python, "-c", FOLD.format(place=kept)]
    steps = {
        "interpreter": lambda: run([python, "-c", "pass"]),
        "interpreter and our packages": lambda: run([python, "-c", "import pipelines.stages.run"]),
        "the same, a JVM and a session's first job": lambda: run([python, "-c", SESSION]),
        "a first replay, compiled before": lambda: run(fold),
        "demo, second start": lambda: run([str(ROOT / "spark-submit.sh"), "demo"]),
    }
    costs = {}
    for name, step in steps.items():
        step()
        costs[name] = median(step() for _ in range(bench.rounds))
    empty = tempfile.mkdtemp(prefix="tidemark-cold-")
    costs["a first replay, nothing compiled"] = run(fold, NUMBA_CACHE_DIR=empty)
    shutil.rmtree(empty, ignore_errors=True)
    whole = costs["demo, second start"].wall
    return [Line("cold start", name, cost.wall / whole, "", cost) for name, cost in costs.items()]
