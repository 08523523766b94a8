"""Which leader and which ISR the controller's rule chooses, given what the controller knew.

KRaft: `PartitionChangeBuilder` (2.8: `ReplicationControlManager.bestLeader`). ZooKeeper: `Election` and
`PartitionLeaderElectionAlgorithms`. Both go through groups of replicas in order, and take the first replica that may
lead from the first group that has one. It is not always known who is alive: if the answer depends on a broker for which
that is unknown, there is no answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from replay.protocol.profile import Version

NO_LEADER = -1

FIRST_LIVE = "first_live"
LEADER_KEPT = "leader_kept"
PREFERRED_IN_SYNC = "preferred_in_sync"
FIRST_IN_SYNC = "first_in_sync"
FIRST_ELIGIBLE = "first_eligible"
LAST_KNOWN_LEADER = "last_known_leader"
FIRST_LIVE_UNCLEAN = "first_live_unclean"
NO_CANDIDATE = "no_candidate"
NOT_KNOWN = "not_known"


class ElectionRules(NamedTuple):
    """Switches between the controllers of different versions, 1 on and 0 off."""

    zookeeper: int  # the controller that keeps its state in ZooKeeper, whatever the version
    in_sync_needs_live: int  # 3.0+: 2.8's bestLeader takes an ISR member without checking that it is alive
    kept_needs_live: int  # 3.2+: before, a leader in the ISR stays without that check
    unclean_by_setting: int  # ZooKeeper; KRaft 3.9+: before, only an operator's request makes an election unclean
    last_known_needs_live: int  # 4.0.1+: before, the last known leader is elected although it is away (KAFKA-19522)
    isr_may_be_empty: int  # 4.0+ with eligible leader replicas (KIP-966): before, the last member stays in the ISR


def election_rules_of(version: Version, *, zookeeper: bool, eligible_replicas: bool) -> ElectionRules:
    """The rules of that version's controller; `eligible_replicas`: the feature is on."""
    return ElectionRules(
        zookeeper=int(zookeeper),
        in_sync_needs_live=int(zookeeper or version >= (3, 0, 0)),
        kept_needs_live=int(zookeeper or version >= (3, 2, 0)),
        unclean_by_setting=int(zookeeper or version >= (3, 9, 0)),
        last_known_needs_live=int(version >= (4, 0, 1)),
        isr_may_be_empty=int(not zookeeper and eligible_replicas),
    )


class Ballot(NamedTuple):
    """What the controller knew when it decided. Sets of brokers are tuples; the assignment is in order."""

    kind: str  # 'initial', 'any', 'preferred'; ZooKeeper: 'offline', 'reassignment', 'controlled_shutdown' for 'any'
    assignment: tuple[int, ...]  # after the decision
    in_sync: tuple[int, ...]  # the ISR without members that the decision removes
    live: frozenset[int]  # who may be asked to lead: registered, not fenced, not shutting down, directory online
    unknown: frozenset[int] = frozenset()  # brokers of which it is unknown whether they are alive
    leader: int = NO_LEADER  # before the decision
    isr_before: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()  # the ELR without members that the decision removes (KIP-966)
    last_known: tuple[int, ...] = ()  # last known ELR before the decision: the last leader (KIP-966)
    unclean: bool = False  # unclean.leader.election.enable for the topic, or an operator's request


class ElectionChoice(NamedTuple):
    """What the rule says. `candidates` are those it may choose, in its order: the first is the leader."""

    rule: str  # one of schemas.events.ELECTION_RULES
    leader: int | None  # NO_LEADER: nobody; None: unknown
    isr: tuple[int, ...] | None  # None: unknown
    candidates: tuple[int, ...]


Groups = list[tuple[str, tuple[int, ...]]]


def choose(ballot: Ballot, rules: ElectionRules) -> ElectionChoice:
    """The rule's choice."""
    groups = initial_groups(ballot) if ballot.kind == "initial" else groups_of(ballot, rules)
    for rule, members in groups:
        asked = asks_whether_live(rule, rules)
        possible = tuple(b for b in members if not asked or b in ballot.live or b in ballot.unknown)
        if possible and asked and possible[0] in ballot.unknown:
            return ElectionChoice(NOT_KNOWN, None, None, possible)
        if possible:
            known = tuple(b for b in possible if not asked or b in ballot.live)
            return ElectionChoice(rule, possible[0], isr_of(rule, possible[0], ballot), known)
    return ElectionChoice(NO_CANDIDATE, NO_LEADER, isr_without_leader(ballot, rules), ())


def groups_of(ballot: Ballot, rules: ElectionRules) -> Groups:
    """Who is asked in which order, for an existing partition."""
    if rules.zookeeper:
        return zookeeper_groups(ballot)
    return preferred_groups(ballot) if ballot.kind == "preferred" else any_groups(ballot)


