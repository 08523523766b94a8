"""Windows of a partition's events: stretches of the order, by the hour or another fixed length of event time.

A window begins where an event's time first reaches its slot, so windows follow the replay order and each event stands
in exactly one: an event that is older than one before it stands in that one's window. At the beginning of a window
(`Boundary`) a digest says which events came before. A later run that finds the same digest there need not touch any row
of the windows before it. So equality of digests decides what a run costs, and never what it finds.

Of a partition's boundaries only some are kept: the newest ones, and ever fewer of older ones (`is_kept`).
"""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from replay.arrays.columns import numbers, stamps
from replay.arrays.digests import row_hashes

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

    from replay.arrays.digests import Hashes
    from replay.arrays.ints import Ints

HOUR_US: Final = 3_600_000_000
BEFORE_ALL: Final = np.iinfo(np.int64).min  # earlier than any window
DIGEST_BYTES: Final = 16
NOT_HASHED: Final = ("seq", "window")  # columns that say where an event stands


class Boundary(NamedTuple):
    """Where a window begins."""

    place: int  # how many windows of the partition lie before
    window: int  # start of its slot, microseconds
    seq: int  # of its first event
    digest: str  # of all events before


class Windows:
    """Cuts one partition's events into windows, piece by piece, and keeps the boundaries."""

    def __init__(self, length_us: int = HOUR_US) -> None:
        """Start before the first event."""
        self.length_us = length_us
        self.boundaries: list[Boundary] = []  # those from before a place where the order went on may be few
        self.place = 0  # of the next boundary
        self.count = 0  # events so far
        self.digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self.newest = BEFORE_ALL

    @classmethod
    def going_on(cls, length_us: int, boundaries: Sequence[Boundary]) -> Windows:
        """Start at the last of these boundaries: with the first event of its window."""
        found, at = cls(length_us), boundaries[-1]
        found.boundaries, found.place, found.count = [*boundaries], at.place + 1, at.seq
        found.digest, found.newest = digest_after(at.digest), at.window
        return found

    def take(self, events: pa.Table, hashes: Hashes | None = None) -> pa.Table:
        """Take the next events, in order; return them with the column `window`. `hashes`: theirs, if they are known."""
        window = windows_of(numbers(events["ts"]), self.length_us, self.newest)
        hashes = row_hashes(events, NOT_HASHED) if hashes is None else hashes
        begins = starts_of(window, self.newest if self.count else None)
        ends = [*begins.tolist(), len(events)]
        self.digest.update(hashes[: ends[0]].tobytes())
        for begin, end in pairwise(ends):
            before = self.digest.hexdigest()
            self.boundaries.append(Boundary(self.place, int(window[begin]), self.count + begin, before))
            self.place += 1
            self.digest = digest_after(before)
            self.digest.update(hashes[begin:end].tobytes())
        self.count += len(events)
        self.newest = int(window[-1]) if len(events) else self.newest
        return with_window(events, window)

    def latest_shared(self, known: Collection[Boundary]) -> Boundary | None:
        """Return the newest boundary that a former order had as well, with the same events before it."""
        return next((one for one in reversed(self.boundaries) if one in known), None)

    @property
    def kept(self) -> list[Boundary]:
        """The boundaries that a later run may go on from."""
        return [one for one in self.boundaries if is_kept(one.place, self.place - 1)]

    @property
    def total(self) -> str:
        """The digest of all events."""
        return self.digest.hexdigest()


def digest_after(before: str) -> hashlib.blake2b:
    """Return the digest to go on with where a window begins: it takes in what lies before by its digest alone."""
    return hashlib.blake2b(before.encode(), digest_size=DIGEST_BYTES)


def windows_of(us: Ints, length_us: int, newest: int = BEFORE_ALL) -> Ints:
    """Return the windows of events at these times, in order; `newest`: the window of the event before."""
    slots = us // length_us * length_us
    found: Ints = np.maximum.accumulate(np.concatenate([[newest], slots]))[1:]
    return found


def with_window(events: pa.Table, window: Ints) -> pa.Table:
    """Return the events with the column `window`."""
    place = events.schema.get_field_index("window")
    return events.set_column(place, events.schema.field(place), stamps(window))


def starts_of(window: Ints, before: int | None) -> Ints:
    """Return the places at which another window begins; `before`: the window of the event before, if there is one."""
    found = np.flatnonzero(np.diff(window)) + 1
    first = len(window) > 0 and (before is None or window[0] != before)
    return np.concatenate([np.zeros(int(first), np.int64), found])


def is_kept(place: int, last: int) -> bool:
    """Whether a boundary is kept when `last` is the newest: of the older half of all, ever fewer the older they are.

    The first, the newest and the one before always are; one that is dropped would never be kept again.
    """
    return place == 0 or last - place < 2 * reach_of(place)


def reach_of(place: int) -> int:
    """Return of how many windows up to a boundary it alone is kept in the end: the largest power of 2 in its place."""
    return place & -place
