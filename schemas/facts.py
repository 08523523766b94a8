"""`facts`: what each line of a log or dump says, one row per line and partition, before any ordering.

A fact repeats its source and adds nothing to it. Times are the broker's own clock, moved to UTC by that broker's zone.
`fact_id` is the hash of the broker and of the line's normalised text (stamp, level, logger, message; for rows of one
line also the topic and partition): neither file nor line number is in it, for rolled files change names and copies
repeat lines.
"""

from __future__ import annotations

from schemas.model import (
    BOOL,
    INT32,
    INT64,
    INT_LIST,
    LONG_LIST,
    STRING,
    TIMESTAMP,
    Column,
    Table,
    required,
)

# kind -> what such a fact says. Request log: produce, fetch, epoch_end_offset, isr_request, leader_and_isr,
# transaction (markers, partitions taken in, ends), delete_records, api (any other request: only proof that no line is
# missing on its connection). Metadata dump: partition_change, broker_change, config_change, topic_change,
# feature_change, metadata_part (which offsets of the log a dump holds). server.log, state-change.log, controller.log:
# role_change, log_load, truncation, isr_update, hw_update, leo_update, remote_leo_update, log_append, broker_lifecycle,
# log_start_change, storage_failure, state_change (controllers' state machines, elections, requests), fetcher (a
# follower's thread), log_change (segments deleted, compacted, moved), segment_change (rolled, copied to the remote
# tier, deleted there; the start of a local log), quota_change, append_refused (of a coordinator). Dumps: segment_batch,
# checkpoint.
FACT_KINDS: tuple[str, ...] = (
    "produce",
    "fetch",
    "epoch_end_offset",
    "isr_request",
    "leader_and_isr",
    "transaction",
    "api",
    "partition_change",
    "broker_change",
    "config_change",
    "topic_change",
    "feature_change",
    "metadata_part",
    "role_change",
    "log_load",
    "truncation",
    "isr_update",
    "hw_update",
    "leo_update",
    "remote_leo_update",
    "log_append",
    "broker_lifecycle",
    "log_start_change",
    "storage_failure",
    "state_change",
    "fetcher",
    "log_change",
    "quota_change",
    "segment_batch",
    "checkpoint",
    "delete_records",
    "segment_change",
    "append_refused",
)

