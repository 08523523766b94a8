"""The metadata log as dumps show it, however much they hold: parts, snapshots, records of deposed controllers.

A part is a run of offsets that a dump holds without a gap, written under one controller epoch. If a higher epoch wrote
an offset, whatever a lower one wrote from there on was never committed (Raft truncates it). A snapshot is the state as
of its end offset. The state that a record leads to is known from what stands before it: the partition's first record or
a snapshot. Otherwise it follows from brokers' lines that state leader epoch and partition epoch: since each record
advances them by a rule (`PartitionRegistration.merge`), the one position is sought at which log and lines agree.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from replay.arrays.ints import NEVER
from replay.evidence.tenures import micros

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from replay.evidence.rows import Row

PART = "metadata_part"
LOG_PART, SNAPSHOT_PART = "log", "snapshot"
NEAREST = 32  # how many of a run's records, nearest in time, a line may stand for
ASKED = 24  # how many lines are used to propose positions
HEARD = 256  # how many lines are used to rate a position


class Parts:
    """Which offsets of the metadata log are known, and which controller epochs wrote them."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        """`rows`: cluster-wide facts; only the parts of the log are used."""
        found = [row for row in rows if row["kind"] == PART]
        log = [row for row in found if row["name"] == LOG_PART]
        self.told = bool(found)
        self.snapshots = sorted({row["metadata_offset"] for row in found if row["name"] == SNAPSHOT_PART})
        begun: dict[int, int] = {}
        for row in log:
            epoch = row["controller_epoch"]
            if epoch is not None:
                begun[epoch] = min(row["metadata_offset"], begun.get(epoch, NEVER))
        self.epochs = sorted(begun)
        # first offset of that epoch or a later one
        self.begin = [*accumulate((begun[e] for e in reversed(self.epochs)), min)][::-1]
        known = [row for row in log if row["controller_epoch"] is not None]
        self.known = merged((row["metadata_offset"], self.end_of(row)) for row in known)
        self.extents = merged((row["metadata_offset"], self.end_of(row)) for row in log)
        self.last_us = max((micros(row["ts"]) for row in log if row["ts"] is not None), default=None)

    def end_of(self, part: Row) -> int:
        """Where a part ends: at the latest before a later controller's first record."""
        last: int = part["last_offset"]
        return min(last + 1, self.deposed_from(part["controller_epoch"]))

    def deposed_from(self, epoch: int | None) -> int:
        """First offset that a later controller epoch wrote."""
        place = bisect_right(self.epochs, epoch) if epoch is not None else len(self.epochs)
        return self.begin[place] if place < len(self.begin) else NEVER

    def deposed(self) -> dict[int, int]:
        """Controller epoch -> offset from which a later one overwrote what had not reached a majority."""
        ends = {epoch: self.deposed_from(epoch) for epoch in self.epochs}
        return {epoch: end for epoch, end in ends.items() if end < NEVER}

    def extent_at(self, offset: int) -> tuple[int, int]:
        """The gapless range around an offset; everything if no part is known."""
        if not self.told:
            return 0, NEVER
        return around(self.extents, offset) or (offset, offset + 1)

    def stands(self, row: Row) -> bool:
        """Whether a record of the log was committed, as far as the dumps show."""
        offset: int = row["metadata_offset"]
        epoch: int | None = row["controller_epoch"]
        if epoch is None:  # a record without its batch: the batch at that offset wins, if known
            return around(self.known, offset) is None
        return offset < self.deposed_from(epoch)

    def needed(self, offset: int) -> bool:
        """Whether a snapshot as of `offset` adds to the log: only the first after each beginning of the log does."""
        begin = around(self.extents, offset) or around(self.extents, offset + 1)
        if begin is None:
            return True
        place = bisect_left(self.snapshots, begin[0] - 1)
        return begin[0] > 0 and self.snapshots[place : place + 1] == [offset]


def around(extents: Sequence[tuple[int, int]], offset: int) -> tuple[int, int] | None:
    """The extent that contains an offset."""
    place = bisect_right(extents, offset, key=lambda extent: extent[0]) - 1
    return extents[place] if place >= 0 and offset < extents[place][1] else None


