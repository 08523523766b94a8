"""Offsets over time: LEO, HW, truncations, log starts, segments."""

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

LEO_TIMELINE = Table(
    "leo_timeline",
    "Every movement of a log end offset: a replica's own, and the leader's record of a remote replica's.",
    (
        *PARTITION_KEY,
        SEQ,
        WINDOW,
        TS,
        required("broker_id", INT32, "Whose LEO it is."),
        required(
            "observer",
            STRING,
            "'local': the replica's own log; 'leader': the leader's record of it.",
            values=("local", "leader"),
        ),
        Column("leader_epoch", INT32, "Leader epoch of the broker that holds this value; null: no role yet."),
        Column("leo_before", INT64, "LEO before; null: not known. -1: the leader had no record of the replica yet."),
        required("leo", INT64, "LEO after.", unit="offset"),
        required(
            "step",
            STRING,
            "Step of the fetch protocol, as in docs/protocol.md, or truncate, log_load, role, observation.",
        ),
        Column("cause", STRING, "What made it move: kind of the event."),
        EVIDENCE_COLUMN,
    ),
    key=("seq", "broker_id", "observer"),
    checks={"leo_not_negative": "leo >= -1"},
    questions=(
        (
            "How far was each follower behind its leader at the end?",
            """
            SELECT topic, partition, broker_id, max_by(leo, seq) AS leo,
                   max(max_by(leo, seq)) OVER (PARTITION BY topic, partition) - max_by(leo, seq) AS behind
            FROM leo_timeline WHERE observer = 'local' GROUP BY topic, partition, broker_id ORDER BY behind DESC
            """,
        ),
    ),
)

HW_TIMELINE = Table(
    "hw_timeline",
    "Every change of a broker's high watermark, and one row when a broker takes up a role (step = 'role').",
    (
        *PARTITION_KEY,
        SEQ,
        WINDOW,
        TS,
        required("broker_id", INT32, "Whose high watermark it is."),
        required("role", STRING, "Role it had then.", values=("leader", "follower")),
        Column("leader_epoch", INT32, "Leader epoch of that role; null: no role yet."),
        Column("hw_before", INT64, "High watermark before; null: not known."),
        required("hw", INT64, "High watermark after.", unit="offset"),
        required("step", STRING, "leader_maybe_increment_hw, follower_advance_hw, truncate, log_load or role."),
        Column("cause", STRING, "Kind of the event that moved it."),
        Column(
            "cause_broker_id", INT32, "Replica whose fetch, or ISR change, moved it; null: the leader's own append."
        ),
        Column(
            "last_stable_offset",
            INT64,
            "Of the newest leader, in partitions with transactions: up to where read_committed consumers may read from "
            "then on; null: no transaction was seen yet (then up to hw), or it is not certain which ones are open.",
            unit="offset",
        ),
        EVIDENCE_COLUMN,
    ),
    key=("seq", "broker_id", "step"),
    checks={
        "hw_not_negative": "hw >= 0",
        "stable_within_hw": "last_stable_offset IS NULL OR last_stable_offset <= hw",
    },
    questions=(
        (
            "When did a high watermark go back, on which replica, from where to where?",
            """
            SELECT topic, partition, seq, ts, broker_id, role, leader_epoch, hw_before, hw, step, evidence
            FROM hw_timeline WHERE hw < hw_before ORDER BY topic, partition, seq
            """,
        ),
        (
            "For how long did a leader's high watermark stand still, and whose fetch moved it on?",
            """
            SELECT topic, partition, seq, ts, broker_id, hw_before, hw, cause_broker_id,
                   ts - lag(ts) OVER (PARTITION BY topic, incarnation, partition, broker_id ORDER BY seq) AS stood_still
            FROM hw_timeline WHERE role = 'leader' ORDER BY stood_still DESC LIMIT 20
            """,
        ),
    ),
)

