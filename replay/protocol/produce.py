"""Whether a leader takes a produce, and how an acks=all produce ends that waited for the high watermark.

`produce_guard` is what Partition.appendRecordsToLeader asks before it appends, `acks_outcome` what
Partition.checkEnoughReplicasReachOffset answers once the HW has passed the batch (DelayedProduce.tryComplete). Each
gives an error code of Kafka. Nothing here changes the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replay.arrays.jit import compiled
from replay.protocol.high_watermark import bits, effective_min_isr
from replay.protocol.state import MIN_ISR_UNKNOWN, ROLE_LEADER, UNSET, State

if TYPE_CHECKING:
    from replay.protocol.profile import Profile

# org.apache.kafka.common.protocol.Errors
NO_ERROR, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT = 0, 6, 7
NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND = 19, 20

UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED, KAFKA_STORAGE_ERROR = 3, 29, 56
GUARD_ERRORS = (  # any other comes after the guard
    UNKNOWN_TOPIC_OR_PARTITION,
    NOT_LEADER_OR_FOLLOWER,
    NOT_ENOUGH_REPLICAS,
    KAFKA_STORAGE_ERROR,
)

ACKS_ALL: Final = -1
ACKS_OF_COORDINATOR: Final = -3  # transaction markers: no client asks for acks, the broker itself asks for all
ACKS_OF_TRANSACTION: Final = -4  # acks=all of a transactional producer that was refused
ACKS_TO_DELETED: Final = -5  # whatever it asked for: the broker had heard that the topic was deleted


@compiled
def replicas_needed(s: State, p: Profile) -> int:
    """How many replicas have to be in sync for acks=all: min.insync.replicas; UNSET: unknown.

    From 3.7 on (KAFKA-15583) no more than there are replicas (Partition.effectiveMinIsr).
    """
    needed, assigned = s.partition[0].min_isr, s.partition[0].assigned
    if needed == MIN_ISR_UNKNOWN:
        return UNSET
    return effective_min_isr(s) if p.min_isr_within_replicas and assigned else int(needed)


@compiled
def produce_guard(s: State, p: Profile, b: int, acks: int) -> int:
    """The error with which b refuses a produce before anything is appended; UNSET: it depends on what is unknown.

    The committed ISR counts, whatever is pending. acks 0 and 1 are taken however small the ISR is. Markers and what
    coordinators write ask for all replicas (ReplicaManager.appendRecords, origin COORDINATOR). Before all that, the
    topic must be in the broker's metadata cache (KafkaApis.handleProduceRequest).
    """
    if acks == ACKS_TO_DELETED:
        return UNKNOWN_TOPIC_OR_PARTITION
    if s.role[b] != ROLE_LEADER or s.gone[b]:
        return NOT_LEADER_OR_FOLLOWER
    if acks not in (ACKS_ALL, ACKS_OF_COORDINATOR, ACKS_OF_TRANSACTION):
        return NO_ERROR
    needed, held = replicas_needed(s, p), bits(s.isr[b])
    if needed == UNSET:
        return UNSET
    return NOT_ENOUGH_REPLICAS if held < needed else NO_ERROR


@compiled
def may_be_unverified(p: Profile, acks: int, error: int) -> bool:
    """Whether NOT_ENOUGH_REPLICAS may mean that the coordinator did not verify a transaction (3.6+, KIP-890).

    While the coordinator cannot be reached the broker answers so before it looks at the ISR
    (ReplicaManager.appendRecords).
    """
    return bool(p.verifies_transactions and acks == ACKS_OF_TRANSACTION and error == NOT_ENOUGH_REPLICAS)


@compiled
def acks_outcome(s: State, p: Profile, b: int) -> int:
    """The error with which b answers an acks=all produce whose batch the HW has just passed; UNSET: unknown.

    The batch stays in the log either way. From 2.7 on (KIP-497) replicas that are asked for count too.
    """
    needed = replicas_needed(s, p)
    if needed == UNSET:
        return UNSET
    held = bits(s.maximal_isr[b] if p.hw_over_maximal_isr else s.isr[b])
    return NO_ERROR if needed <= held else NOT_ENOUGH_REPLICAS_AFTER_APPEND
