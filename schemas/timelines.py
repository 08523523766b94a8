"""Timelines of a partition: LEO, HW, ISR, leadership, truncations, log starts."""

from __future__ import annotations

import pyarrow as pa

from schemas.events import ELECTION_RULES
from schemas.model import (
    BOOL,
    EVIDENCE_COLUMN,
    INT32,
    INT64,
    INT_LIST,
    PARTITION_KEY,
    SEQ,
    STRING,
    TIMESTAMP,
    TS,
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
)

HW_TIMELINE = Table(
    "hw_timeline",
    "Every change of a broker's high watermark, and one row when a broker takes up a role (step = 'role').",
    (
        *PARTITION_KEY,
        SEQ,
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
        EVIDENCE_COLUMN,
    ),
    key=("seq", "broker_id", "step"),
    checks={"hw_not_negative": "hw >= 0"},
)

LEAVE_REASONS = (
    "no_fetches",
    "fetching_but_behind",
    "fetch_errors",
    "fenced",
    "throttled",
    "reassigning",
    "stopped",
    "leader_stood_still",
    "broker_away",
    "log_directory",
    "left_by_controller",
    "unknown",
)

JOIN_REASONS = (
    "first_fetch",
    "leo_reached_hw",
    "epoch_start_reached",
    "unfenced",
    "shutdown_over",
    "assigned",
    "change_was_in_flight",
    "asked_again",
    "by_controller",
)

MOVERS = pa.list_(
    pa.struct(
        [
            ("broker_id", INT32),
            ("joined", BOOL),
            ("reason", STRING),
            ("remote_leo", INT64),
            ("leo_gap", INT64),
            ("ms_since_caught_up", INT64),
            ("fetches_in_lag_time", INT64),
            ("last_fetch_ts", TIMESTAMP),
        ]
    )
)

ISR_TIMELINE = Table(
    "isr_timeline",
    "The ISR: one committed row per partition epoch, and the leader's pending changes between them.",
    (
        *PARTITION_KEY,
        SEQ,
        TS,
        Column("leader_id", INT32, "Leader; null: offline."),
        required("leader_epoch", INT32, "Leader epoch."),
        Column("partition_epoch", INT32, "Partition epoch (ZooKeeper: version of the state); null: pending."),
        required(
            "isr", INT_LIST, "ISR after, sorted; pending expand: the maximal ISR; pending shrink: what was asked for."
        ),
        Column("isr_before", INT_LIST, "Committed ISR before, sorted."),
        required(
            "state",
            STRING,
            "Whether the controller has committed it.",
            values=("committed", "pending_expand", "pending_shrink"),
        ),
        required(
            "change",
            STRING,
            "Why it changed.",
            values=(
                "initial",
                "shrink",
                "expand",
                "election",
                "reassignment",
                "controlled_shutdown",
                "fenced",
                "other",
            ),
        ),
        Column("broker_id", INT32, "Who joined or left; null: several or none."),
        Column("leo_gap", INT64, "Leader's LEO minus the broker's as the leader knew it.", unit="records"),
        Column("ms_since_caught_up", INT64, "Time since the broker was last caught up.", unit="ms"),
        Column(
            "reason",
            STRING,
            "Who left: what put it out; who joined: which condition became true last; several moved: of the one that "
            "was not caught up for longest.",
            values=(*LEAVE_REASONS, *JOIN_REASONS),
        ),
        Column("remote_leo", INT64, "The broker's LEO as the leader knew it; null: it had none.", unit="offset"),
        Column(
            "fetches_in_lag_time",
            INT64,
            "Fetches that the leader got from it in the replica.lag.time.max.ms before; null: it led, or nobody did.",
            unit="fetches",
        ),
        Column("last_fetch_ts", TIMESTAMP, "Its last fetch from that leader; null: none seen."),
        Column("movers", MOVERS, "Every replica that joined or left, with the same of each; null: none moved."),
        Column(
            "outcome",
            STRING,
            "What became of a pending change; null: committed row, or nothing came of it before the recording's end.",
            values=("committed", "rejected", "superseded", "new_leader_epoch"),
        ),
        Column("error_code", INT32, "Error with which a pending change was rejected or retried; null: none."),
        Column("under_min_isr", BOOL, "Whether the committed ISR is below min.insync.replicas; null: not known."),
        EVIDENCE_COLUMN,
    ),
    key=("seq", "state"),
)

