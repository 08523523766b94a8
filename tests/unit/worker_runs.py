"""Runs over a growing recording as Spark's workers make them, with what they hand on; without Spark."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from carrying_runs import CarryingRuns
from hourly_runs import BUCKETS

from pipelines.overview.cluster import overview_of
from pipelines.spark.buckets import bucket_of, divided
from pipelines.stages.carried import TOLD, Carried, is_before
from pipelines.stages.handing_on import are_rising, handed_on
from pipelines.stages.order import by_session, in_sessions, order_partitions, rebuilding, streams_of
from pipelines.stages.order_marks import ALONE, ALONE_SCHEMA, alone_of
from pipelines.stages.standing_windows import StandingWindows
from pipelines.warehouse.later import Later
from pipelines.warehouse.superseded import engine_version
from replay.arrays.ints import NEVER
from replay.evidence.cluster import WHOLE, cluster_told
from replay.evidence.cluster_digest import ToldOfCluster
from replay.evidence.steady import NeedsAllError
from schemas.windows import EVENT_WINDOWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class RowsInMemory:
    """What `Later` reads of a table's files, of rows in memory."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows_ = rows

    def rows(self, columns: Sequence[str] = (), where: pc.Expression | None = None) -> pa.Table:
        return ds.dataset(self.rows_).to_table(columns=[*columns] or None, filter=where)

    def batches(self, columns: Sequence[str], where: pc.Expression | None = None) -> Iterator[pa.RecordBatch]:
        return iter(self.rows(columns, where).to_batches())

    def between(self, *_: object, **__: object) -> RowsInMemory:
        return self


def in_groups(batches: list[pa.RecordBatch], name: str) -> Iterator[Iterator[pa.RecordBatch]]:
    """Rows as Spark deals them out by a number."""
    rows = pa.Table.from_batches(batches)
    for number in pc.unique(rows[name]).to_pylist():
        yield iter(rows.filter(pc.equal(rows[name], number)).to_batches())


@dataclass
class WorkerRuns(CarryingRuns):
    """The tables, and what the last run has handed on."""

    def made_of(self, facts: pa.Table, stated: dict[str, Any], before: Carried | None) -> dict[str, list[pa.Table]]:
        """What workers make; `before`: None: of all facts."""
        since = -NEVER if before is None else before.horizon
        later: Any = Later(RowsInMemory(facts), since)  # type: ignore[arg-type]
        some = facts if before is None else facts.filter(pc.invert(is_before(facts, since)))
        if before is None:
            seen = overview_of(facts)
        else:
            if not are_rising(later):
                raise NeedsAllError
            name = pc.max(facts["recording_id"]).as_py()
            seen = before.overview(name, WHOLE.of(some), later.slices(500, TOLD))
        cluster = cluster_told(seen.cluster, stated, seen.coverage.missing)
        sent = [*by_session([in_sessions(some, BUCKETS)], cluster.names, BUCKETS)]
        if before is not None:
            sent += streams_of(before, BUCKETS).to_batches()
        rebuilt = [batch for mine in in_groups(sent, "session") for batch in rebuilding(BUCKETS)(mine)]
        stands = self.tables[EVENT_WINDOWS.name]
        known = dict(divided(bucket_of(stands, BUCKETS), stands))
        made: defaultdict[str, list[pa.Table]] = defaultdict(list)
        for batches in in_groups(rebuilt, "bucket"):
            mine = [*batches]
            windows = known.get(mine[0]["bucket"][0].as_py())
            standing = StandingWindows.of(windows, self.length_us, engine_version(), self.least)
            standing.left, standing.tells_alone = {} if before is None else before.left, True
            for name, rows in order_partitions(mine, ToldOfCluster(cluster), standing):
                made[name].append(rows)
        alone = alone_of(pa.concat_tables([ALONE_SCHEMA.empty_table(), *made.pop(ALONE, [])]))
        found = {**made, EVENT_WINDOWS.name: [stands.slice(0, 0), *made[EVENT_WINDOWS.name]]}
        self.hand_on(handed_on(before, later, cluster, alone, stated), found)
        self.read.append(len(some))
        return found
