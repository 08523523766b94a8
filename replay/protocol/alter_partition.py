"""AlterPartition (AlterIsr up to 3.1): what a leader asks for, and what the controller answers.

`controller_answer` makes the checks of ReplicationControlManager.validateAlterPartitionData in Kafka's order, or those
of the ZooKeeper controller (KafkaController.processAlterIsr). `write_answer` is what ZooKeeper itself answers a leader
that writes the ISR without asking anybody. An answer is an error code of Kafka; 0 grants the ISR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replay.protocol.produce import NO_ERROR, UNKNOWN_TOPIC_OR_PARTITION

if TYPE_CHECKING:
    from replay.protocol.profile import Version

NOT_CONTROLLER, INVALID_REQUEST, OPERATION_NOT_ATTEMPTED = 41, 42, 55
FENCED_LEADER_EPOCH, STALE_BROKER_EPOCH, INVALID_UPDATE_VERSION = 74, 77, 95
UNKNOWN_TOPIC_ID, INELIGIBLE_REPLICA, NEW_LEADER_ELECTED = 100, 107, 108
UNKNOWN_TOPIC: Final = (UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID)  # by name, and 3.3+ (version 2) by id


class AlterRules(NamedTuple):
    """Switches between controllers."""

    zookeeper: bool
    newer_is_elsewhere: bool  # 3.3+: a request with newer epochs than the controller's is answered NOT_CONTROLLER
    checks_eligibility: bool  # 3.3+ (KIP-841): nobody fenced or shutting down may be in the new ISR
    checks_epochs: bool  # 3.5+ (KIP-903): nor anybody who has registered anew since the leader heard from it
    new_codes: bool  # 3.3+, AlterPartition version 2: INELIGIBLE_REPLICA and NEW_LEADER_ELECTED have codes of their own
    lost_write_waits: bool  # 2.8+ (ZkIsrManager): a leader whose write lost waits for metadata; before, it goes on

    @property
    def ineligible(self) -> int:
        """The error for an ISR with a member that may not be in it."""
        return INELIGIBLE_REPLICA if self.new_codes else OPERATION_NOT_ATTEMPTED

    @property
    def lost_write(self) -> int:
        """The error for a leader's own update that ZooKeeper refused. Up to 2.7 it is ours: the line names none."""
        return INVALID_UPDATE_VERSION if self.lost_write_waits else OPERATION_NOT_ATTEMPTED


def alter_rules_of(version: Version, *, zookeeper: bool) -> AlterRules:
    """The rules of that version's controller."""
    recent = version >= (3, 3, 0)
    return AlterRules(
        zookeeper=zookeeper,
        newer_is_elsewhere=recent,
        checks_eligibility=recent,
        checks_epochs=version >= (3, 5, 0) and not zookeeper,
        new_codes=recent,
        lost_write_waits=version >= (2, 8, 0),
    )


Reasons = tuple[tuple[bool, int], ...]


class IsrRequest(NamedTuple):
    """The ISR that a leader asks for, and the epochs that it asks under."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: frozenset[int]
    # Members with the broker epoch that each had when it last fetched; without those of whom the leader names none.
    members: frozenset[tuple[int, int]] = frozenset()
    broker_epoch: int = -1  # the leader's own; -1: the request is not at hand


class PartitionNow(NamedTuple):
    """The partition as the controller has it when the request arrives."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: frozenset[int]
    replicas: frozenset[int]
    adding: frozenset[int] = frozenset()
    removing: frozenset[int] = frozenset()


class Registrations(NamedTuple):
    """Brokers as the controller has them when the request arrives, as far as it is known."""

    unfit: frozenset[int]  # those that are fenced or shutting down
    epochs: frozenset[tuple[int, int]] = frozenset()  # brokers with the epochs of their registrations
    away: frozenset[int] = frozenset()  # those that are fenced; ZooKeeper's controller then knows nothing of them


def controller_answer(request: IsrRequest, now: PartitionNow, brokers: Registrations, rules: AlterRules) -> int:
    """The error with which the controller answers."""
    reasons = (zookeeper_refusals if rules.zookeeper else kraft_refusals)(request, now, brokers, rules)
    error = next((error for applies, error in reasons if applies), NO_ERROR)
    if error == NO_ERROR and not rules.zookeeper and replaces_leader(request, now):
        return NEW_LEADER_ELECTED if rules.new_codes else FENCED_LEADER_EPOCH
    return error