ISR_FLAPS = Table(
    "isr_flaps",
    "Each time a replica left the ISR and came back: one committed removal and the committed return after it.",
    (
        *PARTITION_KEY,
        required("seq", INT64, "Place of the removal in the partition's replay order; joins isr_timeline."),
        required("broker_id", INT32, "The replica."),
        Column("leader_id", INT32, "Leader when it left; null: none."),
        required("leader_epoch", INT32, "Leader epoch when it left."),
        Column("left_ts", TIMESTAMP, "When it left."),
        Column("back_ts", TIMESTAMP, "When it was back."),
        required("back_seq", INT64, "Place of its return in the replay order."),
        Column("back_leader_id", INT32, "Leader when it came back."),
        Column("out_ms", INT64, "How long it was out.", unit="ms"),
        required("times", INT64, "How many times it has been out and back so far in this partition."),
        Column("left_reason", STRING, "Why it left, as in isr_timeline.", values=LEAVE_REASONS),
        Column("back_reason", STRING, "Why it came back, as in isr_timeline.", values=(*JOIN_REASONS, "unknown")),
        EVIDENCE_COLUMN,
    ),
    key=("seq", "broker_id"),
)

LEADERSHIP_TIMELINE = Table(
    "leadership_timeline",
    "One row per leader epoch: who led, from which offset, how it was elected, and what the previous leader held.",
    (
        *PARTITION_KEY,
        required("leader_epoch", INT32, "Leader epoch."),
        Column("leader_id", INT32, "Leader; null: offline."),
        Column("start_ts", TIMESTAMP, "The controller's decision."),
        Column("end_ts", TIMESTAMP, "The next decision; null: still in force at the end of the recording."),
        Column("start_offset", INT64, "The leader's LEO when it took up the epoch; null: not known."),
        Column("hw_at_start", INT64, "Its high watermark then; null: not known."),
        required(
            "election",
            STRING,
            "How it came about.",
            values=("initial", "clean", "unclean", "preferred", "controlled_shutdown", "reassignment", "offline"),
        ),
        Column("trigger", STRING, "What set it off, in words."),
        Column("previous_leader_id", INT32, "Last leader before it of those that took up their role; null: none."),
        Column("previous_leo", INT64, "That leader's LEO at the end of its epoch, as far as known."),
        Column("previous_hw", INT64, "That leader's high watermark then."),
        Column("candidates", INT_LIST, "Who could lead, in the order of the rule that chose; null: not known."),
        Column("live", INT_LIST, "Of the assignment, old and new, who could be asked to lead; null: not known."),
        Column("in_sync", INT_LIST, "ISR without those whom the decision drops, before the choice; null: not known."),
        Column(
            "rule",
            STRING,
            "Which rule chose, as in docs/protocol.md, Elections; null: nothing says who was alive.",
            values=ELECTION_RULES,
        ),
        Column(
            "predicted_leader_id", INT32, "Leader that the rule chooses; null: nobody (no_candidate), or not known."
        ),
        Column(
            "records_at_risk",
            INT64,
            "Offsets that the previous leader had from start_offset on, and the new one lacks; null: not known.",
            unit="records",
        ),
        Column(
            "committed_at_risk",
            INT64,
            "Of them those below the previous leader's high watermark; null: not known.",
            unit="records",
        ),
        EVIDENCE_COLUMN,
    ),
    key=("leader_epoch",),
)

LOG_TRUNCATIONS = Table(
    "log_truncations",
    "Every time a replica cut its log.",
    (
        *PARTITION_KEY,
        SEQ,
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
            values=("leader_epoch", "high_watermark", "diverging_fetch", "out_of_range", "recovery"),
        ),
        EVIDENCE_COLUMN,
    ),
    key=("seq", "broker_id"),
)

LOG_START_TIMELINE = Table(
    "log_start_timeline",
    "Every time a log began later than before: retention, DeleteRecords, a leader's answer; and the low watermark.",
    (
        *PARTITION_KEY,
        SEQ,
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
            "client_delete_records), or follower_fetch, leader_answer, stated_in_answer, future_log.",
        ),
        EVIDENCE_COLUMN,
    ),
    key=("seq", "broker_id"),
    checks={"start_rises": "log_start_offset >= log_start_before"},
)