FACTS = Table(
    "facts",
    "What each line of a log or dump says: append-only, one row per line and partition.",
    (
        required("recording_id", STRING, "The growing body of evidence about one cluster that this fact belongs to."),
        required(
            "fact_id", STRING, "Hash of broker and normalised line (and topic, partition): the same in every run."
        ),
        required("kind", STRING, "What the fact is.", values=FACT_KINDS),
        Column("broker_id", INT32, "The broker whose log says it; null for the metadata dump."),
        required(
            "source_file", STRING, "File the line stands in, relative to the recording's folder where it lies there."
        ),
        required("source_line", INT64, "1-based line in that file, after decompression.", unit="line"),
        Column("ts", TIMESTAMP, "The line's stamp (or the record's CreateTime) in UTC; null for files without times."),
        Column(
            "ts_error_us",
            INT64,
            "How much earlier or later than ts the line may have been written: its stamp is a whole second; null: not.",
            unit="us",
        ),
        Column("topic", STRING, "Topic name, if the line has it."),
        Column("topic_id", STRING, "Topic id, if the line has it."),
        Column("partition", INT32, "Partition; null for facts about a broker or a request as a whole."),
        # -- requests: the whole
        Column("connection", STRING, "Connection as the request log prints it."),
        Column("correlation_id", INT64, "Correlation id on that connection."),
        Column("client_id", STRING, "Client id of the request."),
        Column("api_key", INT32, "Request api key."),
        Column("api_version", INT32, "Request api version."),
        Column("total_us", INT64, "totalTimeMs in microseconds.", unit="us"),
        Column("queue_us", INT64, "requestQueueTimeMs in microseconds.", unit="us"),
        Column("local_us", INT64, "localTimeMs in microseconds.", unit="us"),
        Column("remote_us", INT64, "remoteTimeMs in microseconds (time in purgatory).", unit="us"),
        Column(
            "throttle_us", INT64, "throttleTimeMs in microseconds; of the text form, that of the answer.", unit="us"
        ),
        Column("response_queue_us", INT64, "responseQueueTimeMs in microseconds.", unit="us"),
        Column("send_us", INT64, "sendTimeMs in microseconds.", unit="us"),
        Column(
            "error_code",
            INT32,
            "Error code for this partition, else the response's top-level one; of a failed ISR update the one that its "
            "line names; null: no response was sent (acks=0), or no error is named.",
        ),
        # -- produce
        Column("acks", INT32, "acks of the produce request: -1 (all), 0 or 1."),
        Column(
            "transactional_id",
            STRING,
            "Transactional id of the produce or of the transaction; null: none, or not said (text form, up to 2.7).",
        ),
        Column(
            "request_timed_out",
            BOOL,
            "Whether some partition of the produce was answered REQUEST_TIMED_OUT, so that all of its answers waited "
            "until then; null: none was.",
        ),
        Column(
            "bytes",
            INT64,
            "recordsSizeInBytes: produced, or returned by a fetch; size of a segment's batch.",
            unit="bytes",
        ),
        Column(
            "base_offset",
            INT64,
            "First offset of the batch (produce response, segment, append line); -1 as answered on errors.",
        ),
        Column(
            "last_offset",
            INT64,
            "Last offset of the batch, inclusive (segment dump, append line), or of the part of the metadata log.",
        ),
        Column("log_start_offset", INT64, "Log start offset that the answer, line or file states."),
        Column("low_watermark", INT64, "Low watermark that a DeleteRecords is answered with; -1 if it was refused."),
        # -- fetch (one row per partition that request or response lists; one with null partition where none is listed)
        Column("replica_id", INT32, "Fetching replica (-1 consumer); the replica that a server line speaks of."),
        Column("replica_epoch", INT64, "Broker epoch that the fetching replica sent."),
        Column("max_wait_ms", INT32, "maxWaitMs of the fetch; timeoutMs of a produce or a DeleteRecords.", unit="ms"),
        Column("min_bytes", INT32, "minBytes of the fetch.", unit="bytes"),
        Column("max_bytes", INT32, "maxBytes of the fetch, over all partitions; null: none (up to v2).", unit="bytes"),
        Column("isolation_level", INT32, "0 read_uncommitted, 1 read_committed."),
        Column("session_id", INT32, "Fetch session id in the request (0: none yet)."),
        Column(
            "session_epoch",
            INT32,
            "Fetch session epoch in the request (0: full and start a session, -1: full, no session).",
        ),
        Column("response_session_id", INT32, "Fetch session id in the response (0: none)."),
        Column("rack", STRING, "rackId of the fetch, a consumer's; null: none, or not said (text form, up to 2.7)."),
        Column("in_request", BOOL, "Whether the request lists the partition."),
        Column("in_response", BOOL, "Whether the response lists the partition."),
        Column(
            "bytes_listed_before",
            INT64,
            "Bytes of the partitions that the response lists before this one; null: it does not list it, or an older "
            "version read the line.",
            unit="bytes",
        ),
        Column("forgotten", BOOL, "Whether the request takes the partition out of the session (a row of its own)."),
        Column("current_leader_epoch", INT32, "Leader epoch the fetcher believes in; -1 not sent."),
        Column("fetch_offset", INT64, "fetchOffset: the follower's LEO."),
        Column("last_fetched_epoch", INT32, "Epoch of the fetcher's last record; -1 none."),
        Column("follower_log_start_offset", INT64, "logStartOffset in the request: the follower's."),
        Column("partition_max_bytes", INT32, "partitionMaxBytes of the request.", unit="bytes"),
        Column("hw", INT64, "High watermark that the response, line or file states."),
        Column("last_stable_offset", INT64, "Last stable offset in the response."),
        Column("diverging_epoch", INT32, "divergingEpoch.epoch of the response; null: no divergence."),
        Column("diverging_end_offset", INT64, "divergingEpoch.endOffset of the response."),
        Column("preferred_read_replica", INT32, "preferredReadReplica of the response; null or -1: none."),
        # -- metadata, roles, ISR
        Column(
            "metadata_offset",
            INT64,
            "Offset of the record in __cluster_metadata; of a snapshot's: the last that the snapshot holds.",
        ),
        Column(
            "controller_epoch", INT32, "Epoch of the controller that wrote the record's batch, or the snapshot's end."
        ),
        Column("in_snapshot", BOOL, "Whether the record stands in a snapshot: a state as of its end, not a decision."),
        Column("record_type", STRING, "Metadata record type as the dump prints it (PARTITION_CHANGE_RECORD, ...)."),
        Column("leader_id", INT32, "Leader named (-1 none); null: not named (a change record that leaves the leader)."),
        Column("leader_epoch", INT32, "Leader epoch named; of a batch: partitionLeaderEpoch."),
        Column("partition_epoch", INT32, "Partition epoch (ZooKeeper: version of the partition's state)."),
        Column("isr", INT_LIST, "ISR as listed; null: not listed (unchanged)."),
        Column(
            "isr_broker_epochs",
            LONG_LIST,
            "Broker epochs of the members of isr, in its order, as a request to change it names them (3.5+); -1: any.",
        ),
        Column("replicas", INT_LIST, "Assignment as listed; null: not listed."),
        Column("adding_replicas", INT_LIST, "Replicas being added; null: not listed."),
        Column("removing_replicas", INT_LIST, "Replicas being removed; null: not listed."),
        Column("elr", INT_LIST, "Eligible leader replicas; null: not listed."),
        Column("last_known_elr", INT_LIST, "Last known ELR; null: not listed."),
        Column("leader_recovery_state", INT32, "0 recovered, 1 recovering (unclean); null or -1: not listed."),
        Column(
            "state_before", STRING, "state_change: state as Kafka names it (OnlinePartition, OfflineReplica) before it."
        ),
        Column("state_after", STRING, "state_change: the state moved to, or that was to be moved to."),
        Column("subject_broker_id", INT32, "Broker that a registration, fencing or lifecycle fact is about."),
        Column("broker_epoch", INT64, "Broker epoch of a registration."),
        Column("fenced", BOOL, "Registration: fenced or unfenced; null: unchanged."),
        Column("in_controlled_shutdown", BOOL, "Registration: in controlled shutdown; null: unchanged."),
        Column("resource_type", INT32, "Config record: 2 topic, 4 broker."),
        Column(
            "name",
            STRING,
            "Config, feature or checkpoint file name; role ('leader', 'follower'); what a line says, in a word.",
        ),
        Column(
            "value",
            STRING,
            "Config value, feature level, cluster id; of a shrink who is out of sync, as `2:40 3:38` (id:LEO).",
        ),
        # -- server lines, segments, checkpoints
        Column("log_dir", STRING, "Log directory that a line about a partition's log names: the folder's parent."),
        Column(
            "offset",
            INT64,
            "Offset that the line turns on: LEO at role change or load, truncation target, recorded remote LEO; of a "
            "DeleteRecords the offset before which records are to go, -1: the high watermark.",
        ),
        Column("hw_before", INT64, "High watermark before the change, where the line states it."),
        Column("count", INT64, "Records in the segment batch."),
        Column("crc", INT64, "crc of the segment batch."),
        Column("producer_id", INT64, "Producer id of the segment batch or of the transaction; -1 none."),
        Column("producer_epoch", INT32, "Producer epoch of the segment batch or of the transaction."),
        Column("base_sequence", INT32, "Base sequence of the segment batch."),
        Column("is_control", BOOL, "Whether the segment batch is a control batch (transaction marker)."),
        Column("is_transactional", BOOL, "Whether the segment batch is transactional."),
        Column(
            "text",
            STRING,
            "For lines whose wording matters later: the message, cut at 500 characters; a remote segment's id.",
        ),
    ),
    key=("fact_id",),
    questions=(
        (
            "Which broker's logs cover which time, and what do they tell?",
            """
            SELECT broker_id, kind, min(ts) AS first, max(ts) AS last, count(*) AS lines
            FROM facts GROUP BY broker_id, kind ORDER BY broker_id, kind
            """,
        ),
    ),
)
