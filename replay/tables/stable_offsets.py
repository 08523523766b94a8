"""The last stable offset (LSO): replayed from transactions and their markers, and compared with what answers state.

A leader's first unstable offset is the least first offset of a transaction that is open, or whose marker the HW has not
passed yet (`ProducerStateManager.firstUnstableOffset`, `onHighWatermarkUpdated`); the LSO is that, or the HW if that
is lower. So it follows from the HW that an answer states and from what lies below it in the log, whatever the order in
which requests were handled. `Partition.readRecords` reads the HW and then the LSO without a lock, so an answer may
state an LSO beyond its HW: the HW rose in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from replay.arrays.ints import NEVER
from replay.engine import codes as c
from replay.protocol.state import ROLE_LEADER, UNSET

if TYPE_CHECKING:
    from replay.arrays.ints import Flags, Ints
    from replay.arrays.records import Records
    from replay.engine.event_record import EventRecord
    from replay.engine.events import EventBatch, Events

    Row = dict[str, Any]

CHECK: Final = "last_stable_offset"
KEPT: Final = 1000  # transactions that have ended
TOLD: Final = ("seq", "base_offset", "client_id", "transaction", "is_control", "evidence", "duplicate")


def is_transactional(batch: EventBatch) -> Flags:
    """Which events are appends of transactions, or markers."""
    found: Flags = (batch.events.kinds == c.APPEND) & batch.table.column("transaction").is_valid().to_numpy()
    return found


@dataclass(slots=True)
class Transaction:
    """One transaction in the log of a partition."""

    client: str | None
    first: int
    outcome: str
    marker: int = NEVER  # offset of its marker; NEVER: none yet


@dataclass(slots=True)
class StableOffsets:
    """The transactions of one partition, and how often the LSO that follows from them equals the one stated."""

    transactions: list[Transaction] = field(default_factory=list)  # by first offset
    doubtful: list[tuple[int, int]] = field(default_factory=list)  # above which HW, up to which, none can be told
    compared: int = 0
    matched: int = 0
    first_mismatch_seq: int | None = None
    note: str | None = None

    def take(self, events: Events, encoded: Records[EventRecord]) -> None:
        """Take the next events in order."""
        self.forget()
        rows = events.among(is_transactional, TOLD).rows
        roles = np.flatnonzero((encoded["kind"] == c.ROLE_CHANGE) & (encoded["role"] == ROLE_LEADER))
        begin = taken = 0
        for place in [*roles.tolist(), len(encoded)]:
            until = NEVER if place == len(encoded) else int(encoded["seq"][place])
            while taken < len(rows) and rows[taken]["seq"] < until:
                self.note_append(rows[taken])
                taken += 1
            self.compare(events.part(begin, place), encoded[begin:place])
            if place < len(encoded):
                self.lead_from(int(encoded["leo"][place]))
            begin = place

    def forget(self) -> None:
        """Let transactions go that ended long ago: no HW is so far behind."""
        ended = sorted(one.marker for one in self.transactions if one.marker < NEVER)
        if len(ended) > 2 * KEPT:
            last = ended[-KEPT]
            self.transactions = [one for one in self.transactions if one.marker > last]
            self.doubtful = [(-1, last), *self.doubtful]

    def note_append(self, row: Row) -> None:
        """Take a batch of a transaction, or a marker."""
        if row["is_control"]:
            self.end(row)
        elif not row["duplicate"]:
            self.begin(row)

    def begin(self, row: Row) -> None:
        """Take a batch: the first of a transaction opens it."""
        mine = [one for one in self.transactions if one.client == row["client_id"] and one.marker == NEVER]
        if not mine:
            self.transactions.append(Transaction(row["client_id"], row["base_offset"], row["transaction"]))
            self.transactions.sort(key=lambda one: one.first)

    def end(self, row: Row) -> None:
        """Take a marker: it ends the open transaction that ended like that; of several, no event tells which."""
        mine = [one for one in self.transactions if one.marker == NEVER and one.first < row["base_offset"]]
        alike = [one for one in mine if one.outcome == row["transaction"]]
        if not alike:
            return
        alike[0].marker = row["base_offset"]
        is_doubtful = len(alike) > 1 or row["evidence"] not in {"observed", "derived"}
        if is_doubtful and all(until < NEVER for _, until in self.doubtful):
            self.doubtful.append((row["base_offset"], NEVER))

    def lead_from(self, start: int) -> None:
        """A leader begins at an offset: what lay beyond it is not in its log; unknown: nothing is certain."""
        if start < 0:
            self.doubtful = [(-1, NEVER)] if self.transactions else self.doubtful
            return
        self.transactions = [one for one in self.transactions if one.first < start]
        for one in self.transactions:
            if one.marker >= start:
                one.marker = NEVER

    def compare(self, events: Events, encoded: Records[EventRecord]) -> None:
        """Compare what answers of leaders state with what follows from their HW."""
        is_read = (encoded["kind"] == c.FETCH_READ) | (encoded["kind"] == c.CONSUMER_READ)
        stated = events.numbers("last_stable_offset", UNSET)
        is_read &= (stated >= 0) & (encoded["hw"] >= 0) & (encoded["leader"] < 0)
        read = np.flatnonzero(is_read)
        hw, lso = encoded["hw"][read], stated[read]
        certain = np.ones(len(read), bool)
        for since, until in self.doubtful:
            certain &= (hw <= since) | (hw > until)
        computed = self.stable_at(hw)
        equal = (computed == lso) | ((lso > hw) & (computed <= lso))
        self.compared += int(certain.sum())
        self.matched += int((certain & equal).sum())
        wrong = np.flatnonzero(certain & ~equal)
        if len(wrong) and self.first_mismatch_seq is None:
            at = int(wrong[0])
            self.first_mismatch_seq = int(encoded["seq"][read[at]])
            self.note = f"at high watermark {int(hw[at])}: computed {int(computed[at])}, stated {int(lso[at])}"

    def stable_at(self, hw: Ints) -> Ints:
        """Return the LSO at each HW."""
        if not self.transactions:
            return hw
        told = sorted((one.marker, one.first) for one in self.transactions)
        least = np.minimum.accumulate([first for _, first in reversed(told)])[::-1]
        place = np.searchsorted([marker for marker, _ in told], hw)  # those whose marker the HW has not passed
        found: Ints = np.minimum(hw, np.append(least, NEVER)[place])
        return found

    def checks(self) -> list[Row]:
        """Return the row of `conformance`; none if no answer states an LSO."""
        if not self.compared:
            return []
        row = {"check": CHECK, "compared": self.compared, "matched": self.matched}
        return [{**row, "first_mismatch_seq": self.first_mismatch_seq, "note": self.note}]
