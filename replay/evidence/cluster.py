"""What holds for every partition of a recording: registrations, configuration, topic ids, standstills, missing lines.

It is small, whatever the recording's size: collected from all facts (`ClusterFacts`), and passed to every partition
unchanged. `collected_of` collects it from facts in one table; more facts are summed up in pieces
(`pipelines.overview.cluster`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from heapq import merge
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow.compute as pc

from replay.evidence.choices import Choice
from replay.evidence.client_quotas import ClientQuotas, client_quotas_in
from replay.evidence.controller_view import MIN_ISR_SETTING
from replay.evidence.expiry_runs import Marks, marks_of
from replay.evidence.metadata_log import PART, Parts, standing
from replay.evidence.missing_lines import MissingLines
from replay.evidence.partition_facts import LAG_SETTING
from replay.evidence.replication_quotas import LINES as QUOTA_LINES
from replay.evidence.replication_quotas import OF_CLIENTS
from replay.evidence.rows import Row, rows_of_facts
from replay.evidence.standstills import are_any, by_broker, connections_in, ends_told, silences_of_all
from replay.evidence.summary import summary_of
from replay.evidence.tenures import micros
from replay.evidence.versions import PROTOCOL_SETTING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pyarrow as pa

    from replay.evidence.summary import Summary

WHOLE: Final = Choice(  # facts about no single partition, and facts that name topics
    kinds=("broker_change", "config_change", "feature_change", "broker_lifecycle", PART, "topic_change", QUOTA_LINES)
)
SETTINGS: Final = (LAG_SETTING, MIN_ISR_SETTING)
MANIFEST_SETTINGS: Final = (*SETTINGS, PROTOCOL_SETTING)  # what is read from a manifest's broker_config


@dataclass(frozen=True, slots=True)
class Cluster:
    """What holds for every partition of a recording."""

    recording_id: str
    rows: list[Row]
    topics: dict[str, tuple[str, int]]  # topic id -> (topic, incarnation)
    created: dict[str, list[tuple[int, str]]]  # topic -> (when, topic id), rising
    standstills: dict[int, list[tuple[int, int]]]
    begins: dict[int, int]  # broker -> its first line
    connection_ends: dict[tuple[int, str], int]
    own_logs: frozenset[int]  # brokers whose own log is available, not only their request log
    kafka_version: str | None
    settings: dict[str, int | None]
    inter_broker_protocol: str | None = None
    missing: MissingLines = field(default_factory=MissingLines)
    expiry: Marks = field(default_factory=dict)  # broker -> runs of its isr-expiration task
    client_quotas: ClientQuotas = field(default_factory=lambda: ClientQuotas({}, {}))
    facts: int = 0  # number of facts
    about: dict[str | None, list[tuple[int, Row]]] = field(default_factory=dict, compare=False)  # rows by topic

    @property
    def names(self) -> dict[str, str]:
        """The topic of each topic id."""
        return {topic_id: topic for topic_id, (topic, _) in self.topics.items()}

    def rows_about(self, topic: str) -> list[Row]:
        """The rows about all topics and those about this one, in order."""
        if not self.about:
            for place, row in enumerate(self.rows):
                self.about.setdefault(row["topic"], []).append((place, row))
        return [row for _, row in merge(self.about.get(None, ()), self.about.get(topic, ()), key=itemgetter(0))]


class ClusterFacts(NamedTuple):
    """What is collected from all facts of a recording."""

    recording_id: str
    facts: int  # number of facts
    whole: pa.Table  # those selected by `WHOLE`
    named: pa.Table  # `summary.NAMED_SCHEMA`
    silences: pa.Table  # `standstills.SILENCE_SCHEMA`
    connection_ends: dict[tuple[int, str], int]
    own_logs: frozenset[int]
    shrinks: pa.Table  # `expiry_runs.SHRINK_SCHEMA`


def collected_of(facts: pa.Table, summary: Summary | None = None) -> ClusterFacts:
    """Collect it from facts in one table; `summary`: of these facts, if it is known."""
    told = summary_of(facts) if summary is None else summary
    recording_id = pc.max(facts["recording_id"]).as_py() or ""
    return collected(recording_id, told, WHOLE.of(facts), partial(connections_in, facts))


def collected(
    recording_id: str, told: Summary, whole: pa.Table, connections_of: Callable[[pa.Table], pa.Table]
) -> ClusterFacts:
    """Collect it from a summary of all facts, and from those selected by `WHOLE`.

    `connections_of`: `connections_in` for all facts; it is asked only if any broker stood still.
    """
    silences = silences_of_all(told.pieces)
    return ClusterFacts(
        recording_id=recording_id,
        facts=told.counts["facts"][0].as_py(),
        whole=whole,
        named=told.named,
        silences=silences,
        connection_ends=ends_told(connections_of(silences)) if are_any(silences) else {},
        own_logs=frozenset(told.own_logs["broker_id"].to_pylist()),
        shrinks=told.shrinks,
    )


def cluster_told(told: ClusterFacts, settings: Mapping[str, Any], missing: MissingLines) -> Cluster:
    """The collected facts, parsed; `settings` are what the recording's manifest states about its cluster."""
    config: Mapping[str, Any] = settings.get("broker_config") or {}
    # Whose facts they are stands apart: rows are digested, and not all ways to collect them have that column.
    whole = told.whole.select([name for name in told.whole.column_names if name != "recording_id"])
    topics, created = incarnations([*told.named.to_pylist(), *topics_named(whole)])
    standstills, begins = by_broker(told.silences)
    rows = cluster_rows(whole)
    return Cluster(
        recording_id=told.recording_id,
        facts=told.facts,
        rows=rows,
        topics=topics,
        created=created,
        standstills=standstills,
        begins=begins,
        connection_ends=told.connection_ends,
        own_logs=told.own_logs,
        kafka_version=settings.get("kafka_version"),
        settings={name: int(config[name]) for name in SETTINGS if name in config},
        inter_broker_protocol=config.get(PROTOCOL_SETTING),
        missing=missing,
        expiry=marks_of(told.shrinks, rows, standstills),
        client_quotas=client_quotas_in(rows_of_facts(whole)),
    )


