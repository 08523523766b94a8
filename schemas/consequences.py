"""What an incident meant beside the loss: replicas that differ, records that were at risk, what consumers saw."""

from __future__ import annotations

from schemas.model import (
    EVIDENCE_COLUMN,
    FLOAT64,
    INT32,
    INT64,
    INT_LIST,
    PARTITION_KEY,
    SEQ,
    STRING,
    TIMESTAMP,
    Column,
    Table,
    required,
)

REPLICA_DIVERGENCES = Table(
    "replica_divergences",
    "Same offset, different batch on two replicas, below the high watermarks of both, at the end of the recording.",
    (
        *PARTITION_KEY,
        required("broker_a", INT32, "One replica: of the two the one with the lower id."),
        required("broker_b", INT32, "The other."),
        required("first_offset", INT64, "First offset at which they differ."),
        required("last_offset", INT64, "Last offset, inclusive."),
        required("records", INT64, "How many offsets.", unit="records"),
        required(
            "differs",
            STRING,
            "What differs: the leader epoch, or, of one epoch, the batch (extent or crc).",
            values=("epoch", "batch"),
        ),
        Column("epoch_a", INT32, "Leader epoch of the offsets on broker_a."),
        Column("epoch_b", INT32, "Leader epoch of the offsets on broker_b."),
        Column("crc_a", INT64, "crc of broker_a's first batch there; null: no dump of its segments."),
        Column("crc_b", INT64, "crc of broker_b's first batch there; null: no dump of its segments."),
        Column("hw_a", INT64, "High watermark of broker_a at the end.", unit="offset"),
        Column("hw_b", INT64, "High watermark of broker_b at the end.", unit="offset"),
        Column("since_ts", TIMESTAMP, "Election of the newer of the two epochs; null: of one epoch, or not known."),
        EVIDENCE_COLUMN,
    ),
    key=("broker_a", "broker_b", "first_offset"),
    checks={"range_order": "last_offset >= first_offset", "two_replicas": "broker_a < broker_b"},
    questions=(
        (
            "Do two replicas hold other records at the same offset below their high watermarks, and since when?",
            """
            SELECT topic, partition, first_offset, last_offset, differs, broker_a, epoch_a, crc_a, broker_b, epoch_b,
                   crc_b, since_ts, evidence
            FROM replica_divergences ORDER BY topic, partition, first_offset
            """,
        ),
        (
            "Which consumers were served by which of the two?",
            """
            SELECT d.topic, d.partition, d.first_offset, d.last_offset, r.client_id, r.broker_id, count(*) AS fetches
            FROM replica_divergences AS d JOIN fetch_rounds AS r
              ON r.topic = d.topic AND r.incarnation = d.incarnation AND r.partition = d.partition
                 AND r.replica_id = -1 AND r.bytes > 0 AND r.broker_id IN (d.broker_a, d.broker_b)
                 AND r.fetch_offset BETWEEN d.first_offset AND d.last_offset
            GROUP BY ALL ORDER BY d.topic, d.partition, d.first_offset
            """,
        ),
    ),
)

RISK_STATES = ("leaderless", "isr_one", "under_min_isr", "acknowledged_by_one")
RISK_ENDS = ("expanded", "elected", "leader_lost", "leader_changed", "min_isr_lowered", "topic_deleted", "other")

