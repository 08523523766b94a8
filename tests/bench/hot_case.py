"""One partition that has all events: how much memory a worker of each step takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from made_shape import Shape
from run_case import costs_by_step, events_in
from workbench import Line

if TYPE_CHECKING:
    from workbench import Bench

BAR_MB = 512
SKEW = 0.98


def case_hot(bench: Bench, events: int) -> list[Line]:
    """A whole run over a partition that one broker leads throughout; the ratio is that of the peak and the bar.

    Each other broker leads a partition, too: one without any request would count as one whose lines are missing.
    """
    shape = Shape(events=events, partitions=3, skew=SKEW, elections=0, flaps=0)
    folder = bench.recording(shape)
    place = str(bench.fresh("hot-out"))
    # Without the setting the driver would work on few events by itself.
    costs = costs_by_step(bench, place, folder, {"driver_facts": 0})
    count = events_in(bench, place)
    return [
        Line(
            "one hot partition, MB of a worker", step, cost.python_peak / BAR_MB, "<= 1", cost, count / cost.wall,
            note=f"{count:,} events",
        )
        for step, cost in costs.items()
    ]  # fmt: skip
