"""The integer form of an event and of the rows that leave the kernel: columns of int64 matrices.

Text, sets and nulls stay outside: brokers are dense indices, sets are bit masks, a missing value is `UNSET`.
The protocol's own numbers stand here as well, by Kafka's names.
"""

from __future__ import annotations

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

# Columns of an event.
(
    E_KIND,
    E_TS,
    E_BROKER,  # on whose log or state it acts
    E_REPLICA,  # the other replica, NONE: none or a consumer
    E_EPOCH,
    E_END,  # next_offset; of a leader's role the least that its LEO can be
    E_END_EVIDENCE,
    E_FETCH,  # fetch_offset
    E_HW,  # response_hw, or hw stated
    E_LEO,  # LEO stated
    E_ISR,  # mask
    E_ASSIGNED,  # mask
    E_LEADER,
    E_PARTITION_EPOCH,
    E_VALUE,  # role, state of an ISR request, min ISR, fenced, acks, FUTURE_*
    E_EXTRA,  # stopping, lag in microseconds, HW by lines, base offset, log start (a follower's in its fetch)
    E_DIVERGING_EPOCH,
    E_DIVERGING_END,
    E_TARGET,  # truncate_to; of a future log its log start
    E_CAUSE,
    E_ERROR,
    E_UNTIL,  # last of a run of unlisted fetches
    E_DUPLICATE,
    E_EVIDENCE,
    E_SEQ,
    E_LO,  # earliest that it can have happened
) = range(26)
EVENT_WIDTH = 26

CONSUMER = -1  # replica id of a fetch that is none of a replica's

# Errors of answers (org.apache.kafka.common.protocol.Errors).
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT = 1, 3, 6, 7
REPLICA_NOT_AVAILABLE, NOT_ENOUGH_REPLICAS_AFTER_APPEND, INVALID_REQUEST, OPERATION_NOT_ATTEMPTED = 9, 20, 42, 55
KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, UNKNOWN_TOPIC_ID = 56, 74, 95, 100
INCONSISTENT_TOPIC_ID, INELIGIBLE_REPLICA, NEW_LEADER_ELECTED = 103, 107, 108
ENDS_OF_A_WAIT = (  # with which a produce or a marker fails that waited for the HW (DelayedProduce)
    UNKNOWN_TOPIC_OR_PARTITION,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KAFKA_STORAGE_ERROR,
)

LOG_CREATED = "created"  # log_load: made anew where the broker had one
STORAGE_FAILED = "storage_failure"  # observation: the log directory failed
CONTRADICTED = "contradicted"  # observation: lines that cannot all be true
LEADER_UNKNOWN = "leader_unknown"  # observation: a later epoch, and nothing tells who led it
DUMP_HOLDS, DUMP_DIFFERS = "holds", "differs"  # log_dump: what a log holds at the end; where two replicas differ
ISR_STATES = ("committed", "pending_expand", "pending_shrink")
ISR_COMMITTED, ISR_PENDING_EXPAND, ISR_PENDING_SHRINK = range(3)
REQUEST_STATES = (*ISR_STATES, "reset", "refused", "retried")  # of isr_request; the last three: it was rejected
REQUEST_RESET, REQUEST_REFUSED, REQUEST_RETRIED = range(3, 6)
CAUSES = ("leader_epoch", "high_watermark", "diverging_fetch", "out_of_range", "recovery")
CAUSE_LEADER_EPOCH, CAUSE_HIGH_WATERMARK, CAUSE_DIVERGING, CAUSE_OUT_OF_RANGE, CAUSE_RECOVERY = range(5)

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

# Columns of the rows that leave the kernel, a matrix per table.
LEO_ROW = ("seq", "ts", "broker", "observer", "epoch", "before", "leo", "step", "kind", "evidence")
HW_ROW = ("seq", "ts", "broker", "role", "epoch", "before", "hw", "step", "kind", "cause", "evidence")
ISR_ROW = (
    "seq", "ts", "leader", "epoch", "partition_epoch", "isr", "isr_before", "state", "under_min", "evidence",
)  # fmt: skip
MOVE_ROW = ("seq", "state", "replica", "joined", "leader", "remote", "gap", "us", "blocked")
CUT_ROW = ("seq", "ts", "broker", "epoch", "before", "after", "hw_before", "cause", "evidence")
START_ROW = ("seq", "ts", "broker", "epoch", "before", "start", "kind", "low", "evidence")
CHECK_ROW = ("seq", "check", "broker", "computed", "stated")
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
)
CHECK_RESPONSE_HW, CHECK_ROLE_LEO, CHECK_ROLE_HW, CHECK_FETCH_IS_LEO, CHECK_HW_LINE, CHECK_RULE = range(6)
CHECK_SHRINK, CHECK_EXPANSION, CHECK_OVERDUE, CHECK_HW_BY_LINES = range(6, 10)
CHECK_FETCH_COMPLETION, CHECK_COMMIT_BEFORE_ACK = range(10, 12)
