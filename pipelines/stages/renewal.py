"""Writes what differs: events and replayed rows of partitions that have news, from the first window that differs on.

What stands is known by digests (`event_windows`, `replay_checkpoints`). Before rows are replaced, what says that they
stand is taken away, and it is written anew once they are there; so a run that is killed in between leaves partitions
of which nothing is said to stand, and the next run makes those from the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from pipelines.spark.packed import rows_of, table_rows
from pipelines.spark.spark_schemas import spark_schema
from pipelines.spark.staging import kinds_of, stage
from pipelines.stages import order, replay
from pipelines.stages.partition_order import CHANGE_SCHEMA, CHANGES
from pipelines.warehouse.changes import ALL_US, PLACE_KEY, Changes, as_map, is_among
from pipelines.warehouse.superseded import engine_version
from replay.evidence.tenures import micros
from replay.tables.resumption import WHOLE, Resumption, place_of, resumed
from schemas.events import REPLICATION_EVENTS
from schemas.tables import REPLAY_TABLES
from schemas.windows import EVENT_WINDOWS, REPLAY_CHECKPOINTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from pipelines.warehouse.delta_io import Warehouse
    from replay.evidence.missing_lines import MissingLines
    from schemas.model import Table

KEY: Final = ("topic", "incarnation", "partition")
ORDERED_KINDS: Final = 3  # of rows that the order stages: events, windows, changes


@dataclass(frozen=True, slots=True)
class Renewal:
    """One recording in a warehouse, and where its run may stage."""

    spark: SparkSession
    warehouse: Warehouse
    recording_id: str
    staging: str
    settings: Mapping[str, Any]
    full: bool = False  # whether everything is made anew, whatever stands

    def read(self, table_name: str) -> DataFrame:
        """Return the recording's rows."""
        return self.warehouse.read(table_name, self.recording_id)

    def arrow(self, table_name: str, columns: Sequence[str] = ()) -> pa.Table:
        """Return the recording's rows, or only these columns of them, in the driver's memory."""
        return self.warehouse.arrow(table_name, self.recording_id, columns)

    @property
    def is_anew(self) -> bool:
        """Whether everything is made anew: also if rows were set aside, of which no digest knows."""
        return self.full or not self.warehouse.is_empty("set_aside", self.recording_id)

    def order(self, facts: DataFrame, missing: MissingLines) -> None:
        """Order the facts of the recording; write its events and their windows."""
        known = self.arrow(EVENT_WINDOWS.name)
        standing = None if self.is_anew or not len(known) else known
        stream = order.order(self.spark, facts, self.settings, missing, standing)
        staged = stage(stream, f"{self.staging}/order", ORDERED_KINDS)
        windows = table_rows(staged, EVENT_WINDOWS.name).persist()
        within = None
        if standing is not None:
            left = {place_of(row.asDict()) for row in windows.select(*KEY).distinct().collect()}
            gone = {place_of(row) for row in known.to_pylist()} - left
            told = Changes.of(rows_of(staged, CHANGES, CHANGE_SCHEMA).toArrow().to_pylist())
            changes = Changes({**dict.fromkeys(gone, ALL_US), **told.since})
            within = changes.condition(REPLICATION_EVENTS)
        if standing is None or changes:
            self.forget(EVENT_WINDOWS, None if standing is None else changes)
            events = table_rows(staged, REPLICATION_EVENTS.name)
            self.warehouse.replace(REPLICATION_EVENTS.name, events, self.recording_id, arranged=True, within=within)
        self.warehouse.replace(EVENT_WINDOWS.name, windows, self.recording_id)
        windows.unpersist()

    def forget(self, table: Table, changes: Changes | None) -> None:
        """Take away what says that rows of these partitions stand (None: of all), but for states to go on from."""
        within = None
        if changes is not None:
            within = is_among(changes.since)
            within += f" AND place = {WHOLE}" if table is REPLAY_CHECKPOINTS else ""
        if self.warehouse.is_empty(table.name, self.recording_id):
            return
        if self.read(table.name).where(within or "true").head(1):
            none = self.spark.createDataFrame([], spark_schema(table))
            self.warehouse.replace(table.name, none, self.recording_id, within=within)

    def plan(self) -> Resumption | None:
        """Return which partitions are to be replayed, and from where; None: all, and no states are kept."""
        windows = self.arrow(EVENT_WINDOWS.name, _but_state(EVENT_WINDOWS)).to_pylist()
        if not windows:  # the events are of another program, or of an older version
            return None
        states = [] if self.is_anew else self.arrow(REPLAY_CHECKPOINTS.name, _but_state(REPLAY_CHECKPOINTS)).to_pylist()
        return resumed(windows, states, engine_version())

    def replay(self, plan: Resumption | None) -> DataFrame:
        """Replay the events that the plan asks for; return the staged stream of all tables' rows."""
        events = self.read(REPLICATION_EVENTS.name)
        states = None
        if plan is not None and not plan.is_everything:
            events = events.where(changes_of(plan).condition(REPLICATION_EVENTS))
            begun = {place: row["place"] for place, row in plan.since.items() if row is not None}
            if begun:
                states = self.read(REPLAY_CHECKPOINTS.name).where(f"place = element_at({as_map(begun)}, {PLACE_KEY})")
        return self.staged(events, states)

    def staged(self, events: DataFrame, states: DataFrame | None = None) -> DataFrame:
        """Replay these events, from these states on; return the staged stream of all tables' rows."""
        stream = replay.replay(self.spark, events, self.settings, states)
        return stage(stream, f"{self.staging}/replay", len(REPLAY_TABLES) + 1)

    def write_replay(self, plan: Resumption | None, staged: DataFrame) -> None:
        """Write the rows of the replay's tables, and the states from which the next run goes on."""
        changes = None if plan is None or plan.is_everything else changes_of(plan)
        self.forget(REPLAY_CHECKPOINTS, changes)
        self.write_tables(staged, None if changes is None else changes.condition)
        if plan is not None:
            self.write_checkpoints(plan, staged)

    def write_tables(self, staged: DataFrame, condition: Callable[[Table], str | None] | None = None) -> None:
        """Write the rows of the replay's tables. `condition`: which of a table's rows are replaced; None: all."""
        rows = {table.name: table_rows(staged, table.name) for table in REPLAY_TABLES}
        within = {table.name: condition(table) for table in REPLAY_TABLES} if condition else None
        self.warehouse.replace_all(rows, self.recording_id, within, kinds_of(staged))

    def write_checkpoints(self, plan: Resumption, staged: DataFrame) -> None:
        """Write the states that the replay made, and of which events each partition's tables are made now.

        States that are no longer kept go, and those of partitions that have no events any more.
        """
        windows = self.read(EVENT_WINDOWS.name).select(*KEY, "place", "digest", "total", "topic_id")
        made = table_rows(staged, REPLAY_CHECKPOINTS.name).drop("digest", "engine")
        states = made.join(F.broadcast(windows.drop("total", "topic_id")), [*KEY, "place"])
        firsts = windows.where(f"place = 0 AND {is_among(plan.since)}")
        wholes = firsts.withColumn("place", F.lit(WHOLE)).withColumn("digest", F.col("total")).drop("total")
        told = {"recording_id": F.lit(self.recording_id), "engine": F.lit(engine_version())}
        rows = states.unionByName(wholes, allowMissingColumns=True).withColumns(told)
        within = None
        if not plan.is_everything:
            begun = as_map({place: row["place"] if row else 0 for place, row in plan.since.items()})
            within = f"{is_among(plan.gone)} OR {is_among(plan.since)} AND place = {WHOLE}"
            within += f" OR coalesce(place > element_at({begun}, {PLACE_KEY}), false)"
        self.warehouse.replace(REPLAY_CHECKPOINTS.name, rows, self.recording_id, within=within)


def _but_state(table: Table) -> list[str]:
    """Return the columns without the state, which is long."""
    return [column.name for column in table.columns if column.name != "state"]


def changes_of(plan: Resumption) -> Changes:
    """Return which rows a replay replaces."""
    since = {place: ALL_US if row is None else micros(row["window"]) for place, row in plan.since.items()}
    return Changes({**since, **dict.fromkeys(plan.gone, ALL_US)})
