"""When ZooKeeper's controller heard of an ISR that a leader had written, compared with Kafka's rule.

A leader that writes the ISR itself notes the change; a task that runs every 2.5 s creates a notification node once
nothing has changed for 5 s, or 60 s after the last node (`ReplicaManager.maybePropagateIsrChanges`). Then the
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


@dataclass(slots=True)
class IsrPropagation:
    """The versions that leaders of one partition committed, and those that controllers sent."""

    committed: dict[tuple[int, int], tuple[int, bool]] = field(default_factory=dict)  # epochs -> when; by a request
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
        if None in epochs:
            return
        if event["kind"] == "observation":
            if event["cause"] == CACHED:
                self.note(epochs, event)
        elif event["kind"] == "isr_request" and event["cause"] == "committed" and event["state"] != "applied":
            self.committed.setdefault(epochs, (micros(event["ts"]), asks))

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

    def checks(self) -> list[dict[str, Any]]:
        """Return the row of `conformance`; none if nothing was compared."""
        compared = 0
        wrong: list[tuple[int, str]] = []
        for epochs, sent in self.sent.items():
            us, asks = self.committed.get(epochs, (0, False))
            if not self.known[epochs]:
                continue
            compared += 1
            soonest, latest = (0, LATE_US) if asks else (QUIET_US, LATEST_US + TASK_US + LATE_US)
            if not soonest - CLOCK_SLACK_US <= sent.us - us <= latest or sent.us - us < -LATE_US:
                took = (sent.us - us) / SECOND
                computed = f"computed {soonest / SECOND:g} to {latest / SECOND:g} s"
                wrong.append((sent.seq, f"controller {sent.controller}: {computed}, stated {took:.3f} s"))
        if not compared:
            return []
        seq, note = min(wrong) if wrong else (None, None)
        row = {"check": CHECK, "compared": compared, "matched": compared - len(wrong)}
        return [{**row, "first_mismatch_seq": seq, "note": note}]
