"""The order of a long steady partition, stretch of time by stretch of time, so that not all of it is in memory.

It begins with the first fact, or where the order goes on, and is done as hourly runs do it (`order_marks`): the facts
up to a moment are ordered, and marks are left; the next stretch goes on from the last mark but one, orders what lies
between the two once more, and has to find it as it was. The events of each stretch wait in a file until the last
stretch is ordered. If anything is not as it has to be, there are no stretches, and the partition is ordered as a whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from pipelines.stages.order_marks import Since
from pipelines.stages.spilled_events import SpilledEvents
from replay.arrays.ints import NEVER
from replay.arrays.memory import give_back
from replay.engine.stamps import STAMP_LATE_US
from replay.evidence.steady import bears_on_neighbours, may_have_a_mark
from replay.evidence.steady_times import MARGIN_US, RESENT_US, both, holes_at, time_at
from replay.order.marks import MARKED, Grid, Mark
from replay.order.order import order_of, order_on
from replay.order.windows import Boundary, Windows, is_kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from pipelines.stages.spilled_facts import SpilledFacts
    from replay.evidence.cluster import Cluster
    from replay.evidence.partition_facts import PartitionFacts
    from replay.order.order import OrderedEvents

    Parts = Callable[[list[pa.Table], Cluster], tuple[int, Iterator[PartitionFacts]]]

WINDOW_FACTS: Final = 3_000  # so many facts, or more, lie between two marks
AT_ONCE: Final = 30_000  # facts of a stretch, about, and of what it reads again of the one before
WINDOWS: Final = range(2, 9)  # a stretch may have, however many facts are in one
BESIDE: Final = 2  # windows of the stretch before that are read again, about
FEWEST: Final = 45_000  # facts for which it is worth while: so many can be ordered as a whole


class Stretches(NamedTuple):
    """Where a partition's facts are cut, by when they came."""

    length_us: int  # of the windows at which marks are left, of which a stretch has several
    turns: list[int]  # the last window that begins in each stretch but the last

    @property
    def ends(self) -> list[int]:
        """Return up to when the facts of each stretch came: half a window behind the last mark."""
        return [*(self.end_of(turn) for turn in self.turns), NEVER]

    def end_of(self, turn: int) -> int:
        """Return up to when the facts of the stretch with that last window came."""
        return turn + self.length_us // 2


