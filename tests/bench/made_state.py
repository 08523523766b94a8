"""What the made cluster of `made_recording` holds: logs, partitions, fetch sessions; and what really happened."""

from __future__ import annotations

from dataclasses import dataclass, field

CONSUMER = -1  # who fetches, where it is no broker


@dataclass(slots=True)
class Replica:
    """One replica's log: where it ends, what its broker takes for the HW, the epoch of its last record."""

    leo: int = 0
    hw: int = 0
    last_epoch: int = -1


@dataclass(slots=True)
class Partition:
    """A partition, as its leader and the controller have it."""

    number: int
    replicas: list[int]
    leader: int
    isr: list[int]
    logs: dict[int, Replica]
    epoch: int = 0
    partition_epoch: int = 0
    remote: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)  # where each epoch before this one ended
    waiting: list[tuple[float, int, int, int]] = field(default_factory=list)  # since, base, end, bytes


def created(number: int, brokers: list[int]) -> Partition:
    """A partition that was just created on these brokers."""
    shift = number % len(brokers)
    replicas = brokers[shift:] + brokers[:shift]
    return Partition(number, replicas, replicas[0], list(replicas), {b: Replica() for b in replicas})


@dataclass(slots=True)
class Session:
    """A fetch session of a follower or a consumer (`CONSUMER`) at a leader."""

    number: int
    connection: str
    epoch: int = 0
    correlation: int = 0
    since: float = 0.0  # when the fetch that is open reached the leader
    named: str = ""  # what it named
    offsets: dict[int, int] = field(default_factory=dict)  # in the order in which the leader reads the partitions
    told: dict[int, int] = field(default_factory=dict)
    moved: set[int] = field(default_factory=set)  # partitions whose offset the next request names
    news: set[int] = field(default_factory=set)  # partitions that the next answer may name


@dataclass(slots=True)
class Truth:
    """What happened."""

    records: int = 0
    lines: int = 0
    lost: list[tuple[int, int, int, int]] = field(default_factory=list)  # partition, epoch, first offset, end
    cuts: list[tuple[int, int, int, int]] = field(default_factory=list)  # partition, broker, LEO before, after