TRANSACTIONS = Table(
    "transactions",
    "A transaction in a partition, as its leader's log has it: where it begins, how it ended, and when read_committed "
    "consumers could read past it.",
    (
        *PARTITION_KEY,
        required("seq", INT64, "Place of its first batch in the replay order."),
        WINDOW,
        required("ts", TIMESTAMP, "When its first batch was appended."),
        required("leader_epoch", INT32, "Leader epoch in which that was."),
        Column("client_id", STRING, "Client id of its producer."),
        Column("producer_id", INT64, "Its producer's id; null: no line tells."),
        required("first_offset", INT64, "Offset of its first batch.", unit="offset"),
        required(
            "outcome",
            STRING,
            "commit or abort: by its marker; open: no marker of it in the last leader's log is known, which is "
            "bounded, as one may have no line; removed: a later leader did not have its records.",
            values=("commit", "abort", "open", "removed"),
        ),
        Column("marker_offset", INT64, "Offset of its marker; what its producer wrote up to there belongs to it."),
        Column("marker_ts", TIMESTAMP, "When the marker was appended."),
        Column(
            "stable_ts",
            TIMESTAMP,
            "When the last stable offset passed its marker: from then on read_committed consumers may read past it (of "
            "an aborted one they are given nothing); null: not while the recording lasts.",
        ),
        Column(
            "unstable_ms",
            FLOAT64,
            "For how long it held read_committed consumers back: from ts to stable_ts, else to the last event; null: "
            "removed. Longer than transaction.max.timeout.ms (15 minutes) and open: it hangs, or its marker has no "
            "line.",
            unit="ms",
        ),
        Column(
            "removed_marker_offset",
            INT64,
            "Offset of a marker of it that a later leader did not have (KAFKA-20716): there it was open again; null: "
            "there was none.",
        ),
        Column("removed_by_epoch", INT32, "Leader epoch that began without its marker, or its records; null: none."),
        EVIDENCE_COLUMN,
    ),
    key=("seq",),
    checks={"marker_behind": "marker_offset IS NULL OR marker_offset > first_offset"},
    questions=(
        (
            "Which offset ranges were aborted, of which producer?",
            """
            SELECT topic, partition, producer_id, client_id, first_offset, marker_offset, marker_ts, stable_ts
            FROM transactions WHERE outcome = 'abort' ORDER BY topic, partition, first_offset
            """,
        ),
        (
            "Which transactions held read_committed consumers back for longest, and which of them lost their marker?",
            """
            SELECT topic, partition, producer_id, client_id, first_offset, outcome, ts, unstable_ms,
                   removed_marker_offset, removed_by_epoch, evidence
            FROM transactions WHERE outcome <> 'removed' ORDER BY unstable_ms DESC LIMIT 20
            """,
        ),
    ),
)

LOG_TRUNCATIONS = Table(
    "log_truncations",
    "Every time a replica cut its log.",
    (
        *PARTITION_KEY,
        SEQ,
        WINDOW,
        TS,
        required("broker_id", INT32, "The replica that cut."),
        Column("leader_epoch", INT32, "Leader epoch under which it cut; null: at start, before any role."),
        Column("leo_before", INT64, "LEO before; null: not known."),
        required("leo_after", INT64, "LEO after."),
        Column("hw_before", INT64, "Its high watermark before; null: not known."),
        Column("records_removed", INT64, "Offsets removed; null: not known.", unit="records"),
        required(
            "cause",
            STRING,
            "What decided the cut.",
            values=(
                "leader_epoch",
                "high_watermark",
                "diverging_fetch",
                "out_of_range",
                "recovery",
                "tiered_storage",
            ),
        ),
        EVIDENCE_COLUMN,
    ),
    key=("seq", "broker_id"),
    questions=(
        (
            "Who cut its log below its own high watermark?",
            """
            SELECT topic, partition, seq, ts, broker_id, leo_before, leo_after, hw_before, cause, evidence
            FROM log_truncations WHERE leo_after < hw_before ORDER BY topic, partition, seq
            """,
        ),
    ),
)

LOG_START_TIMELINE = Table(
    "log_start_timeline",
    "Every time a log began later than before: retention, DeleteRecords, a leader's answer; and the low watermark.",
    (
        *PARTITION_KEY,
        SEQ,
        WINDOW,
        TS,
        required("broker_id", INT32, "Whose log it is."),
        Column("leader_epoch", INT32, "Leader epoch of the role it had; null: no role yet."),
        required("log_start_before", INT64, "Log start offset before."),
        required("log_start_offset", INT64, "Log start offset after; equal: the row tells of the low watermark alone."),
        required("records_removed", INT64, "Offsets that went by policy: no loss.", unit="records"),
        Column(
            "low_watermark",
            INT64,
            "On the leader: least log start of the live replicas and of its future log, where a DeleteRecords is done; "
            "null: not known.",
        ),
        required(
            "cause",
            STRING,
            "The reason that the broker's line states (segment_deletion, leader_offset_increment, "
            "client_delete_records_request), or follower_fetch, leader_answer, stated_in_answer, future_log, "
            "replica_fenced, replicas_changed.",
        ),
        EVIDENCE_COLUMN,
    ),
    key=("seq", "broker_id"),
    checks={"start_rises": "log_start_offset >= log_start_before"},
    questions=(
        (
            "How much went by retention or DeleteRecords, and when did all replicas follow?",
            """
            SELECT topic, partition, ts, broker_id, records_removed, log_start_offset, low_watermark, cause
            FROM log_start_timeline ORDER BY topic, partition, seq
            """,
        ),
    ),
)

