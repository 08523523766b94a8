"""The transactions in the log of a partition's leader: where each begins and ends, and what a leader change did to it.

A batch opens a transaction of its producer, or belongs to the one that is open; a marker ends it. Where no line tells
whose a marker is, it ends the oldest open transaction that ended like that, and until none is open it is doubtful
which ones are. A leader that
does not have the end of the log takes transactions with it, or only their markers: then they are open again, and a
further transaction of the producer goes on in them (`ProducerAppendInfo.appendDataBatch`), until a marker ends both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from replay.arrays.ints import NEVER
from replay.evidence.tenures import micros

if TYPE_CHECKING:
    from replay.arrays.ints import Ints

    Row = dict[str, Any]

KEPT: Final = 1000  # transactions that have ended
OPEN: Final = "open"
REMOVED: Final = "removed"
US_PER_MS: Final = 1000


@dataclass(slots=True)
class Transaction:
    """One transaction in the log of a partition."""

    seq: int
    client: str | None
    producer: int | None
    first: int
    epoch: int
    begin_us: int
    expected: str  # how it ends, as its producer's lines say
    outcome: str = OPEN
    marker: int = NEVER  # offset of its marker; NEVER: none
    marker_us: int | None = None
    stable_us: int | None = None  # when the last stable offset passed its marker
    removed_marker: int | None = None  # offset of a marker that a leader did not have
    removed_epoch: int | None = None
    sure: bool = True

    def is_of(self, row: Row) -> bool:
        """Whether a batch is of the same producer; by the client if no line tells the producer's id."""
        if self.producer is not None and row["producer_id"] is not None:
            return bool(self.producer == row["producer_id"])
        return bool(self.client == row["client_id"])

    def told(self, until: int) -> Row:
        """Its row of `transactions`; `until`: when the last event was, in microseconds."""
        end = until if self.stable_us is None else self.stable_us
        is_ended = self.marker < NEVER
        return {
            "seq": self.seq,
            "ts": self.begin_us,
            "leader_epoch": self.epoch,
            "client_id": self.client,
            "producer_id": self.producer,
            "first_offset": self.first,
            "outcome": self.outcome,
            "marker_offset": self.marker if is_ended else None,
            "marker_ts": self.marker_us if is_ended else None,
            "stable_ts": self.stable_us,
            "unstable_ms": None if self.outcome == REMOVED else max(end - self.begin_us, 0) / US_PER_MS,
            "removed_marker_offset": self.removed_marker,
            "removed_by_epoch": self.removed_epoch,
            # A marker may also be in the log without a line that tells of it, so that none is known proves nothing.
            "evidence": "derived" if self.sure and self.outcome != OPEN else "bounded",
        }


@dataclass(slots=True)
class Transactions:
    """What is in the log of the newest leader, and the rows of what is not in it any more or ended long ago."""

    open: list[Transaction] = field(default_factory=list)
    ended: list[Transaction] = field(default_factory=list)  # by marker
    doubtful: list[tuple[int, int]] = field(default_factory=list)  # above which HW, up to which, none can be told
    rows: list[Row] = field(default_factory=list)
    since: int = NEVER  # place of the first event of a transaction
    last_us: int = 0

    def take(self, row: Row) -> None:
        """Take a batch of a transaction, a marker, or a batch of which no line tells what it is."""
        if row["transaction"] is None:
            if self.open:
                self.doubt(row["base_offset"])
        elif row["is_control"]:
            self.end(row)
        elif not row["duplicate"] and not any(one.is_of(row) for one in self.open):
            self.since = min(self.since, row["seq"])
            place = (row["seq"], row["client_id"], row["producer_id"], row["base_offset"])
            self.open.append(Transaction(*place, row["leader_epoch"], micros(row["ts"]), row["transaction"]))

    def end(self, row: Row) -> None:
        """Take a marker: it ends the transaction of its producer, else the oldest that ended like that."""
        mine = [one for one in self.open if one.first < row["base_offset"]]
        certain = row["evidence"] in {"observed", "derived"}
        if row["producer_id"] is not None:
            own = [one for one in mine if one.producer == row["producer_id"]]
            mine = own or [one for one in mine if one.producer is None]
            certain &= bool(own)
        alike = mine if certain and len(mine) == 1 else [one for one in mine if one.expected == row["transaction"]]
        if not alike:
            return
        one = alike[0]
        one.outcome, one.marker, one.marker_us = row["transaction"], row["base_offset"], micros(row["ts"])
        self.open.remove(one)
        self.ended.append(one)
        if len(alike) > 1 or row["evidence"] not in {"observed", "derived"}:
            one.sure = False
            self.doubt(row["base_offset"])
        if not self.open:
            self.settle(row["base_offset"])

    def doubt(self, since: int) -> None:
        """From an HW on it is not certain which transactions are open."""
        if all(until < NEVER for _, until in self.doubtful):
            self.doubtful.append((since, NEVER))

    def settle(self, marker: int) -> None:
        """Once none is open, it makes no difference which marker ended which."""
        self.doubtful = [(since, marker if until == NEVER and since >= 0 else until) for since, until in self.doubtful]

    def lead_from(self, epoch: int, start: int) -> None:
        """A leader begins at an offset: what lay beyond it is not in its log; unknown: nothing is certain."""
        if start < 0:
            self.doubtful = [(-1, NEVER)] if self.open or self.ended else self.doubtful
            return
        for one in [one for one in (*self.open, *self.ended) if one.first >= start]:
            (self.open if one.marker == NEVER else self.ended).remove(one)
            one.outcome, one.removed_epoch, one.stable_us = REMOVED, epoch, None
            self.rows.append(one.told(self.last_us))
        for one in [one for one in self.ended if one.marker >= start]:
            self.ended.remove(one)
            self.open.append(one)
            one.removed_marker, one.removed_epoch = one.marker, epoch
            one.outcome, one.marker, one.marker_us, one.stable_us = OPEN, NEVER, None, None

    def stable_at(self, hw: Ints) -> Ints:
        """Return the last stable offset at each HW."""
        told = sorted((one.marker, one.first) for one in (*self.ended, *self.open))
        if not told:
            return hw
        least = np.minimum.accumulate([first for _, first in reversed(told)])[::-1]
        place = np.searchsorted([marker for marker, _ in told], hw)  # those whose marker the HW has not passed
        found: Ints = np.minimum(hw, np.append(least, NEVER)[place])
        return found

    def is_certain(self, hw: Ints) -> Any:  # noqa: ANN401 - flags
        """At which HWs it is certain which transactions are open."""
        certain = np.ones(len(hw), bool)
        for since, until in self.doubtful:
            certain &= (hw <= since) | (hw > until)
        return certain

    def pass_stable(self, stable: Ints, ts: Ints) -> None:
        """The last stable offset moved to these values at these times: what lies below may be read."""
        for one in self.ended:
            if one.stable_us is None and len(stable) and stable[-1] > one.marker:
                one.stable_us = int(ts[int(np.argmax(stable > one.marker))])

    def forget(self) -> None:
        """Tell of transactions that ended long ago, and let them go: no HW is so far behind."""
        if len(self.ended) > KEPT:
            gone, self.ended = self.ended[:-KEPT], self.ended[-KEPT:]
            self.rows += [one.told(self.last_us) for one in gone]
            self.doubtful = [(-1, gone[-1].marker), *self.doubtful]

    def finish(self) -> None:
        """Tell of all that are left."""
        left = sorted((*self.ended, *self.open), key=lambda one: one.seq)
        self.rows += [one.told(self.last_us) for one in left]
        self.open, self.ended = [], []