def initial_groups(ballot: Ballot) -> Groups:
    """A new partition: the first live replica leads, and all live ones form the ISR.

    `ReplicationControlManager.createTopic`, `ZkPartitionStateMachine.initializeLeaderAndIsrForPartitions`.
    """
    return [(FIRST_LIVE, ballot.assignment)]


def any_groups(ballot: Ballot) -> Groups:
    """`PartitionChangeBuilder.electAnyLeader`: a leader that may still lead stays, whatever the assignment prefers."""
    valid = valid_leaders(ballot)
    return [
        (LEADER_KEPT, tuple(b for b in (ballot.leader,) if b in valid)),
        in_order(ballot, valid),
        (LAST_KNOWN_LEADER, last_known_leader(ballot)),
        (FIRST_LIVE_UNCLEAN, ballot.assignment if ballot.unclean else ()),
    ]


def preferred_groups(ballot: Ballot) -> Groups:
    """`PartitionChangeBuilder.electPreferredLeader`: the assignment's first, else as usual, but never unclean."""
    valid = valid_leaders(ballot)
    return [
        (PREFERRED_IN_SYNC, tuple(b for b in ballot.assignment[:1] if b in valid)),
        (LEADER_KEPT, tuple(b for b in (ballot.leader,) if b in valid)),
        in_order(ballot, valid),
        (LAST_KNOWN_LEADER, last_known_leader(ballot)),
    ]


def valid_leaders(ballot: Ballot) -> tuple[int, ...]:
    """Members of the ISR, or of the eligible leader replicas if the ISR is empty (`isValidNewLeader`)."""
    return ballot.in_sync or ballot.eligible


def in_order(ballot: Ballot, valid: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """The assigned replicas that may lead, in the assignment's order."""
    rule = FIRST_IN_SYNC if ballot.in_sync else FIRST_ELIGIBLE
    return rule, tuple(b for b in ballot.assignment if b in valid)


def last_known_leader(ballot: Ballot) -> tuple[int, ...]:
    """The last leader, if it is the only one remembered and no replica is in sync or eligible (KIP-966)."""
    alone = len(ballot.last_known) == 1 and not ballot.in_sync and not ballot.eligible
    return ballot.last_known if alone else ()


def zookeeper_groups(ballot: Ballot) -> Groups:
    """`Election`: each kind has its own algorithm; ballots already exclude brokers that stop or are removed."""
    in_sync = tuple(b for b in ballot.assignment if b in ballot.in_sync)
    if ballot.kind == "preferred":
        return [(PREFERRED_IN_SYNC, tuple(b for b in ballot.assignment[:1] if b in ballot.in_sync))]
    if ballot.kind == "isr_change":  # ReplicaStateMachine.removeReplicasFromIsr: an epoch, but no election
        return [(LEADER_KEPT, tuple(b for b in (ballot.leader,) if b >= 0))]
    if ballot.kind == "offline":
        return [(FIRST_IN_SYNC, in_sync), (FIRST_LIVE_UNCLEAN, ballot.assignment if ballot.unclean else ())]
    return [(FIRST_IN_SYNC, in_sync)]


def asks_whether_live(rule: str, rules: ElectionRules) -> bool:
    """Whether the rule checks that a replica is alive."""
    if rule == LEADER_KEPT:
        return bool(rules.kept_needs_live)
    if rule == LAST_KNOWN_LEADER:
        return bool(rules.last_known_needs_live)
    return bool(rules.in_sync_needs_live) or rule not in (FIRST_IN_SYNC, PREFERRED_IN_SYNC)


def isr_of(rule: str, leader: int, ballot: Ballot) -> tuple[int, ...] | None:
    """The ISR that goes with the choice."""
    if rule in (FIRST_ELIGIBLE, LAST_KNOWN_LEADER, FIRST_LIVE_UNCLEAN):
        return (leader,)
    if rule == FIRST_LIVE:
        return None if ballot.unknown else tuple(b for b in ballot.assignment if b in ballot.live)
    if ballot.kind == "offline":  # ZooKeeper: the live members of the ISR
        return None if ballot.unknown.intersection(ballot.in_sync) else alive(ballot)
    return ballot.in_sync


def alive(ballot: Ballot) -> tuple[int, ...]:
    """Members of the ISR that are alive."""
    return tuple(b for b in ballot.in_sync if b in ballot.live)


def isr_without_leader(ballot: Ballot, rules: ElectionRules) -> tuple[int, ...]:
    """The ISR if nobody leads: its last member stays, unless eligible leader replicas remember it."""
    return ballot.in_sync if ballot.in_sync or rules.isr_may_be_empty else ballot.isr_before
