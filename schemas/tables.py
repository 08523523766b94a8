"""The output tables of the replay: timelines, truncations, incidents, conformance; and the list of all tables."""

from __future__ import annotations

import pyarrow as pa

from schemas.consequences import CONSUMER_EFFECTS, PARTITION_RISK, REPLICA_DIVERGENCES
from schemas.events import ELECTION_RULES, REPLICATION_EVENTS
from schemas.facts import FACTS
from schemas.model import (
    BOOL,
    EVIDENCE_COLUMN,
    INT32,
    INT64,
    INT_LIST,
    PARTITION_KEY,
    SEQ,
    STRING,
    STRING_LIST,
    TIMESTAMP,
    TS,
    Column,
    Table,
    required,
)
from schemas.rounds import COMMIT_LATENCY, FETCH_ROUNDS
from schemas.runs import COVERAGE, EXPECTATION_RESULTS, REJECTED_LINES, RUNS, SET_ASIDE

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

MACHINE_STATES: tuple[str, ...] = (
    "NonExistent",
    "New",
    "Online",
    "Offline",
    "DeletionStarted",
    "DeletionSuccessful",
    "DeletionIneligible",
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

IS_FUTURE = Column(
    "is_future",
    BOOL,
    "Whether it is the future replica that the broker fills in another log directory, to move the partition there.",
)

STATE_TRANSITIONS = Table(
    "state_transitions",
    "Every move of the partition's and its replicas' state machines; in KRaft derived, for its controller has none.",
    (
        *PARTITION_KEY,
        SEQ,
        required("place", INT32, "Order of the moves that one event brings, from 0."),
        TS,
        required("machine", STRING, "Whose state it is.", values=("partition", "replica")),
        Column("broker_id", INT32, "Broker of the replica; null for the partition."),
        IS_FUTURE,
        required("state_before", STRING, "State before.", values=MACHINE_STATES),
        required("state", STRING, "State after.", values=MACHINE_STATES),
        required(
            "reason",
            STRING,
            "Why: created, kind of the election, fenced, controlled_shutdown, log_directory, broker_away, broker_back, "
            "joined_isr, leader_away, reassignment, topic_deleted, controller_started (ZooKeeper: it found it so); "
            "of a future replica future_created, future_loaded, future_caught_up, future_replaced (it is the replica "
            "from then on), future_deleted.",
        ),
        Column("leader_epoch", INT32, "Leader epoch in force."),
        EVIDENCE_COLUMN,
    ),
    key=("seq", "place"),
)

FETCH_STATES = ("truncating", "fetching", "delayed", "failed", "throttled")
FOLLOWER_STATES = Table(
    "follower_states",
    "What each follower's fetcher does with the partition, and what error or event moved it there.",
    (
        *PARTITION_KEY,
        SEQ,
        TS,
        required("broker_id", INT32, "The follower."),
        IS_FUTURE,
        Column("leader_epoch", INT32, "Leader epoch of the event."),
        Column(
            "state_before", STRING, "State before; null: its fetcher did not hold the partition.", values=FETCH_STATES
        ),
        Column("state", STRING, "State after; null: its fetcher holds the partition no longer.", values=FETCH_STATES),
        required(
            "cause",
            STRING,
            "What moved it.",
            values=(
                "became_follower",
                "became_leader",
                "started",
                "fetched",
                "cut",
                "epoch_asked",
                "diverging_fetch",
                "out_of_range",
                "fenced_leader_epoch",
                "storage_error",
                "error",
                "quota",
                "future_added",
                "future_replaced",
                "future_deleted",
            ),
        ),
        Column("error_code", INT32, "Error that the leader answered; null: none."),
        EVIDENCE_COLUMN,
    ),
    key=("seq", "broker_id"),
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
            "S0 committed and lost silently, S1 lost as the configuration permits, S2 only acks=1, S3 visibility. What "
            "aborted transactions appended counts for none of them.",
            values=("S0", "S1", "S2", "S3"),
        ),
        required("first_offset", INT64, "First lost offset."),
        Column("last_offset", INT64, "Last lost offset, inclusive; null: open end."),
        required(
            "ranges", RANGES, "The lost slots exactly: leader epoch, first and last offset, inclusive (null: open end)."
        ),
        Column("records", INT64, "Lost slots; null: open end.", unit="records"),
        Column(
            "acked_all",
            INT64,
            "Of them acknowledged with acks=all: at least so many; null: no evidence of acknowledgements.",
            unit="records",
        ),
        Column(
            "acked_one", INT64, "Of them acknowledged with acks=1: at least so many; null as above.", unit="records"
        ),
        Column("unacked", INT64, "Of them never acknowledged; null as above.", unit="records"),
        Column(
            "failed_appended",
            INT64,
            "Of the unacknowledged: appended, yet answered with an error (not leader, timed out, too few replicas).",
            unit="records",
        ),
        Column("committed", INT64, "Of them below the highest high watermark that a leader had.", unit="records"),
        Column("consumed", INT64, "Of them handed to a consumer: at least so many; null as above.", unit="records"),
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
)

REPLAY_TABLES: tuple[Table, ...] = (
    LEO_TIMELINE,
    HW_TIMELINE,
    ISR_TIMELINE,
    ISR_FLAPS,
    LEADERSHIP_TIMELINE,
    STATE_TRANSITIONS,
    FOLLOWER_STATES,
    LOG_TRUNCATIONS,
    LOG_START_TIMELINE,
    FETCH_ROUNDS,
    COMMIT_LATENCY,
    DATA_LOSS_INCIDENTS,
    REPLICA_DIVERGENCES,
    PARTITION_RISK,
    CONSUMER_EFFECTS,
    CONFORMANCE,
)
TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        FACTS,
        REPLICATION_EVENTS,
        *REPLAY_TABLES,
        COVERAGE,
        REJECTED_LINES,
        SET_ASIDE,
        EXPECTATION_RESULTS,
        RUNS,
    )
}
