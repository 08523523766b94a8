"""Who led, and who was in the ISR."""

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
    "fetched_since_registration",
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
        Column(
            "derived_error_code",
            INT32,
            "pending: error with which the controller answers the request by its rules, as the partition and the "
            "brokers' registrations were when it was asked; 0: it grants it. Null: committed row, a leader that writes "
            "to ZooKeeper itself, or the partition's state is not known.",
        ),
        Column(
            "earliest_expiry_ts",
            TIMESTAMP,
            "pending_shrink: the earliest run of the leader's isr-expiration task at which the first of those who left "
            "was out of sync. If another run is known the task's runs are fixed, to half a second; else this is the "
            "moment from which on it was out of sync. Null: by the replay, nobody was.",
        ),
        Column(
            "latest_expiry_ts",
            TIMESTAMP,
            "pending_shrink: the latest such run, a whole period later if no run is known, and the leader's standstill "
            "later if it stood still; null like earliest_expiry_ts.",
        ),
        Column("under_min_isr", BOOL, "Whether the committed ISR is below min.insync.replicas; null: not known."),
        EVIDENCE_COLUMN,
    ),
    key=("seq", "state"),
    checks={"expiry_order": "earliest_expiry_ts IS NULL OR earliest_expiry_ts <= latest_expiry_ts"},
    questions=(
        (
            "Who fell out of the ISR, how far behind, and how long had it not been caught up?",
            """
            SELECT topic, partition, seq, ts, leader_id, isr_before, isr, broker_id, leo_gap, ms_since_caught_up, change
            FROM isr_timeline WHERE state = 'committed' AND size(isr) < size(isr_before)
            ORDER BY topic, partition, seq
            """,
        ),
        (
            "How long did each partition live with one replica in the ISR, or fewer than min.insync.replicas?",
            """
            SELECT topic, partition, sum(if(size(isr) = 1, seconds, 0)) AS seconds_alone,
                   sum(if(under_min_isr, seconds, 0)) AS seconds_under_min
            FROM (SELECT *, timestampdiff(SECOND, ts,
                         lead(ts) OVER (PARTITION BY topic, incarnation, partition ORDER BY seq)) AS seconds
                  FROM isr_timeline WHERE state = 'committed')
            GROUP BY topic, partition ORDER BY seconds_alone DESC
            """,
        ),
        (
            "Why did replicas leave, and what did it take to join again?",
            """
            SELECT mover.joined, mover.reason, mover.broker_id, leader_id, count(*) AS times,
                   max(mover.leo_gap) AS largest_gap, max(mover.ms_since_caught_up) AS longest_ms
            FROM isr_timeline LATERAL VIEW explode(movers) AS mover WHERE state = 'committed'
            GROUP BY mover.joined, mover.reason, mover.broker_id, leader_id ORDER BY times DESC
            """,
        ),
        (
            "Which changes that a leader asked for came to nothing, and why?",
            """
            SELECT topic, partition, seq, ts, leader_id, leader_epoch, isr_before, isr, state, outcome, error_code
            FROM isr_timeline WHERE state <> 'committed' AND NOT outcome <=> 'committed'
            ORDER BY topic, partition, seq
            """,
        ),
        (
            "ZooKeeper: when did each broker tell of its ISR changes? (5 s after the last, the task runs each 2.5 s)",
            """
            SELECT leader_id, min(ts) AS first_change, count(*) AS changes,
                   max(ts) + INTERVAL 5 SECONDS AS earliest, max(ts) + INTERVAL 7500 MILLISECONDS AS latest
            FROM (SELECT *, sum(new_burst) OVER (PARTITION BY leader_id ORDER BY ts, topic, partition, seq) AS burst
                  FROM (SELECT *, if(ts <= lag(ts) OVER (PARTITION BY leader_id ORDER BY ts, topic, partition, seq)
                                     + INTERVAL 5 SECONDS, 0, 1) AS new_burst
                        FROM isr_timeline WHERE state = 'committed' AND change IN ('shrink', 'expand')))
            GROUP BY leader_id, burst ORDER BY leader_id, first_change
            """,
        ),
    ),
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
        Column(
            "out_ms",
            INT64,
            "How long it was out; null: two brokers tell its ends, and by their clocks it was back before it left.",
            unit="ms",
        ),
        required("times", INT64, "How many times it has been out and back so far in this partition."),
        Column("left_reason", STRING, "Why it left, as in isr_timeline.", values=LEAVE_REASONS),
        Column("back_reason", STRING, "Why it came back, as in isr_timeline.", values=(*JOIN_REASONS, "unknown")),
        EVIDENCE_COLUMN,
    ),
    key=("seq", "broker_id"),
    questions=(
        (
            "Which replicas flap, how often, for how long, and do they share a broker or a leader?",
            """
            SELECT broker_id, leader_id, left_reason, count(*) AS flaps,
                   count(DISTINCT topic, incarnation, partition) AS partitions,
                   cast(avg(out_ms) AS BIGINT) AS mean_out_ms, max(out_ms) AS longest_out_ms,
                   round(count(*) / sum(count(*)) OVER (), 2) AS share
            FROM isr_flaps GROUP BY broker_id, leader_id, left_reason ORDER BY flaps DESC, broker_id, leader_id
            """,
        ),
    ),
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
        Column(
            "asked_for",
            BOOL,
            "preferred: whether somebody asked for it; false: the controller began it by itself "
            "(auto.leader.rebalance.enable); null: not known, as in KRaft, or another election.",
        ),
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
    questions=(
        (
            "Why was each leader chosen, and what did its election put at risk?",
            """
            SELECT topic, partition, leader_epoch, start_ts, election, trigger, previous_leader_id, leader_id,
                   rule, candidates, live, in_sync, records_at_risk, committed_at_risk
            FROM leadership_timeline
            ORDER BY committed_at_risk DESC NULLS LAST, records_at_risk DESC NULLS LAST, topic, partition, leader_epoch
            """,
        ),
        (
            "How long was each partition without a leader?",
            """
            SELECT topic, partition, sum(timestampdiff(SECOND, start_ts, end_ts)) AS seconds_leaderless
            FROM leadership_timeline WHERE leader_id IS NULL GROUP BY topic, partition ORDER BY seconds_leaderless DESC
            """,
        ),
    ),
)

TABLES: tuple[Table, ...] = (ISR_TIMELINE, ISR_FLAPS, LEADERSHIP_TIMELINE)  # of the replay
