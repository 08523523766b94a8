"""A whole run, from files to report, as a scheduled job has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from made_shape import Shape
from measure import Meter
from workbench import ID, Line

from pipelines.recording.recording import discover
from pipelines.stages.run import execute
from pipelines.warehouse.delta_io import Warehouse

if TYPE_CHECKING:
    from measure import Cost
    from workbench import Bench

STAGES = ("ingest", "replay", "validate", "report")
BARS = {"validate": "<= 0.2"}


def case_run(bench: Bench, events: int) -> list[Line]:
    """What each step of one run takes of it. Once, and nothing apart for warming up: a scheduled job has no such."""
    folder = bench.recording(Shape(events=events // 2, partitions=60, elections=1))  # two rows of the table for each
    costs: dict[str, Cost] = {}
    meters: dict[str, Meter] = {}

    def progress(step: str, seconds: float | None) -> None:
        if seconds is None:
            meters[step] = Meter()
        else:
            costs[step] = meters[step].cost()

    place = str(bench.fresh("run-out"))
    whole = Meter()
    execute(bench.spark, place, ID, discover(str(folder), recording_id=ID), STAGES, {}, progress)
    costs["all of it"] = whole.cost()
    wall = costs["all of it"].wall
    count = Warehouse(bench.spark, place).read("replication_events", ID).count()
    return [
        Line(
            "a whole run, cold",
            step,
            cost.wall / wall,
            BARS.get(step, ""),
            cost,
            count / cost.wall,
            note=f"{count:,} events",
        )
        for step, cost in costs.items()
    ]