def kraft_refusals(request: IsrRequest, now: PartitionNow, brokers: Registrations, rules: AlterRules) -> Reasons:
    """What a KRaft controller asks, in its order, and its answer if that is so; the first reason counts.

    Left out are two reasons about the leader's recovery state: no broker asks for what they refuse.
    """
    return (
        (is_of_unknown_life(request, brokers, rules), STALE_BROKER_EPOCH),
        (rules.newer_is_elsewhere and is_newer(request, now), NOT_CONTROLLER),
        (request.leader_epoch != now.leader_epoch, FENCED_LEADER_EPOCH),
        (request.leader != now.leader, INVALID_REQUEST),
        (request.partition_epoch != now.partition_epoch, INVALID_UPDATE_VERSION),
        (not request.isr <= now.replicas or now.leader not in request.isr, INVALID_REQUEST),
        (rules.checks_eligibility and bool(request.isr & brokers.unfit), rules.ineligible),
        (rules.checks_epochs and names_another_life(request, brokers), rules.ineligible),
    )


def is_of_unknown_life(request: IsrRequest, brokers: Registrations, rules: AlterRules) -> bool:
    """Whether the controller has not registered the leader's broker under the epoch that its request names.

    KRaft's keeps the epoch of a broker that is fenced (checkBrokerEpoch), ZooKeeper's has none of one that it does not
    see alive (tryProcessAlterPartition). Where either epoch is not known, they are held to be the same.
    """
    epoch = request.broker_epoch
    if epoch < 0:
        return False
    away = rules.zookeeper and request.leader in brokers.away
    return away or dict(brokers.epochs).get(request.leader, epoch) != epoch


def knows_life(request: IsrRequest, brokers: Registrations, rules: AlterRules) -> bool:
    """Whether both epochs are known, the one that the request names and the one that the controller has."""
    away = rules.zookeeper and request.leader in brokers.away
    return request.broker_epoch >= 0 and (away or request.leader in dict(brokers.epochs))


def is_newer(request: IsrRequest, now: PartitionNow) -> bool:
    """Whether the leader goes by newer epochs than the controller, which then is no longer the active one."""
    return request.leader_epoch > now.leader_epoch or request.partition_epoch > now.partition_epoch


def names_another_life(request: IsrRequest, brokers: Registrations) -> bool:
    """Whether a member's broker has another registration than the leader names (ineligibleReplicasForIsr, KIP-903).

    A member without a broker epoch passes; so does one whose registration no source tells.
    """
    registered = dict(brokers.epochs)
    return any(registered.get(broker, epoch) != epoch for broker, epoch in request.members)


def zookeeper_refusals(request: IsrRequest, now: PartitionNow, brokers: Registrations, rules: AlterRules) -> Reasons:
    """What a ZooKeeper controller asks: for an older epoch, or another version of the node that it would update.

    An ISR that is there already is granted whatever the version. From 3.3 on (KIP-841) it also asks who is ahead, and
    whether all members are alive and not shutting down.
    """
    same = request.isr == now.isr and request.leader_epoch == now.leader_epoch and request.leader == now.leader
    return (
        (is_of_unknown_life(request, brokers, rules), STALE_BROKER_EPOCH),
        (rules.newer_is_elsewhere and is_newer(request, now), NOT_CONTROLLER),
        (request.leader_epoch < now.leader_epoch, FENCED_LEADER_EPOCH),
        (same, NO_ERROR),
        (request.partition_epoch != now.partition_epoch, INVALID_UPDATE_VERSION),
        (rules.checks_eligibility and bool(request.isr & brokers.unfit), rules.ineligible),
    )


def write_answer(request: IsrRequest, now: PartitionNow, rules: AlterRules) -> int:
    """What becomes of a leader's own conditional update of the partition's node (ReplicationUtils.updateLeaderAndIsr).

    ZooKeeper compares the version that the leader knows with the node's, and asks for nothing else: not for epochs, nor
    who leads. Where they differ, the leader reads the node: its update may have come through although its answer did
    not, and then the node holds what it wrote (checkLeaderAndIsrZkData). Else the update is lost, as it is where the
    topic was deleted, and the node with it.
    """
    wrote = request.isr == now.isr and request.leader_epoch == now.leader_epoch and request.leader == now.leader
    if request.partition_epoch == now.partition_epoch or wrote:
        return NO_ERROR
    return rules.lost_write


def replaces_leader(request: IsrRequest, now: PartitionNow) -> bool:
    """Whether granting the ISR completes a reassignment that removes the leader (PartitionReassignmentReplicas).

    It completes once all added replicas are in the ISR, and one that stays is. The ISR is changed all the same, but the
    leader is told that it leads no longer.
    """
    return completes_reassignment(request, now) and now.leader in now.removing


def completes_reassignment(request: IsrRequest, now: PartitionNow) -> bool:
    """Whether the ISR that is asked for lets the controller end a reassignment."""
    moving = bool(now.adding or now.removing)
    return moving and now.adding <= request.isr and bool(request.isr - now.removing)


def granted_isr(request: IsrRequest, now: PartitionNow) -> frozenset[int]:
    """The ISR that is decided if the request is granted: without the replicas that a completed reassignment removes."""
    return request.isr - now.removing if completes_reassignment(request, now) else request.isr