def stretches_of(facts: SpilledFacts, since: Since | None = None) -> Stretches | None:
    """Return where the facts can be cut; None: nowhere, or too seldom to be worth while.

    `since`: from where their order may go on; None: from the beginning. If few came since then, there is one stretch.
    """
    if facts.is_barred or not is_long(facts) or not facts.times:
        return None
    begin = facts.times[0].settled_us if since is None else since.at.window
    count = facts.later_than(begin)
    least = 0 if since is not None and count < FEWEST else 1  # turns
    if (since is None and count < FEWEST) or not facts.were_clocks_steady:
        return None
    facts.find_openings()
    span = max(facts.last() - begin, 1)
    length_us = max(MARGIN_US, span * WINDOW_FACTS // max(count, 1))
    while True:
        windows = windows_of_stretch(count * length_us // span)
        wanted = turns_in(facts, begin, length_us, windows)
        found = with_those_that_can(facts, Stretches(length_us, wanted))
        if len(wanted) < least:
            return None
        if len(found.turns) * 2 >= len(wanted) and len(found.turns) >= least and can_begin(facts, found, since):
            return found
        if not wanted:
            return None
        length_us *= 2


def turns_in(facts: SpilledFacts, begin: int, length_us: int, windows: int) -> list[int]:
    """Return the windows at which stretches may end, in each time in which the partition was steady.

    `begin`: the first stretch begins there. `windows`: of a stretch.
    """
    found: list[int] = []
    for time in facts.times:
        settled = max(time.settled_us + RESENT_US, begin)
        last = min(time.until_us - RESENT_US, facts.last() - 2 * length_us)
        found += range((settled // length_us + 3) * length_us, last, windows * length_us)
    return found


def with_those_that_can(facts: SpilledFacts, stretches: Stretches) -> Stretches:
    """Return the stretches with only those turns from whose marks the order of the next one can go on."""
    found: list[int] = []
    end = NEVER
    for turn in reversed(stretches.turns):
        if are_told(facts, turn, stretches.end_of(turn)) and can_go_on(facts, turn - stretches.length_us, turn, end):
            found.append(turn)
            end = stretches.end_of(turn)
    return stretches._replace(turns=found[::-1])


def is_long(facts: SpilledFacts) -> bool:
    """Whether so many facts are not ordered at once if it can be helped."""
    return facts.count >= FEWEST


def windows_of_stretch(facts: int) -> int:
    """Return how many windows a stretch has; `facts`: of a window, about."""
    return min(max(AT_ONCE // max(facts, 1) - BESIDE, WINDOWS.start), WINDOWS.stop - 1)


def can_begin(facts: SpilledFacts, stretches: Stretches, since: Since | None) -> bool:
    """Whether the order of the facts up to the end of the first stretch can go on from where an order is to go on."""
    if since is None:
        return True
    until = min(since.until.window, since.at.window + stretches.length_us)
    some = facts.facts_until(stretches.ends[0], since.holes, since.at.window)
    return bears_on_neighbours(some, since.time, since.at.window, until)


def are_told(facts: SpilledFacts, turn: int, end: int) -> bool:
    """Whether a stretch with the facts up to an end knows how all transactions end that are open at its last mark."""
    begins, ends = facts.transactions
    return not bool(((begins < turn) & (ends >= end)).any())


def can_go_on(facts: SpilledFacts, since: int, until: int, end: int) -> bool:
    """Whether the order of the facts up to an end can go on from the mark at `since`, of which `until` is the next."""
    time = time_at(facts.times, since)
    if time is None:
        return False
    some = facts.facts_until(end, holes_at(facts.times, since), since)
    are_marks = may_have_a_mark(some, since) and may_have_a_mark(some, until)
    return are_marks and bears_on_neighbours(some, time, since, until)


def by_stretches(
    facts: SpilledFacts, cluster: Cluster, length_us: int, parts: Parts, since: Since | None = None
) -> SpilledEvents | None:
    """Order a long partition stretch by stretch; None: it has to be ordered as a whole.

    `length_us`: of the windows in which events are written. `parts`: makes `PartitionFacts` of some of the facts.
    `since`: from where their order goes on, which is at one of these windows; None: from the beginning.
    """
    stretches = stretches_of(facts, since)
    if stretches is None:
        return None
    out = SpilledEvents()
    left: list[Mark] = []
    windows, own, grid = begun(stretches.length_us, length_us, since)
    for k, end in enumerate(stretches.ends):
        give_back()
        mine = [facts.until(end, () if since is None else since.holes)]
        # What is known of brokers makes events of later times, too, with which this stretch does not end.
        grids = own._replace(until=end), grid._replace(until=end)
        ordered = ordered_on(mine, cluster, parts, since, grids)
        if ordered is None:
            return None
        if k and since is not None:
            before = [one for one in windows.boundaries if one.place <= since.at.place]
            windows = Windows.going_on(stretches.length_us, before)
        begin = 0 if since is None else since.at.seq
        us = out.add(map(windows.take, ordered.pieces(begin)), begin)
        if k and since is not None and since.until not in windows.boundaries:
            return None
        out.key, stop = ordered.key, NEVER
        if k < len(stretches.turns):
            following = since_next(facts, stretches, k, ordered.marks, windows.boundaries)
            if following is None:
                return None
            left_out = () if since is None else since.holes  # also by the order before
            since = following._replace(holes=both(following.holes, left_out))
            own, stop = Grid.at(stretches.length_us, since.at), since.at.seq
        left += [mark for mark in ordered.others if mark.seq < stop]
        grid = grid.since(us, stop)
        del ordered
    out.marks = [mark for mark in left if is_kept(mark.place, grid.place - 1)][-MARKED:]
    return out


def begun(own_us: int, length_us: int, since: Since | None) -> tuple[Windows, Grid, Grid]:
    """Return the windows of stretches where an order begins, the same without digests, and those that are written.

    An order that goes on begins within one of the stretches' windows, which counts as the first of them.
    """
    if since is None:
        return Windows(own_us), Grid(own_us), Grid(length_us)
    start = Boundary(0, since.at.window // own_us * own_us, since.at.seq, since.at.digest)
    own = Grid(own_us, start.window, start.place + 1, start.seq)
    return Windows.going_on(own_us, [start]), own, Grid.at(length_us, since.at)


def ordered_on(
    given: list[pa.Table], cluster: Cluster, parts: Parts, since: Since | None, grids: tuple[Grid, Grid]
) -> OrderedEvents | None:
    """Order some facts, from the beginning or from a mark on; None: that cannot be done.

    `given`: the facts, which are taken out of the list. `grids`: the windows where marks are left.
    """
    if since is None:
        count, found = parts(given, cluster)
        return order_of(next(found), *grids) if count == 1 else None
    count, found = parts(given, replace(cluster, missing=since.told_of(cluster.missing)))
    return order_on(next(found), since.mark, since.later, since.at, *grids) if count == 1 else None


def since_next(
    facts: SpilledFacts, stretches: Stretches, k: int, marks: Sequence[Mark], boundaries: Sequence[Boundary]
) -> Since | None:
    """Return from where the stretch behind number `k` goes on: the last mark of that one but one; None: from nowhere.

    That it can by the facts was looked at before anything was ordered (`can_go_on`).
    """
    until = stretches.turns[k]
    since = until - stretches.length_us
    places = {one.place: one for one in boundaries}
    found = {mark.since: mark for mark in marks}
    mark, later, time = found.get(since), found.get(until), time_at(facts.times, since)
    if mark is None or later is None or mark.reach + STAMP_LATE_US >= later.since:
        return None
    if time is None or not time.is_of(mark.epoch, mark.leader):
        return None
    return Since(places[mark.place], mark, time, places[later.place], later, holes_at(facts.times, since))
