"""When ZooKeeper's controller heard of an ISR that a leader had written, compared with Kafka's rule.

A leader that writes the ISR itself adds the partition to the set of its changes; a task that runs every 2.5 s creates a
notification node of the set, and empties it, once nothing has changed for 5 s, or if the last node, or the start of the
broker, is more than 60 s ago (`ReplicaManager.maybePropagateIsrChanges`): after a quiet minute it does so at its next
run. The set is of all partitions that the broker leads, so that others may put a node off, or may have had one of their
own. What is known of it here is since when at least there was one, and what of this partition is in it. Then the
controller reads the partition's state into its cache and sends UpdateMetadata to the brokers
(`KafkaController.processIsrChangeNotification`). What brokers log of their metadata caches therefore shows the new
version no sooner and no later. A controller that takes over reads all states, and one that takes the replicas of a
broker out reads theirs: what it sends then tells nothing. From 2.7 on (KIP-497, inter-broker protocol 2.7-IV2) the
controller writes the ISR and sends it at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from replay.engine.stamps import CLOCK_SLACK_US
from replay.evidence.tenures import micros
from replay.protocol.state_machines import CACHED

CHECK: Final = "isr_propagation"
SECOND: Final = 1_000_000
QUIET_US: Final = 5 * SECOND
LATEST_US: Final = 60 * SECOND
TASK_US: Final = 2_500_000
LATE_US: Final = 2 * SECOND  # until a request of the controller is handled, or its answer, on a loaded host

Event = dict[str, Any]


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


@dataclass(slots=True)
class IsrPropagation:
    """The versions that leaders of one partition committed, and those that controllers sent."""

    committed: dict[tuple[int, int], tuple[int, bool]] = field(default_factory=dict)  # epochs -> when; by a request
    sets: dict[int, ChangeSet] = field(default_factory=dict)  # by leader
    leaders: dict[tuple[int, int], int] = field(default_factory=dict)  # epochs -> who committed them
    sent: dict[tuple[int, int], Sent] = field(default_factory=dict)  # epochs -> the first that was sent of them
    since: dict[int, int] = field(default_factory=dict)  # controller -> since when it has sent in its present turn
    controller: int = -1
    stirred: int = 0  # when a broker last came or went
    known: dict[tuple[int, int], bool] = field(default_factory=dict)  # epochs -> whether nothing else told of them

    def take(self, event: Event, *, asks: bool) -> None:
        """Take the next event. `asks`: leaders ask the controller for an ISR, and do not write it themselves."""
        epochs = (event["leader_epoch"], event["partition_epoch"])
        if event["kind"] == "broker_change":
            self.stirred = max(self.stirred, micros(event["ts"]))
        if event["kind"] == "log_load" and event["leo"]:  # an empty log may be new
            self.sets[event["broker_id"]] = ChangeSet(micros(event["ts"]))
        if None in epochs:
            return
        if event["kind"] == "observation":
            if event["cause"] == CACHED:
                self.note(epochs, event)
        elif event["kind"] == "isr_request" and event["cause"] == "committed" and event["state"] != "applied":
            self.committed.setdefault(epochs, (micros(event["ts"]), asks))
            if not asks and epochs not in self.leaders:
                self.leaders[epochs] = event["broker_id"]
                self.sets.setdefault(event["broker_id"], ChangeSet()).changes.append(micros(event["ts"]))

    def note(self, epochs: tuple[int, int], event: Event) -> None:
        """A broker cached a version; the lines of several brokers may be out of turn by what their clocks differ."""
        controller, us = event["controller_id"], micros(event["ts"])
        if controller != self.controller:
            self.controller, self.since[controller] = controller, us
        if epochs not in self.sent:
            self.sent[epochs] = Sent(event["seq"], us, event["broker_id"], controller)
            written = self.committed.get(epochs)
            quiet = max(self.since[controller], self.stirred)
            self.known[epochs] = written is not None and quiet < written[0]
            if self.known[epochs] and epochs in self.leaders and written is not None:
                changes = self.sets[self.leaders[epochs]]
                self.sent[epochs].soonest = changes.soonest(written[0], us)
                changes.empty(us)

    def checks(self) -> list[dict[str, Any]]:
        """Return the row of `conformance`; none if nothing was compared."""
        compared = 0
        wrong: list[tuple[int, str]] = []
        for epochs, sent in self.sent.items():
            us, asks = self.committed.get(epochs, (0, False))
            if not self.known[epochs]:
                continue
            compared += 1
            soonest, latest = (0, LATE_US) if asks else (sent.soonest, LATEST_US + TASK_US + LATE_US)
            if not soonest - CLOCK_SLACK_US <= sent.us - us <= latest or sent.us - us < -LATE_US:
                took = (sent.us - us) / SECOND
                computed = f"computed {soonest / SECOND:g} to {latest / SECOND:g} s"
                wrong.append((sent.seq, f"controller {sent.controller}: {computed}, stated {took:.3f} s"))
        if not compared:
            return []
        seq, note = min(wrong) if wrong else (None, None)
        row = {"check": CHECK, "compared": compared, "matched": compared - len(wrong)}
        return [{**row, "first_mismatch_seq": seq, "note": note}]
