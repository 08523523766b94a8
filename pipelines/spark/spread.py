"""Assigns groups to tasks by plan: a hash alone sometimes puts two large partitions into one task.

The rows of a group cannot be divided, so a stage takes at least as long as its largest group. What can be chosen is
when a group starts and which others share its task: large groups are placed one by one, and the longest tasks start
first; small groups, which a hash distributes evenly, fill what the large ones leave.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import reduce
from heapq import heapify, heapreplace
from itertools import accumulate
from operator import and_
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, DataFrame

TASK: Final = "task"
TASK_ROWS: Final = 50_000  # a task of fewer rows costs more to start than to run, so groups share one up to this size
BUCKETS: Final = 64  # per task, for the hash of small groups

Group = tuple[Any, ...]


def spread(frame: DataFrame, key: Sequence[str]) -> DataFrame:
    """Shuffle the rows so that each group is whole within one task, with others or alone.

    There are at most spark.sql.shuffle.partitions tasks. Group sizes come from a count by key, which runs first.
    """
    sizes = [
        (row.pop("rows"), tuple(row[name] for name in key))
        for row in frame.groupBy(*key).agg(F.count(F.lit(1)).alias("rows")).toArrow().to_pylist()
    ]
    rows = sum(size for size, _ in sizes)
    most = int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    tasks = max(1, min(most, len(sizes), -(-rows // TASK_ROWS)))
    big, others = placed(sizes, tasks)
    bucket = F.pmod(F.hash(*key), F.lit(len(others)))
    task = F.element_at(F.array(*map(F.lit, others)), bucket + 1)
    for group, number in big:
        task = F.when(is_group(key, group), number).otherwise(task)
    return frame.withColumn(TASK, task).repartitionById(tasks, TASK).drop(TASK)


def is_group(key: Sequence[str], group: Group) -> Column:
    """Return the condition that a row is of this group; numbers are compared first, because that is faster."""
    pairs = sorted(zip(key, group, strict=True), key=lambda pair: isinstance(pair[1], str))
    return reduce(and_, (F.col(name) == F.lit(value) for name, value in pairs))


def placed(sizes: Iterable[tuple[int, Group]], tasks: int) -> tuple[list[tuple[Group, int]], list[int]]:
    """Place groups, given as (rows, group): return the task of each large group, and the task of each hash bucket.

    A group is large from half a task's even share on, so there are at most twice as many as tasks. The largest is
    placed first, always into the task with the fewest rows; no task then has more than the largest group plus an even
    share. Buckets are for all groups that are not large.
    """
    sizes = sorted(sizes, key=lambda one: (-one[0], one[1]))
    rows = sum(size for size, _ in sizes)
    big = [(size, group) for size, group in sizes if 2 * tasks * size >= rows]
    loads = [(0, task) for task in range(tasks)]
    heapify(loads)
    chosen = []
    for size, group in big:
        load, task = loads[0]
        heapreplace(loads, (load + size, task))
        chosen.append((group, task))
    loads.sort(key=lambda one: (-one[0], one[1]))  # tasks start in the order of their numbers
    number = {task: place for place, (_, task) in enumerate(loads)}
    room = rooms([load for load, _ in loads], rows - sum(size for size, _ in big))
    ends = list(accumulate(room))
    buckets = BUCKETS * tasks
    others = [min(bisect_right(ends, ends[-1] * (k + 0.5) / buckets), tasks - 1) for k in range(buckets)]
    return [(group, number[task]) for group, task in chosen], others


def rooms(loads: Sequence[int], rows: int) -> list[float]:
    """Return how many of the rows to give to each task so that tasks that get any end up equal; `loads` descend."""
    for first, load in enumerate(loads):
        level = (sum(loads[first:]) + rows) / (len(loads) - first)
        if load <= level:
            return [0.0] * first + [level - load for load in loads[first:]]
    return [0.0] * len(loads)
