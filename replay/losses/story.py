"""A partition's story: decisions, brokers that came and went, restarts, truncations and settings, beside its offsets.

It is kept from the event stream as it passes, a few rows per leader epoch, so that at the end each loss can be
explained: who led, who had left, who died, who was elected, who truncated.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from sys import intern
from typing import TYPE_CHECKING, Any

import numpy as np

from replay.arrays.ints import NEVER
from replay.engine.codes import STORAGE_FAILED
from replay.protocol.profile import profile_named

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.arrays.ints import Ints
    from replay.protocol.profile import Profile

Row = dict[str, Any]

CUT = "cut"
KINDS = ("partition_change", "broker_change", "role_change", "log_load", "truncation", "config_change", "observation")


def source_of(row: Row) -> str | None:
    """`file:line` that states an event; None if it was inferred."""
    return None if row["source_line"] is None else intern(f"{row['source_file']}:{row['source_line']}")


def by_seq(row: Row) -> int:
    """Sort key of rows."""
    seq: int = row["seq"]
    return seq


def hw_of(row: Row) -> int:
    """The HW that a broker states of itself; 0: none."""
    return int(row["hw"] or 0) if row["evidence"] == "observed" else 0


def is_in_batch_of(election: Row, row: Row) -> bool:
    """Whether a broker's change is in the metadata log batch of an election; one that causes it stands after it."""
    return row["metadata_offset"] is not None and bool(row["ts"] == election["ts"])


