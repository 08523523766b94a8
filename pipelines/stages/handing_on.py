"""What an order by Spark's workers hands to the next one: the facts are gone through once more, some at a time.

Workers have the facts of all times, partition by partition; what is handed on (`carried`) is of all partitions up to a
moment. So it is made as many orders would have made it, one after the other: what was handed on before, and the facts
up to the next moment, give what is handed on there. Each fact is looked at once, however many runs follow.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.spark.buckets import by_partition, spans_of
from pipelines.stages import carried
from pipelines.stages.carried import Carrying
from pipelines.stages.order import in_buckets, known_partitions, with_topics
from pipelines.stages.order_marks import LONG
from pipelines.warehouse.later import MINUTE_US
from replay.arrays.columns import numbers
from replay.arrays.ints import NEVER
from replay.evidence.clock_steps import STEP_COLUMNS, RisingLines
from replay.evidence.cluster_digest import ToldOfCluster
from replay.evidence.session_lines import EntangledError
from replay.evidence.steady import OF_THE_END, NeedsAllError
from replay.evidence.steady_times import MARGIN_US

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipelines.stages.carried import Carried
    from pipelines.stages.standing_windows import Of
    from pipelines.warehouse.later import Later
    from replay.evidence.cluster import Cluster
    from replay.evidence.steady import Alone, LeftOut

ROWS: Final = 200_000  # facts that are gone through at once, about,
COUNTED: Final = 2_000_000  # and that are counted at once
WHOLE_ROWS: Final = 30_000  # facts of short partitions of which none are left out
# What shows that the facts cannot be cut at some moment: a session's lines there, or a standstill.
UNCUT: Final = (EntangledError, NeedsAllError)
NAMING: Final = ("topic", "topic_id", "partition", *OF_THE_END.columns)


def are_rising(facts: Later) -> bool:
    """Whether no clock was set back, by the lines of these facts."""
    lines = RisingLines()
    for rows in facts.slices(ROWS, STEP_COLUMNS):
        lines.add(rows.sort_by("ts"))
    return lines.rise


def handed_on(
    before: Carried | None, facts: Later, cluster: Cluster, alone: Mapping[Of, Alone], settings: Mapping[str, Any]
) -> Carried | None:
    """Return what is handed on: of the facts up to a moment as late as is worth while, else what was before.

    `facts`: all, or those since what was handed on before. `alone`: marks that stand alone by all facts.
    """
    if not alone:
        return before
    counted = in_minutes(facts, cluster.names)
    alone = long_ones(counted, alone, {} if before is None else before.left)
    horizon = horizon_of(counted, alone, staying(before, alone), 0 if before is None else before.facts)
    if horizon is None or (before is None and not are_rising(facts)):
        return before
    told = ToldOfCluster(cluster)

    def step(found: Carried | None, since: int, until: int) -> Carried | None:
        carrying = Carrying(until, until, found, least=LONG if until == horizon else 0, alone=alone)
        given = [facts.read(since, until)]
        carrying.begin(given[0], cluster.names)
        for _ in in_buckets(given.pop(), told, settings, None, carrying):
            pass  # its rows are noted on the way
        return carrying.carried()

    behind = found = before, facts.since
    for until in facts.ends(ROWS, horizon):
        made = None
        try:
            made = step(*found, until)
        except UNCUT:
            found = behind
            with suppress(*UNCUT):
                made = step(*found, until)
        if made is None:
            break
        behind, found = found, (made, until)
    return found[0]


def staying(before: Carried | None, alone: Mapping[Of, Alone]) -> int:
    """Return how many rows that were handed on have to be carried along still: those of partitions without a mark."""
    if before is None:
        return 0
    of_each = before.rows.group_by(["topic", "partition"]).aggregate([([], "count_all")]).to_pylist()
    rows = [row["count_all"] for row in of_each if (row["topic"], row["partition"]) not in alone]
    return sum(map(int, rows)) + sum(map(len, before.sessions.values()))


def in_minutes(facts: Later, names: Mapping[str, str]) -> pa.Table:
    """Count facts by partition and minute: topic, partition, minute (microseconds), count. `names`: of topics by id."""
    keys = ["topic", "partition", "minute"]
    found = []
    for rows in facts.slices(COUNTED, NAMING):
        are_carried = pc.and_(pc.is_valid(rows["partition"]), pc.invert(OF_THE_END.mask(rows)))
        named = known_partitions(with_topics(rows.filter(are_carried), names))
        minute = pa.array(numbers(named["ts"], -NEVER) // MINUTE_US * MINUTE_US)
        timed = named.select(keys[:2]).append_column(keys[2], minute)
        found.append(timed.group_by(keys).aggregate([([], "count_all")]))
    counted = pa.concat_tables(found).group_by(keys).aggregate([("count_all", "sum")])
    return counted.rename_columns([*keys, "count"])


def long_ones(counted: pa.Table, alone: Mapping[Of, Alone], left: Mapping[Of, LeftOut]) -> dict[Of, Alone]:
    """Return the partitions whose requests are left out: not the shortest, of which all are carried along.

    Nobody may write to such a partition for seconds before one mark, and then before the next, so that its order goes
    on from neither. `counted`: of `in_minutes`. `left`: what is left out already.
    """
    of_each = counted.group_by(["topic", "partition"]).aggregate([("count", "sum")]).sort_by("count_sum").to_pylist()
    before = np.cumsum([row["count_sum"] for row in of_each])
    short = {(row["topic"], row["partition"]) for row, sum_ in zip(of_each, before, strict=True) if sum_ <= WHOLE_ROWS}
    return {of: mark for of, mark in alone.items() if of in left or of not in short}


def horizon_of(counted: pa.Table, alone: Mapping[Of, Alone], rows: int, facts: int) -> int | None:
    """Return the latest moment up to which there are not too many facts to carry along; None: it is not worth while.

    `counted`: of `in_minutes`, by whole minutes. `rows`: so many are carried along in any case, and what was handed on
    before stands for so many `facts`.
    """
    if not len(counted):
        return None
    number, partition_of = by_partition(counted)
    minute, count = (numbers(counted[name]) for name in ("minute", "count"))
    by_key, spans = spans_of(number)
    is_between = np.zeros(len(counted), np.bool_)
    for first, stop in spans:
        mine = by_key[first:stop]
        mark = alone.get(partition_of(int(number[mine[0]])))
        for hole in () if mark is None else mark.holes:
            is_between[mine] |= (minute[mine] > hole.begin) & (minute[mine] < hole.end)
    order = np.argsort(minute)
    kept, left = (np.append(0, np.cumsum((count * some)[order])) for some in (~is_between, is_between))
    for horizon in sorted({mark.since - MARGIN_US for mark in alone.values()}, reverse=True):
        early = int(np.searchsorted(minute[order], horizon))
        if rows + kept[early] <= carried.most_rows(facts + kept[early] + left[early]):
            return horizon if left[early] >= LONG else None
    return None