def merged(extents: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Extents, with those that overlap or meet joined."""
    out: list[tuple[int, int]] = []
    for first, end in sorted(extents):
        if out and first <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        elif first < end:
            out.append((first, end))
    return out


class Standing(NamedTuple):
    """Records of the metadata log that count, and those set aside."""

    rows: list[Row]  # in the log's order; those of a snapshot after what it covers
    aside: list[Row]  # written by controllers that were deposed before they were committed, or contradicting each other


def standing(rows: Iterable[Row], parts: Parts) -> Standing:
    """From one partition's records, or all cluster-wide ones: those that were committed and are needed."""
    kept: dict[int, list[Row]] = {}
    out: list[Row] = []
    aside: list[Row] = []
    for row in rows:
        if row["in_snapshot"]:
            if parts.needed(row["metadata_offset"]):
                out.append(row)
        elif parts.stands(row):
            kept.setdefault(row["metadata_offset"], []).append(row)
        else:
            aside.append(row)
    for group in kept.values():
        if len({row["controller_epoch"] for row in group}) < len(group):
            aside += group  # two records of one offset and epoch: one of them is damaged
        else:
            out.append(max(group, key=lambda row: -1 if row["controller_epoch"] is None else row["controller_epoch"]))
    out.sort(key=lambda row: (row["metadata_offset"], bool(row["in_snapshot"]), row["fact_id"]))
    return Standing(out, aside)


class StateWitness(NamedTuple):
    """A state that a broker's line reports."""

    epoch: int
    version: int | None  # partition epoch
    leader: int
    isr: frozenset[int] | None
    us: int


class Base(NamedTuple):
    """Leader epoch and partition epoch before a run's first record."""

    epoch: int
    version: int | None


class ChangeRun:
    """Change records of one partition without a gap between them."""

    def __init__(self, records: list[Row], extent: tuple[int, int]) -> None:
        """`extent`: the known offsets of the log around them."""
        self.records = records
        self.extent = extent
        # elections among the first k records
        self.elected = [0, *accumulate(int(row["leader_id"] is not None) for row in records)]
        self.times = [micros(row["ts"]) if row["ts"] is not None else 0 for row in records]

    def holds(self, offset: int) -> bool:
        """Whether the state as of `offset` lies between its records, or at either end."""
        return self.extent[0] - 1 <= offset < self.extent[1]

    def place(self, offset: int) -> int:
        """How many of its records are included in the state as of `offset`."""
        return bisect_right(self.records, offset, key=lambda row: row["metadata_offset"])

    def fits(self, k: int, told: StateWitness) -> bool:
        """Whether a state may be the one after the first k records (k from 1)."""
        record = self.records[k - 1]
        if record["leader_id"] is not None and record["leader_id"] != told.leader:
            return False
        if told.version is None:
            return record["leader_id"] is not None
        return record["isr"] is None or told.isr is None or told.isr == frozenset(record["isr"])

    def agreement(self, base: Base, heard: Sequence[StateWitness]) -> tuple[float, float]:
        """How well brokers' lines fit if the run starts at `base`; and, to break ties, how near they are in time."""
        score, apart = 0.0, []
        for told in heard:
            k = self.state_of(base, told)
            if k is None:
                continue
            if not 1 <= k <= len(self.records):
                score -= 2 * (k < 0 and told.epoch > base.epoch)
                score -= 2 * (k > len(self.records) and told.epoch < base.epoch + self.elected[-1])
            elif self.elected[k] + base.epoch == told.epoch and self.fits(k, told):
                score += 1
                apart.append(abs(told.us - self.times[k - 1]))
            else:
                score -= 2
        return score, -sum(apart) / max(len(apart), 1)

    def state_of(self, base: Base, told: StateWitness) -> int | None:
        """After how many records the reported state is reached; for a leader epoch alone: its electing record."""
        if told.version is not None and base.version is not None:
            return told.version - base.version
        return bisect_left(self.elected, told.epoch - base.epoch) if told.epoch > base.epoch else None

    def bases(self, told: StateWitness) -> Iterable[Base]:
        """Bases from which one of the run's records, near in time, would lead to a reported state."""
        near = bisect_left(self.times, told.us)
        for k in range(max(near - NEAREST // 2, 0) + 1, min(near + NEAREST // 2, len(self.records)) + 1):
            if self.fits(k, told):
                version = None if told.version is None else told.version - k
                if told.epoch >= self.elected[k] and (version is None or version >= 0):
                    yield Base(told.epoch - self.elected[k], version)

    def aligned(self, heard: Sequence[StateWitness], unmoved: Base | None) -> tuple[Base, bool] | None:
        """Where the run begins, and whether brokers' lines show it; None if unknown.

        `unmoved`: the base if nothing happened since the previous run.
        """
        asked = spread(heard, ASKED)
        bases = {base for told in asked for base in self.bases(told)}
        if unmoved is not None:
            bases = {base for base in bases if base.epoch >= unmoved.epoch} | {unmoved}
        said = spread(heard, HEARD)
        rated = {base: self.agreement(base, said) for base in bases}
        if not rated:
            return None
        best = max(rated, key=lambda base: (rated[base], base == unmoved, base.version or 0, base.epoch))
        if rated[best][0] > 0:
            return best, True
        return (unmoved, False) if unmoved is not None else None


def spread(of: Sequence[StateWitness], count: int) -> Sequence[StateWitness]:
    """At most `count` of them, evenly spread."""
    return of if len(of) <= count else [of[k * len(of) // count] for k in range(count)]
