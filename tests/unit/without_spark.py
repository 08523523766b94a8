"""A recording brought to its tables in one process, without Spark: the same pure functions, called in a row."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from facts_builder import KEY, gaps_in

from pipelines.intake.collect import collect
from pipelines.overview.coverage import ANSWERED_KINDS
from pipelines.overview.deposed import topics_named
from pipelines.recording.recording import discover
from pipelines.stages.order import (
    CLUSTER_KINDS,
    NAMING_KINDS,
    UNORDERED_KINDS,
    Cluster,
    cluster_rows,
    incarnations,
    order_pieces,
)
from replay.arrays.columns import filled
from replay.evidence.broker_pauses import DUE_PARTS, PARTS, STANDSTILL_US
from replay.evidence.controller_view import MIN_ISR_SETTING
from replay.evidence.partition_facts import LAG_SETTING
from replay.evidence.rows import METADATA_TOPIC, rows_of_facts
from replay.evidence.sessions import SESSION_SCHEMA, rebuild_sessions
from replay.evidence.tenures import micros
from replay.evidence.versions import PROTOCOL_SETTING
from replay.tables.output import empty
from replay.tables.partitions import replayed
from schemas.tables import REPLAY_TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NOT_LINES = pa.array(["segment_batch", "checkpoint"])


def events_of(root: Path) -> list[pa.Table]:
    """Each partition's `replication_events`, a table for each of its incarnations."""
    recording = discover(str(root), recording_id=root.name)
    facts = collect(recording).facts
    cluster = cluster_of(facts, root.name, recording.manifest)
    wanted = facts.filter(pc.invert(pc.is_in(facts["kind"], pa.array(UNORDERED_KINDS))))
    fetches = wanted.filter(pc.equal(wanted["kind"], "fetch"))
    others = wanted.filter(pc.and_(pc.not_equal(wanted["kind"], "fetch"), pc.is_valid(wanted["partition"])))
    brokers = pc.unique(fetches["broker_id"]).to_pylist()
    rebuilt = [table for b in brokers for table in rebuild_sessions(fetches.filter(pc.equal(fetches["broker_id"], b)))]
    padded = filled(dict(zip(others.column_names, others.columns, strict=True)), len(others), SESSION_SCHEMA)
    everything = pa.concat_tables([padded, *rebuilt])
    topics = [
        topic or cluster.topics.get(topic_id, (topic_id, 0))[0]
        for topic, topic_id in zip(everything["topic"].to_pylist(), everything["topic_id"].to_pylist(), strict=True)
    ]
    names = pa.array(topics, pa.string())
    out = []
    for topic, partition in sorted(set(zip(topics, everything["partition"].to_pylist(), strict=True))):
        if topic in METADATA_TOPIC:
            continue
        mine = everything.filter(pc.and_(pc.equal(names, topic), pc.equal(everything["partition"], partition)))
        out += by_incarnation(pa.concat_tables(order_pieces(topic, partition, mine.to_batches(), cluster)))
    return out


def by_incarnation(events: pa.Table) -> list[pa.Table]:
    """Events of one partition, a table for each of its incarnations."""
    found = sorted(pc.unique(events["incarnation"]).to_pylist())
    return [events.filter(pc.equal(events["incarnation"], one)).combine_chunks() for one in found]


def cluster_of(facts: pa.Table, name: str, manifest: object) -> Cluster:
    """What holds for the whole cluster, as the order stage collects it."""
    some = facts.filter(pc.is_in(facts["kind"], pa.array([*CLUSTER_KINDS, "topic_change"])))
    stating = facts.filter(
        pc.and_(pc.is_in(facts["kind"], pa.array(NAMING_KINDS)), pc.is_null(facts["metadata_offset"]))
    )
    topics, created = incarnations([*rows_of_facts(stating), *topics_named(some)])
    standstills, begins, ends = defaultdict(list), {}, {}
    lines = facts.filter(pc.and_(pc.is_valid(facts["broker_id"]), pc.invert(pc.is_in(facts["kind"], NOT_LINES))))
    for broker in pc.unique(lines["broker_id"]).to_pylist():
        stamped = lines.filter(pc.and_(pc.equal(lines["broker_id"], broker), pc.is_valid(lines["ts"])))
        stamps, errors = stamped["ts"].cast(pa.int64()).to_pylist(), stamped["ts_error_us"].to_pylist()
        asked = pc.is_valid(stamped["connection"]).to_pylist()
        told = sorted(zip(stamps, (error or 0 for error in errors), asked, strict=True))
        standstills[broker] = standstills_of(told)
        if told:
            begins[broker] = told[0][0] + told[0][1]
    requests = facts.filter(pc.is_valid(facts["connection"])).group_by(["broker_id", "connection"])
    for row in requests.aggregate([("ts", "max")]).to_pylist():
        ends[row["broker_id"], row["connection"]] = micros(row["ts_max"])
    silent = pc.and_(pc.is_null(lines["connection"]), pc.is_null(lines["metadata_offset"]))
    own = lines.filter(pc.and_(silent, pc.invert(pc.is_in(lines["kind"], pa.array(ANSWERED_KINDS)))))
    config = getattr(manifest, "broker_config", {})
    names = ("kind", "client_id", "broker_id", "connection", "correlation_id", "ts", "total_us", "queue_us", "fact_id")
    asked = facts.filter(pc.is_valid(facts["connection"])).select(names)
    return Cluster(
        recording_id=name,
        rows=cluster_rows(some),
        topics=topics,
        created=created,
        standstills=dict(standstills),
        begins=begins,
        connection_ends=ends,
        own_logs=frozenset(pc.unique(own["broker_id"]).to_pylist()),
        kafka_version=getattr(manifest, "kafka", None),
        settings={key: int(config[key]) for key in (LAG_SETTING, MIN_ISR_SETTING) if key in config},
        inter_broker_protocol=config.get(PROTOCOL_SETTING),
        missing=gaps_in(rows_of_facts(asked)),
    )


def tables_of(events: pa.Table, size: int = 1000) -> dict[str, pa.Table]:
    """The replay's tables of these events, which are handed over `size` at a time."""
    if "recording_id" not in events.column_names:
        events = events.add_column(0, "recording_id", pa.array([KEY["recording_id"]] * len(events), pa.string()))
    found: dict[str, list[pa.Table]] = {table.name: [empty(table.name)] for table in REPLAY_TABLES}
    for name, rows in replayed(events.combine_chunks().to_batches(size)):
        found[name].append(rows)
    return {name: pa.concat_tables(tables).combine_chunks() for name, tables in found.items()}


def standstills_of(lines: Iterable[tuple[int, int, bool]]) -> list[tuple[int, int]]:
    """Gaps of at least `STANDSTILL_US` in a broker's sorted lines where one was due.

    A line is its stamp, how far that may be off, and whether it tells of a request.
    """
    out = []
    before: int | None = None
    parts: set[int] = set()  # in which requests were answered
    for stamp, error, asked in lines:
        if before is not None and stamp - before >= STANDSTILL_US:
            since = (before // STANDSTILL_US - 1) * PARTS
            if sum(part >= since for part in parts) >= DUE_PARTS:
                out.append((before, stamp + error))
        if asked:
            parts = {part for part in parts if part > stamp * PARTS // STANDSTILL_US - 3 * PARTS}
            parts.add(stamp * PARTS // STANDSTILL_US)
        before = stamp
    return out