@dataclass(slots=True)
class Story:
    """The rows by which losses are explained, in replay order."""

    decisions: list[Row] = field(default_factory=list)
    brokers: list[Row] = field(default_factory=list)  # registrations, fencing, shutdowns
    roles: list[Row] = field(default_factory=list)
    loads: list[Row] = field(default_factory=list)
    failures: list[Row] = field(default_factory=list)  # log directories that failed
    min_isr: list[tuple[int, int | None]] = field(default_factory=list)  # (seq, min.insync.replicas from there on)
    sources: dict[int, str | None] = field(default_factory=dict)  # seq -> the line that states it
    cuts: list[Row] = field(default_factory=list)  # rows of `log_truncations`
    # of each truncation, LEO before and after
    cut_bounds: Ints = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    isr: list[Row] = field(default_factory=list)  # committed rows of `isr_timeline` whose previous ISR is known
    moved: dict[int | None, list[Row]] = field(default_factory=dict)  # its rows that name who moved, by leader epoch
    # rows by kind of event and broker; truncations as `CUT`
    of: dict[tuple[str, int | None], list[Row]] = field(default_factory=lambda: defaultdict(list))
    heard: list[int] = field(default_factory=list)  # seqs at which brokers state HWs
    highest: list[int] = field(default_factory=list)  # the highest HW stated up to each of them
    lag_ms: int = 0  # replica.lag.time.max.ms
    # (seq, broker or None for all, version, protocol) from there on
    spoken: list[tuple[int, int | None, str | None, str | None]] = field(default_factory=list)

    def take_all(self, rows: Iterable[Row]) -> None:
        """Take in events of `KINDS`, in order; among observations, only those of a failed log directory."""
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
                self.of[row["kind"], row["broker_id"]].append(row)
            elif row["kind"] == "config_change":
                self.take_settings(row)

    def take_cuts(self, rows: Iterable[Row]) -> None:
        """Take in rows of `log_truncations`, in order."""
        for row in rows:
            self.cuts.append(row)
            self.of[CUT, row["broker_id"]].append(row)

    def close(self, isr: list[Row]) -> None:
        """Finish once everything is known. `isr`: rows of `isr_timeline`, in seq order."""
        for row in isr:
            if row["state"] == "committed" and row["isr_before"]:
                self.isr.append(row)
            if row["movers"]:
                self.moved.setdefault(row["leader_epoch"], []).append(row)
        rows = sorted([*self.roles, *self.loads], key=lambda row: row["seq"])
        self.heard = [row["seq"] for row in rows]
        self.highest = list(accumulate(map(hw_of, rows), max))
        bounds = [(cut["leo_before"], cut["leo_after"]) for cut in self.cuts]
        self.cut_bounds = np.array(bounds, np.int64).reshape(-1, 2)

    def within(self, kind: str, broker: int, since: int, until: int) -> list[Row]:
        """Rows of one kind and broker, from seq `since` up to but not including `until`."""
        rows = self.of.get((kind, broker), [])
        return rows[bisect_left(rows, since, key=by_seq) : bisect_left(rows, until, key=by_seq)]

    def changes_until(self, broker: int, election: Row) -> list[Row]:
        """A broker's registrations and fencing up to an election, including those of its metadata log batch."""
        rows = self.of.get(("broker_change", broker), [])
        place = bisect_right(rows, election["seq"], key=by_seq)
        behind = place
        while behind < len(rows) and is_in_batch_of(election, rows[behind]):
            behind += 1
        return rows[:behind]

    def cuts_into(self, first: int, end: int) -> list[Row]:
        """Truncations that removed any of the offsets [first, end)."""
        before, after = self.cut_bounds.T
        return [self.cuts[k] for k in np.flatnonzero((after < end) & (before > first)).tolist()]

    def take_settings(self, row: Row) -> None:
        """Note settings that a prevention depends on."""
        if row["min_insync_replicas"] is not None:
            self.min_isr.append((row["seq"], row["min_insync_replicas"] or None))
        if row["replica_lag_time_max_us"] is not None:
            self.lag_ms = row["replica_lag_time_max_us"] // 1000
        if row["kafka_version"]:
            told = (row["seq"], row["broker_id"], row["kafka_version"], row["inter_broker_protocol"])
            self.spoken.append(told)

    def spoken_at(self, broker: int | None, seq: int) -> tuple[str | None, str | None]:
        """Version and protocol of a broker at `seq`; for None or a broker without its own, those of the partition."""
        told = [(v, p) for at, b, v, p in self.spoken if at <= seq and b in (None, broker)]
        return told[-1] if told else (None, None)

    def profile_at(self, broker: int | None, seq: int) -> Profile:
        """The rules that a broker followed at `seq`."""
        return profile_named(*self.spoken_at(broker, seq))

    @property
    def is_kraft(self) -> bool:
        """Whether the metadata log of a KRaft controller is available."""
        return any(row["metadata_offset"] is not None for row in self.decisions)

    def begun(self, epoch: int) -> int:
        """Seq at which a leader epoch began; 0 if no decision of it is known."""
        found = self.decided(epoch, epoch)
        return found[0]["seq"] if found else 0

    def decided(self, first: int, last: int) -> list[Row]:
        """Decisions of the leader epochs from `first` to `last`, in the order of their epochs."""
        begin = bisect_left(self.decisions, first, key=lambda row: row["leader_epoch"])
        return self.decisions[begin : bisect_right(self.decisions, last, key=lambda row: row["leader_epoch"])]

    def decision_before(self, seq: int) -> Row | None:
        """The decision in force just before `seq`."""
        place = bisect_left(self.decisions, seq, key=by_seq)
        return self.decisions[place - 1] if place else None

    def isr_at(self, seq: int) -> list[int] | None:
        """The committed ISR in force at `seq`; None if unknown."""
        place = bisect_right(self.decisions, seq, key=lambda row: row["seq"])
        return self.decisions[place - 1]["isr"] if place else None

    def stated_hw(self, leader: int, seq: int) -> int:
        """Highest HW stated by a broker up to `seq`, or by `leader` right afterwards; the true HW is no lower."""
        place = bisect_right(self.heard, seq)
        later = [self.within(kind, leader, seq + 1, NEVER)[:1] for kind in ("role_change", "log_load")]
        following = min((row for rows in later for row in rows), key=by_seq, default=None)
        return max([0, *self.highest[max(place - 1, 0) : place], *([hw_of(following)] if following else [])])

    def min_isr_at(self, seq: int) -> int | None:
        """min.insync.replicas in force at `seq`; None if unknown."""
        place = bisect_right(self.min_isr, seq, key=lambda one: one[0])
        return self.min_isr[place - 1][1] if place else None
