"""`replication_events`: one row is one effect on one partition, in replay order, with its source line."""

from __future__ import annotations

from schemas.model import (
    BOOL,
    EVIDENCE_COLUMN,
    INT32,
    INT64,
    INT_LIST,
    LONG_LIST,
    PARTITION_KEY,
    STRING,
    TIMESTAMP,
    WINDOW,
    Column,
    Table,
    required,
)

EVENT_KINDS: tuple[str, ...] = (
    "append",
    "ack",
    "fetch_update",
    "fetch_read",
    "fetch_apply",
    "consumer_read",
    "epoch_end_offset",
    "partition_change",
    "isr_request",
    "broker_change",
    "config_change",
    "topic_change",
    "role_change",
    "log_load",
    "truncation",
    "log_start_change",
    "observation",
    "fetch_left_out",
    "log_dump",
    "produce_refused",
    "delete_records",
    "segment_change",
)

# Which rule chose a leader, as in docs/protocol.md, Elections; leader_kept: nobody else was asked.
ELECTION_RULES: tuple[str, ...] = (
    "first_live",
    "leader_kept",
    "preferred_in_sync",
    "first_in_sync",
    "first_eligible",
    "last_known_leader",
    "first_live_unclean",
    "no_candidate",
    "not_known",
)

REPLICATION_EVENTS = Table(
    "replication_events",
    "One effect on one partition, in the order in which the engine replays it.",
    (
        *PARTITION_KEY,
        required(
            "seq",
            INT64,
            "Place in the partition's replay order, strictly increasing; may change when evidence is added.",
        ),
        WINDOW,
        required("event_id", STRING, "Hash of the fact's key, kind and partition: the same in every run."),
        Column("request_id", STRING, "Joins the effects of one request: broker, connection, correlation id."),
        required("ts", TIMESTAMP, "Best estimate of when the effect happened, on the acting broker's clock."),
        required("ts_lo", TIMESTAMP, "Earliest time it can have happened."),
        required("ts_hi", TIMESTAMP, "Latest time it can have happened."),
        Column(
            "ts_error_us",
            INT64,
            "ts, ts_lo and ts_hi alike may be off by so much to either side: the line's stamp is a whole second.",
            unit="us",
        ),
        required("kind", STRING, "What the effect is.", values=EVENT_KINDS),
        Column("broker_id", INT32, "Broker on whose log or state it acts; null: the controller's decision."),
        Column("leader_epoch", INT32, "Leader epoch that the effect belongs to; null: the broker had no role yet."),
        Column("replica_id", INT32, "The other replica: who fetched (-1 consumer), who joined or left; null: none."),
        Column("source_file", STRING, "Where it was read; null: inserted from the evidence of other events."),
        Column("source_line", INT64, "1-based line in that file.", unit="line"),
        EVIDENCE_COLUMN,
        # -- append, ack
        Column(
            "base_offset",
            INT64,
            "append, ack: first offset of the batch; fetch_apply: that of the batch with which an empty log began, "
            "below its end; log_dump: of the run; segment_change: of the segment, or of what the cleaner went over.",
        ),
        Column(
            "next_offset",
            INT64,
            "append, ack, log_dump: offset after the last; fetch_read, consumer_read: offset after the last record "
            "handed out; fetch_apply: the follower's LEO after it; role_change of a leader whose LEO nothing states: "
            "the least that it can be; segment_change: where it ends; null unknown.",
        ),
        Column(
            "next_offset_evidence",
            STRING,
            "How next_offset is known (the end of a batch stands in no request log line).",
        ),
        Column(
            "bytes",
            INT64,
            "Bytes produced, or handed out by the answer; of a segment that ended, as its broker's line states them.",
            unit="bytes",
        ),
        Column("acks", INT32, "append, ack, produce_refused: acks of the produce: -1, 0, 1."),
        Column("error_code", INT32, "Error answered; 0 none; null no answer is known."),
        Column("client_id", STRING, "Client id of the request."),
        Column("duplicate", BOOL, "append, ack: answered from the producer's state, nothing appended."),
        Column(
            "unconfirmed",
            BOOL,
            "ack: sent just after the broker had stood still, on a connection that never sent anything again; evidence "
            "bounded: the broker's own log is not at hand, so that it may not have stood still.",
        ),
        Column(
            "request_timed_out",
            BOOL,
            "ack: some partition of its request was answered REQUEST_TIMED_OUT, so that this answer waited until then.",
        ),
        Column("is_control", BOOL, "append, produce_refused: a transaction marker, which nobody produced."),
        Column(
            "transaction",
            STRING,
            "append: how the transaction ended that it belongs to, or open: no end of it is seen; null: it belongs to "
            "none, or nothing tells.",
            values=("commit", "abort", "open"),
        ),
        Column(
            "producer_id",
            INT64,
            "append: producer of the transaction, or whose transaction the marker ends; null: none, or no line says.",
        ),
        # -- fetches
        Column("fetch_offset", INT64, "fetch_*: the fetcher's LEO; consumer_read: where it reads from."),
        Column("last_fetched_epoch", INT32, "Epoch of the fetcher's last record; -1 none."),
        Column("delayed", BOOL, "Whether the answer waited in purgatory, so that it was read again on completion."),
        Column(
            "response_hw", INT64, "High watermark that the answer carries; null: the partition is not in the answer."
        ),
        Column("implied", BOOL, "The partition is listed in neither request nor response: the session's cached fetch."),
        Column("run_count", INT64, "Unlisted fetches folded into this row.", unit="fetches"),
        Column("run_until", TIMESTAMP, "Time of the last of them."),
        Column("run_gap_us", INT64, "Largest gap between two of them.", unit="us"),
        Column("run_timeouts", INT64, "Of them, how many waited until their time was up.", unit="fetches"),
        Column(
            "max_wait_ms",
            INT32,
            "maxWaitMs of the fetch, timeoutMs of a produce (ack) or delete_records: how long it was ready to wait.",
            unit="ms",
        ),
        Column("min_bytes", INT32, "minBytes of the fetch: what it waited for.", unit="bytes"),
        Column(
            "max_bytes",
            INT32,
            "maxBytes of the fetch: how much it takes over all partitions; null: no limit (up to v2), or not listed.",
            unit="bytes",
        ),
        Column(
            "partition_max_bytes",
            INT32,
            "partitionMaxBytes of the fetch: how much it takes of this partition.",
            unit="bytes",
        ),
        Column("isolation_level", INT32, "consumer_read: 0 read_uncommitted, 1 read_committed."),
        Column("last_stable_offset", INT64, "Last stable offset that the answer carries."),
        Column("preferred_read_replica", INT32, "Replica that the answer sends the consumer to; null or -1: none."),
        Column("request_bytes", INT64, "Bytes that the answer hands out over all its partitions.", unit="bytes"),
        Column(
            "bytes_before",
            INT64,
            "Of them, those of partitions that the leader read before this one, by what came to the end of the session "
            "that it has cached; null: the order does not follow from that.",
            unit="bytes",
        ),
        Column(
            "bytes_listed_before",
            INT64,
            "Of them, those of partitions that the answer lists before this one, which is the order in which they were "
            "read; null: not listed, or an older version made the row.",
            unit="bytes",
        ),
        Column(
            "request_forced",
            BOOL,
            "Whether any of its partitions completes it whatever the bytes: by an error, a divergence, a preferred "
            "replica, or a consumer's offset beyond the HW.",
        ),
        Column("diverging_epoch", INT32, "divergingEpoch of the answer."),
        Column("diverging_end_offset", INT64, "Its end offset."),
        # -- where the time of a request went (ack, produce_refused, delete_records, fetches, consumer_read)
        Column("queue_us", INT64, "In the request queue.", unit="us"),
        Column("local_us", INT64, "In the handler: append or read.", unit="us"),
        Column("remote_us", INT64, "In purgatory.", unit="us"),
        Column("throttle_us", INT64, "Throttle time that a client quota answered.", unit="us"),
        Column(
            "client_quota",
            INT64,
            "ack: rate at which the broker lets the client produce, by its own line; null: none is known.",
            unit="bytes/s",
        ),
        Column("response_queue_us", INT64, "In the response queue.", unit="us"),
        Column("send_us", INT64, "Sending.", unit="us"),
        # -- control plane
        Column(
            "leader_id",
            INT32,
            "Leader named by the decision (-1 none); consumer_read: the leader, where a follower answered; observation "
            "of a follower's fetcher: whom it fetches from.",
        ),
        Column(
            "partition_epoch",
            INT32,
            "Partition epoch of the decision; isr_request that lost a conditional update: the version that the leader "
            "knew, by its line.",
        ),
        Column("isr", INT_LIST, "ISR decided or stated, sorted."),
        Column(
            "isr_broker_epochs",
            LONG_LIST,
            "isr_request: broker epochs of the members that the leader asks for, in the order of isr; -1: any; null: "
            "the request is not at hand, or names none (up to 3.4).",
        ),
        Column(
            "replicas",
            INT_LIST,
            "Assignment, in order; consumer_read: those in the consumer's rack, where its leader chooses by racks.",
        ),
        Column("adding_replicas", INT_LIST, "Replicas being added."),
        Column("removing_replicas", INT_LIST, "Replicas being removed."),
        Column("elr", INT_LIST, "Eligible leader replicas."),
        Column("change", STRING, "partition_change: what the decision did to the ISR, as in isr_timeline."),
        Column("election", STRING, "partition_change that begins a leader epoch: how, as in leadership_timeline."),
        Column("trigger", STRING, "partition_change that begins a leader epoch: what set it off, in words."),
        Column("candidates", INT_LIST, "partition_change: who could lead, in the order of the rule that chose."),
        Column("live", INT_LIST, "partition_change: of the assignment, old and new, who could be asked to lead."),
        Column("in_sync", INT_LIST, "partition_change: ISR without those whom the decision drops, before the choice."),
        Column("rule", STRING, "partition_change: which rule chose the leader.", values=ELECTION_RULES),
        Column(
            "predicted_leader_id", INT32, "partition_change: leader that the rule chooses (-1 none); null: unknown."
        ),
        Column("asked_for", BOOL, "partition_change, preferred election: as in leadership_timeline."),
        Column("predicted_isr", INT_LIST, "partition_change: ISR that goes with it, sorted; null: unknown."),
        Column("recovering", BOOL, "The decision marks the leader as recovering: an unclean election."),
        Column("metadata_offset", INT64, "Place in the metadata log."),
        Column(
            "controller_id",
            INT32,
            "observation of a metadata cache: the controller that sent it; isr_answered: the node that answered; "
            "broker_epoch: the controller whose line it is.",
        ),
        Column(
            "active_controller_id",
            INT32,
            "observation isr_answered: the active controller then (-1 none); null: unknown, or it was changing.",
        ),
        Column(
            "broker_epoch",
            INT64,
            "broker_change: epoch of the registration; observation isr_answered: the leader's own, which its request "
            "names; observation broker_epoch: under which ZooKeeper's controller has the broker.",
        ),
        Column("fenced", BOOL, "broker_change: fenced after it."),
        Column("in_controlled_shutdown", BOOL, "broker_change: shutting down in order after it."),
        Column("min_insync_replicas", INT32, "config_change: min.insync.replicas in force after it; 0: known no more."),
        Column(
            "replica_lag_time_max_us", INT64, "config_change: replica.lag.time.max.ms in force after it.", unit="us"
        ),
        Column(
            "fetch_backoff_ms",
            INT32,
            "config_change: replica.fetch.backoff.ms of the brokers; null: no source states it.",
            unit="ms",
        ),
        Column(
            "segment_bytes",
            INT64,
            "config_change: segment.bytes of the topic from here on, of one made without it log.segment.bytes of its "
            "brokers; 0: known no more; null: no source states it. segment_change of a roll: "
            "as the broker's line states it.",
            unit="bytes",
        ),
        Column("kafka_version", STRING, "config_change: version whose rules hold from here on."),
        Column("inter_broker_protocol", STRING, "config_change: inter.broker.protocol.version; null: not stated."),
        Column("remote_storage", BOOL, "config_change: remote.storage.enable of the topic."),
        Column(
            "leader_throttled",
            BOOL,
            "config_change: leader.replication.throttled.replicas names the partition, at some time of the recording.",
        ),
        Column(
            "leader_quota",
            INT64,
            "config_change: rate at which broker_id may send followers what it throttles; -1: not of this partition.",
            unit="bytes/s",
        ),
        Column(
            "follower_quota",
            INT64,
            "config_change: rate at which broker_id may fetch what it throttles; -1: not of this partition.",
            unit="bytes/s",
        ),
        # -- broker states
        Column("role", STRING, "role_change: the role taken.", values=("leader", "follower")),
        Column("leo", INT64, "LEO stated or inferred (role_change, log_load, observation)."),
        Column("hw", INT64, "High watermark stated or inferred (role_change, log_load, observation)."),
        Column(
            "hw_by_lines",
            INT64,
            "observation of an HW line: the HW that the engine has there, ordered by that broker's lines alone.",
        ),
        Column("state_before", STRING, "observation of a state machine's line: state before it, as Kafka names it."),
        Column(
            "state",
            STRING,
            "observation of a state machine's line: state after it; of a future log's: what became of it; isr_request "
            "that is committed: the leader took it from the controller's answer or its own write (updated), or from "
            "the metadata (applied); null: no line of the leader's tells; segment_change: why it was "
            "deleted, or the one before it ended.",
        ),
        Column(
            "log_start_offset",
            INT64,
            "Log start offset stated or answered; delete_records: to where it moves, as far as that is told.",
        ),
        Column("requested_offset", INT64, "delete_records: offset before which records are to go; -1: the HW."),
        Column("low_watermark", INT64, "delete_records: the low watermark that it is answered with; -1: refused."),
        Column("follower_log_start_offset", INT64, "fetch_update: the follower's own log start offset, as it sent it."),
        Column(
            "replica_epoch",
            INT64,
            "fetch_update: broker epoch that the follower sent (3.5+), of a run in its last fetch; -1: it did not know "
            "its own yet; null: no source says.",
        ),
        Column("truncate_to", INT64, "truncation: new LEO."),
        Column(
            "cause",
            STRING,
            "truncation: what decided it; isr_request: committed, pending, or rejected (reset, refused, retried); "
            "observation, topic_change: what it was; of a follower's line about its fetcher: request_failed, "
            "leader_not_alive, leader_unavailable (ZooKeeper: it keeps its role; of a role_change, too), "
            "corrupt_records, unexpected_error, truncation_failed, truncation_forbidden, thread_ended, shutting_down; "
            "of ZooKeeper's notifications of ISR changes: isr_notice_made (a leader's line), isr_notice_read (a "
            "controller's); "
            "log_dump: holds, or differs from another replica; "
            "produce_refused: transactional if the producer was, deleted if the broker had heard that the topic was; "
            "delete_records: the topic's cleanup.policy, none if it is empty, null if it is unknown; segment_change: "
            "what became of it, as in segment_timeline.",
        ),
        Column("note", STRING, "observation of lines that contradict each other: what cannot be true."),
        Column("crc", INT64, "log_dump that differs: crc of the broker's first batch of the run."),
        Column("other_leader_epoch", INT32, "log_dump that differs: leader epoch on the other replica."),
        Column("other_crc", INT64, "log_dump that differs: crc of the other replica's first batch of the run."),
        Column("throttled", INT_LIST, "isr_request: replicas that had left the partition out because of their quota."),
        Column(
            "stood_still_us",
            INT64,
            "isr_request: for how long the leader had written no line at all in the lag time before; ack: the same "
            "while its produce waited, where that was longer than its timeout; null: it had not.",
            unit="us",
        ),
        Column(
            "since_expiry_run_us",
            INT64,
            "isr_request that shrinks: how long before it the leader's isr-expiration task is known to have run, by "
            "its start or by a shrink of any partition that it leads; null: not known.",
            unit="us",
        ),
        Column(
            "fetcher_stopped_ts",
            TIMESTAMP,
            "role_change: when the broker had stopped its older fetcher, by its line; null: no line tells.",
        ),
        Column(
            "fetcher_started_ts",
            TIMESTAMP,
            "role_change to follower: when it had started its new fetcher, by its line; to leader: when it had started "
            "the one that it had before; null: no line tells, or it had none.",
        ),
        Column("fetcher_offset", INT64, "role_change: the offset from which that fetcher began."),
    ),
    key=("topic", "incarnation", "partition", "seq"),
    checks={"interval": "ts_lo <= ts AND ts <= ts_hi"},
    questions=(
        (
            "What happened around a row of a timeline? (its topic, partition and seq; here orders-0 at 1000)",
            """
            SELECT seq, ts, kind, broker_id, replica_id, base_offset, next_offset, fetch_offset, evidence,
                   source_file, source_line
            FROM replication_events
            WHERE topic = 'orders' AND partition = 0 AND seq BETWEEN 990 AND 1010 ORDER BY seq
            """,
        ),
    ),
)
