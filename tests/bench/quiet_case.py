"""A quiet cluster at INFO, run every hour: what its lines cost, and what its hours and its partitions do."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from made_quiet import FLAP_LINES, FLAPS, QuietCluster
from measure import cost_of, median
from run_case import STAGES
from workbench import ID, Line

from pipelines.recording.recording import discover
from pipelines.stages.run import execute

if TYPE_CHECKING:
    from measure import Cost
    from workbench import Bench

RUNS = 72  # hours
FEW = 24  # of a cluster with twice the partitions
FIRST = 3  # the second run still orders every partition: what follows a line within the hour may matter to it
AT_ONCE = 3  # runs whose median counts
BUSY = 10  # so many times the lines, in an hour of the end
BAR = 1.1


def case_quiet(bench: Bench, events: int) -> list[Line]:
    """The last hours against the first ones, and a cluster of twice the partitions against it, by CPU.

    A partition for each thousand events asked for. The first run finds no warehouse, and two runs of another one are
    before it, since what the first ones cost is compiling.
    """
    partitions = max(events // 1_000, 2 * FLAPS)
    warm, once, twice = (
        begun(bench, name, count)
        for name, count in (("warm", FLAPS), ("quiet", partitions), ("quiet-twice", 2 * partitions))
    )
    for _ in range(2):
        hour_of(bench, "warm", warm)
    costs: list[Cost] = []
    costs_of_twice: list[Cost] = []
    for _ in range(FEW):  # in turns, since a machine has slow hours, too
        costs.append(hour_of(bench, "quiet", once))
        costs_of_twice.append(hour_of(bench, "quiet-twice", twice))
    costs += [hour_of(bench, "quiet", once) for _ in range(RUNS - FEW)]
    busy = hour_of(bench, "quiet", once, BUSY * FLAPS)
    early, late = median(costs[FIRST - 1 : FIRST - 1 + AT_ONCE]), median(costs[-AT_ONCE:])
    same, larger = median(costs[FIRST - 1 : FEW]), median(costs_of_twice[FIRST - 1 :])
    lines = FLAPS * FLAP_LINES
    of_line = (busy.cpu - late.cpu) / ((BUSY - 1) * lines)
    said, name = f"{partitions:,} partitions, {lines} lines an hour", "a quiet cluster at INFO, hourly"
    at_last, at_first = f"{RUNS - AT_ONCE + 1} to {RUNS}", f"{FIRST} to {FIRST - 1 + AT_ONCE}"
    return [
        Line(name, f"runs {at_last}, CPU of runs {at_first}", late.cpu / early.cpu, f"<= {BAR}", late, note=said),
        Line(name, f"runs {at_first}", None, "", early),
        Line(name, f"runs {FIRST} to {FEW}, twice the partitions", larger.cpu / same.cpu, f"<= {BAR}", larger),
        Line(name, f"runs {FIRST} to {FEW}", None, "", same),
        Line(name, f"an hour of {BUSY} times the lines", None, "", busy, note=f"{1000 * of_line:.1f} ms of CPU a line"),
    ]


def begun(bench: Bench, name: str, partitions: int) -> QuietCluster:
    """A cluster, and no warehouse."""
    bench.fresh(f"{name}-out")
    return QuietCluster(partitions, bench.fresh(name))


def hour_of(bench: Bench, name: str, cluster: QuietCluster, flaps: int = FLAPS) -> Cost:
    """What the run costs that finds another hour."""
    cluster.grow(flaps)
    recording, place = discover(str(cluster.folder), recording_id=ID), str(bench.place / f"{name}-out")
    return cost_of(partial(execute, bench.spark, place, ID, recording, STAGES, {}))
