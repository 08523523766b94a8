"""The words in events and rows as the numbers that the rules see: kinds, causes, states, steps, checks.

The protocol's own numbers are here as well, under Kafka's names.
"""

from __future__ import annotations

from replay.protocol.produce import (
    KAFKA_STORAGE_ERROR,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from schemas.events import EVENT_KINDS

KIND = {name: code for code, name in enumerate(EVENT_KINDS)}
APPEND, ACK = KIND["append"], KIND["ack"]
FETCH_UPDATE, FETCH_READ, FETCH_APPLY = KIND["fetch_update"], KIND["fetch_read"], KIND["fetch_apply"]
CONSUMER_READ = KIND["consumer_read"]
PARTITION_CHANGE, ISR_REQUEST = KIND["partition_change"], KIND["isr_request"]
BROKER_CHANGE, CONFIG_CHANGE = KIND["broker_change"], KIND["config_change"]
TOPIC_CHANGE = KIND["topic_change"]
ROLE_CHANGE, LOG_LOAD, TRUNCATION = KIND["role_change"], KIND["log_load"], KIND["truncation"]
LOG_START_CHANGE, OBSERVATION = KIND["log_start_change"], KIND["observation"]
FETCH_LEFT_OUT, EPOCH_END_OFFSET = KIND["fetch_left_out"], KIND["epoch_end_offset"]
PRODUCE_REFUSED, DELETE_RECORDS = KIND["produce_refused"], KIND["delete_records"]
SEGMENT_CHANGE = KIND["segment_change"]

# of an event: it was applied, it corrected the state, it broke a rule and changed nothing
OK, MISMATCH, BROKEN = 0, 1, 2

CONSUMER = -1  # replica id of a fetch that is not a replica's

# Error codes of answers (org.apache.kafka.common.protocol.Errors); more in `protocol.produce` and `protocol.deletion`.
REPLICA_NOT_AVAILABLE, NOT_CONTROLLER, INVALID_REQUEST, OPERATION_NOT_ATTEMPTED = 9, 41, 42, 55
FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, UNKNOWN_TOPIC_ID = 74, 95, 100
INCONSISTENT_TOPIC_ID, INELIGIBLE_REPLICA, NEW_LEADER_ELECTED = 103, 107, 108
OFFSET_MOVED_TO_TIERED_STORAGE = 109
ENDS_OF_A_WAIT = (  # errors of a produce or a marker that waited for the HW and failed (DelayedProduce)
    UNKNOWN_TOPIC_OR_PARTITION,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KAFKA_STORAGE_ERROR,
)

LOG_CREATED = "created"  # log_load: created anew although the broker had one
TRANSACTIONAL = "transactional"  # produce_refused: of a transactional producer
DELETED = "deleted"  # produce_refused: the broker had heard that the topic was deleted
STORAGE_FAILED = "storage_failure"  # observation: the log directory failed
CONTRADICTED = "contradicted"  # observation: lines that cannot all be true
ANSWERED = "isr_answered"  # observation: a node answered a request to change the ISR
BROKER_EPOCH = "broker_epoch"  # observation: under which epoch ZooKeeper's controller has a broker
# observation, of a follower's line about its fetcher: a request failed; its leader is not alive, so that it fetches
# from nobody (KRaft) or keeps the role it had (ZooKeeper); what it was sent broke something; its thread ended
FETCH_FAILED, LEADER_NOT_ALIVE, LEADER_UNAVAILABLE = "request_failed", "leader_not_alive", "leader_unavailable"
RECORDS_CORRUPT, UNEXPECTED_ERROR, TRUNCATION_FAILED = "corrupt_records", "unexpected_error", "truncation_failed"
TRUNCATION_FORBIDDEN = "truncation_forbidden"  # its broker stops, since its log may not be cut
THREAD_ENDED, SHUTTING_DOWN = "thread_ended", "shutting_down"  # as it shuts down, a broker starts no fetcher
LEADER_UNKNOWN = "leader_unknown"  # observation: a later epoch whose leader is unknown
DUMP_HOLDS, DUMP_DIFFERS = "holds", "differs"  # log_dump: what a log holds at the end; where two replicas differ
ISR_STATES = ("committed", "pending_expand", "pending_shrink")
ISR_COMMITTED, ISR_PENDING_EXPAND, ISR_PENDING_SHRINK = range(3)
REQUEST_STATES = (*ISR_STATES, "reset", "refused", "retried")  # of isr_request; the last three: it was rejected
REQUEST_RESET, REQUEST_REFUSED, REQUEST_RETRIED = range(3, 6)
CAUSES = ("leader_epoch", "high_watermark", "diverging_fetch", "out_of_range", "recovery", "tiered_storage")
(
    CAUSE_LEADER_EPOCH,
    CAUSE_HIGH_WATERMARK,
    CAUSE_DIVERGING,
    CAUSE_OUT_OF_RANGE,
    CAUSE_RECOVERY,
    CAUSE_TIERED_STORAGE,
) = range(6)

FUTURE_GONE, FUTURE_THERE = range(2)  # what an observation says of a future log
FUTURE_STATES = {
    **dict.fromkeys(("created", "loaded", "fetching", "cut", "caught_up", "log_start"), FUTURE_THERE),
    **dict.fromkeys(("replaced", "failed", "deleted"), FUTURE_GONE),
}

STEPS = (
    "leader_append",
    "leader_update_follower_leo",
    "leader_maybe_increment_hw",
    "follower_append",
    "follower_advance_hw",
    "truncate",
    "log_load",
    "role",
    "observation",
)
(
    STEP_LEADER_APPEND,
    STEP_FOLLOWER_LEO,
    STEP_LEADER_HW,
    STEP_FOLLOWER_APPEND,
    STEP_FOLLOWER_HW,
    STEP_TRUNCATE,
    STEP_LOAD,
    STEP_ROLE,
    STEP_OBSERVATION,
) = range(9)

CHECKS = (
    "response_hw",
    "role_leo",
    "role_hw",
    "fetch_offset_is_leo",
    "leader_hw_line",
    "rule_kept",
    "predicted_shrink",
    "predicted_expansion",
    "overdue_shrink",
    "leader_hw_by_lines",
    "fetch_completion",
    "commit_before_ack",
    "produce_guard",
    "delayed_produce",
    "replication_quota",
    "preferred_replica",
    "isr_expiry",
    "delete_records",
    "low_watermark",
    "answer_size",
    "broker_epoch",
    "produce_refusal",
    "produce_timeout",
    "fetch_turn",
)
CHECK_RESPONSE_HW, CHECK_ROLE_LEO, CHECK_ROLE_HW, CHECK_FETCH_IS_LEO, CHECK_HW_LINE, CHECK_RULE = range(6)
CHECK_SHRINK, CHECK_EXPANSION, CHECK_OVERDUE, CHECK_HW_BY_LINES = range(6, 10)
CHECK_FETCH_COMPLETION, CHECK_COMMIT_BEFORE_ACK, CHECK_PRODUCE_GUARD, CHECK_DELAYED_PRODUCE = range(10, 14)
CHECK_QUOTA, CHECK_PREFERRED, CHECK_EXPIRY = range(14, 17)
CHECK_DELETION, CHECK_LOW_WATERMARK, CHECK_ANSWER_SIZE, CHECK_BROKER_EPOCH = range(17, 21)
CHECK_REFUSAL, CHECK_PRODUCE_TIMEOUT, CHECK_FETCH_TURN = range(21, 24)
