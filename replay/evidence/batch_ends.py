"""How far a batch certainly reaches: whether a produce line may be missing between it and the next known batch.

A batch is taken to end where the next known batch begins. If a produce line is missing, the batch before it would
swallow the records of the missing one. Three things rule that out: the leader's own line about the append (TRACE); a
fetch that returned exactly as many bytes as the known produces in it have; a request log without a gap there
(`missing_lines`). Otherwise only the first record of the batch is certain. For the last batch of a tenure correlation
ids prove nothing: a produce that was not answered before the leader died has no line. There only the append line and
the fetched bytes count. Sizes can be compared because a broker stores a batch as it came (`compression.type=producer`);
if it recompresses, sizes differ and prove nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from replay.arrays.ints import NEVER
from replay.engine.stamps import STAMP_EARLY_US
from replay.evidence.fetch_index import by_connection
from replay.evidence.request_columns import RequestColumns
from replay.evidence.request_times import local_window, phases
from replay.evidence.roles import moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from replay.evidence.rows import Row
    from replay.evidence.tenure_index import IndexedByTenure
    from replay.evidence.tenures import Tenure

MARKER_BYTES = 78  # EndTransactionMarker: 61 bytes of batch overhead and one record


class Extents:
    """Evidence, stretch by stretch, that no produce line of one tenure is missing."""

    def __init__(self, facts: IndexedByTenure, tenure: Tenure, placed: dict[int, Row]) -> None:
        """`placed`: the tenure's produces by base offset."""
        self.facts, self.tenure, self.placed = facts, tenure, placed
        self.bases = sorted(placed)
        fetches = facts.follower_fetches.get((tenure.leader, tenure.epoch), ())
        self.is_heard = bool(placed or fetches)  # otherwise neither its appends nor the moves of its HW can be timed
        self.lossy = facts.missing.any_in(tenure.leader, -NEVER, NEVER)
        self.control: list[int] = []  # offsets of the transaction markers found so far, rising

    @cached_property
    def spans(self) -> tuple[list[int], list[int]]:
        """First offsets, rising, of stretches that one fetch returned whole, and the furthest end up to each."""
        control = self.control
        spans = sorted(
            (first, end)
            for first, end, more in self.stretches
            if more == MARKER_BYTES * (bisect_left(control, end) - bisect_left(control, first))
        )
        return [first for first, _ in spans], list(accumulate((end for _, end in spans), max))

    @cached_property
    def shown(self) -> tuple[list[int], list[int]]:
        """Offsets of accepted fetches, rising, and for each the time of the earliest fetch at or beyond it."""
        fetches = self.facts.follower_fetches.get((self.tenure.leader, self.tenure.epoch), ())
        told = RequestColumns(fetches)
        offset, us = told.stated("fetch_offset")[told.accepted], told.at.taken[told.accepted]
        order = np.argsort(offset, kind="stable")
        return offset[order].tolist(), np.minimum.accumulate(us[order][::-1])[::-1].tolist()

    def fetched_by(self, end: int) -> int | None:
        """When a follower first fetched from `end` or beyond; None if none did."""
        offsets, earliest = self.shown
        k = bisect_left(offsets, end)
        return earliest[k] if k < len(offsets) else None

    def is_whole(self, base: int, end: int) -> bool:
        """Whether [base, end) is known to hold one batch and nothing else, provided that a produce line reports it."""
        if base not in self.placed or end - base <= 1 or self.is_brought(base, end):
            return True
        if base == self.bases[-1]:
            return False
        if not self.lossy:
            return True
        since = local_window(phases(self.placed[base])).lo
        return not self.facts.missing.any_in(self.tenure.leader, since, self.known_by(end))

    def is_brought(self, base: int, end: int) -> bool:
        """Whether fetches returned [base, end) in exactly as many bytes as the known produces in it have."""
        firsts, lasts = self.spans
        k = bisect_right(firsts, base)
        return k > 0 and lasts[k - 1] >= end

    def known_by(self, end: int) -> int:
        """When the leader's log had certainly reached `end`, microseconds on its clock."""
        k = bisect_right(self.bases, end - 1)
        times = [local_window(phases(self.placed[self.bases[k]])).hi] if k < len(self.bases) else []
        fetched = self.fetched_by(end)
        times += [] if fetched is None else [fetched + STAMP_EARLY_US]
        after = self.facts.turns.role_after(self.tenure.leader, self.tenure.epoch)
        if after is not None:
            times.append(moment(self.facts.role_lines[self.tenure.leader, after]))
        return min(times, default=NEVER)

    def marker_counts(self) -> Iterable[tuple[int, int, int]]:
        """Stretches that one fetch returned, and how many markers the bytes beyond the produces amount to."""
        for first, end, more in self.stretches:
            if more >= 0 and more % MARKER_BYTES == 0:
                yield first, end, more // MARKER_BYTES

    @cached_property
    def stretches(self) -> list[tuple[int, int, int]]:
        """Stretches that one fetch returned, and how many bytes it returned beyond those of the produces in them."""
        totals = np.cumsum([0, *(self.placed[base]["bytes"] or 0 for base in self.bases)])
        found: list[tuple[int, int, int]] = []
        for fetches in self.fetchers():
            told = RequestColumns(fetches)
            offset, returned = told.stated("fetch_offset"), told.stated("bytes", 0)[:-1]
            some = np.flatnonzero((np.diff(offset) > 0) & (returned != 0))
            if not self.facts.missing.is_empty:
                gaps = [self.facts.missing.any_between(fetches[k], fetches[k + 1]) for k in some.tolist()]
                some = some[~np.array(gaps, np.bool_)]
            first, end = offset[some], offset[some + 1]
            known = totals[np.searchsorted(self.bases, end)] - totals[np.searchsorted(self.bases, first)]
            found += zip(first.tolist(), end.tolist(), (returned[some] - known).tolist(), strict=True)
        return found

    def fetchers(self) -> Iterable[Sequence[Row]]:
        """Fetches from this tenure's leader in order, one sequence per replica and per consumer connection."""
        for replica in sorted(self.facts.followers(self.tenure)):
            yield [fetch.row for fetch in self.facts.fetches_of(replica, self.tenure)]
        yield from by_connection(self.facts.consumer_fetches.get(self.tenure.epoch, ()))
