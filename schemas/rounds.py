"""Fetch rounds and commits: what the purgatories let go, why, and after how long."""

from __future__ import annotations

from schemas.model import (
    BOOL,
    EVIDENCE_COLUMN,
    FLOAT64,
    INT32,
    INT64,
    INT_LIST,
    PARTITION_KEY,
    SEQ,
    STRING,
    TIMESTAMP,
    TS,
    WINDOW,
    Column,
    Table,
    required,
)

COMPLETIONS: tuple[str, ...] = (
    # answered at once, because
    "no_wait",  # maxWaitMs was 0
    "no_partitions",  # the follower had nothing to ask for: its quota left every partition out
    "enough_bytes",  # minBytes were there
    "error",
    "hw_not_told",  # 2.4 and 2.5: the follower had not been told the HW yet (KAFKA-8443)
    "diverging_epoch",  # also while it waited
    "preferred_replica",
    # parked, and completed by
    "bytes",  # an append
    "hw_moved",  # consumers: records became readable; followers of 2.4 and 2.5: news
    "timeout",
    "segment_roll",  # the fetch offset came to lie on an older segment, whatever the bytes
    "not_leader",
    "truncated_leader",  # the leader's end fell below the fetch offset
    "fenced_epoch",
    "replica_removed",  # the broker knows the partition, or its topic's id, no more
    "log_dir_offline",
    "remote_storage",  # the records had to be read from a remote tier (DelayedRemoteFetch)
    # either
    "throttled",  # a quota kept records back, or the partition out of the request
    "other_partition",  # another partition of the same request completed it
    "unknown",
)
QUOTAS = ("client", "leader", "follower")
LIMITS = ("partition_max_bytes", "max_bytes", "first_batch", "segment")
COMMIT_CAUSES: tuple[str, ...] = ("fetch", "append", "isr_change", "role", "statement")


def phase(name: str, comment: str) -> Column:
    """A part of a request's time."""
    return Column(f"{name}_ms", FLOAT64, comment, unit="ms")


PHASES: tuple[Column, ...] = (
    phase("queue", "Waiting for a handler."),
    phase("local", "In the handler: append or read."),
    phase("remote", "In purgatory."),
    phase("throttle", "Throttle time that a client quota answered: the channel is muted for so long afterwards."),
    phase("response_queue", "Waiting for the network thread."),
    phase("send", "Sending the answer."),
)

FETCH_ROUNDS = Table(
    "fetch_rounds",
    "Each fetch of a replica or consumer: whether it was answered at once or waited, and what completed it.",
    (
        *PARTITION_KEY,
        SEQ,
        WINDOW,
        TS,
        required("broker_id", INT32, "Who was asked."),
        required("replica_id", INT32, "Who fetched; -1: a consumer."),
        Column("leader_epoch", INT32, "Leader epoch in which it was served."),
        Column("client_id", STRING, "Client id of the fetch."),
        Column("fetch_offset", INT64, "Where it fetched from."),
        Column("bytes", INT64, "Bytes handed out for this partition; null: it was not in the request.", unit="bytes"),
        Column("request_bytes", INT64, "Bytes handed out over all partitions of the request.", unit="bytes"),
        Column(
            "bytes_before",
            INT64,
            "Of them, those of partitions that the leader read before this one: as the answer lists them, else as the "
            "session tells; null: the order is not known.",
            unit="bytes",
        ),
        Column("response_hw", INT64, "High watermark that the answer carries, or, unlisted, the one last sent."),
        Column(
            "last_stable_offset",
            INT64,
            "Last stable offset that the answer carries; beyond response_hw where the leader moved on between the two.",
        ),
        Column("log_start_offset", INT64, "Log start offset that the answer carries."),
        Column("leader_leo", INT64, "The leader's LEO as it answered; null: not known."),
        Column("error_code", INT32, "Error answered; 0 none."),
        Column(
            "isolation",
            STRING,
            "How far a consumer may read; null: a replica.",
            values=("read_uncommitted", "read_committed"),
        ),
        Column("max_wait_ms", INT32, "How long it was ready to wait.", unit="ms"),
        Column("min_bytes", INT32, "What it was ready to wait for.", unit="bytes"),
        Column(
            "max_bytes",
            INT32,
            "How much it would take over all partitions; null: no limit, or not known.",
            unit="bytes",
        ),
        Column(
            "partition_max_bytes", INT32, "How much it would take of this partition; null: not known.", unit="bytes"
        ),
        Column(
            "limited_by",
            STRING,
            "What kept the answer from holding all that the leader had: the size that the fetch allows the partition "
            "(a batch at the end may be cut off) or the whole answer; first_batch: nothing but one batch, which is "
            "larger than that; segment: a follower's ends early although no size says so, as at the end of a segment "
            "(then the row is bounded). Null: nothing did, or it is not known.",
            values=LIMITS,
        ),
        required("delayed", BOOL, "Whether it was parked."),
        Column("wait_ms", FLOAT64, "Time in purgatory; of a run: the mean.", unit="ms"),
        required("completed_by", STRING, "Why it was answered when it was.", values=COMPLETIONS),
        Column(
            "quota",
            STRING,
            "Which quota kept records back: the client's, the leader's or the follower's for replication.",
            values=QUOTAS,
        ),
        Column(
            "quota_rate",
            INT64,
            "What this partition adds to the rate of the replication quota that concerns the round, at least: the "
            "follower's of a round that it left the partition out of, else the leader's; null: no limit holds.",
            unit="bytes/s",
        ),
        Column("quota_limit", INT64, "That quota's limit.", unit="bytes/s"),
        Column("run_count", INT64, "Fetches of a session folded into this row, as none lists it.", unit="fetches"),
        Column("run_timeouts", INT64, "Of them, how many waited until their time was up.", unit="fetches"),
        *PHASES,
        EVIDENCE_COLUMN,
    ),
    key=("seq",),
    checks={
        "run_not_empty": "run_count IS NULL OR (run_count > 0 AND run_timeouts <= run_count)",
        "at_once_did_not_wait": "completed_by NOT IN ('no_wait', 'enough_bytes', 'hw_not_told') OR NOT delayed",
    },
    questions=(
        (
            "What completes each replica's fetches, how often, and after how long?",
            """
            SELECT topic, partition, replica_id, completed_by, sum(coalesce(run_count, 1)) AS fetches,
                   round(avg(wait_ms), 1) AS wait_ms, max(wait_ms) AS wait_ms_max
            FROM fetch_rounds GROUP BY topic, partition, replica_id, completed_by
            ORDER BY topic, partition, replica_id, fetches DESC
            """,
        ),
        (
            "Which fetches did a quota hold back, for how long, and at which offset?",
            """
            SELECT topic, partition, replica_id, quota, quota_rate, quota_limit, ts, fetch_offset,
                   leader_leo - fetch_offset AS behind, bytes, wait_ms, throttle_ms, run_count, seq
            FROM fetch_rounds WHERE quota IS NOT NULL ORDER BY topic, partition, seq
            """,
        ),
        (
            "Who fetches less at a time than there is, because of which limit, and how far behind is it?",
            """
            SELECT topic, partition, replica_id, limited_by, partition_max_bytes, max_bytes, count(*) AS fetches,
                   max(bytes) AS bytes_max, max(leader_leo - fetch_offset) AS behind_max
            FROM fetch_rounds WHERE limited_by IS NOT NULL
            GROUP BY topic, partition, replica_id, limited_by, partition_max_bytes, max_bytes
            ORDER BY fetches DESC, topic, partition, replica_id
            """,
        ),
    ),
)