SEGMENT_CHANGES: tuple[str, ...] = ("rolled", "deleted", "cleaned", "local_log_start", "copied", "remote_deleted")
ROLL_REASONS: tuple[str, ...] = ("segment_bytes", "segment_ms", "index_full", "offset_range", "retention")
DELETION_REASONS: tuple[str, ...] = (
    "retention_time",
    "retention_size",
    "log_start",
    "local_retention_time",
    "local_retention_size",
    "local_log_start",
    "leader_epochs",
)

SEGMENT_TIMELINE = Table(
    "segment_timeline",
    "What became of a log's segments: rolled, deleted and why, cleaned, copied to the remote tier and deleted there.",
    (
        *PARTITION_KEY,
        SEQ,
        WINDOW,
        TS,
        required("broker_id", INT32, "Whose log, or whose line about the remote tier."),
        Column("leader_epoch", INT32, "Newest leader epoch then."),
        required("what", STRING, "What became of it.", values=SEGMENT_CHANGES),
        Column(
            "base_offset",
            INT64,
            "First offset of the segment (cleaned: of what the cleaner went over); null: not told, or of none.",
        ),
        Column("next_offset", INT64, "Offset behind its last; null: not known."),
        Column(
            "reason",
            STRING,
            "Why it was deleted: by retention time or size, or since the log starts behind it; local: of the local log "
            "alone, as the remote tier has it; leader_epochs: of the tier, as no leader epoch of the log is in it. "
            "Rolled: segment_bytes, the batch at this offset (of a follower: all that its fetch there returned) would "
            "have made the segment before it larger than segment.bytes; segment_ms: it was too old; index_full: an "
            "index of it was full; offset_range: the offset is too far from its first; retention: so that it can be "
            "deleted. Null: nothing tells.",
            values=(*DELETION_REASONS, *ROLL_REASONS),
        ),
        Column(
            "segment_bytes",
            INT64,
            "rolled: bytes of the segment that ended here: on the leader as its batches were produced, on a follower "
            "as it fetched them; null: its begin or a size is not known, or followers show that the leader stored "
            "it in fewer bytes.",
            unit="bytes",
        ),
        Column(
            "logged_bytes",
            INT64,
            "rolled: bytes of the segment that ended here, as its broker's line (DEBUG) states them; null: none does.",
            unit="bytes",
        ),
        Column(
            "logged_limit",
            INT64,
            "rolled: segment.bytes as the same line states it; null: no line does.",
            unit="bytes",
        ),
        Column("local_log_start_offset", INT64, "local_log_start: where the broker's own log starts now."),
        Column(
            "hw_position_may_rise",
            BOOL,
            "rolled, on the leader: whether its HW and LEO were at this offset; only then can the HW move to the new "
            "segment while its offset stays. Null: not of a leader, or not known.",
        ),
        Column(
            "leader_epochs",
            INT_LIST,
            "copied: leader epochs of the segment's records, as the copying broker's log has them; null: not known.",
        ),
        Column(
            "epoch_checkpoint",
            STRING,
            "copied: the leader epochs' checkpoint that goes with it into the tier: epoch:offset, from the log's start "
            "to the segment's end; null: not known.",
        ),
        EVIDENCE_COLUMN,
    ),
    key=("seq",),
    questions=(
        (
            "Which segments does the remote tier hold?",
            """
            SELECT topic, partition, base_offset, next_offset, leader_epochs, ts
            FROM segment_timeline AS copied WHERE what = 'copied' AND NOT EXISTS (
              SELECT 1 FROM segment_timeline AS gone WHERE gone.what = 'remote_deleted'
              AND gone.topic = copied.topic AND gone.incarnation = copied.incarnation
              AND gone.partition = copied.partition AND gone.base_offset = copied.base_offset AND gone.ts > copied.ts)
            ORDER BY topic, partition, base_offset
            """,
        ),
    ),
)

TABLES: tuple[Table, ...] = (
    LEO_TIMELINE,
    HW_TIMELINE,
    TRANSACTIONS,
    LOG_TRUNCATIONS,
    LOG_START_TIMELINE,
    SEGMENT_TIMELINE,
)  # of the replay
