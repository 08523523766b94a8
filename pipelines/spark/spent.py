"""What work cost so far: tasks as Spark counts them, and CPU seconds of the processes that we can look at.

Spark counts the CPU of its own task threads on every executor, but not that of its Python workers, in which most of our
work is done. Those are looked at where they run on this machine, so with a local master only. What cannot be known is
left out and not guessed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TICKS: Final = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PROCESSES: Final = Path("/proc")


class Tasks(NamedTuple):
    """Tasks of Spark stages: how many ran, how many attempts failed, their seconds, and the CPU of the JVM's part."""

    tasks: int
    failed_tasks: int
    task_seconds: float
    task_cpu_seconds: float


def last_stage(spark: SparkSession) -> int:
    """Return the number of the newest Spark stage, -1 if there was none."""
    stages = _stages(spark)
    return int(stages.apply(0).stageId()) if stages.size() else -1


def tasks_since(spark: SparkSession, stage: int) -> Tasks:
    """Return the tasks of all Spark stages after that one. Spark keeps the newest thousand stages."""
    # Spark counts in a thread of its own; without waiting the last tasks would be missing.
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # noqa: SLF001 - not in Python's API
    stages = _stages(spark)
    tasks, failed, milliseconds, cpu = 0, 0, 0, 0
    for place in range(stages.size()):
        one = stages.apply(place)
        if one.stageId() <= stage:  # the newest come first
            break
        done = one.numCompleteTasks()
        if not done and not one.numFailedTasks():  # skipped: its result was there
            continue
        tasks += done
        failed += one.numFailedTasks()
        milliseconds += one.executorRunTime()
        cpu += one.executorCpuTime()
    return Tasks(tasks, failed, round(milliseconds / 1e3, 3), round(cpu / 1e9, 3))


def tasks_in_hand(spark: SparkSession) -> tuple[int, int]:
    """Return how many tasks of the Spark stages that run now are done, and how many there are."""
    tracker = spark.sparkContext.statusTracker()
    infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    found = [info for info in infos if info is not None]
    return sum(info.numCompletedTasks for info in found), sum(info.numTasks for info in found)


def cpu_seconds(spark: SparkSession) -> dict[str, float]:
    """Return the CPU seconds so far of the driver's Python, its JVM and, with a local master, the Python workers."""
    found = {"driver": time.process_time()}
    context: Any = spark.sparkContext
    process = context._jvm.java.lang.ProcessHandle.current()  # noqa: SLF001 - no public way to ask for a class
    used = process.info().totalCpuDuration()
    if used.isPresent():
        found["jvm"] = used.get().toNanos() / 1e9
    if context._jsc.isLocal() and (_PROCESSES / "self" / "stat").exists():  # noqa: SLF001 - as above
        found["python_workers"] = cpu_below(int(process.pid()))
    return found


def cpu_below(root: int) -> float:
    """Return the CPU seconds of all processes below that one except this one, with those that they have seen end."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for folder in _PROCESSES.iterdir():
        if folder.name.isdecimal():
            try:
                text = (folder / "stat").read_bytes()
            except OSError:  # it has ended
                continue
            fields = text[text.rindex(b")") + 2 :].split()  # the name before it may hold spaces
            parents[int(folder.name)] = int(fields[1])
            used[int(folder.name)] = sum(int(one) for one in fields[11:15]) / _TICKS
    below, own = {root}, os.getpid()
    grown = True
    while grown:
        more = {one for one, parent in parents.items() if parent in below and one not in below and one != own}
        below |= more
        grown = bool(more)
    return sum(used.get(one, 0.0) for one in below - {root})


def _stages(spark: SparkSession) -> Any:  # noqa: ANN401 - a Scala sequence
    """Return what Spark keeps of its stages, newest first: it does so without its user interface, too."""
    store = spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001 - as above
    defaults = (getattr(store, f"stageList$default${place}")() for place in (2, 3, 4, 5))
    return store.stageList(None, *defaults)
