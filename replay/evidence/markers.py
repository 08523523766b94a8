"""Transaction markers: where they stand among a tenure's batches, and how transactions ended.

A marker is a control batch of one record. The coordinator asks the leader to append it (WriteTxnMarkers), and no answer
states its offset. It is therefore placed where there is room: between a batch's first record and the next known offset,
while the leader can have been working on it. Followers' fetches tell how many there are: by the bytes beyond those of
the produces. If only one place is left, the marker stands there; otherwise it may stand in each of them, and the ends
of the batches there stay open.

At tens of markers a second each may stand in places of the next, without an end. There they are taken apart: a marker
that may stand on both sides of some batch every few seconds may stand anywhere, and says nothing of the others. So what
is found out depends on markers and batches of these seconds alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from replay.arrays.ints import NEVER
from replay.engine.codes import ENDS_OF_A_WAIT
from replay.engine.stamps import STAMP_EARLY_US
from replay.evidence.request_times import local_window, phases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.arrays.ints import Flags, Ints
    from replay.evidence.batch_ends import Extents
    from replay.evidence.epochs import Place
    from replay.evidence.rows import Row
    from replay.evidence.views import Indexed

CELL_US: Final = 5_000_000  # in each of these of a leader's clock markers are taken apart, if need be
MARKER_NAMES = {"marker_commit": "commit", "marker_abort": "abort"}
ADDED = "added"  # a partition that was added to a transaction


class TransactionOutcome(NamedTuple):
    """How a transaction ended, and when the leader at that time was told."""

    epoch: int
    us: int
    name: str


@dataclass(slots=True)
class MarkerStretch:
    """Offsets [first, end) between two known ones, when they were appended, and how many markers fit there."""

    first: int
    end: int
    room: int
    lo: int
    hi: int
    told: int | None = None  # how many are certainly there
    sure: list[Row] = field(default_factory=list)
    maybe: int = 0
    unnamed: bool = False  # which markers they are, or in which order, is not certain

    @property
    def is_full(self) -> bool:
        """Whether no further marker fits."""
        return len(self.sure) >= (self.room if self.told is None else self.told)


def was_marked(row: Row) -> bool:
    """Whether the marker was certainly appended."""
    return not row["error_code"]


def may_be_marked(row: Row) -> bool:
    """Whether the marker was appended, or may have been before its request failed."""
    return was_marked(row) or (bool(row["remote_us"]) and row["error_code"] in ENDS_OF_A_WAIT)


def outcomes_of(facts: Indexed) -> dict[str, list[TransactionOutcome]]:
    """Transactional id -> how its transactions in this partition ended, in order."""
    producers: dict[int, str] = {}
    ended: dict[int, list[TransactionOutcome]] = defaultdict(list)
    for row in facts.by_kind["transaction"]:
        if row["name"] == ADDED and row["transactional_id"] and not row["error_code"]:
            producers[row["producer_id"]] = row["transactional_id"]
        elif row["name"] in MARKER_NAMES and may_be_marked(row):
            at = phases(row).local
            epoch = facts.epoch_at(row["broker_id"], at)
            if epoch is not None:
                ended[row["producer_id"]].append(TransactionOutcome(epoch, at, MARKER_NAMES[row["name"]]))
    found: dict[str, list[TransactionOutcome]] = defaultdict(list)
    for producer, name in producers.items():
        found[name] += ended.get(producer, [])
    return {name: sorted(ends) for name, ends in found.items()}


def producers_of(facts: Indexed) -> dict[str, list[tuple[int, int]]]:
    """Transactional id -> its producer ids, each with when the partition was first added for it, in order."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in sorted(facts.by_kind["transaction"], key=lambda row: phases(row).local):
        if row["name"] == ADDED and row["transactional_id"] and not row["error_code"]:
            told = found[row["transactional_id"]]
            if not told or told[-1][1] != row["producer_id"]:
                told.append((phases(row).taken, row["producer_id"]))
    return found


def producer_of(producers: dict[str, list[tuple[int, int]]], name: str | None, us: int) -> int | None:
    """The id that the producer of a batch had; None: no line tells. `us`: the stamp of its produce.

    A partition is added to the transaction before the batch is taken.
    """
    told = producers.get(name or "", ())
    if not told:
        return None
    k = bisect_right(told, us, key=lambda one: one[0])
    return told[max(k - 1, 0)][1]


def outcome_of(outcomes: dict[str, list[TransactionOutcome]], name: str | None, epoch: int, us: int) -> str | None:
    """How the transaction of a batch ended; None if it has none, or if that is unknown.

    `epoch`, `us`: of the leader at that time, and when it appended the batch.
    """
    ends = outcomes.get(name or "", ())
    k = bisect_right(ends, (epoch, us), key=lambda end: end[:2])
    return ends[k].name if k < len(ends) else None


