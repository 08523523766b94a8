"""What a partition's events tell beside its offsets: decisions, brokers that came and went, restarts, cuts, settings.

Kept from the event stream as it passes, a few rows for each leader epoch, so that at the end each loss can be told as a
story: who led, who had left, who died, who was elected, who cut.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from sys import intern
from typing import TYPE_CHECKING, Any

from replay.encoding import STORAGE_FAILED
from replay.profile import profile_named

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.profile import Profile

Row = dict[str, Any]

KINDS = ("partition_change", "broker_change", "role_change", "log_load", "truncation", "config_change", "observation")


def source_of(row: Row) -> str | None:
    """`file:line` that states an event; null where it was inferred."""
    return None if row["source_line"] is None else intern(f"{row['source_file']}:{row['source_line']}")


@dataclass(slots=True)
class Story:
    """The rows that losses are explained by, in replay order."""

    decisions: list[Row] = field(default_factory=list)
    brokers: list[Row] = field(default_factory=list)  # registrations, fencing, shutdowns
    roles: list[Row] = field(default_factory=list)
    loads: list[Row] = field(default_factory=list)
    failures: list[Row] = field(default_factory=list)  # log directories that failed
    min_isr: list[tuple[int, int | None]] = field(default_factory=list)  # (seq, min.insync.replicas from there on)
    sources: dict[int, str | None] = field(default_factory=dict)  # seq -> the line that states it
    cuts: list[Row] = field(default_factory=list)  # rows of `log_truncations`
    isr: list[Row] = field(default_factory=list)  # rows of `isr_timeline`
    lag_ms: int = 0  # replica.lag.time.max.ms
    spoken: list[tuple[int, int | None, str | None, str | None]] = field(default_factory=list)
    # (seq, broker or all of them, version, protocol) from there on

    def take_all(self, rows: Iterable[Row]) -> None:
        """Take in events of `KINDS`, in their order; of observations those of a failed log directory count."""
        places = {
            "partition_change": self.decisions,
            "broker_change": self.brokers,
            "role_change": self.roles,
            "log_load": self.loads,
            "observation": self.failures,
        }
        for row in rows:
            if row["kind"] == "observation" and row["cause"] != STORAGE_FAILED:
                continue
            self.sources[row["seq"]] = source_of(row)
            if row["kind"] in places:
                places[row["kind"]].append(row)
            elif row["kind"] == "config_change":
                self.take_settings(row)

    def take_settings(self, row: Row) -> None:
        """Settings that a prevention hangs on."""
        if row["min_insync_replicas"] is not None:
            self.min_isr.append((row["seq"], row["min_insync_replicas"] or None))
        if row["replica_lag_time_max_us"] is not None:
            self.lag_ms = row["replica_lag_time_max_us"] // 1000
        if row["kafka_version"]:
            told = (row["seq"], row["broker_id"], row["kafka_version"], row["inter_broker_protocol"])
            self.spoken.append(told)

    def spoken_at(self, broker: int | None, seq: int) -> tuple[str | None, str | None]:
        """Version and protocol of a broker at `seq`; of None, or of one that none tells of: the partition's first."""
        told = [(v, p) for at, b, v, p in self.spoken if at <= seq and b in (None, broker)]
        return told[-1] if told else (None, None)

    def profile_at(self, broker: int | None, seq: int) -> Profile:
        """The rules that a broker followed at `seq`."""
        return profile_named(*self.spoken_at(broker, seq))

    def truncates_on_fetch(self, broker: int, seq: int) -> bool:
        """Whether that broker's fetches found out where logs diverge."""
        return bool(self.profile_at(broker, seq).truncate_on_fetch)

    @property
    def storage(self) -> list[Row]:
        """Loads and failed log directories, in replay order."""
        return sorted([*self.loads, *self.failures], key=lambda row: row["seq"])

    @property
    def is_kraft(self) -> bool:
        """Whether the metadata log of a KRaft controller is at hand."""
        return any(row["metadata_offset"] is not None for row in self.decisions)

    def begun(self, epoch: int) -> int:
        """Seq at which a leader epoch began; 0 where no decision of it is known."""
        return next((row["seq"] for row in self.decisions if row["leader_epoch"] == epoch), 0)

    def decision_before(self, seq: int) -> Row | None:
        """The decision in force just before `seq`."""
        earlier = [row for row in self.decisions if row["seq"] < seq]
        return earlier[-1] if earlier else None

    def isr_at(self, seq: int) -> list[int] | None:
        """The committed ISR in force at `seq`; null where no source tells."""
        place = bisect_right(self.decisions, seq, key=lambda row: row["seq"])
        return self.decisions[place - 1]["isr"] if place else None

    def stated_hw(self, leader: int, seq: int) -> int:
        """Highest HW that a broker stated up to `seq`, or `leader` when next heard of; the true one is no lower."""
        rows = sorted([*self.roles, *self.loads], key=lambda row: row["seq"])
        later = [row for row in rows if row["seq"] > seq and row["broker_id"] == leader]
        told = [row for row in rows if row["seq"] <= seq] + later[:1]
        return max((row["hw"] for row in told if row["hw"] is not None and row["evidence"] == "observed"), default=0)

    def min_isr_at(self, seq: int) -> int | None:
        """min.insync.replicas in force at `seq`; null where no source tells."""
        place = bisect_right(self.min_isr, seq, key=lambda one: one[0])
        return self.min_isr[place - 1][1] if place else None
