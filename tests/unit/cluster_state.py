"""What the small cluster of `cluster_model` holds: its brokers with their logs, who waits, and what really happened."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

LAG_MS, SESSION_MS, FETCH_WAIT_MS, PRODUCE_WAIT_MS = 10_000, 9_000, 500, 30_000
QUIET_MS = 120  # after a decision: brokers learn of it on their own clocks
BYTES = 100
IDS = (1, 2, 3)
Slot = tuple[int, int]  # leader epoch, serial number of the record


@dataclass
class Produce:
    """A produce that waits for the HW."""

    base: int
    end: int
    since: float
    place: tuple[str, int]
    slots: list[Slot]


@dataclass
class Parked:
    """A follower's fetch that waits for records."""

    leader: int
    since: float
    fields: dict[str, Any]


@dataclass
class Broker:
    """What one broker holds, and what it knows of the others while it leads."""

    id: int
    log: list[Slot] = field(default_factory=list)
    hw: int = 0
    role: str = "none"
    epoch: int = -1
    leader: int = -1
    alive: bool = True
    cut_off: bool = False  # from the controller and from the other brokers; clients still reach it
    empty: int = -1  # an epoch that it led, or leads, without a record: last in its epoch cache
    incarnation: int = 0
    partition_epoch: int = -1
    shown: int = 0  # end of its log as a fetch, an answer or the first line of an epoch has told of it
    told_epoch: int = -1
    # while it leads
    epoch_start: int = 0
    isr: set[int] = field(default_factory=set)
    asked: set[int] | None = None  # the ISR asked for
    remote: dict[int, int] = field(default_factory=dict)
    caught_up: dict[int, float] = field(default_factory=dict)
    previous: dict[int, tuple[int, float]] = field(default_factory=dict)  # leader's LEO and time of the last fetch
    waiting: list[Produce] = field(default_factory=list)

    @property
    def leo(self) -> int:
        return len(self.log)

    def latest_epoch(self) -> int:
        return self.empty if self.empty >= 0 else self.log[-1][0] if self.log else -1

    def end_of(self, epoch: int) -> tuple[int, int]:
        """Largest epoch <= `epoch` of this log and where it ends; one below all ends where the log begins."""
        known = sorted({e for e, _ in self.log} | ({self.empty} if self.empty >= 0 else set()))
        lower = [e for e in known if e <= epoch]
        if not known or epoch > known[-1]:
            return -1, -1
        if not lower:
            return epoch, 0
        return lower[-1], sum(1 for e, _ in self.log if e <= lower[-1])

    def is_caught_up(self, r: int, now: float) -> bool:
        return self.remote.get(r, -1) == self.leo or now - self.caught_up.get(r, -1e9) <= LAG_MS


@dataclass
class Truth:
    """What happened."""

    leader_hw: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))  # (broker, epoch)
    follower_hw: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    leo: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    isr: list[tuple[int, ...]] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    cuts: list[tuple[int, int, int]] = field(default_factory=list)  # broker, LEO before, after
    acked: dict[Slot, int] = field(default_factory=dict)  # acks of the answer that its client got
    places: dict[tuple[int, int], Slot] = field(default_factory=dict)  # (leader epoch, offset) -> what was appended
    exposed: set[Slot] = field(default_factory=set)  # were below the HW of a leader
    missing: set[Slot] = field(default_factory=set)  # acknowledged, and not in the log of the last leader
    returned: set[Slot] = field(default_factory=set)  # were missing for a while
    lost: set[Slot] = field(default_factory=set)

    def lost_with(self, acks: int) -> int:
        return sum(1 for slot in self.lost if self.acked.get(slot) == acks)


def moved(values: list[int], value: int) -> None:
    if not values or values[-1] != value:
        values.append(value)
