"""A whole run, from files to report, as a scheduled job has it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ingest_cases import from_json, shuffle_and_sort
from made_shape import Shape
from measure import Cost, Meter, cost_of
from replay_cases import floor_all
from workbench import ID, Line

from pipelines.recording.recording import discover
from pipelines.stages.run import execute
from pipelines.warehouse.delta_io import Warehouse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from workbench import Bench

STAGES = ("ingest", "replay", "validate", "report")
BARS = {"validate": "<= 0.08"}
FLOORED = ("parse", "order", "replay", "write")


def case_run(bench: Bench, events: int) -> list[Line]:
    """What each step of one run takes of it. Once, and nothing apart for warming up: a scheduled job has no such."""
    folder = bench.recording(Shape(events=events // 2, partitions=60, elections=1))  # two rows of the table for each
    place = str(bench.fresh("run-out"))
    whole = Meter()
    costs = costs_by_step(bench, place, folder, {})
    costs["all of it"] = whole.cost()
    wall = costs["all of it"].wall
    count = events_in(bench, place)
    lines = [
        Line("a whole run, cold", step, cost.wall / wall, BARS.get(step, ""), cost, count / cost.wall)
        for step, cost in costs.items()
    ]
    lines[-1].note = f"{count:,} events, {costs['all of it'].cpu / count * 1e6:.1f} µs of CPU each"
    floors = floors_of(bench, folder, place)
    ours, floor = together([costs[step] for step in FLOORED]), together(list(floors.values()))
    return [
        *lines,
        *[Line("Spark's floor of it", step, None, "", cost, count / cost.wall) for step, cost in floors.items()],
        Line("the same stages / floor, CPU", "Tidemark", ours.cpu / floor.cpu, "<= 0.6", ours, count / ours.wall),
        Line("the same stages / floor, CPU", "Spark alone", None, "", floor, count / floor.wall),
    ]


def costs_by_step(bench: Bench, place: str, folder: Path, settings: Mapping[str, object]) -> dict[str, Cost]:
    """What each step takes of a run on a recording, into a warehouse."""
    costs: dict[str, Cost] = {}
    meters: dict[str, Meter] = {}

    def progress(step: str, seconds: float | None) -> None:
        if seconds is None:
            meters[step] = Meter()
        else:
            costs[step] = meters[step].cost()

    execute(bench.spark, place, ID, discover(str(folder), recording_id=ID), STAGES, settings, progress)
    return costs


def events_in(bench: Bench, place: str) -> int:
    """How many events a warehouse has."""
    return Warehouse(bench.spark, place).read("replication_events", ID).count()


def floors_of(bench: Bench, folder: Path, place: str) -> dict[str, Cost]:
    """What Spark alone needs for the bytes and rows of a run: JSON to rows, rows to their order, rows to tables."""
    logs = [str(path) for path in sorted(folder.glob("logs/node-*/kafka-request.log"))]
    table = bench.spark.read.format("delta").load
    steps = {
        "parse": lambda: from_json(bench.spark, logs).write.format("delta").save(str(bench.fresh("json-out"))),
        "order": lambda: shuffle_and_sort(bench, table(f"{place}/facts"), table(f"{place}/replication_events")),
        "replay and write": partial(floor_all, bench, f"{place}/replication_events", place, bench.fresh("floor-out")),
    }
    return {name: cost_of(work) for name, work in steps.items()}


def together(costs: list[Cost]) -> Cost:
    """What several pieces of work cost, one after the other."""
    jvm, python = sum(one.jvm_cpu for one in costs), sum(one.python_cpu for one in costs)
    peaks = max(one.jvm_peak for one in costs), max(one.python_peak for one in costs)
    return Cost(sum(one.wall for one in costs), jvm, python, *peaks)
