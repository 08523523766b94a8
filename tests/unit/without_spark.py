"""Turns a recording into its tables in one process, without Spark: calls the stages' functions on whole tables."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from facts_builder import KEY

from pipelines.intake.collect import collect
from pipelines.overview.coverage import coverage_of
from pipelines.overview.metrics import cluster_metrics, stretches_of
from pipelines.recording.recording import discover
from pipelines.stages.order import with_sessions
from pipelines.stages.partition_order import EVENTS, order_tables, order_windows
from pipelines.stages.replay import UNREAD
from pipelines.stages.standing_windows import StandingWindows
from replay.evidence.cluster import cluster_told, collected_of
from replay.evidence.cluster_digest import ToldOfCluster
from replay.evidence.missing_lines import missing_requests
from replay.tables.output import empty
from replay.tables.partitions import replayed
from schemas.tables import REPLAY_TABLES

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from pipelines.recording.recording import Recording
    from replay.evidence.cluster import Cluster


def events_of(root: Path) -> list[pa.Table]:
    """Return each partition's `replication_events`, one table per incarnation."""
    recording = discover(str(root), recording_id=root.name)
    return events_of_facts(collect(recording).facts, recording)


def events_of_facts(facts: pa.Table, recording: Recording) -> list[pa.Table]:
    """Return the same of facts that were read from a recording."""
    stated = {"kafka_version": recording.manifest.kafka, "broker_config": recording.manifest.broker_config}
    cluster = cluster_told(collected_of(facts), stated, missing_requests(facts))
    tables = with_sessions([facts], cluster.names)
    found: dict[tuple[str, int], list[pa.Table]] = defaultdict(list)
    for name, events in order_tables(tables, ToldOfCluster(cluster)):
        if name != EVENTS or not len(events):
            continue
        found[events["topic"][0].as_py(), events["partition"][0].as_py()].append(events)
    return [one for place in sorted(found) for one in by_incarnation(pa.concat_tables(found[place]))]


@cache
def events_and_tables_of(root: Path) -> tuple[tuple[pa.Table, dict[str, pa.Table]], ...]:
    """Return the events of each partition and the tables made of them; kept, since many tests look at the same."""
    return tuple((events, tables_of(events)) for events in events_of(root))


@cache
def tables_of_recording(root: Path) -> dict[str, pa.Table]:
    """Return the tables of a whole recording: its events, what is replayed from them, and what the logs cover."""
    parts = events_and_tables_of(root)
    found = {name: pa.concat_tables([tables[name] for _, tables in parts]) for name in parts[0][1]}
    facts = collect(discover(str(root), recording_id=root.name)).facts
    events = pa.concat_tables([events for events, _ in parts])
    coverage = coverage_of(facts).table(root.name)
    shown = cluster_metrics(found["partition_meters"], stretches_of(coverage), root.name)
    rest = {"facts": facts, "replication_events": events, "coverage": coverage, "cluster_metrics": shown}
    return {**found, **rest}


def events_of_partition(of: tuple[str, int], facts: pa.Table, cluster: Cluster) -> pa.Table:
    """Return the events of one topic and partition, in which fetches are whole already."""
    outputs = order_windows([facts], of, cluster, StandingWindows())
    return pa.concat_tables([rows for name, rows in outputs if name == EVENTS])


def by_incarnation(events: pa.Table) -> list[pa.Table]:
    """Return the events of one partition, one table per incarnation."""
    found = sorted(pc.unique(events["incarnation"]).to_pylist())
    return [events.filter(pc.equal(events["incarnation"], one)).combine_chunks() for one in found]


def tables_of(events: pa.Table, size: int = 1000) -> dict[str, pa.Table]:
    """Return the replay's tables of these events, passed to it `size` at a time, with no more columns than in a run."""
    if "recording_id" not in events.column_names:
        events = events.add_column(0, "recording_id", pa.array([KEY["recording_id"]] * len(events), pa.string()))
    events = events.drop_columns([name for name in UNREAD if name in events.column_names])
    found: dict[str, list[pa.Table]] = {table.name: [empty(table.name)] for table in REPLAY_TABLES}
    for name, rows in replayed(events.combine_chunks().to_batches(size)):
        found[name].append(rows)
    return {name: pa.concat_tables(tables).combine_chunks() for name, tables in found.items()}


def same_however_batched(events: pa.Table) -> dict[str, pa.Table]:
    """Return the replay's tables of these events, which are the same however many events are passed to it at a time."""
    whole = tables_of(events)
    for size in (1, 7):
        parts = tables_of(events, size)
        differ = [name for name, rows in whole.items() if in_seq(rows) != in_seq(parts[name])]
        assert not differ, (size, differ)
    return whole


def in_seq(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows in the order of their events, if they are of such: they are told when nothing more is missing."""
    found: list[dict[str, Any]] = rows.to_pylist()
    return sorted(found, key=lambda row: row["seq"]) if "seq" in rows.column_names else found