COMMIT_LATENCY = Table(
    "commit_latency",
    "Each batch appended for an acks=all produce: when it was committed, by whose fetch, and where the time went.",
    (
        *PARTITION_KEY,
        SEQ,
        WINDOW,
        required("broker_id", INT32, "The leader that appended it."),
        required("leader_epoch", INT32, "Its leader epoch."),
        Column("client_id", STRING, "Client id of the producer; null: it was never answered."),
        required("base_offset", INT64, "First offset of the batch."),
        required("last_offset", INT64, "Last offset of the batch, inclusive."),
        required("append_ts", TIMESTAMP, "When it was appended."),
        Column(
            "commit_ts",
            TIMESTAMP,
            "When the leader's high watermark passed it, within the append and the answer; null: not while it led.",
        ),
        Column("ack_ts", TIMESTAMP, "When the producer was answered; null: no answer is known."),
        Column("commit_ms", FLOAT64, "From the append to the commit.", unit="ms"),
        Column("timeout_ms", FLOAT64, "How long its request was ready to wait; null: no line says.", unit="ms"),
        Column("commit_seq", INT64, "The event that committed it."),
        Column(
            "committed_by",
            STRING,
            "What raised the high watermark: a follower's fetch, an append (this one, or a later one), an ISR change, "
            "the leader's taking up its role, or a source that states it already raised.",
            values=COMMIT_CAUSES,
        ),
        Column("last_replica_id", INT32, "Replica waited for last: its fetch committed it; null: no fetch did."),
        Column("isr", INT_LIST, "Committed ISR at that moment, sorted."),
        Column("isr_size", INT32, "Its size.", unit="replicas"),
        Column("error_code", INT32, "Error answered; 0 none; 7: timed out; 20: not enough replicas after append."),
        Column(
            "derived_error_code",
            INT32,
            "Error with which it must have been answered by the rules, whether or not an answer is known; without one, "
            "as its commit had it answered unless its time was up before. Null: not known.",
        ),
        Column("total_ms", FLOAT64, "From the request's arrival to its answer.", unit="ms"),
        *PHASES,
        EVIDENCE_COLUMN,
    ),
    key=("seq",),
    checks={
        "batch_not_empty": "last_offset >= base_offset",
        "commit_after_append": "commit_ts IS NULL OR commit_ts >= append_ts",
        "commit_before_answer": "error_code IS NULL OR error_code <> 0 OR commit_ts IS NULL OR commit_ts <= ack_ts",
        "isr_has_its_size": "isr IS NULL OR cardinality(isr) = isr_size",
    },
    questions=(
        (
            "Which acks=all produces waited longest for their commit, and for whom?",
            """
            SELECT topic, partition, base_offset, client_id, append_ts, commit_ms, committed_by, last_replica_id, isr,
                   queue_ms, local_ms, remote_ms, response_queue_ms, send_ms, total_ms, error_code
            FROM commit_latency ORDER BY commit_ms DESC NULLS LAST LIMIT 20
            """,
        ),
        (
            "Which produces were answered with an error once appended, and were committed after all?",
            """
            SELECT topic, partition, base_offset, last_offset, client_id, error_code, ack_ts, commit_ts, committed_by
            FROM commit_latency WHERE error_code <> 0 ORDER BY ack_ts
            """,
        ),
    ),
)

TABLES: tuple[Table, ...] = (FETCH_ROUNDS, COMMIT_LATENCY)  # of the replay
