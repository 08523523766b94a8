"""One partition that has all events: how much memory a worker takes in each step of two runs that follow each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hourly_case import arrive
from made_lines import START_MS
from made_shape import EVENTS_PER_BATCH, Shape
from run_case import costs_by_step, events_in
from workbench import Line

if TYPE_CHECKING:
    from workbench import Bench

BAR_MB = 512
SKEW = 0.98
RUN_WINDOWS = 3  # that a run adds, as docs/scheduling.md says of runs that follow each other


def case_hot(bench: Bench, events: int) -> list[Line]:
    """A run over half of a partition that one broker leads throughout, then one over all; the ratios: peak and bar.

    Each other broker leads a partition, too: one without any request would count as one whose lines are missing.
    """
    shape = Shape(events=events, partitions=3, skew=SKEW, elections=0, flaps=0)
    folder, arrived = bench.recording(shape), bench.fresh("hot-arrived")
    place = str(bench.fresh("hot-out"))
    long_ms = shape.events // EVENTS_PER_BATCH * shape.tick_ms
    lines = []
    for run, until_ms in (("half of it", START_MS + long_ms // 2), ("then all", None)):
        arrive(folder, arrived, until_ms)
        # Without the setting the driver would work on few events by itself.
        said = {"driver_facts": 0, "window_minutes": max(long_ms // (2 * RUN_WINDOWS * 60_000), 1)}
        costs = costs_by_step(bench, place, arrived, said)
        count = events_in(bench, place)
        lines += [
            Line(
                f"one hot partition, MB of a worker, {run}", step, cost.python_peak / BAR_MB, "<= 1", cost,
                count / cost.wall, note=f"{count:,} events",
            )
            for step, cost in costs.items()
        ]  # fmt: skip
    return lines
