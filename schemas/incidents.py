"""What was lost, by incident; and what the engine computed against what brokers reported."""

from __future__ import annotations

import pyarrow as pa

from schemas.model import (
    EVIDENCE_COLUMN,
    INT32,
    INT64,
    PARTITION_KEY,
    STRING,
    STRING_LIST,
    TIMESTAMP,
    Column,
    Table,
    required,
)

MECHANISMS: tuple[str, ...] = (
    "unclean_election",
    "acks_one_leader_failure",
    "acks_one_planned_move",
    "last_replica_standing",
    "hw_truncation",
    "fast_failover_divergence",
    "stale_fetch_accepted",
    "stale_isr_rejoin",
    "eligible_leader_regressed",
    "storage_failure",
    "out_of_range_reset",
    "other",
)

RANGES = pa.list_(pa.struct([("leader_epoch", INT32), ("first_offset", INT64), ("last_offset", INT64)]))

CHAIN = pa.list_(pa.struct([("seq", INT64), ("ts", TIMESTAMP), ("what", STRING)]))

DATA_LOSS_INCIDENTS = Table(
    "data_loss_incidents",
    "One row per losing event: a leader change or local loss after which slots that a leader had appended are gone.",
    (
        *PARTITION_KEY,
        required(
            "incident_id", STRING, "Hash of recording, partition, first lost epoch and the epoch that replaced it."
        ),
        required("mechanism", STRING, "How they were lost.", values=MECHANISMS),
        required(
            "severity",
            STRING,
            "How bad it is, S0 worst. S0: promised records lost, or logs that diverged silently. S1: lost as the "
            "configuration permits. S2: only what the leader alone had acknowledged. S3: read, and promised to nobody. "
            "What aborted transactions appended counts for none of S0 to S2.",
            values=("S0", "S1", "S2", "S3"),
        ),
        required("first_offset", INT64, "First lost offset."),
        Column("last_offset", INT64, "Last lost offset, inclusive; null: open end."),
        required(
            "ranges", RANGES, "The lost slots exactly: leader epoch, first and last offset, inclusive (null: open end)."
        ),
        Column("records", INT64, "How many offsets of ranges are lost; null: open end.", unit="records"),
        Column(
            "acked_all",
            INT64,
            "Of records those acknowledged with acks=all: at least so many; null: no evidence of acknowledgements.",
            unit="records",
        ),
        Column(
            "acked_one",
            INT64,
            "Of records those acknowledged with acks=1: at least so many; null: no evidence of acknowledgements.",
            unit="records",
        ),
        Column(
            "unacked",
            INT64,
            "Of records those never acknowledged; null: no evidence of acknowledgements.",
            unit="records",
        ),
        Column(
            "failed_appended",
            INT64,
            "Of the unacknowledged: appended, yet answered with an error (not leader, timed out, too few replicas).",
            unit="records",
        ),
        Column(
            "committed",
            INT64,
            "Of records those below the highest high watermark that a leader had.",
            unit="records",
        ),
        Column(
            "consumed",
            INT64,
            "Of records those handed to a consumer: at least so many; null: no evidence of that kind.",
            unit="records",
        ),
        Column("consumers", STRING_LIST, "Client ids of those consumers, sorted; null as above."),
        Column("acked_all_possible", INT64, "How many more the evidence cannot rule out (acks=all).", unit="records"),
        Column("acked_one_possible", INT64, "How many more the evidence cannot rule out (acks=1).", unit="records"),
        Column(
            "acked_possible",
            INT64,
            "How many more the evidence cannot rule out at either level. With acked_all, acked_one, unacked and "
            "acked_unconfirmed it makes up records; null as above.",
            unit="records",
        ),
        Column(
            "acked_unconfirmed",
            INT64,
            "Answered by a leader that had stood still, to a client that never sent anything again.",
            unit="records",
        ),
        Column(
            "aborted",
            INT64,
            "Of acked_all and acked_one: of aborted transactions. The broker acknowledged them, they were promised to "
            "nobody; null as above.",
            unit="records",
        ),
        Column("old_leader_id", INT32, "Leader before."),
        Column("old_leader_epoch", INT32, "Its epoch."),
        Column("new_leader_id", INT32, "Leader that replaced the slots."),
        Column("new_leader_epoch", INT32, "Its epoch."),
        required("losing_broker_id", INT32, "The leader that had appended them."),
        Column("lost_ts", TIMESTAMP, "Election of new_leader_epoch, or the local loss."),
        Column("truncated_ts", TIMESTAMP, "When the losing broker cut them; null: never seen."),
        Column("first_ack_ts", TIMESTAMP, "First acknowledgement of a lost record."),
        Column("last_ack_ts", TIMESTAMP, "Last one."),
        Column(
            "producers",
            STRING_LIST,
            "Client ids that had them acknowledged, sorted; null: no evidence of acknowledgements.",
        ),
        Column("chain", CHAIN, "What led to it, in order: shrink, last acknowledgement, death, election, truncation."),
        Column("chain_sources", STRING_LIST, "For each link of the chain the line (file:line) that states it."),
        Column("prevention", STRING_LIST, "Settings that would have kept the records, the most direct first."),
        Column("prevention_reasons", STRING_LIST, "For each of them why, with the numbers."),
        required("explanation", STRING, "Two or three plain sentences."),
        EVIDENCE_COLUMN,
    ),
    key=("incident_id",),
    checks={"range_order": "last_offset IS NULL OR last_offset >= first_offset"},
    questions=(
        (
            "Which offsets were acknowledged and are gone, how many records, whose, and when were they acknowledged?",
            """
            SELECT topic, partition, lost.leader_epoch, lost.first_offset, lost.last_offset, acked_all, acked_one,
                   producers, first_ack_ts, last_ack_ts
            FROM data_loss_incidents LATERAL VIEW explode(ranges) AS lost
            ORDER BY severity, topic, partition, lost.first_offset
            """,
        ),
        (
            "What led to each loss, step by step?",
            """
            SELECT topic, partition, mechanism, link.ts, link.what, link.seq
            FROM data_loss_incidents LATERAL VIEW posexplode(chain) AS place, link
            ORDER BY lost_ts, incident_id, place
            """,
        ),
    ),
)

CONFORMANCE = Table(
    "conformance",
    "What the engine computed against what the brokers reported, per partition and check.",
    (
        *PARTITION_KEY,
        required("check", STRING, "What is compared."),
        required("compared", INT64, "How many were compared."),
        required("matched", INT64, "How many were equal."),
        Column("first_mismatch_seq", INT64, "First that was not; null: all equal."),
        Column("note", STRING, "What the first mismatch was, or why nothing was compared."),
    ),
    key=("check",),
    checks={"matched": "matched <= compared"},
    questions=(
        (
            "Where does what Tidemark computed differ from what the brokers reported?",
            """
            SELECT check, topic, partition, compared, matched, first_mismatch_seq, note
            FROM conformance WHERE matched < compared ORDER BY matched / compared
            """,
        ),
    ),
)

TABLES: tuple[Table, ...] = (DATA_LOSS_INCIDENTS, CONFORMANCE)  # of the replay
