"""Where segments of the brokers' logs begin, as lines about rolls tell it, and what that completes (DelayedFetch).

A fetch whose offset lies on an older segment than the end that it may read is completed whatever the bytes; up to 3.7
so is one whose offset lies on a later segment than that end. Lines show that a segment begins somewhere; that none does
they show only if no line is missing, so nothing is concluded from that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from replay.arrays.ints import NEVER
from replay.engine.codes import LOG_CREATED
from replay.engine.stamps import CLOCK_SLACK_US
from replay.evidence.segments import CHANGES, ROLLED
from replay.evidence.tenures import micros
from replay.protocol.state import NONE, UNSET
from replay.tables.local_starts import LocalStarts
from replay.tables.rare_events import in_turn

if TYPE_CHECKING:
    from replay.arrays.ints import Flags
    from replay.arrays.records import Records
    from replay.engine.events import Event, Picked
    from replay.engine.purgatory import Held
    from replay.tables.rare_events import Rare

ROLL_KINDS = ("segment_change", "truncation", "log_load")
START_KINDS = ("log_start_change", "observation")


@dataclass(slots=True)
class Roll:
    """A segment that a broker rolled."""

    base: int
    us: int
    seq: int
    gone: int = NEVER  # seq of the event with which it went


@dataclass
class Rolls:
    """The rolls of each broker's log, and where it starts."""

    of_broker: dict[int, list[Roll]] = field(default_factory=dict)
    starts: LocalStarts = field(default_factory=LocalStarts)

    def take(self, rare: Rare) -> None:
        """Take the rare events of a batch: rolls, and what takes the ends of logs away."""
        for row in in_turn(rare, (*ROLL_KINDS, *START_KINDS)):
            self.starts.take(row)
            if row["kind"] in START_KINDS:
                continue
            if row["kind"] == "segment_change":
                if row["cause"] == CHANGES[ROLLED] and row["base_offset"] is not None:
                    one = Roll(row["base_offset"], micros(row["ts"]), row["seq"])
                    self.of_broker.setdefault(row["broker_id"], []).append(one)
            elif row["kind"] == "truncation" or row["cause"] == LOG_CREATED:
                self.cut(row)

    def cut(self, row: Event) -> None:
        """A log is cut, or created anew: segments that begin from there on are gone; all of them if that is unknown."""
        end = row["truncate_to"] if row["kind"] == "truncation" else None
        for roll in self.of_broker.get(row["broker_id"], ()):
            if roll.gone == NEVER and (end is None or roll.base >= end):
                roll.gone = row["seq"]

    def between(self, fetches: Picked, saw: Records[Held]) -> tuple[Flags, Flags]:
        """Of which fetches the offset surely lies on an older segment than the end they may read; of which on a later.

        It is on an older one also if the segment at the very offset was rolled only while the fetch waited.
        """
        of = fetches.numbers
        older, later = np.zeros(len(fetches), np.bool_), np.zeros(len(fetches), np.bool_)
        if not self.of_broker:
            return older, later
        offset, broker = of("fetch_offset", NONE), of("broker_id", NONE)
        end = np.where(of("replica_id", NONE) >= 0, saw["leo"], saw["hw"])
        few = (of("bytes", 0) > 0) & (of("request_bytes", UNSET) < of("min_bytes", 1))
        parked = of("ts", 0) - of("remote_us", 0)
        for k in np.flatnonzero((offset >= 0) & (few | (offset > end))).tolist():
            for roll in self.of_broker.get(int(broker[k]), ()):
                if not roll.seq < int(saw[k].seq) < roll.gone:
                    continue
                since = roll.base > offset[k] or (roll.base == offset[k] and roll.us >= parked[k] - CLOCK_SLACK_US)
                older[k] |= bool(since and roll.base < end[k])
                later[k] |= bool(end[k] < roll.base <= offset[k])
        return older, later