class Transactions(NamedTuple):
    """The batches of transactions, by transactional id, and what is known of each."""

    batches: dict[str, list[tuple[int, int, int]]]  # when each was appended, its produce's stamp, and the epoch: rising
    outcomes: dict[str, list[TransactionOutcome]]
    producers: dict[str, list[tuple[int, int]]]

    def at(self, us: int, epoch: int) -> list[tuple[str, str, int]]:
        """Return how the last transactions of before a moment ended, by whose they are, and who the producers were.

        If that is known, no later line says it of those before. `epoch`: batches of later ones do not count.
        """
        found = []
        for name, batches in self.batches.items():
            k = bisect_left(batches, (us,))
            while k and batches[k - 1][2] > epoch:
                k -= 1
            if k:
                local, stamp, of = batches[k - 1]
                ended, producer = outcome_of(self.outcomes, name, of, local), producer_of(self.producers, name, stamp)
                found.append((name, ended or "", -1 if producer is None else producer))
        return found


def transactions_of(
    produces: Sequence[Row],
    places: Sequence[Place],
    outcomes: dict[str, list[TransactionOutcome]],
    producers: dict[str, list[tuple[int, int]]],
) -> Transactions:
    """Return the batches of transactions, as far as it is certain in which leader epoch they came (`places`)."""
    batches: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for row, (epoch, sure) in zip(produces, places, strict=True) if producers or outcomes else ():
        if row["transactional_id"] and sure and epoch is not None:
            at = phases(row)
            batches[row["transactional_id"]].append((at.local, at.stamp, epoch))
    return Transactions({name: sorted(told) for name, told in batches.items()}, outcomes, producers)


