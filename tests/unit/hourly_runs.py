"""Runs over a growing recording in one process, without Spark: each writes what differs, as the jobs do."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.overview.coverage import coverage_of
from pipelines.spark.buckets import bucket_of, divided
from pipelines.stages.checkpoints import STATE, Checkpoints
from pipelines.stages.order import with_sessions
from pipelines.stages.partition_order import CHANGES, EVENTS, WITH_RECORDING, order_tables
from pipelines.stages.standing_windows import StandingWindows
from pipelines.warehouse.superseded import engine_version
from replay.evidence.cluster import cluster_told, collected_of
from replay.evidence.cluster_digest import ToldOfCluster
from replay.tables.output import empty
from replay.tables.partitions import KEY, replayed
from replay.tables.resumption import WHOLE, Place, place_of, resumed
from schemas.tables import REPLAY_TABLES
from schemas.windows import EVENT_WINDOWS, REPLAY_CHECKPOINTS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

Rows = dict[str, pa.Table]
SECOND_US = 1_000_000
BUCKETS = 5
PLACE = ("topic", "incarnation", "partition")


@dataclass
class HourlyRuns:
    """The tables, and what the runs did: events that were written, and replayed, by each of them."""

    length_us: int = SECOND_US
    between: int = 0  # events between two states
    least: int = 0  # facts of a partition whose order may go on
    tables: Rows = field(
        default_factory=lambda: {
            EVENTS: WITH_RECORDING.empty_table(),
            EVENT_WINDOWS.name: EVENT_WINDOWS.arrow_schema.empty_table(),
            REPLAY_CHECKPOINTS.name: REPLAY_CHECKPOINTS.arrow_schema.empty_table(),
            **{table.name: empty(table.name) for table in REPLAY_TABLES},
        }
    )
    shared: list[dict[str, Any]] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    replayed: list[int] = field(default_factory=list)

    def run(self, facts: pa.Table, stated: dict[str, Any]) -> None:
        """Order and replay all facts that have come so far; what stands already is not made again."""
        self.order(facts, stated)
        self.replay()

    def order(self, facts: pa.Table, stated: dict[str, Any]) -> None:
        """Bring events and their windows up to date."""
        made = self.made(facts, stated)
        windows = pa.concat_tables(made[EVENT_WINDOWS.name])
        changes = [row for rows in made.get(CHANGES, ()) for row in rows.to_pylist()]
        since = {place_of(row): row["window"] for row in changes}
        self.shared = [row for row in changes if row["window"] is not None]
        left = {place_of(row) for row in windows.to_pylist()}
        gone = {place_of(row) for row in self.tables[EVENT_WINDOWS.name].to_pylist()} - left
        self.replace(EVENTS, made.get(EVENTS, ()), {**dict.fromkeys(gone), **since})
        self.tables[EVENT_WINDOWS.name] = windows
        self.written.append(sum(map(len, made.get(EVENTS, ()))))

    def made(self, facts: pa.Table, stated: dict[str, Any]) -> dict[str, list[pa.Table]]:
        """What an order makes of all facts."""
        cluster = cluster_told(collected_of(facts), stated, coverage_of(facts).missing)
        buckets: defaultdict[int, list[pa.Table]] = defaultdict(list)
        for rows in with_sessions([facts], cluster.names):
            for bucket, mine in divided(bucket_of(rows, BUCKETS), rows):
                buckets[bucket].append(mine)
        stands = self.tables[EVENT_WINDOWS.name]
        known = dict(divided(bucket_of(stands, BUCKETS), stands))
        made: dict[str, list[pa.Table]] = {EVENT_WINDOWS.name: [stands.slice(0, 0)]}
        for bucket, tables in buckets.items():
            standing = StandingWindows.of(known.get(bucket), self.length_us, engine_version(), self.least)
            for name, rows in order_tables(tables, ToldOfCluster(cluster), standing):
                made.setdefault(name, []).append(rows)
        return made

    def replay(self) -> None:
        """Bring the replay's tables and states up to date."""
        windows, states = (self.tables[table.name].to_pylist() for table in (EVENT_WINDOWS, REPLAY_CHECKPOINTS))
        plan = resumed(windows, states, engine_version(), self.shared)
        since = {place: None if row is None else row["window"] for place, row in plan.since.items()}
        keeper = Checkpoints(self.between)
        for place, row in plan.since.items():
            if row is not None:
                window = round(row["window"].timestamp() * 1_000_000)
                keeper.given[row["recording_id"], *place] = row["place"], window, row[STATE]
        events = (
            self.tables[EVENTS]
            .filter(reached(self.tables[EVENTS], since))
            .sort_by([(name, "ascending") for name in (*KEY, "seq")])
        )
        made: dict[str, list[pa.Table]] = {}
        for name, rows in replayed(events.combine_chunks().to_batches(1000), keeper):
            made.setdefault(name, []).append(rows)
        keeper.end()
        keeper.hand_out(made)
        for table in REPLAY_TABLES:
            self.replace(table.name, made.get(table.name, ()), {**dict.fromkeys(plan.gone), **since})
        self.store(made.get(REPLAY_CHECKPOINTS.name, ()), plan.since, plan.gone)
        self.replayed.append(len(events))

    def store(self, made: Iterable[pa.Table], since: dict[Place, Any], gone: list[Place]) -> None:
        """Store states with the digests of their windows, and of which events the tables are made now."""
        windows = {(place_of(row), row["place"]): row for row in self.tables[EVENT_WINDOWS.name].to_pylist()}
        kept = [
            row
            for row in self.tables[REPLAY_CHECKPOINTS.name].to_pylist()
            if place_of(row) not in gone
            and (place_of(row) not in since or 0 < row["place"] <= (since[place_of(row)] or {"place": 0})["place"])
            and (row["place"] == WHOLE or (place_of(row), row["place"]) in windows)
        ]
        new = (row for rows in made for row in rows.to_pylist() if (place_of(row), row["place"]) in windows)
        kept += [
            {**row, "digest": windows[place_of(row), row["place"]]["digest"], "engine": engine_version()} for row in new
        ]
        for place in since:
            first = windows[place, 0]
            kept.append({**first, "place": WHOLE, "digest": first["total"], "window": None, "engine": engine_version()})
        self.tables[REPLAY_CHECKPOINTS.name] = pa.Table.from_pylist(kept, REPLAY_CHECKPOINTS.arrow_schema)

    def replace(self, name: str, made: Iterable[pa.Table], since: dict[Place, Any]) -> None:
        """Replace the rows of these partitions from a window on; None: all of them."""
        stands = self.tables[name]
        if "window" not in stands.column_names:
            since = dict.fromkeys(since)
        kept = stands.filter(pc.invert(reached(stands, since)))
        self.tables[name] = pa.concat_tables([kept, *(rows.select(kept.column_names) for rows in made)])


def reached(rows: pa.Table, since: dict[Place, Any]) -> pa.Array:
    """Which rows are of one of these partitions, and stand in its window or a later one."""
    places = zip(*(rows[name].to_pylist() for name in PLACE), strict=True)
    windows = rows["window"].to_pylist() if "window" in rows.column_names else [None] * len(rows)
    return pa.array(
        [
            place in since and (since[place] is None or (window is not None and window >= since[place]))
            for place, window in zip(places, windows, strict=True)
        ],
        pa.bool_(),
    )


def steps_of(facts: pa.Table, first: int, chosen: Random, count: int, late: float) -> list[pa.Table]:
    """The facts that have come by each step; some come later than their time. `first`: how many come first at least."""
    times = [ts.timestamp() for ts in facts["ts"].to_pylist()]
    cuts = sorted(chosen.choices(sorted(times)[first:], k=count - 1))
    step = [sum(ts > cut for cut in cuts) + (chosen.random() < late) * chosen.randrange(count) for ts in times]
    return [*(facts.filter(pa.array([one <= k for one in step])) for k in range(count - 1)), facts]


def lines(rows: pa.Table) -> list[str]:
    """Rows as text, sorted."""
    return sorted(map(repr, rows.to_pylist()))
