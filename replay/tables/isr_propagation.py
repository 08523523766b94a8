"""When ZooKeeper's controller heard of an ISR that a leader had written, compared with Kafka's rule.

A leader that writes the ISR itself adds the partition to the set of its changes; a task that runs every 2.5 s creates a
notification node of the set, and empties it, once nothing has changed for 5 s, or if the last node, or the start of the
broker, is more than 60 s ago (`ReplicaManager.maybePropagateIsrChanges`): after a quiet minute it does so at its next
run. The set is of all partitions that the broker leads, so that others may put a node off, or may have had one of their
own. What is known of it here is since when at least there was one, and what of this partition is in it. Then the
controller reads the partition's state into its cache and sends UpdateMetadata to the brokers
(`KafkaController.processIsrChangeNotification`). What brokers log of their metadata caches therefore shows the new
version no sooner and no later. A controller that takes over reads all states, and one that takes the replicas of a
broker out reads theirs: what it sends then tells nothing. At DEBUG a leader states when it made a node, and the
controller when it read some, with the partitions that they name: these times are held against the rule, and what comes
behind them is held against them. From 2.7 on (KIP-497, inter-broker protocol 2.7-IV2) the
controller writes the ISR and sends it at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from replay.engine.stamps import CLOCK_SLACK_US
from replay.evidence.tenures import micros
from replay.protocol.state_machines import CACHED, NOTICE_MADE, NOTICE_READ

CHECK: Final = "isr_propagation"
SECOND: Final = 1_000_000
QUIET_US: Final = 5 * SECOND
LATEST_US: Final = 60 * SECOND
TASK_US: Final = 2_500_000
LATE_US: Final = 2 * SECOND  # until a request of the controller is handled, or its answer, on a loaded host

Event = dict[str, Any]
Epochs = tuple[int, int]  # leader and partition epoch: a version of the partition's state


@dataclass(slots=True)
class Sent:
    """What a controller sent of one version of the partition's state."""

    seq: int
    us: int
    broker: int
    controller: int
    soonest: int = 0  # how long after the change at least a node may tell of it


@dataclass(slots=True)
class ChangeSet:
    """A leader's set of changes that no node tells of, as far as one partition shows it."""

    told: int | None = None  # there was a node, or the broker started, at this time or later; None: not known
    changes: list[int] = field(default_factory=list)  # of this partition, rising

    def soonest(self, change: int, us: int) -> int:
        """How long after a change at least the node was made of which a controller's message of `us` tells.

        Nothing had changed for 5 s, or the last node was older than a minute. What changed just before the message may
        have come after the node.
        """
        if self.told is None or self.told + LATEST_US < us + CLOCK_SLACK_US:
            return 0
        return max([change, *(one for one in self.changes if one <= us - LATE_US)]) - change + QUIET_US

    def empty(self, us: int) -> None:
        """A node was made, of which a controller's message of `us` tells."""
        self.told = max(us - LATE_US, self.told or 0)
        self.changes = [one for one in self.changes if one > us]

    def node_made(self, us: int) -> tuple[int, int] | None:
        """Its leader says that it made a node at `us`: between when and when it may be; None: of no known change."""
        told, made = self.told, [one for one in self.changes if one <= us]
        self.told, self.changes = us, [one for one in self.changes if one > us]
        if not made:
            return None
        soonest = made[-1] if told is None else min(made[-1] + QUIET_US, max(made[0], told + LATEST_US))
        return soonest, made[0] + LATEST_US + TASK_US


