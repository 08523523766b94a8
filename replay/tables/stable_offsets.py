"""The last stable offset (LSO): replayed from transactions and their markers, and compared with what answers state.

A leader's first unstable offset is the least first offset of a transaction that is open, or whose marker the HW has not
passed yet (`ProducerStateManager.firstUnstableOffset`, `onHighWatermarkUpdated`); the LSO is that, or the HW if that
is lower. So it follows from the HW that an answer states and from what lies below it in the log, whatever the order in
which requests were handled. `Partition.readRecords` reads the HW and then the LSO without a lock, so an answer may
state an LSO beyond its HW: the HW rose in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from replay.arrays.ints import NEVER
from replay.engine import codes as c
from replay.protocol.state import ROLE_LEADER, UNSET
from replay.tables.transactions import Transactions

if TYPE_CHECKING:
    from replay.arrays.ints import Flags, Ints
    from replay.arrays.records import Records
    from replay.engine.emit import HwRow
    from replay.engine.event_record import EventRecord
    from replay.engine.events import EventBatch, Events

    Row = dict[str, Any]

CHECK: Final = "last_stable_offset"
TOLD: Final = (
    "seq", "ts", "base_offset", "client_id", "producer_id", "transaction", "is_control", "evidence", "duplicate",
    "leader_epoch",
)  # fmt: skip


def is_transactional(batch: EventBatch) -> Flags:
    """Which events are appends of transactions, or markers."""
    found: Flags = (batch.events.kinds == c.APPEND) & batch.table.column("transaction").is_valid().to_numpy()
    return found


def is_unnamed(batch: EventBatch) -> Flags:
    """Which events are appends that neither a produce nor a marker is known of: each may be a marker."""
    column = batch.table.column
    found: Flags = (batch.events.kinds == c.APPEND) & column("client_id").is_null().to_numpy()
    found &= column("transaction").is_null().to_numpy()
    return found


@dataclass(slots=True)
class StableOffsets:
    """The last stable offset of one partition, and how often it equals the one stated.

    `internal`: the transactions are offsets that groups commit, which no produce line tells.
    """

    internal: bool = False
    transactions: Transactions = field(default_factory=Transactions)
    leader: int = -1  # index of the broker that leads, and its epoch; -1: none seen yet
    epoch: int = -1
    compared: int = 0
    matched: int = 0
    first_mismatch_seq: int | None = None
    note: str | None = None

    def take(self, events: Events, encoded: Records[EventRecord], moves: Records[HwRow]) -> Ints:
        """Take the next events in order. Returns the LSO after each of their HW moves; UNSET: not known, or the HW."""
        stable = np.full(len(moves), UNSET, np.int64)
        if self.internal or not len(encoded):
            return stable
        rows = list(events.among(is_transactional, TOLD).rows)
        if rows or self.transactions.open:
            rows = sorted([*rows, *events.among(is_unnamed, TOLD).rows], key=itemgetter("seq"))
        roles = np.flatnonzero((encoded["kind"] == c.ROLE_CHANGE) & (encoded["role"] == ROLE_LEADER))
        begin = taken = moved = 0
        for place in [*roles.tolist(), len(encoded)]:
            until = NEVER if place == len(encoded) else int(encoded["seq"][place])
            while taken < len(rows) and rows[taken]["seq"] < until:
                if self.epoch in {-1, rows[taken]["leader_epoch"]}:  # else it went to the log of a leader deposed
                    self.transactions.take(rows[taken])
                taken += 1
            self.compare(events.part(begin, place), encoded[begin:place])
            first, moved = moved, int(np.searchsorted(moves["seq"], until))
            self.move(moves[first:moved], stable[first:moved])
            if place < len(encoded):
                self.leader, self.epoch = int(encoded["broker"][place]), int(encoded["leader_epoch"][place])
                self.transactions.lead_from(self.epoch, int(encoded["leo"][place]))
            begin = place
        self.transactions.last_us = max(self.transactions.last_us, int(encoded["ts"].max()))
        return stable

    def move(self, moves: Records[HwRow], stable: Ints) -> None:
        """Set the LSO after HW moves of the leader, and note which transactions it has passed."""
        found = self.transactions
        mine = np.flatnonzero((moves["broker"] == self.leader) & (moves["role"] == ROLE_LEADER))
        mine = mine[moves["seq"][mine] >= found.since]
        if not len(mine):
            return
        hw = moves["hw"][mine]
        at = found.stable_at(hw)
        certain = found.is_certain(hw)
        stable[mine[certain]] = at[certain]
        found.pass_stable(np.maximum.accumulate(at), moves["ts"][mine])

    def compare(self, events: Events, encoded: Records[EventRecord]) -> None:
        """Compare what answers of leaders state with what follows from their HW."""
        is_read = (encoded["kind"] == c.FETCH_READ) | (encoded["kind"] == c.CONSUMER_READ)
        stated = events.numbers("last_stable_offset", UNSET)
        is_read &= (stated >= 0) & (encoded["hw"] >= 0) & (encoded["leader"] < 0)
        read = np.flatnonzero(is_read)
        hw, lso = encoded["hw"][read], stated[read]
        certain = self.transactions.is_certain(hw)
        computed = self.transactions.stable_at(hw)
        equal = (computed == lso) | ((lso > hw) & (computed <= lso))
        self.compared += int(certain.sum())
        self.matched += int((certain & equal).sum())
        wrong = np.flatnonzero(certain & ~equal)
        if len(wrong) and self.first_mismatch_seq is None:
            at = int(wrong[0])
            self.first_mismatch_seq = int(encoded["seq"][read[at]])
            self.note = f"at high watermark {int(hw[at])}: computed {int(computed[at])}, stated {int(lso[at])}"

    def rows(self) -> list[Row]:
        """Hand out the rows of `transactions` that are final."""
        found, self.transactions.rows = self.transactions.rows, []
        return found

    def finish(self) -> list[Row]:
        """Return the rows of all transactions that were not told of yet."""
        self.transactions.finish()
        return self.rows()

    def checks(self) -> list[Row]:
        """Return the row of `conformance`; none if no answer states an LSO."""
        if not self.compared:
            return []
        row = {"check": CHECK, "compared": self.compared, "matched": self.matched}
        return [{**row, "first_mismatch_seq": self.first_mismatch_seq, "note": self.note}]
