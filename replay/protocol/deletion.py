"""DeleteRecords: how far a leader deletes, which requests it refuses, and when it has answered the others.

`deletion_guard` is what ReplicaManager.deleteRecordsOnLocalLog and Partition.deleteRecordsOnLeader ask before the log
start moves. Afterwards the request waits until the low watermark (`high_watermark.leader_low_watermark`) has reached
its offset, or its time is up (DelayedDeleteRecords). A leader that loses its role does not look at the requests that
wait, so only time ends them (ReplicaManager.completeDelayedOperationsWhenNotPartitionLeader). Nothing here changes the
state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replay.arrays.jit import compiled
from replay.protocol.produce import NO_ERROR, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT
from replay.protocol.state import BOUNDED, ROLE_LEADER, UNSET, State

if TYPE_CHECKING:
    from replay.protocol.profile import Profile

# org.apache.kafka.common.protocol.Errors
OFFSET_OUT_OF_RANGE, INVALID_TOPIC, POLICY_VIOLATION = 1, 17, 44
DELETING_ANSWERS = (NO_ERROR, REQUEST_TIMED_OUT)  # records went; in the second, not from all replicas in time

AT_HIGH_WATERMARK: Final = -1  # DeleteRecordsRequest.HIGH_WATERMARK: all that is committed

DELETES, COMPACTS_ONLY, NO_POLICY = range(3)  # what cleanup.policy names; UNSET: it is unknown
POLICIES: Final = {"delete": DELETES, "compact,delete": DELETES, "compact": COMPACTS_ONLY, "none": NO_POLICY}


@compiled
def deletion_target(s: State, b: int, requested: int) -> int:
    """The offset before which leader b deletes."""
    return int(s.hw[b]) if requested == AT_HIGH_WATERMARK else int(requested)


@compiled
def deletion_guard(s: State, p: Profile, b: int, requested: int, policy: int) -> int:
    """The error with which b refuses to delete records; UNSET: it depends on what is unknown.

    Records of a topic that is only compacted stay. A topic without any policy (4.2+, KAFKA-19112) takes requests. The
    first reason in this order is answered; a log start that is there already, or beyond, is none.
    """
    if s.role[b] != ROLE_LEADER or s.gone[b]:
        return NOT_LEADER_OR_FOLLOWER
    if policy == UNSET:
        return UNSET
    if policy == COMPACTS_ONLY or (policy == NO_POLICY and not p.deletes_without_policy):
        return POLICY_VIOLATION
    target = deletion_target(s, b, requested)
    if target < 0:
        return OFFSET_OUT_OF_RANGE
    if target > s.hw[b]:
        return UNSET if s.hw_evidence[b] >= BOUNDED else OFFSET_OUT_OF_RANGE
    return NO_ERROR