@dataclass(slots=True)
class IsrPropagation:
    """The versions that leaders of one partition committed, and those that controllers sent."""

    committed: dict[Epochs, tuple[int, bool]] = field(default_factory=dict)  # when; by a request
    sets: dict[int, ChangeSet] = field(default_factory=dict)  # by leader
    leaders: dict[Epochs, int] = field(default_factory=dict)  # who committed them
    sent: dict[Epochs, Sent] = field(default_factory=dict)  # the first that was sent of them
    since: dict[int, int] = field(default_factory=dict)  # controller -> since when it has sent in its present turn
    controller: int = -1
    stirred: int = 0  # when a broker last came or went
    known: dict[Epochs, bool] = field(default_factory=dict)  # whether nothing else told of them
    unread: dict[Epochs, None] = field(default_factory=dict)  # what leaders wrote, and no line says that it was read
    stating: set[int] = field(default_factory=set)  # leaders that say when they make a node
    nodes: dict[Epochs, int] = field(default_factory=dict)  # when its leader says that it made a node of it
    read: dict[Epochs, int] = field(default_factory=dict)  # when a controller says that it read it
    compared: int = 0  # times that are stated of nodes
    wrong: list[tuple[int, str]] = field(default_factory=list)

    def take(self, event: Event, *, asks: bool) -> None:
        """Take the next event. `asks`: leaders ask the controller for an ISR, and do not write it themselves."""
        epochs = (event["leader_epoch"], event["partition_epoch"])
        if event["kind"] == "broker_change":
            self.stirred = max(self.stirred, micros(event["ts"]))
        if event["kind"] == "log_load":  # an empty log may be new
            self.sets[event["broker_id"]] = ChangeSet(micros(event["ts"]) if event["leo"] else None)
        if event["kind"] == "observation" and event["cause"] in (NOTICE_MADE, NOTICE_READ):
            (self.note_made if event["cause"] == NOTICE_MADE else self.note_read)(event)
        elif None in epochs:
            return
        elif event["kind"] == "observation":
            if event["cause"] == CACHED:
                self.note(epochs, event)
        elif event["kind"] == "isr_request" and event["cause"] == "committed" and event["state"] != "applied":
            self.committed.setdefault(epochs, (micros(event["ts"]), asks))
            if not asks and epochs not in self.leaders:
                self.leaders[epochs] = event["broker_id"]
                self.unread[epochs] = None
                self.sets.setdefault(event["broker_id"], ChangeSet()).changes.append(micros(event["ts"]))

    def note_made(self, event: Event) -> None:
        """A leader says that it made a node that names the partition."""
        leader, us = event["broker_id"], micros(event["ts"])
        self.stating.add(leader)
        within = self.sets.setdefault(leader, ChangeSet()).node_made(us)
        for epochs in [one for one in self.unread if self.leaders[one] == leader and self.committed[one][0] <= us]:
            self.nodes.setdefault(epochs, us)
        if within is not None:
            self.compare(f"broker {leader} made a node", event, within)

    def note_read(self, event: Event) -> None:
        """A controller says that it read nodes that name the partition, and so what was written of it until then.

        A node of before its turn it deleted as that began. What was written just before may have come behind the node.
        """
        controller, us = event["broker_id"], micros(event["ts"])
        is_new = self.controller not in {-1, controller}
        self.note_controller(controller, us)
        since = us if is_new else self.since[controller] if self.since[controller] < us else 0
        silent = set()
        for epochs in [one for one in self.unread if self.committed[one][0] <= us]:
            del self.unread[epochs]
            written, leader, node = self.committed[epochs][0], self.leaders[epochs], self.nodes.get(epochs)
            self.read[epochs] = us
            if node is not None and node > since:
                self.compare(f"controller {controller} read a node", event, (node, node))
            elif node is None and leader not in self.stating and since < written <= us - LATE_US:
                within = written + self.sets[leader].soonest(written, us), written + LATEST_US + TASK_US
                self.compare(f"controller {controller} read a node", event, within)
                silent.add(leader)
        for leader in silent if len(silent) == 1 else ():
            self.sets[leader].empty(us)

    def note_controller(self, controller: int, us: int) -> None:
        """Take it as its turn since a controller spoke first, after another."""
        if controller != self.controller:
            self.controller, self.since[controller] = controller, us

    def compare(self, what: str, event: Event, within: tuple[int, int]) -> None:
        """Hold a time that a line states against the earliest and the latest that it may be."""
        us, (soonest, latest) = micros(event["ts"]), within
        self.compared += 1
        if not soonest - CLOCK_SLACK_US <= us <= latest + LATE_US:
            early, late = ((one - us) / SECOND for one in (soonest, latest + LATE_US))
            self.wrong.append((event["seq"], f"{what}: computed {early:+.3f} to {late:+.3f} s from what is stated"))

    def note(self, epochs: Epochs, event: Event) -> None:
        """A broker cached a version; the lines of several brokers may be out of turn by what their clocks differ."""
        controller, us = event["controller_id"], micros(event["ts"])
        self.note_controller(controller, us)
        if epochs not in self.sent:
            self.sent[epochs] = Sent(event["seq"], us, event["broker_id"], controller)
            written = self.committed.get(epochs)
            quiet = max(self.since[controller], self.stirred)
            self.known[epochs] = written is not None and quiet < written[0]
            if self.known[epochs] and epochs in self.leaders and written is not None:
                changes = self.sets[self.leaders[epochs]]
                self.sent[epochs].soonest = changes.soonest(written[0], us)
                if self.leaders[epochs] not in self.stating:
                    changes.empty(us)

    def bounds_of(self, epochs: Epochs, sent: Sent) -> tuple[int, int]:
        """How long after it was written a version may be sent, at least and at most: as stated, else by the rule."""
        us, asks = self.committed[epochs]
        stated = self.read.get(epochs, self.nodes.get(epochs))
        if asks:
            return 0, LATE_US
        if stated is not None:
            return stated - us, stated - us + LATE_US
        return sent.soonest, LATEST_US + TASK_US + LATE_US

    def checks(self) -> list[dict[str, Any]]:
        """Return the row of `conformance`; none if nothing was compared."""
        compared, wrong = self.compared, [*self.wrong]
        for epochs, sent in self.sent.items():
            if not self.known[epochs]:
                continue
            compared += 1
            us = self.committed[epochs][0]
            soonest, latest = self.bounds_of(epochs, sent)
            if not soonest - CLOCK_SLACK_US <= sent.us - us <= latest or sent.us - us < -LATE_US:
                took = (sent.us - us) / SECOND
                computed = f"computed {soonest / SECOND:g} to {latest / SECOND:g} s"
                wrong.append((sent.seq, f"controller {sent.controller}: {computed}, stated {took:.3f} s"))
        if not compared:
            return []
        seq, note = min(wrong) if wrong else (None, None)
        row = {"check": CHECK, "compared": compared, "matched": compared - len(wrong)}
        return [{**row, "first_mismatch_seq": seq, "note": note}]
