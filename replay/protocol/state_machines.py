"""Partition and replica state machines: the state that each is in, and why it changed.

ZooKeeper's controller keeps them (`ZkPartitionStateMachine`, `ZkReplicaStateMachine`) and logs each transition at
TRACE. KRaft's controller has none; its decisions and registration changes imply the same states, which are derived
here. Where ZooKeeper passes through Offline for an election (after the leader died), KRaft names the next leader in the
same record: Online to Online.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replay.protocol.election_rules import LEADER_KEPT

if TYPE_CHECKING:
    from collections.abc import Iterable

NON_EXISTENT, NEW, ONLINE, OFFLINE = "NonExistent", "New", "Online", "Offline"
DELETION_STARTED, DELETION_SUCCESSFUL, DELETION_INELIGIBLE = (
    "DeletionStarted",
    "DeletionSuccessful",
    "DeletionIneligible",
)
PARTITION, REPLICA = "partition", "replica"

# machine -> state -> states that it may be reached from (validPreviousStates)
MOVES: dict[str, dict[str, tuple[str, ...]]] = {
    PARTITION: {
        NEW: (NON_EXISTENT,),
        ONLINE: (NEW, ONLINE, OFFLINE),
        OFFLINE: (NEW, ONLINE, OFFLINE),
        NON_EXISTENT: (OFFLINE,),
    },
    REPLICA: {
        NEW: (NON_EXISTENT,),
        ONLINE: (NEW, ONLINE, OFFLINE, DELETION_INELIGIBLE),
        OFFLINE: (NEW, ONLINE, OFFLINE, DELETION_INELIGIBLE),
        DELETION_STARTED: (OFFLINE,),
        DELETION_SUCCESSFUL: (DELETION_STARTED,),
        DELETION_INELIGIBLE: (DELETION_STARTED, OFFLINE),  # from Offline since 2.3
        NON_EXISTENT: (DELETION_SUCCESSFUL,),
    },
}
DELETION = (OFFLINE, DELETION_STARTED, DELETION_SUCCESSFUL, NON_EXISTENT)
STARTED = "controller_started"  # reason for a state that a controller found, without a transition to it
WHY_AWAY = ("fenced", "controlled_shutdown")

FOUND = "state_found"  # cause of observations that state how a starting controller found a machine
STATED = "state_change"  # cause of observations that hold a controller's line about a transition
CACHED = "metadata_cached"  # cause of observations of what a broker's metadata cache took from a controller
# Causes of observations that hold ZooKeeper's notification of ISR changes: a leader's line that it made one, and a
# controller's that it has read some. Neither shows its broker in a role of the partition.
NOTICE_MADE, NOTICE_READ = "isr_notice_made", "isr_notice_read"
MOVING_KINDS = ("partition_change", "broker_change", "topic_change", "observation")
Event = dict[str, Any]


def is_valid(machine: str, before: str, after: str) -> bool:
    """Whether `after` may follow `before`."""
    return before in MOVES[machine][after]


class Machines:
    """The states of one partition and its replicas, updated by the partition's events in order."""

    def __init__(self) -> None:
        """Start with nothing existing."""
        self.partition = NON_EXISTENT
        self.replicas: dict[int, str] = {}
        self.leader = -1
        self.leader_epoch: int | None = None
        self.why_away: dict[int, str] = {}  # brokers that are fenced or shutting down, and which of the two
        self.moves: list[dict[str, Any]] = []  # rows of state_transitions
        self.refused: list[dict[str, Any]] = []  # transitions that the machine does not allow

    def take_all(self, events: Iterable[Event]) -> None:
        """Take events in order."""
        for event in events:
            self.take(event)

    def take(self, event: Event) -> None:
        """Take one event; kinds that change no machine are skipped."""
        if event["kind"] == "partition_change":
            self.take_decision(event)
        elif event["kind"] == "broker_change":
            self.take_registration(event)
        elif event["kind"] == "topic_change":
            self.take_deletion(event)
        elif event["cause"] == FOUND:
            self.begin(event)

    def begin(self, event: Event) -> None:
        """Start a ZooKeeper controller: its machines begin with what it found, whatever earlier controllers had."""
        broker = event["replica_id"]
        suffix = (PARTITION if broker is None else REPLICA).capitalize()
        state = event["state"].removesuffix(suffix)
        if state not in MOVES[suffix.lower()]:
            return
        if state != (self.partition if broker is None else self.state_of(broker)):
            self.move(event, broker, state, STARTED, evidence="observed")

    def take_decision(self, event: Event) -> None:
        """Apply a decision of the controller: creation, election, reassignment, and who is away."""
        self.leader_epoch = event["leader_epoch"]
        replicas = list(event["replicas"] or [])
        if self.partition == NON_EXISTENT:
            self.create(event, replicas)
            return
        for broker in replicas:
            if self.state_of(broker) == NON_EXISTENT:
                self.move(event, broker, NEW, "reassignment")
        self.move_partition(event)
        for broker in replicas:
            self.place(event, broker)
        for broker in sorted(set(self.replicas) - set(replicas)):
            if self.state_of(broker) != NON_EXISTENT:
                self.delete(event, broker, "reassignment")

    def create(self, event: Event, replicas: list[int]) -> None:
        """Create a partition: it and its replicas are New, then Online once it has a leader."""
        self.move(event, None, NEW, "created")
        for broker in replicas:
            self.move(event, broker, NEW, "created")
        if event["leader_id"] is not None and event["leader_id"] >= 0:
            self.move(event, None, ONLINE, event["election"] or "initial")
            self.leader = event["leader_id"]
        for broker in replicas:
            away = self.is_away(event, broker)
            self.move(event, broker, OFFLINE if away else ONLINE, self.reason(event, broker) if away else "created")

    def move_partition(self, event: Event) -> None:
        """Apply an election, or the loss of the last leader."""
        if event["election"] is None or (event["metadata_offset"] is None and event["rule"] == LEADER_KEPT):
            return  # ZooKeeper's controller also starts an epoch when it removes a replica from the ISR: no election
        leader, before = event["leader_id"], self.leader
        self.leader = leader
        if leader < 0:
            self.move(event, None, OFFLINE, event["election"])
            return
        if event["metadata_offset"] is None and self.partition == ONLINE and before != leader:
            died = event["live"] is not None and before not in event["live"]
            if died and event["election"] != "controlled_shutdown":
                self.move(event, None, OFFLINE, "leader_away")
        self.move(event, None, ONLINE, event["election"])

    def place(self, event: Event, broker: int) -> None:
        """Update one assigned replica after a decision: away, back, or caught up for the first time."""
        state = self.state_of(broker)
        if self.is_away(event, broker):
            if state in (NEW, ONLINE):
                self.move(event, broker, OFFLINE, self.reason(event, broker))
        elif state == OFFLINE and event["metadata_offset"] is not None and broker in (event["live"] or ()):
            self.move(event, broker, ONLINE, "broker_back")
        elif state == NEW and broker in (event["isr"] or ()):
            self.move(event, broker, ONLINE, "joined_isr")

    def take_registration(self, event: Event) -> None:
        """Apply a registration change: a broker that goes or comes back takes its replica along."""
        broker = event["broker_id"]
        zookeeper = event["metadata_offset"] is None
        if event["fenced"]:
            self.why_away[broker] = "broker_away" if zookeeper else "fenced"
        elif event["in_controlled_shutdown"]:
            # ZooKeeper: the replica of a partition that it leads stays Online
            if not zookeeper or broker != self.leader:
                self.why_away[broker] = "controlled_shutdown"
        elif event["fenced"] is False:
            self.why_away.pop(broker, None)
        state = self.state_of(broker)
        if broker in self.why_away and state in (NEW, ONLINE):
            self.move(event, broker, OFFLINE, self.reason(event, broker))
        elif event["fenced"] is False and broker not in self.why_away and state == OFFLINE:
            self.move(event, broker, ONLINE, "broker_back")

    def take_deletion(self, event: Event) -> None:
        """Delete the topic; a replica whose broker is away cannot be deleted before the broker is back."""
        for broker in sorted(self.replicas):
            if self.state_of(broker) == OFFLINE and broker in self.why_away:
                self.move(event, broker, DELETION_INELIGIBLE, "topic_deleted")
            elif self.state_of(broker) != NON_EXISTENT:
                self.delete(event, broker, "topic_deleted")
        if self.partition not in (OFFLINE, NON_EXISTENT):
            self.move(event, None, OFFLINE, "topic_deleted")
        if self.partition == OFFLINE:
            self.move(event, None, NON_EXISTENT, "topic_deleted")

    def delete(self, event: Event, broker: int, reason: str) -> None:
        """Delete a replica that is no longer wanted; no source states that its log is gone by then."""
        for state in DELETION:
            if state != self.state_of(broker):
                self.move(event, broker, state, reason, evidence="bounded")

    def is_away(self, event: Event, broker: int) -> bool:
        """Whether the replica is away: KRaft states it with the decision, ZooKeeper's controller before it."""
        if event["live"] is None or event["metadata_offset"] is None:
            return broker in self.why_away
        return broker not in event["live"]

    def reason(self, event: Event, broker: int) -> str:
        """Why a replica is away: its broker, as reported before or with the decision, else its log directory."""
        if broker in self.why_away:
            return self.why_away[broker]
        return str(event["change"]) if event["change"] in WHY_AWAY else "log_directory"

    def state_of(self, broker: int) -> str:
        """The replica's state."""
        return self.replicas.get(broker, NON_EXISTENT)

    def move(self, event: Event, broker: int | None, state: str, reason: str, evidence: str | None = None) -> None:
        """Move the partition (`broker` None) or a replica; a transition that the machine does not allow is refused."""
        machine = PARTITION if broker is None else REPLICA
        before = self.partition if broker is None else self.state_of(broker)
        places = [row["place"] for row in self.moves[-1:] if row["seq"] == event["seq"]]
        row = {
            "seq": event["seq"],
            "place": places[0] + 1 if places else 0,
            "ts": event["ts"],
            "machine": machine,
            "is_future": False,
            "broker_id": broker,
            "state_before": before,
            "state": state,
            "reason": reason,
            "leader_epoch": self.leader_epoch,
            "evidence": evidence or ("bounded" if event["evidence"] == "bounded" else "derived"),
        }
        if reason != STARTED and not is_valid(machine, before, state):
            self.refused.append(row)
            return
        self.moves.append(row)
        if broker is None:
            self.partition = state
        else:
            self.replicas[broker] = state

    def checks(self) -> list[dict[str, Any]]:
        """The row of `conformance` about refused transitions; none if nothing changed."""
        compared = len(self.moves) + len(self.refused)
        if not compared:
            return []
        first = self.refused[0] if self.refused else None
        note = first and f"{first['machine']} {first['broker_id']}: {first['state_before']} to {first['state']}"
        row = {"check": "state_moves", "compared": compared, "matched": len(self.moves)}
        return [{**row, "first_mismatch_seq": first and first["seq"], "note": note}]