class Markers:
    """Where the markers of one tenure stand."""

    def __init__(
        self,
        rows: Sequence[Row],
        marks: Sequence[int],
        placed: dict[int, Row],
        stated: dict[int, int],
        extents: Extents,
    ) -> None:
        """`rows`: the tenure's markers; `marks`: known offsets, rising; the others as in `appends`."""
        self.stretches: list[MarkerStretch] = []
        self.by_first: dict[int, MarkerStretch] = {}
        self.apart: Ints | None = None  # see `parted`; None: there are no markers
        missing = not rows and any(row["transactional_id"] for row in placed.values())
        if not rows and not missing:
            return
        self.stretches = stretches_of(marks, placed, stated, extents)
        self.by_first = {one.first: one for one in self.stretches}
        if missing:
            self.open_all(min(base for base, row in placed.items() if row["transactional_id"]))
        else:
            self.count(extents)
            places = [self.places_of(row) for row in rows]
            ends = np.array([(min(found), max(found)) if found else (0, 0) for found in places], np.int64).T
            self.apart, cuts = self.parted(ends, placed)
            first, last = np.searchsorted(cuts, ends, "right")
            self.settle(rows, places, first < last)

    def open_all(self, first: int) -> None:
        """Let markers be possible wherever there is room: a tenure has transactions, but no line reports a marker."""
        for one in self.stretches:
            if one.end > first:
                one.maybe = one.room

    def at(self, first: int) -> tuple[list[Row], int, bool]:
        """The markers that end the stretch beginning at `first`, how many more there may be, whether it is these."""
        one = self.by_first.get(first)
        return (one.sure, one.maybe, not one.unnamed) if one is not None else ([], 0, True)

    def count(self, extents: Extents) -> None:
        """Count markers from the bytes that followers fetched, stretch by stretch where that is unambiguous."""
        firsts = [one.first for one in self.stretches]
        for first, end, count in extents.marker_counts():
            inside = self.stretches[bisect_left(firsts, first) : bisect_left(firsts, end)]
            roomy = [one for one in inside if one.room and one.end <= end]
            if any(one.end > end for one in inside):
                continue
            if len(roomy) == 1 or count in (0, sum(one.room for one in roomy)):
                for one in roomy:
                    one.told = count if len(roomy) == 1 else min(one.room, count)

    def parted(self, ends: Ints, placed: dict[int, Row]) -> tuple[Ints, Ints]:
        """When batches were appended, at the earliest, on whose two sides markers have no bearing on each other.

        Of most it is certain on which side of them each marker stands. Where there is none for some time, markers are
        taken apart at others. `ends`: the first and last stretch in which each marker may stand, in rows. Return the
        times, rising, and the stretches of those others.
        """
        linked = np.zeros(len(self.stretches) + 2, np.int64)  # there may be no stretch at all
        for place, change in zip(ends + 1, (1, -1), strict=True):
            np.add.at(linked, place, change)
        bases = np.array([k for k, one in enumerate(self.stretches) if one.first in placed], np.int64)
        windows = (local_window(phases(placed[self.stretches[k].first])) for k in bases.tolist())
        begun = np.array([window.lo for window in windows], np.int64)
        are_free = np.cumsum(linked)[bases] == 0
        cells = begun // CELL_US
        near = [cells[are_free] + k for k in (-1, 0, 1)]
        every, first = np.unique(cells, return_index=True)
        cuts = first[~np.isin(every, np.concatenate(near))]
        return np.sort(np.concatenate([begun[are_free], begun[cuts]])), np.sort(bases[cuts])

    def settle(self, rows: Sequence[Row], all_places: Sequence[set[int]], are_across: Flags) -> None:
        """Place markers that have one place left, as long as there are any; others may be in any of their places.

        `all_places`: of each marker, as nothing is placed yet; places that are taken are removed. `are_across`: which
        markers may stand on both sides of a batch at which they are taken apart.
        """
        are_sure = [was_marked(row) and not is_across for row, is_across in zip(rows, are_across, strict=True)]
        sure = [row for row, is_it in zip(rows, are_sure, strict=True) if is_it]
        places = [found for found, is_it in zip(all_places, are_sure, strict=True) if is_it]
        users: dict[int, set[int]] = defaultdict(set)
        for k, found in enumerate(places):
            for s in found:
                users[s].add(k)
        waiting = [k for k, found in enumerate(places) if len(found) == 1]
        taken: set[int] = set()
        while waiting:
            k = waiting.pop()
            if k in taken or len(places[k]) != 1:
                continue
            (s,) = places[k]
            taken.add(k)
            self.stretches[s].sure.append(sure[k])
            if self.stretches[s].is_full:
                for other in users[s] - taken:
                    places[other].discard(s)
                    if len(places[other]) == 1:
                        waiting.append(other)
        for s, one in enumerate(self.stretches):
            free = sorted(users[s] - taken, key=lambda k: phases(sure[k]).local)
            one.unnamed = bool(free)
            for k in free[: max((one.told or 0) - len(one.sure), 0)]:
                one.sure.append(sure[k])  # so many are certainly there; which ones makes no difference
                taken.add(k)
        unsettled = [found for k, found in enumerate(places) if k not in taken]
        others = [row for row, is_it in zip(rows, are_sure, strict=True) if not is_it and may_be_marked(row)]
        unsettled += map(self.places_of, others)
        for found in unsettled:
            for s in found:
                one = self.stretches[s]
                one.maybe = min(one.maybe + 1, (one.room if one.told is None else one.told) - len(one.sure))
        for one in self.stretches:
            one.sure.sort(key=lambda row: phases(row).local)
            windows = [local_window(phases(row)) for row in one.sure]
            one.unnamed |= bool(one.maybe) or any(then.hi >= now.lo for then, now in pairwise(windows))

    def places_of(self, row: Row) -> set[int]:
        """Indices of stretches in which a marker may stand, by when the leader can have appended it."""
        window = local_window(phases(row))
        first = bisect_left(self.stretches, window.lo, key=lambda one: one.hi)
        last = bisect_right(self.stretches, window.hi, key=lambda one: one.lo)
        return {s for s in range(first, last) if not self.stretches[s].is_full}


def stretches_of(
    marks: Sequence[int], placed: dict[int, Row], stated: dict[int, int], extents: Extents
) -> list[MarkerStretch]:
    """The stretches between known offsets, and the open-ended one behind the last of them."""
    windows = [local_window(phases(placed[base])) if base in placed else None for base in marks]
    begun = accumulate((window.lo if window is not None else -NEVER for window in windows), max)
    ends = [*marks[1:], NEVER][: len(marks)]
    done = []
    for end, window in zip(ends, [*windows[1:], None], strict=False):
        fetched = extents.fetched_by(end) if end < NEVER else None
        done.append(min(window.hi if window else NEVER, NEVER if fetched is None else fetched + STAMP_EARLY_US))
    done = list(accumulate(reversed(done), min))[::-1]
    return [
        MarkerStretch(first, end, room_in(first, end, placed, stated), lo, hi)
        for first, end, lo, hi in zip(marks, ends, begun, done, strict=True)
    ]


def room_in(first: int, end: int, placed: dict[int, Row], stated: dict[int, int]) -> int:
    """How many markers fit into [first, end): none if the end of its batch is stated, else all but its first record."""
    if first in stated:
        return int(first not in placed and end - first == 1)
    return end - first - (first in placed)
