"""When a partition was steady: times in which nothing came but requests, without an error, of one leader epoch.

Whatever else comes ends such a time: a line about a role or a log, a request that was refused, one that another broker
was sent, or that names another epoch. So its requests bear only upon their neighbours, and those in its middle can be
left out, in the newest leader epoch as in older ones (`replay.evidence.steady`). Facts are looked at in parts, each of
which says in a few `Series` which requests follow each other; all parts together tell the times.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from replay.arrays.ints import NEVER
from replay.evidence.missing_lines import Gap, united
from replay.evidence.retries import GIVEN_UP_US
from replay.protocol.state import NONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from replay.arrays.ints import Flags, Ints

SPAN_US: Final = 10_000_000  # a request that takes longer counts as none of a steady time
MARGIN_US: Final = 3 * SPAN_US  # so much from before the place where the order goes on is read again
RESENT_US: Final = GIVEN_UP_US + SPAN_US  # until then clients may send again what the leader before had answered
SERIES_US: Final = 30 * SPAN_US  # of a series at most: where facts of another piece end one, no more than this is lost


class Hole(NamedTuple):
    """A time in which requests, all of them sent to one leader, are left out."""

    leader: int
    begin: int
    end: int


class SteadyTime(NamedTuple):
    """A time in which a partition was steady."""

    leader: int
    epoch: int  # NONE: no request names one
    settled_us: int  # since when: all that came before is over, and whoever fetches or writes has done so
    until_us: int  # when something else came; NEVER: nothing did

    def hole(self, since: int = NEVER) -> Hole | None:
        """Return the part of it whose requests are left out if the order goes on at `since`; None: it is too short.

        `since`: in this time, and not near its end (`goes_on_behind`), or in a later one.
        """
        limit = min(since, self.until_us)
        begin, end = self.settled_us + SPAN_US, limit - MARGIN_US
        return Hole(self.leader, begin, end) if begin < end and self.settled_us + RESENT_US < limit else None

    def is_of(self, epoch: int, leader: int) -> bool:
        """Whether it may be one of a leader epoch."""
        return self.leader == leader and self.epoch in (NONE, epoch)

    def goes_on_behind(self, since: int) -> bool:
        """Whether it lasts so much longer that what comes behind it says nothing of what came before a moment.

        What comes soon after it may show that requests of before were answered in vain.
        """
        return self.settled_us < since <= self.until_us - RESENT_US


@dataclass(slots=True)
class Series:
    """Requests of one leader epoch that follow each other; NONE as their leader: facts that end a steady time."""

    leader: int
    epoch: int
    first_us: int
    until_us: int  # when all of them were over
    firsts: dict[int, int]  # when each sender came first: a follower by its number, of others each kind

    def goes_on_with(self, other: Series) -> bool:
        """Whether the requests of another one may be of the same leader epoch."""
        return self.leader == other.leader != NONE and (NONE in (self.epoch, other.epoch) or self.epoch == other.epoch)

    def joined(self, other: Series) -> Series:
        """Return both as one."""
        firsts = {who: min(us, other.firsts.get(who, NEVER)) for who, us in self.firsts.items()}
        return Series(
            self.leader,
            max(self.epoch, other.epoch),
            min(self.first_us, other.first_us),
            max(self.until_us, other.until_us),
            {**other.firsts, **firsts},
        )


def series_of(us: Ints, until: Ints, leader: Ints, epoch: Ints, sender: Ints) -> list[Series]:
    """Return the series of some facts, by columns; short ones are none, but for the first and the last.

    `leader`: to which a request was sent; NONE: the fact ends a steady time. `epoch`: that it names, or NONE. `sender`:
    a number for whom it has to be known when it came first; others have NONE.
    """
    if not len(us):
        return []
    order = np.argsort(us, kind="stable")
    us, until, leader, epoch, sender = (column[order] for column in (us, until, leader, epoch, sender))
    is_later = (leader == NONE) & (np.diff(us, prepend=us[0]) >= SPAN_US)
    begins = np.flatnonzero(begins_series(leader, epoch) | is_later)
    ends = np.append(begins[1:], len(us)) - 1
    is_none = (leader[begins] == NONE) | (us[ends] - us[begins] < SPAN_US)
    is_none[[0, -1]] = leader[begins[[0, -1]]] == NONE
    # Lines of two elections that are looked at together, without the requests between, are no single end of a time.
    are_apart = us[begins] - np.append(us[0], us[ends[:-1]]) >= SPAN_US
    first = ~is_none | ~np.append(False, is_none[:-1]) | are_apart
    begins, is_none = cut(us, begins[first], is_none[first])
    ends = np.append(begins[1:], len(us))
    return [
        one_series(is_none[k], us[a:b], until[a:b], leader[a], epoch[a:b], sender[a:b])
        for k, (a, b) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True))
    ]


def cut(us: Ints, begins: Ints, is_none: Flags) -> tuple[Ints, Flags]:
    """Return where series begin, and which are none, once long ones of requests are cut at fixed times.

    A fact of another part may end a series in its midst. Who came first behind that place, the later series tell.
    """
    whole = np.append(begins[1:], len(us)) - begins
    cuts = np.flatnonzero((np.diff(us // SERIES_US, prepend=us[0] // SERIES_US) != 0) & ~np.repeat(is_none, whole))
    all_begins = np.union1d(begins, cuts)
    return all_begins, is_none[np.searchsorted(begins, all_begins, side="right") - 1]


def begins_series(leader: Ints, epoch: Ints) -> Flags:
    """Return which facts, in the order of time, do not go on with those before: another leader, or another epoch."""
    places = np.arange(len(leader))
    moved = np.diff(leader, prepend=NONE - 1) != 0
    begun = np.maximum.accumulate(np.where(moved, places, 0))
    named = np.maximum.accumulate(np.where(epoch >= 0, places, NONE))
    last = np.append(NONE, named[:-1])  # the last one before that names an epoch
    other = (epoch >= 0) & (last >= begun) & (epoch[last] != epoch)
    found: Flags = moved | other
    return found


def one_series(is_none: bool, us: Ints, until: Ints, leader: int, epoch: Ints, sender: Ints) -> Series:  # noqa: FBT001
    """Return some facts, by columns in the order of time, as a series."""
    times = int(us[0]), int(until.max())
    if is_none:
        return Series(NONE, NONE, *times, {})
    who, first = np.unique(sender, return_index=True)
    firsts = {one: int(us[k]) for one, k in zip(who.tolist(), first.tolist(), strict=True) if one != NONE}
    return Series(int(leader), int(epoch.max()), *times, firsts)


def steady_times(series: Iterable[Series]) -> list[SteadyTime]:
    """Return the times in which a partition was steady, in order, by the series of all of its facts."""
    found: list[SteadyTime] = []
    over: dict[tuple[int, int], int] = {}  # by leader and epoch, when all earlier requests were over
    now: Series | None = None
    begin = -NEVER

    def end(us: int) -> None:
        if now is not None:
            found.extend(times_in(now, max(begin, now.first_us), us))
            key = now.leader, now.epoch
            over[key] = max(over.get(key, -NEVER), now.until_us)

    for one in sorted(series, key=lambda one: (one.first_us, one.leader, one.epoch)):
        if now is not None and now.goes_on_with(one):
            now = now.joined(one)
            continue
        end(one.first_us)
        now = one if one.leader != NONE else None
        if now is None:
            over[NONE, NONE] = max(over.get((NONE, NONE), -NEVER), one.until_us)
        begin = max((us for key, us in over.items() if key != (one.leader, one.epoch)), default=-NEVER)
    end(NEVER)
    return found


def times_in(series: Series, begin: int, until: int) -> list[SteadyTime]:
    """Return the steady times of a series, between what came before and what came behind it.

    One is over where somebody fetches or writes for the first time long after it began, and another one begins.
    """
    found: list[SteadyTime] = []
    for first in (*sorted(us for us in series.firsts.values() if us < until), until):
        one = SteadyTime(series.leader, series.epoch, begin, first)
        if first == until or one.hole() is not None:
            found += [one] if begin < first else []
        begin = max(begin, first)
    return found


def time_at(times: Sequence[SteadyTime], since: int) -> SteadyTime | None:
    """Return the steady time from which an order may go on at a moment; None: there is none."""
    before = [one for one in times if one.settled_us < since]
    if not before or not before[-1].goes_on_behind(since) or before[-1].hole(since) is None:
        return None
    return before[-1]


def holes_at(times: Sequence[SteadyTime], since: int) -> tuple[Hole, ...]:
    """Return the holes of an order that goes on at a moment, in order; none if that is in no steady time.

    The last one is that of the time in which the moment lies.
    """
    if time_at(times, since) is None:
        return ()
    before = (one for one in times if one.settled_us < since)
    return tuple(hole for one in before if (hole := one.hole(since)) is not None)


def both(holes: Sequence[Hole], others: Sequence[Hole]) -> tuple[Hole, ...]:
    """Return, in order, the holes of what is left out with either of these; those that overlap are one.

    When a time begins depends a little on which facts are looked at together (`SERIES_US`), so two orders do not make
    the same hole of it. Each rests on the facts before its end, so it remains valid as long as none of them is new.
    Whether later facts need what lies in it is asked of those facts (`steady.bears_on_neighbours`).
    """
    by_leader: defaultdict[int, list[Gap]] = defaultdict(list)
    for hole in (*holes, *others):
        by_leader[hole.leader].append(Gap(hole.begin, hole.end))
    found = (Hole(leader, *gap) for leader, gaps in by_leader.items() for gap in united(gaps))
    return tuple(sorted(found, key=lambda hole: hole.begin))
