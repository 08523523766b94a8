"""States and their moves: the controller's state machines, and how each follower fetches."""

from __future__ import annotations

from schemas.model import (
    BOOL,
    EVIDENCE_COLUMN,
    INT32,
    INT64,
    PARTITION_KEY,
    SEQ,
    STRING,
    TS,
    Column,
    Table,
    required,
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
    questions=(
        (
            "How long was each partition offline, and what brought it back?",
            """
            SELECT topic, partition, ts AS online, reason, leader_epoch, ts - before AS offline_for FROM (
              SELECT *, lag(ts) OVER (PARTITION BY topic, incarnation, partition ORDER BY seq, place) AS before
              FROM state_transitions WHERE machine = 'partition')
            WHERE state = 'Online' AND state_before = 'Offline' ORDER BY offline_for DESC
            """,
        ),
    ),
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
                "moved_to_tiered_storage",
                "fenced_leader_epoch",
                "storage_error",
                "error",
                "request_failed",
                "leader_not_alive",
                "shutting_down",
                "corrupt_records",
                "unexpected_error",
                "truncation_failed",
                "truncation_forbidden",
                "thread_ended",
                "quota",
                "future_added",
                "future_replaced",
                "future_deleted",
            ),
        ),
        Column("error_code", INT32, "Error that the leader answered; null: none."),
        Column(
            "wait_ms",
            INT64,
            "How long a delayed follower waits before it fetches again: replica.fetch.backoff.ms (1000 if no source "
            "states it), up to 3.0 twice that after a request that failed; null: it is not delayed.",
            unit="ms",
        ),
        EVIDENCE_COLUMN,
    ),
    key=("seq", "broker_id"),
    questions=(
        (
            "Which followers stopped fetching, when, and after which error?",
            """SELECT ts, topic, partition, broker_id, state, cause, error_code
            FROM follower_states
            WHERE state IN ('delayed', 'failed')
            ORDER BY ts""",
        ),
    ),
)

TABLES: tuple[Table, ...] = (STATE_TRANSITIONS, FOLLOWER_STATES)  # of the replay
