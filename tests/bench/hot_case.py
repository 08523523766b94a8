"""One partition that has all events: how much memory a worker of each step takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from made_shape import Shape
from measure import Cost, Meter
from run_case import STAGES
from workbench import ID, Line

from pipelines.recording.recording import discover
from pipelines.stages.run import execute
from pipelines.warehouse.delta_io import Warehouse

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
    costs: dict[str, Cost] = {}
    meters: dict[str, Meter] = {}

    def progress(step: str, seconds: float | None) -> None:
        if seconds is None:
            meters[step] = Meter()
        else:
            costs[step] = meters[step].cost()

    place = str(bench.fresh("hot-out"))
    settings = {"driver_facts": 0}  # or the driver would work on few events by itself
    execute(bench.spark, place, ID, discover(str(folder), recording_id=ID), STAGES, settings, progress)
    count = Warehouse(bench.spark, place).read("replication_events", ID).count()
    return [
        Line(
            "one hot partition, MB of a worker", step, cost.python_peak / BAR_MB, "<= 1", cost, count / cost.wall,
            note=f"{count:,} events",
        )
        for step, cost in costs.items()
    ]  # fmt: skip
