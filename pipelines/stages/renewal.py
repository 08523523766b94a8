"""Writes what differs: events and replayed rows of partitions that have news, from the first window that differs on.

What stands is known by digests (`event_windows`, `replay_checkpoints`). Before rows are replaced, what says that they
stand is taken away, and it is written anew once they are there; so a run that is killed in between leaves partitions
of which nothing is said to stand, and the next run makes those from the start.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.overview.cluster import overview_of
from pipelines.spark.hadoop import on_this_machine
from pipelines.spark.held import Held, driver_facts
from pipelines.spark.staging import BATCH_BYTES, Staged, as_arrow, as_frame, stage
from pipelines.stages import order, replay
from pipelines.stages.carried import MARK_COLUMNS, TOLD, Carried, Carrying, as_bytes, from_bytes
from pipelines.stages.compiling import compile_order
from pipelines.stages.event_streams import EventStreams, begins_of, write_states
from pipelines.stages.handing_on import ROWS, are_rising, handed_on
from pipelines.stages.news import UNKNOWN, News
from pipelines.stages.order_marks import ALONE, ALONE_SCHEMA, alone_of
from pipelines.stages.partition_order import CHANGE_SCHEMA, CHANGES
from pipelines.warehouse.changes import ALL_US, KEY, PLACE_KEY, Changes, among, as_map, behind, numbers_in
from pipelines.warehouse.contract import time_of
from pipelines.warehouse.superseded import engine_version
from pipelines.warehouse.within import either
from replay.arrays.ints import NEVER
from replay.evidence.cluster import WHOLE as OF_THE_CLUSTER
from replay.evidence.cluster import cluster_told
from replay.evidence.session_lines import EntangledError
from replay.evidence.steady import NeedsAllError
from replay.evidence.tenures import micros
from replay.tables.resumption import WHOLE, Resumption, place_of, resumed
from schemas.events import REPLICATION_EVENTS
from schemas.facts import FACTS
from schemas.tables import REPLAY_TABLES
from schemas.windows import EVENT_WINDOWS, ORDER_STATES, REPLAY_CHECKPOINTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import SparkSession

    from pipelines.overview.cluster import Overview
    from pipelines.spark.staging import Rows
    from pipelines.warehouse.delta_io import Warehouse
    from pipelines.warehouse.later import Later
    from pipelines.warehouse.within import Within
    from replay.tables.resumption import Place
    from schemas.model import Table

_PLACE: Final = (*KEY, "place")
ORDERED_KINDS: Final = 5  # of rows that the order stages: events, windows, `CHANGES`, `ALONE`, `NEEDS_ALL`
# Times as many facts as the driver works on at once may stand in a recording whose news it works on: they are read, and
# hashed, but not ordered again.
GROWN: Final = 5
EVENTS_OF_FACTS: Final = 3  # by fact, at most, as a rule


def for_what(error: NeedsAllError | EntangledError) -> str:
    """Return for what it was not enough, as the end of a sentence; of several partitions one is named."""
    if isinstance(error, EntangledError):
        return " for a fetch session"
    return f" for {'-'.join(map(str, error.args))}" if error.args else ""


@dataclass(frozen=True, slots=True)
class Renewal:
    """One recording in a warehouse, and where its run may stage."""

    spark: SparkSession
    warehouse: Warehouse
    recording_id: str
    staging: str
    settings: Mapping[str, Any]
    full: bool = False  # whether everything is made anew, whatever stands
    news: News = UNKNOWN
    say: Callable[[str], object] = lambda _: None  # is told in a sentence what made the run longer

    def read(self, table_name: str) -> DataFrame:
        """Return the recording's rows."""
        return self.warehouse.read(table_name, self.recording_id)

    def arrow(self, table_name: str, columns: Sequence[str] = ()) -> pa.Table:
        """Return the recording's rows, or only these columns of them, in the driver's memory."""
        return self.warehouse.arrow(table_name, self.recording_id, columns)

    @property
    def is_anew(self) -> bool:
        """Whether everything is made anew: also if more rows were set aside than can be looked at one by one."""
        return self.full or self.warehouse.has_many_aside(self.recording_id)

    def is_overtaken(self, horizon: datetime) -> bool:
        """Whether there is news from before what was handed on at a moment."""
        return self.news.since_us is None or micros(horizon) > self.news.since_us

    def carried(self) -> Carried | None:
        """Return what the order before has handed on, if it holds.

        It is of the facts as that run has left them: nobody else may have written any since, or the news are of all.
        """
        if self.news.since_us is None or self.is_anew:
            return None
        rows = self.arrow(ORDER_STATES.name).to_pylist()
        if len(rows) != 1 or rows[0]["engine"] != engine_version() or self.is_overtaken(rows[0]["horizon"]):
            return None
        known = self.recording_id, rows[0]["facts_version"], self.warehouse.run_id
        is_known = self.news.are_of_all or self.warehouse.is_left_alone("facts", *known)
        return from_bytes(rows[0]["state"]) if is_known else None

    @property
    def has_few_news(self) -> bool:
        """Whether so few facts were read now that the driver works on them itself."""
        return self.news.facts is not None and self.news.facts <= driver_facts(self.settings)

    def facts_here(self) -> pa.Table | None:
        """Return the facts in the driver's memory; None: they are too many.

        Where nearly all were ordered before, more of them may be there than the driver would order for the first time.
        """
        few = driver_facts(self.settings)
        goes_on = self.has_few_news and not self.is_anew
        most = few * GROWN if goes_on and not self.warehouse.is_empty(EVENT_WINDOWS.name, self.recording_id) else few
        found = self.warehouse.whole("facts", self.recording_id, most)
        if found is None:
            small = self.warehouse.small("facts", self.recording_id)
            return None if small is None else small.rows
        return found

    def look(self) -> tuple[Overview, pa.Table | None, Carried | None]:
        """Look at the recording: what holds for all of it, the facts to order, and what the order before has handed on.

        The facts are all, or those behind what was handed on, if anything was. None: they are too many for the driver's
        memory.
        """
        carried = self.carried()
        later = None if carried is None else self.warehouse.later("facts", self.recording_id, carried.horizon)
        if carried is not None and later is not None:
            try:
                if self.has_few_news and later.count <= driver_facts(self.settings) * GROWN:
                    facts = later.read(carried.horizon, NEVER)
                    return carried.overview(self.recording_id, OF_THE_CLUSTER.of(facts), [facts]), facts, carried
                return self.overview_of_later(carried, later), None, carried
            except NeedsAllError as error:
                self.say_that_all_are_needed(error)
        rows = self.facts_here()
        return self.overview(rows), rows, None

    def say_that_all_are_needed(self, error: NeedsAllError | EntangledError) -> None:
        """Say why the run takes longer than others."""
        self.say(f"all facts were ordered: what the run before had handed on was not enough{for_what(error)}")

    def overview_of_later(self, carried: Carried, later: Later) -> Overview:
        """Look at the facts since what was handed on, some at a time. NeedsAllError: they do not suffice."""
        given, of_kinds = (later.since, NEVER), pc.field("kind").isin(OF_THE_CLUSTER.kinds)
        # Mostly there are none, and of those that are read, all columns are.
        are_any = len(later.read(*given, ["kind"], of_kinds)) > 0
        whole = OF_THE_CLUSTER.of(later.read(*given, (), of_kinds)) if are_any else FACTS.arrow_schema.empty_table()
        overview = carried.overview(self.recording_id, whole, later.slices(ROWS, TOLD))
        cluster = cluster_told(overview.cluster, self.settings, overview.coverage.missing)
        if cluster.names != carried.names or not are_rising(later):
            raise NeedsAllError
        return overview

    def overview(self, rows: pa.Table | None) -> Overview:
        """Look at all facts of the recording. `rows`: of `facts_here`."""
        if rows is not None:
            return overview_of(rows)
        return overview_of(self.read("facts"), self.warehouse.paths("facts", self.recording_id))

    def order(self, overview: Overview, rows: pa.Table | None, carried: Carried | None = None) -> EventStreams:
        """Order the facts of the recording; write its events and their windows. Arguments as `look` returns them.

        Return the streams of the events that were written, with no files if the replay has to read the table.
        """
        known = self.arrow(EVENT_WINDOWS.name)
        standing = None if self.is_anew or not len(known) else known
        staged, handed = self.ordered(overview, rows, standing, carried)
        windows = staged.rows(EVENT_WINDOWS.name, EVENT_WINDOWS.arrow_schema)
        changes, shared, streams = None, [], staged.streams(REPLICATION_EVENTS.name)
        if standing is not None:
            made = as_arrow(windows, [*KEY] if handed is None else MARK_COLUMNS)
            left = {place_of(row) for row in made.select([*KEY]).to_pylist()}
            gone = {place_of(row) for row in known.to_pylist()} - left
            told = as_arrow(staged.rows(CHANGES, CHANGE_SCHEMA), CHANGE_SCHEMA.names).to_pylist()
            changes = Changes({**dict.fromkeys(gone, ALL_US), **Changes.of(told).since})
            shared = [row for row in told if row["window"] is not None]
            handed = None if handed is None else handed.with_marks(made, known, told)
        if changes is None or changes:
            self.forget(EVENT_WINDOWS, changes)
            within = None if changes is None else changes.within(REPLICATION_EVENTS)
            events = staged.rows(REPLICATION_EVENTS.name, REPLICATION_EVENTS.arrow_schema)
            self.warehouse.replace(
                REPLICATION_EVENTS.name, events, self.recording_id, arranged=True, within=within, streams=streams
            )
        self.warehouse.replace(EVENT_WINDOWS.name, windows, self.recording_id)
        self.hand_on(handed)
        if self.warehouse.has_aside(REPLICATION_EVENTS.name, self.recording_id):
            return EventStreams(shared=shared)
        return EventStreams(streams, None if changes is None else changes.since, shared)

    def ordered(
        self, overview: Overview, rows: pa.Table | None, standing: pa.Table | None, carried: Carried | None
    ) -> tuple[Staged | Held, Carried | None]:
        """Return what the order makes, and what it hands on; arguments as of `order`."""
        if carried is not None:
            try:
                if rows is None:
                    return self.ordered_by_workers(overview, standing, carried)
                return self.ordered_here(overview, rows, standing, carried)
            except (NeedsAllError, EntangledError) as error:
                self.say_that_all_are_needed(error)
            rows = self.facts_here()
            overview = self.overview(rows)
        if rows is not None and len(rows) <= driver_facts(self.settings) * (1 if standing is None else GROWN):
            with suppress(EntangledError):
                return self.ordered_here(overview, rows, standing)
            return Held.of(order.order_here(rows, self.settings, overview, standing)), None
        # If news were from before what was handed on, they may be so the next time, too: some broker's logs come late.
        horizons = self.arrow(ORDER_STATES.name, ["horizon"])["horizon"].to_pylist()
        return self.ordered_by_workers(overview, standing, hands_on=not any(map(self.is_overtaken, horizons)))

    def ordered_by_workers(
        self, overview: Overview, standing: pa.Table | None, carried: Carried | None = None, *, hands_on: bool = True
    ) -> tuple[Staged, Carried | None]:
        """Return the same of all facts, or of those behind what was handed on. NeedsAllError: these do not suffice."""
        facts = self.warehouse.looked_at("facts", self.recording_id)
        later = self.warehouse.later("facts", self.recording_id, -NEVER if carried is None else carried.horizon)
        files = [] if later is None else later.paths
        compile_order(self.spark.sparkContext.master)
        stream = order.order(self.spark, facts, self.settings, overview, standing, files, carried)
        # Rows of the facts themselves have lists, and go through the JVM if there are no files.
        staged = stage(stream, f"{self.staging}/order", ORDERED_KINDS, BATCH_BYTES if files else None)
        if order.NEEDS_ALL in staged.kinds:
            lacking = as_arrow(staged.rows(order.NEEDS_ALL, order.LACKING), order.LACKING.names).to_pylist()
            least = min([value for value in row.values() if value is not None] for row in lacking)
            raise NeedsAllError(*least) if least else EntangledError
        if later is None or standing is None or not hands_on:  # after a first run, it may be that none follows
            return staged, None
        cluster = cluster_told(overview.cluster, self.settings, overview.coverage.missing)
        alone = alone_of(as_arrow(staged.rows(ALONE, ALONE_SCHEMA), ALONE_SCHEMA.names))
        return staged, handed_on(carried, later, cluster, alone, self.settings)

    def ordered_here(
        self,
        overview: Overview,
        facts: pa.Table,
        standing: pa.Table | None,
        carried: Carried | None = None,
    ) -> tuple[Held, Carried | None]:
        """Return the same of facts in the driver's memory: of all, or of those behind what was handed on."""
        carrying = Carrying.of(standing, facts, order.length_us(self.settings), engine_version(), carried)
        made = Held.of(order.order_here(facts, self.settings, overview, standing, carrying))
        return made, None if carrying is None else carrying.carried()

    def hand_on(self, carried: Carried | None) -> None:
        """Write what the next order goes on from; None: nothing."""
        if carried is None and self.warehouse.is_empty(ORDER_STATES.name, self.recording_id):
            return
        row = carried and {
            "recording_id": self.recording_id,
            "horizon": time_of(carried.horizon),
            "facts_version": self.warehouse.version("facts"),
            "engine": engine_version(),
            "state": as_bytes(carried),
        }
        rows = pa.Table.from_pylist([row] if row else [], ORDER_STATES.arrow_schema)
        self.warehouse.replace(ORDER_STATES.name, rows, self.recording_id)

    def forget(self, table: Table, changes: Changes | None) -> None:
        """Take away what says that rows of these partitions stand (None: of all), but for states to go on from."""
        within = None
        if changes is not None:
            within = among(changes.since)
            within = within.but("place", WHOLE) if table is REPLAY_CHECKPOINTS else within
        if self.warehouse.is_empty(table.name, self.recording_id):
            return
        keys = self.arrow(table.name, _PLACE)
        if within is None or len(within.split(keys)[0]):
            self.warehouse.replace(table.name, table.arrow_schema.empty_table(), self.recording_id, within=within)

    def plan(self, ordered: EventStreams) -> Resumption | None:
        """Return which partitions are to be replayed, and from where; None: all, and no states are kept.

        `ordered`: of `order`, if it just ran.
        """
        windows = self.arrow(EVENT_WINDOWS.name, _but_state(EVENT_WINDOWS)).to_pylist()
        if not windows:  # the events are of another program, or of an older version
            return None
        states = [] if self.is_anew else self.arrow(REPLAY_CHECKPOINTS.name, _but_state(REPLAY_CHECKPOINTS)).to_pylist()
        return resumed(windows, states, engine_version(), ordered.shared)

    def replay(self, plan: Resumption | None, streams: EventStreams) -> Staged | Held:
        """Replay the events that the plan asks for; return all tables' rows. `streams`: of `order`, if it just ran."""
        rows = self._events_here(plan)
        if rows is not None and len(rows) <= EVENTS_OF_FACTS * driver_facts(self.settings):
            return self._replayed_here(rows, plan)
        if streams.are_all(plan):
            return self._staged_replay(replay.replay_streams(self.spark, streams.files))
        events = self.warehouse.looked_at(REPLICATION_EVENTS.name, self.recording_id)
        if plan is None or plan.is_everything:
            return self.staged(events)
        # Workers read states from the table's files, too.
        are_read = bool(self.warehouse.paths(REPLAY_CHECKPOINTS.name, self.recording_id)) or not begun_at(plan)
        at_hand = streams.suffice_for(plan) if are_read else {}
        others = replace(plan, since={place: row for place, row in plan.since.items() if place not in at_hand})
        frames = [self._replayed_streams(streams, at_hand, plan)] if at_hand else []
        if others.since or not frames:
            states = None
            if begun := begun_at(others):
                states = self.read(REPLAY_CHECKPOINTS.name).where(f"place = element_at({as_map(begun)}, {PLACE_KEY})")
            some = events.where(changes_of(others).condition(REPLICATION_EVENTS))
            frames.append(replay.replay(self.spark, some, self.settings, states))
        return self._staged_replay(reduce(DataFrame.unionByName, frames))

    def _replayed_streams(self, streams: EventStreams, at_hand: Mapping[Place, int], plan: Resumption) -> DataFrame:
        """Replay partitions of which all events to replay are in streams; the arguments as of `replay`."""
        begun = {place: at for place, at in begun_at(plan).items() if place in at_hand}
        folder = on_this_machine(self.spark, self.staging)
        states = folder / "states.arrow" if folder is not None and begun else None
        if states is not None:
            files = self.warehouse.paths(REPLAY_CHECKPOINTS.name, self.recording_id)
            write_states(files, self.recording_id, begun, states)
        are_exact = streams.since is not None and streams.since.keys() == at_hand.keys()
        return replay.replay_streams(self.spark, streams.files, None if are_exact else at_hand, states)

    def _events_here(self, plan: Resumption | None) -> pa.Table | None:
        """Return the events that the plan asks for, and perhaps others, in the driver's memory; None: too many."""
        if plan is None or plan.is_everything:
            most = EVENTS_OF_FACTS * driver_facts(self.settings)
            return self.warehouse.whole(REPLICATION_EVENTS.name, self.recording_id, most)
        changes = changes_of(plan)
        begin = min(changes.since.values(), default=ALL_US)
        rows = self.warehouse.since(REPLICATION_EVENTS.name, self.recording_id, "window", begin)
        return None if rows is None else rows.filter(changes.are_replaced(rows))

    def _replayed_here(self, events: pa.Table, plan: Resumption | None) -> Held:
        if plan is None or plan.is_everything:
            return Held.of(replay.replay_here(events))
        begun = begun_at(plan)
        states = self.arrow(REPLAY_CHECKPOINTS.name) if begun else REPLAY_CHECKPOINTS.arrow_schema.empty_table()
        given = states.filter(pc.equal(states["place"], numbers_in(states, begun)))
        return Held.of(replay.replay_here(events, given.to_pylist()))

    def staged(self, events: DataFrame, states: DataFrame | None = None) -> Staged:
        """Replay these events, from these states on; return the staged stream of all tables' rows."""
        return self._staged_replay(replay.replay(self.spark, events, self.settings, states))

    def _staged_replay(self, stream: DataFrame) -> Staged:
        return stage(stream, f"{self.staging}/replay", len(REPLAY_TABLES) + 1)

    def write_replay(self, plan: Resumption | None, staged: Staged | Held) -> None:
        """Write the rows of the replay's tables, and the states from which the next run goes on."""
        changes = None if plan is None or plan.is_everything else changes_of(plan)
        self.forget(REPLAY_CHECKPOINTS, changes)
        self.write_tables(staged, None if changes is None else changes.within)
        if plan is not None:
            self.write_checkpoints(plan, staged)

    def write_tables(
        self, staged: Staged | Held, condition: Callable[[Table], Within | str | None] | None = None
    ) -> None:
        """Write the rows of the replay's tables. `condition`: which of a table's rows are replaced; None: all."""
        rows = {table.name: staged.rows(table.name, table.arrow_schema) for table in REPLAY_TABLES}
        within = {table.name: condition(table) for table in REPLAY_TABLES} if condition else None
        streams = {name: staged.streams(name) for name in rows}
        self.warehouse.replace_all(rows, self.recording_id, within, staged.kinds, streams)

    def write_checkpoints(self, plan: Resumption, staged: Staged | Held) -> None:
        """Write the states that the replay made, and of which events each partition's tables are made now.

        States that are no longer kept go, and those of partitions that have no events any more.
        """
        windows = self.arrow(EVENT_WINDOWS.name, [*_PLACE, "digest", "total", "topic_id"])
        begun = [row for row in windows.to_pylist() if row["place"] == 0 and place_of(row) in plan.since]
        told = {"recording_id": self.recording_id, "engine": engine_version()}
        wholes = pa.Table.from_pylist(
            [{**row, **told, "place": WHOLE, "digest": row["total"]} for row in begun], REPLAY_CHECKPOINTS.arrow_schema
        )
        made = staged.rows(REPLAY_CHECKPOINTS.name, REPLAY_CHECKPOINTS.arrow_schema)
        rows: Rows
        if isinstance(made, pa.Table):
            rows = pa.concat_tables([_with_digests(made, windows, told), wholes])
        else:
            of_windows = F.broadcast(as_frame(self.spark, windows.select([*_PLACE, "digest"])))
            states = made.drop("digest").join(of_windows, [*_PLACE])
            every = states.withColumns({name: F.lit(text) for name, text in told.items()})
            rows = every.unionByName(as_frame(self.spark, wholes))
        within = None
        if not plan.is_everything:
            since = {place: row["place"] if row else 0 for place, row in plan.since.items()}
            within = either(
                among(plan.gone),
                among(plan.since).but("place", WHOLE),
                behind("place", since),
                among(plan.given_up, ["place"]),
            )
        self.warehouse.replace(REPLAY_CHECKPOINTS.name, rows, self.recording_id, within=within)


def _with_digests(made: pa.Table, windows: pa.Table, told: Mapping[str, str]) -> pa.Table:
    """Return states with the digests of their windows, and without those that have none."""
    digests = {tuple(row[name] for name in _PLACE): row["digest"] for row in windows.to_pylist()}
    found = [digests.get(tuple(row.values())) for row in made.select([*_PLACE]).to_pylist()]
    columns = {"digest": pa.array(found, pa.string())}
    columns |= {name: pa.array([text] * len(made), pa.string()) for name, text in told.items()}
    for name, values in columns.items():
        place = made.schema.get_field_index(name)
        made = made.set_column(place, made.schema.field(place), values)
    return made.filter(pc.is_valid(made["digest"]))


def _but_state(table: Table) -> list[str]:
    """Return the columns without the state, which is long."""
    return [column.name for column in table.columns if column.name != "state"]


def begun_at(plan: Resumption) -> dict[Place, int]:
    """Return the places of the states that a replay goes on from, of the partitions that have one."""
    return {place: row["place"] for place, row in plan.since.items() if row is not None}


def changes_of(plan: Resumption) -> Changes:
    """Return which rows a replay replaces."""
    return Changes({**begins_of(plan), **dict.fromkeys(plan.gone, ALL_US)})
