"""What a run is doing: each step is logged as it starts and ends, and measured; the sums go to `runs`.

The log is Python's own, under the name `tidemark`. Each record carries `told`, a dict of what happened, for handlers
that write it as fields; its message says the same in words.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from pipelines.spark import counted as counting
from pipelines.spark.spent import cpu_seconds, last_stage, tasks_in_hand, tasks_since

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

LOG: Final = logging.getLogger("tidemark")
LOOK_EVERY_S: Final = 1.0


class Watch:
    """Watches one run; `costs` has for each step its seconds, tasks and CPU seconds."""

    def __init__(self, spark: SparkSession, recording_id: str, run_id: str) -> None:
        """Nothing has happened yet."""
        self.spark = spark
        self.about: dict[str, Any] = {"run_id": run_id, "recording_id": recording_id}
        self.costs: dict[str, dict[str, Any]] = {}

    def log(self, event: str, message: str, level: int = logging.INFO, **told: Any) -> None:  # noqa: ANN401 - any plain value
        """Log an event of this run."""
        LOG.log(level, message, extra={"told": {"event": event, **self.about, **told}})

    @contextmanager
    def step(self, name: str) -> Iterator[dict[str, Any]]:
        """Watch a step; what the caller puts into the dict is logged as its counts."""
        counts: dict[str, Any] = {}
        self.about["step"] = name
        self.log("step_started", f"{name} ...")
        stage, cpu, start = last_stage(self.spark), cpu_seconds(self.spark), time.monotonic()
        over = threading.Event()
        watcher = threading.Thread(target=self._look, args=(over, start), name="tidemark-progress", daemon=True)
        if LOG.isEnabledFor(logging.INFO):
            watcher.start()
        failed = True
        try:
            yield counts
            failed = False
        finally:
            seconds = round(time.monotonic() - start, 3)
            over.set()
            counting.over()
            if watcher.is_alive():
                watcher.join()
            self.costs[name] = {"seconds": seconds}
            with suppress(Exception):  # the JVM may be gone; then its end is the news
                self.costs[name] |= tasks_since(self.spark, stage)._asdict()
                now = cpu_seconds(self.spark)
                self.costs[name]["cpu_seconds"] = {
                    who: round(max(0.0, used - cpu[who]), 3) for who, used in now.items() if who in cpu
                }
            told = {**self.costs[name], "counts": counts, "failed": failed}
            words = ", ".join(f"{value:,} {unit.replace('_', ' ')}" for unit, value in counts.items())
            took = f"failed after {seconds:.1f} s" if failed else f"{seconds:7.1f} s  {words}".rstrip()
            self.log("step_ended", f"{name:<10}{took}", **told)
            del self.about["step"]

    def _look(self, over: threading.Event, start: float) -> None:
        """Log how far the step is, again and again."""
        before, began = (0, 0), start  # of the part in hand: a step may run several Spark stages
        while not over.wait(LOOK_EVERY_S):
            with suppress(Exception):  # as above
                done, total, unit = self._in_hand()
                now = time.monotonic()
                if total != before[1] or done < before[0]:
                    began = now
                before = done, total
                if total and not over.is_set():
                    left = seconds_left(done, total, now - began)
                    words = progress_words(self.about["step"], done, total, unit, left)
                    far: dict[str, Any] = {"done": done, "total": total, "unit": unit, "seconds_left": left}
                    self.log("progress", words, seconds=round(now - start, 1), **far)

    def _in_hand(self) -> tuple[int, int, str]:
        """Return how much is done, of how much, in which unit: tasks, where nothing else is counted."""
        counted = counting.in_hand()
        if counted and counted.done.value < counted.total:
            return counted.done.value, counted.total, counted.unit
        return (*tasks_in_hand(self.spark), "tasks")


def seconds_left(done: int, total: int, seconds: float) -> int | None:
    """Return about how many seconds are left at the pace so far; None: it is too early to tell."""
    if done * 20 < total or done <= 0:
        return None
    return max(0, round(seconds * (total - done) / done))


def progress_words(step: str, done: int, total: int, unit: str, left: int | None) -> str:
    """Return in words how far a step is."""
    if unit == "bytes":
        amount = f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
    else:
        amount = f"{done:,} of {total:,} {unit}"
    return f"{step:<10} {amount}{'' if left is None else f', about {left:,} s left'}"
