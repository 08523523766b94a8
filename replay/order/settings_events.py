"""Events for a partition as a whole: settings, brokers that come and go, the topic's deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.evidence.min_isr import number_in
from replay.evidence.request_times import Window, line_window
from replay.evidence.tenures import micros
from replay.order.operations import Draft

if TYPE_CHECKING:
    from replay.evidence.partition_facts import PartitionFacts
    from replay.evidence.replication_quotas import QuotaChange
    from replay.evidence.rows import Row
    from replay.evidence.tenures import Decision

CREATED = "PARTITION_RECORD"
BACKOFF_SETTING = "replica.fetch.backoff.ms"


def configuration_draft(facts: PartitionFacts) -> Draft:
    """The configuration in force, as the first event."""
    at = facts.decisions[0].us if facts.decisions else 0
    return Draft(
        "config_change",
        None,
        Window(at, at, at),
        {
            "min_insync_replicas": facts.min_insync_replicas,
            "replica_lag_time_max_us": facts.lag_us,
            "fetch_backoff_ms": fetch_backoff_ms(facts),
            "segment_bytes": opening_segment_bytes(facts),
            "kafka_version": facts.kafka_version,
            "inter_broker_protocol": facts.inter_broker_protocol,
            "remote_storage": facts.remote_storage,
            "leader_throttled": "leader" in facts.throttled,
            "evidence": "observed",
        },
    )


def fetch_backoff_ms(facts: PartitionFacts) -> int | None:
    """How long the brokers' fetchers wait after an error, as the first broker that says so has it; None: none does."""
    told = (row for row in facts.cluster if row["kind"] == "config_change" and row["name"] == BACKOFF_SETTING)
    return next((value for value in map(number_in, told) if value is not None), None)


def came_with(row: Row, decision: Decision) -> bool:
    """Whether a setting was written together with a decision, as by the creation of a topic, or by a snapshot."""
    made = decision.row
    return bool(row["ts"] == made["ts"] or (row["in_snapshot"] and made["in_snapshot"]))


def opening_segment_bytes(facts: PartitionFacts) -> int | None:
    """How large a segment may become, as the topic was made with it, else by its brokers' default; None: not stated.

    Only the metadata log tells that a topic was made without a limit of its own.
    """
    made = facts.decisions[:1]
    told = [number_in(row) for row in facts.turns.segment_settings if made and came_with(row, made[0])]
    if told:
        return told[-1]
    return default_segment_bytes(facts) if made and made[0].row["record_type"] == CREATED else None


def default_segment_bytes(facts: PartitionFacts) -> int | None:
    """The log.segment.bytes that all replicas print whenever they start; None: some print none, or another one."""
    replicas = {broker for decision in facts.decisions for broker in decision.replicas}
    told = {(row["broker_id"], number_in(row)) for row in facts.turns.segment_defaults if row["broker_id"] in replicas}
    values = {value for _, value in told}
    return values.pop() if len(values) == 1 and {broker for broker, _ in told} == replicas else None


def segment_bytes_between(facts: PartitionFacts, first: int, last: int) -> list[Draft]:
    """The changes of how large a segment may become that the metadata log tells between two places."""
    told = [r for r in facts.turns.segment_settings if facts.decisions and first < r["metadata_offset"] < last]
    later = [r for r in told if not came_with(r, facts.decisions[0]) and not is_before(r, facts.decisions[0])]
    return [segment_bytes_draft(row, micros(row["ts"])) for row in later]


def segment_bytes_draft(row: Row, at: int) -> Draft:
    """A change of segment.bytes as an event."""
    fields = {"segment_bytes": number_in(row) or 0, "metadata_offset": row["metadata_offset"], "evidence": "observed"}
    return Draft("config_change", row, Window(at, at, at), fields)


def removal_drafts(facts: PartitionFacts) -> list[Draft]:
    """The topic's deletion as the last event, if there was one."""
    row = facts.deletion()
    fields = {"cause": "remove", "evidence": "observed"}
    return [Draft("topic_change", row, line_window(micros(row["ts"])), fields)] if row is not None else []


def opening_broker_drafts(facts: PartitionFacts) -> list[Draft]:
    """Who was fenced when the partition was created: each broker's last change before."""
    if not facts.decisions:
        return []
    last: dict[int, Row] = {}
    for row in facts.broker_changes():
        if row["metadata_offset"] < facts.decisions[0].place + bool(row["in_snapshot"]):
            before = last.get(row["subject_broker_id"], row)
            fenced = row["fenced"] if row["fenced"] is not None else before["fenced"]
            last[row["subject_broker_id"]] = row.but(fenced=fenced)
    return [broker_draft(row) for _, row in sorted(last.items())]


def min_isr_draft(row: Row, value: int) -> Draft:
    """A change of min.insync.replicas as an event."""
    at = micros(row["ts"])
    fields = {"min_insync_replicas": value, "metadata_offset": row["metadata_offset"], "evidence": "observed"}
    return Draft("config_change", row, Window(at, at, at), fields)


def quota_draft(change: QuotaChange) -> Draft:
    """A change of a broker's replication quota, as far as it is about this partition, as an event."""
    row = change.row
    at = micros(row["ts"])
    fields = {
        "broker_id": change.broker,
        f"{change.side}_quota": change.rate,
        "metadata_offset": row["metadata_offset"],
        "evidence": change.evidence,
    }
    return Draft("config_change", row, Window(at, at, at), fields)


def opening_quota_drafts(facts: PartitionFacts) -> list[Draft]:
    """The replication quotas in force when the partition was created: the last change of each."""
    if not facts.decisions:
        return []
    before = {(c.broker, c.side): c for c in facts.quota_changes if is_before(c.row, facts.decisions[0])}
    return [quota_draft(before[key]) for key in sorted(before)]


def is_before(row: Row, decision: Decision) -> bool:
    """Whether a setting was told before a decision: by its place in the metadata log, else by its line's time."""
    place = row["metadata_offset"]
    return bool(micros(row["ts"]) <= decision.us if place is None else place <= decision.place)


def quotas_between(facts: PartitionFacts, places: tuple[int, int], times: tuple[int, int]) -> list[Draft]:
    """The changes of quotas that the metadata log tells between two places, and lines between two times."""
    found = []
    for change in facts.quota_changes:
        place = change.row["metadata_offset"]
        if place is not None:
            is_mine = places[0] < place < places[1]
        else:
            is_mine = times[0] <= micros(change.row["ts"]) < times[1]
        if is_mine and not is_before(change.row, facts.decisions[0]):
            found.append(quota_draft(change))
    return found


def broker_draft(row: Row) -> Draft:
    """A registration or fencing as an event."""
    at = micros(row["ts"])
    return Draft(
        "broker_change",
        row,
        Window(at, at, at),
        {
            "broker_id": row["subject_broker_id"],
            "broker_epoch": row["broker_epoch"],
            "fenced": row["fenced"],
            "in_controlled_shutdown": registered(row),
            "metadata_offset": row["metadata_offset"],
            "evidence": "observed",
        },
    )


def registered(row: Row) -> bool | None:
    """Whether a controlled shutdown is under way after this row; a new registration ends it. None: not stated."""
    stopping: bool | None = row["in_controlled_shutdown"]
    return False if stopping is None and row["record_type"] == "REGISTER_BROKER_RECORD" else stopping
