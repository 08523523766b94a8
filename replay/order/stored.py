"""Sizes of the batches in a leader's log: up to where an answer of so many bytes certainly returned records.

A fetch states only where it begins. That its consumer fetches further on next may as well be a seek. What it received
is therefore inferred from the answer's bytes: whole batches, one after another, with the sizes from the produce lines.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.order.appends import LogBatch

UNKNOWN = 1 << 40  # a size that no answer reaches


@dataclass(slots=True)
class Stored:
    """The batches of the partition's log, tenure after tenure; each leader continues where its own log ended."""

    bases: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=lambda: [0])  # of all batches before each, and of all together
    open: list[int] = field(default_factory=list)  # places of batches whose end is not certain

    def take(self, batches: Sequence[LogBatch], start: int | None) -> None:
        """Add a tenure's batches, rising; older batches from `start` on are not in this leader's log."""
        if start is None:
            start = batches[0].base if batches else None
        if start is not None:
            self.cut(start)
        for batch in batches:
            if batch.evidence == "bounded":
                self.open.append(len(self.bases))
            self.bases.append(batch.base)
            self.ends.append(batch.end)
            self.sizes.append(self.sizes[-1] + (UNKNOWN if batch.bytes is None else batch.bytes))

    def cut(self, offset: int) -> None:
        """Forget the batches from `offset` on, and shorten one that reaches beyond it."""
        kept = bisect_left(self.bases, offset)
        del self.bases[kept:], self.ends[kept:], self.sizes[kept + 1 :]
        del self.open[bisect_left(self.open, kept) :]
        if kept and self.ends[-1] > offset:
            self.ends[-1] = offset

    def handed_until(self, offset: int, size: int, after: int) -> int:
        """Offset up to which an answer of `size` bytes from `offset` on certainly returned records, at most `after`."""
        first = bisect_right(self.bases, offset) - 1
        least = min(offset + 1, after)
        if first < 0 or self.ends[first] <= offset:
            return least
        last = bisect_right(self.sizes, self.sizes[first] + size) - 1
        k = bisect_left(self.open, first)
        sure = self.open[k] if k < len(self.open) else len(self.bases)
        if sure < last:
            return min(max(self.bases[sure] + 1, least), after)
        return min(max(self.ends[last - 1], least), after) if last > first else least
