"""Runs over a growing recording that read again only what is new, and carry on what was found out of all else."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from hourly_runs import BUCKETS, HourlyRuns

from pipelines.overview.cluster import overview_of
from pipelines.spark.buckets import bucket_of, divided
from pipelines.stages.carried import Carried, Carrying, as_bytes, from_bytes, is_before
from pipelines.stages.order import in_parts
from pipelines.stages.partition_order import CHANGES, order_tables
from pipelines.stages.standing_windows import StandingWindows
from pipelines.warehouse.superseded import engine_version
from replay.evidence.cluster import WHOLE, cluster_told
from replay.evidence.cluster_digest import ToldOfCluster
from replay.evidence.session_lines import EntangledError
from replay.evidence.steady import OF_THE_END, NeedsAllError
from schemas.windows import EVENT_WINDOWS

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass
class CarryingRuns(HourlyRuns):
    """The tables, what the last run has handed on, and of how many facts each run was made."""

    carried: bytes | None = None
    known: pa.Table | None = None
    read: list[int] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    worth: int = 1  # facts that are left out for which it is worth while to hand on anything
    lean: int = 0  # runs that did without facts of before

    def before(self, facts: pa.Table) -> Carried | None:
        """What the last run has handed on, if all that is new is from behind it."""
        if self.carried is None or self.known is None:
            return None
        found = from_bytes(self.carried)
        new = pc.invert(pc.is_in(facts["fact_id"], self.known["fact_id"]))
        early = is_before(facts, found.horizon)
        is_behind = not pc.any(pc.and_(new, early)).as_py()
        timed = self.known.filter(pc.invert(OF_THE_END.mask(self.known)))
        kept = pc.all(pc.is_in(timed["fact_id"], facts["fact_id"])).as_py()
        return found if is_behind and kept else None

    def made(self, facts: pa.Table, stated: dict[str, Any]) -> dict[str, list[pa.Table]]:
        """What an order makes: of what is new and was handed on, else of all facts."""
        before = self.before(facts)
        self.known = facts
        try:
            made = self.made_of(facts, stated, before)
        except (NeedsAllError, EntangledError) as error:
            self.refused.append(repr(error))
            return self.made_of(facts, stated, None)
        self.lean += before is not None
        return made

    def made_of(self, facts: pa.Table, stated: dict[str, Any], before: Carried | None) -> dict[str, list[pa.Table]]:
        """The same; `before`: None: of all facts."""
        some = facts if before is None else facts.filter(pc.invert(is_before(facts, before.horizon)))
        if before is None:
            seen = overview_of(facts)
        else:
            name = pc.max(facts["recording_id"]).as_py()
            seen = before.overview(name, WHOLE.of(some), [some])
        cluster = cluster_told(seen.cluster, stated, seen.coverage.missing)
        stands = self.tables[EVENT_WINDOWS.name]
        carrying = Carrying.of(stands, some, self.length_us, engine_version(), before)
        if carrying is not None:
            carrying.least = self.worth
            carrying.begin(some, cluster.names)
        parted: defaultdict[int, list[pa.Table]] = defaultdict(list)
        are_early: defaultdict[int, list[bool]] = defaultdict(list)
        for is_early, rows in in_parts([some], cluster.names, carrying):
            for bucket, mine in divided(bucket_of(rows, BUCKETS), rows):
                parted[bucket].append(mine)
                are_early[bucket].append(is_early)
        known = dict(divided(bucket_of(stands, BUCKETS), stands))
        made: dict[str, list[pa.Table]] = {EVENT_WINDOWS.name: [stands.slice(0, 0)]}
        for bucket, tables in parted.items():
            standing = StandingWindows.of(known.get(bucket), self.length_us, engine_version(), self.least)
            if carrying is not None:
                standing.left = carrying.left_before
                carrying.note(tables, are_early[bucket], standing)
            for name, rows in order_tables(tables, ToldOfCluster(cluster), standing):
                made.setdefault(name, []).append(rows)
        self.hand_on(None if carrying is None else carrying.carried(), made)
        self.read.append(len(some))
        return made

    def hand_on(self, handed: Carried | None, made: Mapping[str, list[pa.Table]]) -> None:
        """Keep what is handed on, with the marks that stand, by what an order has made (`Renewal.order`)."""
        windows = pa.concat_tables(made[EVENT_WINDOWS.name])
        changes = [row for rows in made.get(CHANGES, ()) for row in rows.to_pylist()]
        given = None if handed is None else handed.with_marks(windows, self.tables[EVENT_WINDOWS.name], changes)
        self.carried = None if given is None else as_bytes(given)