def cluster_rows(facts: pa.Table) -> list[Row]:
    """Facts about no single partition, in the metadata log's order.

    They go through Arrow like those of partitions, because times of the two are compared.
    """
    rows = sorted(rows_of_facts(facts), key=lambda row: row["fact_id"])
    of_log = [row for row in rows if row["metadata_offset"] is not None and row["kind"] != PART]
    others = [row for row in rows if row["metadata_offset"] is None or row["kind"] == PART]
    return [
        row
        for row in (*others, *standing(of_log, Parts(rows)).rows)
        if row["partition"] is None
        and (row["kind"] != "topic_change" or row["name"] == "remove")
        and (row["kind"] != QUOTA_LINES or row["name"] != OF_CLIENTS)
    ]


def topics_named(facts: pa.Table) -> list[Row]:
    """Committed metadata records that name topics, from cluster-wide facts including the log's parts."""
    rows = rows_of_facts(facts)
    parts = Parts(rows)
    named = [row for row in rows if row["kind"] == "topic_change" and row["metadata_offset"] is not None]
    return [row for row in named if row["topic"] and row["topic_id"] and (row["in_snapshot"] or parts.stands(row))]


def incarnations(
    rows: Iterable[Mapping[str, Any] | Row],
) -> tuple[dict[str, tuple[str, int]], dict[str, list[tuple[int, str]]]]:
    """Topic ids in the order in which topics of one name were created."""
    seen: dict[str, dict[str, int]] = defaultdict(dict)
    for row in rows:
        if row["topic"] and row["topic_id"] and row["ts"] is not None:
            at = micros(row["ts"])
            ids = seen[row["topic"]]
            ids[row["topic_id"]] = min(ids.get(row["topic_id"], at), at)
    created = {topic: sorted((at, one) for one, at in ids.items()) for topic, ids in seen.items()}
    topics = {one: (topic, k) for topic, ids in created.items() for k, (_, one) in enumerate(ids)}
    return topics, created