PARTITION_RISK = Table(
    "partition_risk",
    "Spans in which a partition had no leader, one replica in the ISR, or too few: the losses that nearly happened.",
    (
        *PARTITION_KEY,
        SEQ,
        required(
            "state",
            STRING,
            "leaderless; isr_one: of several replicas one in the ISR; under_min_isr: ISR smaller than "
            "min.insync.replicas; acknowledged_by_one: within isr_one, from the first acks=all answered well on. Spans "
            "of different states overlap; each lies within one leader epoch.",
            values=RISK_STATES,
        ),
        Column("start_ts", TIMESTAMP, "When it began: the controller's decision, or the first such answer."),
        Column("end_ts", TIMESTAMP, "When it ended; null: not before the recording did."),
        Column(
            "seconds",
            FLOAT64,
            "How long, silences of over ten minutes about the partition aside (then bounded); null: open.",
            unit="s",
        ),
        Column("end_seq", INT64, "Place of what ended it in the replay order; null: open."),
        Column("ended_by", STRING, "What ended it; null: open.", values=RISK_ENDS),
        Column("leader_id", INT32, "Leader; null: none."),
        required("leader_epoch", INT32, "Leader epoch."),
        Column("isr", INT_LIST, "Committed ISR at its start, sorted."),
        Column(
            "min_isr",
            INT32,
            "min.insync.replicas in force, at most the number of replicas; null: no source tells.",
            unit="replicas",
        ),
        Column(
            "acked_all",
            INT64,
            "Records answered well with acks=all in the span, by the leader of its epoch: at least so many; null: no "
            "evidence of acknowledgements.",
            unit="records",
        ),
        Column("acked_one", INT64, "The same with acks=1.", unit="records"),
        Column(
            "records_at_risk",
            INT64,
            "The most records of the epoch that, at one moment of the span, the leader had and no follower had yet "
            "asked beyond: what its loss would have taken; null: no append is known, or there was no leader.",
            unit="records",
        ),
        Column("incident_id", STRING, "Loss that it ended in; null: none."),
        EVIDENCE_COLUMN,
    ),
    key=("seq", "state"),
    checks={
        "open_or_ended": "(end_seq IS NULL) = (ended_by IS NULL)",
        "time_not_negative": "seconds IS NULL OR seconds >= 0",
    },
    questions=(
        (
            "How long was each partition leaderless, at one replica, under min.insync.replicas, acknowledging alone?",
            """
            SELECT topic, partition, state, count(*) AS spans, sum(seconds) AS seconds,
                   count_if(end_ts IS NULL) AS still_open
            FROM partition_risk GROUP BY topic, partition, state ORDER BY seconds DESC
            """,
        ),
        (
            "Which losses nearly happened: records that only the leader had, though it all ended well?",
            """
            SELECT topic, partition, start_ts, seconds, leader_id, leader_epoch, isr, min_isr, acked_all, acked_one,
                   records_at_risk, ended_by
            FROM partition_risk WHERE state = 'isr_one' AND records_at_risk > 0 AND incident_id IS NULL
            ORDER BY acked_all DESC, records_at_risk DESC
            """,
        ),
    ),
)

CONSUMER_EFFECTS = Table(
    "consumer_effects",
    "What consumers saw of it: records read and lost later, resets, and reads from followers; a row per run of reads.",
    (
        *PARTITION_KEY,
        SEQ,
        required(
            "effect",
            STRING,
            "read_then_lost: handed out, and gone since; out_of_range: fetches answered OFFSET_OUT_OF_RANGE; "
            "truncation_detected: it asked where the epoch of its position ends, and it ends before (KIP-320); "
            "read_from_follower: fetches answered by a broker that did not lead (KIP-392).",
            values=("read_then_lost", "out_of_range", "truncation_detected", "read_from_follower"),
        ),
        required("client_id", STRING, "Client id of the consumer; several consumers may share it."),
        required("broker_id", INT32, "Broker that answered."),
        required("leader_epoch", INT32, "Leader epoch under which it answered."),
        required("first_offset", INT64, "First offset read or lost; of a reset the position that was refused."),
        Column("last_offset", INT64, "Last offset, inclusive; null: of a reset, or not known."),
        Column("records", INT64, "How many offsets; null as above.", unit="records"),
        Column("fetches", INT64, "Fetches folded into the row; null: not counted.", unit="fetches"),
        Column("first_ts", TIMESTAMP, "When it was first answered so."),
        Column("last_ts", TIMESTAMP, "When last."),
        Column("slot_epoch", INT32, "read_then_lost: leader epoch of the records."),
        Column("incident_id", STRING, "The loss that it belongs to; null: none."),
        Column(
            "replaced_by_epoch",
            INT32,
            "read_then_lost: leader epoch whose records stand at first_offset at the end; null: nothing stands there.",
        ),
        Column(
            "log_end", INT64, "Resets: where the log, or the epoch asked for, ended; null: not known.", unit="offset"
        ),
        Column(
            "resumed_offset",
            INT64,
            "Offset of its next fetch answered well in a later leader epoch; null: none seen. Beyond first_offset: "
            "what replaced the records before it was not read.",
        ),
        Column("resumed_ts", TIMESTAMP, "Time of that fetch."),
        EVIDENCE_COLUMN,
    ),
    key=("seq", "effect", "client_id", "broker_id", "leader_epoch", "first_offset"),
    checks={"range_order": "last_offset IS NULL OR last_offset >= first_offset"},
    questions=(
        (
            "Which consumers read records that were lost later, which, and when?",
            """
            SELECT client_id, topic, partition, first_offset, last_offset, records, first_ts, last_ts, broker_id,
                   incident_id, replaced_by_epoch, resumed_offset
            FROM consumer_effects WHERE effect = 'read_then_lost' ORDER BY records DESC
            """,
        ),
        (
            "Which consumers were reset, or found their position cut away, and from where did they go on?",
            """
            SELECT client_id, topic, partition, effect, first_ts, first_offset AS position, log_end, fetches,
                   resumed_offset, incident_id
            FROM consumer_effects WHERE effect IN ('out_of_range', 'truncation_detected') ORDER BY first_ts
            """,
        ),
    ),
)

TABLES: tuple[Table, ...] = (REPLICA_DIVERGENCES, PARTITION_RISK, CONSUMER_EFFECTS)  # of the replay
