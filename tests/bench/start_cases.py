"""What a start costs before any work: interpreter, JVM, session, compiled rules; and the demo as a whole."""

from __future__ import annotations

import os
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
from workbench import ID, Line

if TYPE_CHECKING:
    from workbench import Bench

ROOT = Path(__file__).parents[2]
SESSION = "from pipelines.spark.session import spark_session; s = spark_session('start'); s.range(1).count(); s.stop()"
FOLD = "import replay_cases as r, pyarrow.parquet as q; r.fold_alone(q.read_table({place!r}))"


def run(command: list[str], root: Path = ROOT, **changed: str) -> Cost:
    """A command in a process of its own, not as a part of this session, with the code that lies there."""
    ours = f"{root / 'tests' / 'bench'}:{root}"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")}
    inherited["PYTHONPATH"] = ours  # what spark-submit put there is not a new user's
    before = os.times()
    subprocess.run(command, env={**inherited, **changed}, cwd=root, check=True, capture_output=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(after.elapsed - before.elapsed, 0, cpu, 0, 0)


def submitted(folder: Path, warehouse: Path, root: Path = ROOT, *flags: str) -> Cost:
    """`run` on a recording as a `spark-submit` of its own, as a scheduler starts it, with the code that lies there."""
    submit = [f"{os.environ['SPARK_HOME']}/bin/spark-submit", "--properties-file", f"{root}/conf/spark-defaults.conf"]
    told = ["--recording", str(folder), "--recording-id", ID, "--warehouse", str(warehouse), *flags]
    return run([*submit, f"{root}/jobs/run.py", *told], root, SPARK_CONF_DIR=f"{root}/conf")


def demo(warehouse: str, rules: str) -> Cost:
    """The demo, with its tables in this folder, and compiled rules in that."""
    return run([str(ROOT / "spark-submit.sh"), "demo", "--warehouse", warehouse], NUMBA_CACHE_DIR=rules)


def case_start(bench: Bench, events: int) -> list[Line]:
    """The demo's starts, and what they are made of; all CPU of a start stands in Python's column."""
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
    }
    costs = {}
    for name, step in steps.items():
        step()
        costs[name] = median(step() for _ in range(bench.rounds))
    with tempfile.TemporaryDirectory(prefix="tidemark-cold-") as place:
        costs["a first replay, nothing compiled"] = run(fold, NUMBA_CACHE_DIR=f"{place}/replay")
        costs["demo, first start, nothing compiled"] = demo(f"{place}/first", f"{place}/rules")
        second = [demo(f"{place}/{number}", f"{place}/rules") for number in range(bench.rounds)]
        costs["demo, second start"] = median(second)
        costs["demo, again, nothing new"] = demo(f"{place}/first", f"{place}/rules")
    whole = costs["demo, second start"].wall
    return [Line("cold start", name, cost.wall / whole, "", cost) for name, cost in costs.items()]
