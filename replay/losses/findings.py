"""A losing event as found, before its mechanism is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from replay.losses.slots import common, without

if TYPE_CHECKING:
    from replay.losses.loss_ledger import Ledger, Log
    from replay.losses.slots import Slots
    from replay.losses.story import Row

MATTERS = ("acked_all", "acked_one", "committed", "consumed", "acked_possible", "acked_unconfirmed")


class Heir(NamedTuple):
    """The new leader's log when it took up its role."""

    held: list[Slots]
    start: int  # its LEO then: where its epoch starts
    seq: int


@dataclass(slots=True)
class Finding:
    """A losing event: a new leader took up its epoch without some slots of the previous leader."""

    old: Log
    decision: Row  # the decision that elected the new leader
    heir: Heir
    lost: list[Slots]
    ledger: Ledger  # about the lost slots
    stated: bool  # whether the evidence leaves no doubt where both logs end
    doubted: bool = field(default=False, init=False)  # whether lines about it contradict each other
    committed: int = field(init=False)
    counts: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        """Count the lost slots."""
        self.count(self.old.committed)

    def give_back(self, held: list[Slots]) -> list[Slots]:
        """Stop counting as lost what a later leader's log holds (`held`). Returns those slots."""
        back = common(self.lost, held)
        if back:
            self.lost = without(self.lost, back)
            self.count(self.old.committed)
        return back

    def believe(self, stated_hw: int) -> None:
        """Limit what was committed to a stated HW if there is no request log: then followers' progress is unknown."""
        if not self.ledger.produced:
            self.count(min(self.old.committed, stated_hw))

    def doubt(self) -> None:
        """Treat all counts as possible and none as certain: lines about these epochs contradict each other."""
        self.doubted, self.stated = True, False
        self.count(self.old.committed)

    def count(self, committed: int) -> None:
        """Count the lost slots; those below `committed` were committed."""
        self.committed = committed
        self.counts = self.account(self.lost)

    def account(self, lost: list[Slots]) -> dict[str, Any]:
        """Counts over slots; none is certain if lines contradict each other."""
        counts = self.ledger.account(lost, self.committed)
        return counts | unforced(counts) if self.doubted else counts

    @property
    def owed(self) -> dict[str, Any]:
        """The counts without records of aborted transactions, which no reader was meant to get."""
        return self.account(without(self.lost, self.ledger.aborted(self.lost)))

    @property
    def matters(self) -> bool:
        """Whether anything acknowledged, committed or consumed was lost for good, or whether that is unknown."""
        unknown = self.counts["acked_all"] is None
        return bool(self.lost) and (unknown or any(self.counts[name] for name in MATTERS))

    @property
    def first(self) -> int:
        """First lost offset."""
        return min(slots.first for slots in self.lost)

    @property
    def end(self) -> int:
        """Offset after the last lost one."""
        return max(slots.end for slots in self.lost)

    @property
    def epochs(self) -> tuple[int, int]:
        """The first leader epoch whose records were lost, and the epoch that replaced them."""
        first = min(slots.epoch for slots in self.lost) if self.lost else self.old.epoch
        epoch = self.decision["leader_epoch"]
        return first, self.old.epoch if epoch is None else epoch

    @property
    def leader(self) -> int:
        """The new leader."""
        return int(self.decision["leader_id"])

    @property
    def promised(self) -> bool:
        """Whether any lost record was committed, or acknowledged with acks=all: then every ISR member had it."""
        return bool(self.counts["committed"] or self.counts["acked_all"])

    @property
    def was_counted(self) -> bool:
        """Whether, by its fetch offset, the old leader assumed that the new one had the first lost record."""
        return self.old.fetched.get(self.leader, -1) > self.first

    @property
    def fell_short(self) -> bool:
        """Whether the new leader's log ended before the first lost record."""
        return self.heir.start <= self.first


def unforced(counts: dict[str, Any]) -> dict[str, Any]:
    """Counts if nothing is certain: what was certainly acknowledged becomes possibly acknowledged."""
    out: dict[str, Any] = {"committed": 0, "consumed": None if counts["consumed"] is None else 0}
    if counts["acked_all"] is None:
        return out
    every, one = counts["acked_all"], counts["acked_one"]
    return out | {
        "acked_all": 0,
        "acked_one": 0,
        "acked_all_possible": counts["acked_all_possible"] + every,
        "acked_one_possible": counts["acked_one_possible"] + one,
        "acked_possible": counts["acked_possible"] + every + one,
    }
