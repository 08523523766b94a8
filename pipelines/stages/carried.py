"""What an order hands to the next one, so that facts of long ago need not be read again.

Of the facts before some moment the next order needs few: lines that are no requests, requests of partitions that are
ordered as a whole, and of the others those that an order that goes on keeps (`replay.evidence.steady`). These are
carried along, with their sessions rebuilt; of the others, what they add to digests. With what fetch sessions have
cached at that moment (`replay.evidence.session_states`) and the facts since then, the order finds what it finds in all
facts. Where it cannot tell, it asks for all of them (`NeedsAllError`, `EntangledError`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.overview.cluster import overview_on
from pipelines.spark.buckets import by_partition, spans_of
from pipelines.spark.saved_states import bytes_of, state_of
from pipelines.stages.order_marks import LONG, alone_at
from replay.arrays.columns import numbers
from replay.arrays.digests import added, row_hashes, sum_of
from replay.arrays.ints import NEVER
from replay.evidence.clock_steps import SET_BACK, STEP_COLUMNS, RisingLines, steadied
from replay.evidence.cluster import WHOLE
from replay.evidence.in_short import in_short
from replay.evidence.session_states import rebuilt_from, rebuilt_until
from replay.evidence.standstills import CONNECTION_COLUMNS
from replay.evidence.steady import OF_THE_END, Alone, LeftOut, NeedsAllError, extremes, facts_of, kept
from replay.evidence.steady_times import MARGIN_US, both, time_at
from replay.evidence.summary import SUMMED
from replay.evidence.tenures import micros
from replay.tables.resumption import place_of
from schemas.model import TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pipelines.overview.cluster import Overview
    from pipelines.stages.standing_windows import Of, StandingWindows
    from replay.arrays.digests import Hashes
    from replay.arrays.ints import Flags
    from replay.evidence.in_short import InShort
    from replay.evidence.steady import Facts
    from replay.tables.resumption import Place

TOLD: Final = sorted({*SUMMED, *CONNECTION_COLUMNS})  # columns of facts from which `in_short` is told
MARK_COLUMNS: Final = ["topic", "incarnation", "partition", "place", "window", "seq", "digest", "engine", "state"]
FEW_ROWS: Final = 100_000  # so many are carried along in any case,
MOST_ROWS: Final = 2_000_000  # but never more than these: some 200 bytes each, in the driver's memory,
SHARE: Final = 4  # nor more than one for so many facts that they stand for
MOST_REQUESTS: Final = 1_000_000  # of clients of which all requests are kept, of which each takes 28 bytes


class Carried(NamedTuple):
    """What stands for the facts before a moment."""

    horizon: int  # microseconds: of the facts with an earlier stamp, or none
    rows: pa.Table  # of partitions, with their sessions rebuilt
    sessions: dict[int, pa.Table]  # by broker, of `STATE_SCHEMA`
    left: dict[Of, LeftOut]
    names: dict[str, str]  # of topics, by their ids
    whole: pa.Table  # facts about no single partition
    told: InShort  # what all tell of the recording

    @property
    def facts(self) -> int:
        """How many facts it stands for."""
        return int(self.told.told.counts["facts"][0].as_py())

    @property
    def fewer(self) -> int:
        """How many rows fewer there are to order than there would be facts."""
        return self.facts - len(self.rows)

    def with_marks(self, windows: pa.Table, before: pa.Table, changes: Iterable[Mapping[str, Any]]) -> Carried:
        """Return the same with the marks before which requests are left out, as far as they stand.

        Some are thinned out at once, and the next order may have no other to go on from. If none will stand behind such
        a mark, because the leader has changed shortly behind it, the one goes along that did. `windows`: rows of
        `event_windows` as the order leaves them, `before`: as it found them, and `changes`: what it has changed.
        """
        if not self.left:
            return self
        first = min(left.since for left in self.left.values())
        stand, stood = Marks(windows, first), Marks(before, first)
        changed = {place_of(row): -1 if row["place"] is None else row["place"] for row in changes}
        found = {}
        for of, left in self.left.items():
            key = of[0], 0, of[1]
            until = changed.get(key, NEVER)
            mark = left.mark or stand.at(key, left.since) or stood.at(key, left.since, until)
            behind: Mapping[str, Any] | None = None
            if mark is not None and not stand.has_behind(key, left.since):
                behind = stood.behind(key, left.since, until)
                if behind is None and left.behind is not None and left.behind["place"] <= until:
                    behind = left.behind
            found[of] = left._replace(mark=mark, behind=behind)
        return self._replace(left=found)

    def overview(self, recording_id: str, whole: pa.Table, facts: Iterable[pa.Table]) -> Overview:
        """Look at all facts. NeedsAllError: these do not suffice.

        `facts`: those since then, in tables, of which the columns `TOLD` are looked at; `whole`: `WHOLE` of them.
        """
        every = pa.concat_tables([self.whole, whole], promote_options="default")
        return overview_on(recording_id, self.told, every, facts)


def most_rows(facts: int) -> int:
    """Return how many rows may be carried along in place of so many facts.

    What came around elections stays, so there are ever more of them; and all facts would be far more.
    """
    return min(max(FEW_ROWS, facts // SHARE), MOST_ROWS)


class Marks:
    """Marks that rows of `event_windows` hold, by partition; states are read of those that are asked for."""

    def __init__(self, windows: pa.Table, first: int) -> None:
        """Look for those from a moment on, in microseconds."""
        late = pc.greater_equal(windows["window"], pa.scalar(first, pa.int64()).cast(TIMESTAMP))
        self.rows = windows.select(MARK_COLUMNS).filter(pc.and_(late, pc.is_valid(windows["state"])))
        self.places: defaultdict[Place, dict[int, tuple[int, int]]] = defaultdict(dict)  # by time: place, row
        for number, row in enumerate(self.rows.drop_columns("state").to_pylist()):
            self.places[place_of(row)][micros(row["window"])] = row["place"], number

    def at(self, key: Place, us: int, until: int = NEVER) -> dict[str, Any] | None:
        """Return the mark at a moment, if there is one, and its place is not behind this one."""
        place, number = self.places[key].get(us, (NEVER, -1))
        if number < 0 or place > until:
            return None
        (row,) = self.rows.slice(number, 1).to_pylist()
        return dict(row)

    def behind(self, key: Place, us: int, until: int) -> dict[str, Any] | None:
        """Return the first mark behind a moment, likewise."""
        later = min((one for one in self.places[key] if one > us), default=None)
        return None if later is None else self.at(key, later, until)

    def has_behind(self, key: Place, us: int) -> bool:
        """Whether there is any mark behind a moment."""
        return any(one > us for one in self.places[key])


def as_bytes(carried: Carried) -> bytes:
    """Return it as a table keeps it."""
    return bytes_of(carried._asdict())


def from_bytes(data: bytes) -> Carried:
    """Return what `as_bytes` was given."""
    return Carried(**state_of(data))


def is_before(facts: pa.Table, us: int) -> pa.ChunkedArray:
    """Return which facts are from before a moment; those without a time are, but for those `OF_THE_END`.

    These change whenever a checkpoint is copied, so each order reads them anew.
    """
    early = pc.less(facts["ts"], pa.scalar(us, pa.int64()).cast(TIMESTAMP))
    if not early.null_count:
        return early
    return pc.if_else(pc.is_valid(facts["ts"]), early, pc.invert(OF_THE_END.mask(facts)))


def marked(rows: pa.Table, engine: str, until: int) -> pa.Table:
    """Return the rows of `event_windows` with a mark, of windows that begin before a moment."""
    early = pc.less(rows["window"], pa.scalar(until, pa.int64()).cast(TIMESTAMP))
    return rows.filter(pc.and_(early, pc.and_(pc.is_valid(rows["state"]), pc.equal(rows["engine"], engine))))


@dataclass
class Carrying:
    """An order's facts in two parts; what it hands on of those before `horizon`."""

    horizon: int
    until: int  # start of the last window: a mark that stands there may have none behind it the next time
    before: Carried | None = None  # what the order before has handed on; None: all facts are given
    sessions: dict[int, pa.Table] = field(default_factory=dict)
    rows: list[pa.Table] = field(default_factory=list)
    left: dict[Of, LeftOut] = field(default_factory=dict)
    whole: list[pa.Table] = field(default_factory=list)
    early: pa.Table | None = None  # the facts that are given of those before the horizon
    names: dict[str, str] = field(default_factory=dict)
    is_steady: bool = False  # whether no clock was set back
    least: int = LONG  # requests that are left out, for which it is worth while
    alone: Mapping[Of, Alone] | None = None  # marks of which that is known (`stands_alone`); None: the newest are asked

    @classmethod
    def of(
        cls, standing: pa.Table | None, facts: pa.Table, length_us: int, engine: str, before: Carried | None = None
    ) -> Carrying | None:
        """Return one that carries on up to shortly before the last mark with another behind it; None: there is none."""
        last = pc.max(facts["ts"]).as_py()
        until = -NEVER if last is None else micros(last) // length_us * length_us
        marks = None if standing is None else marked(standing, engine, until)
        horizon = -NEVER if before is None else before.horizon
        if marks is not None and len(marks):
            horizon = max(horizon, micros(pc.max(marks["window"]).as_py()) - MARGIN_US)
        return None if horizon == -NEVER else cls(horizon, until, before)

    @property
    def left_before(self) -> Mapping[Of, LeftOut]:
        """What is not given of each partition's facts."""
        return {} if self.before is None else self.before.left

    @property
    def given_before(self) -> int:
        """How many rows were handed on."""
        return 0 if self.before is None else len(self.before.rows)

    def begin(self, facts: pa.Table, names: dict[str, str]) -> None:
        """Look at the facts; NeedsAllError if what was handed on does not hold any more, or will not tell all.

        If a clock was set back, lines of before the moment may have been stamped behind it; then nothing is handed on.
        """
        self.names = names
        lines = RisingLines()
        lines.add(facts.select(STEP_COLUMNS).sort_by("ts"))
        self.is_steady = lines.rise
        if self.before is not None and not (self.is_steady and names == self.before.names):
            raise NeedsAllError
        self.early = facts.select(TOLD).filter(is_before(facts, self.horizon))
        whole = WHOLE.of(facts)
        self.whole = [] if self.before is None else [self.before.whole]
        self.whole.append(whole.filter(is_before(whole, self.horizon)))

    def others(self, facts: pa.Table) -> Iterator[tuple[bool, pa.Table]]:
        """Yield facts that are no fetches, apart from each other; True: of the first part."""
        early = is_before(facts, self.horizon)
        for is_early, some in ((True, facts.filter(early)), (False, facts.filter(pc.invert(early)))):
            if len(some):
                yield is_early, some

    def handed_on(self) -> Iterator[tuple[bool, pa.Table]]:
        """Yield the rows that the order before has handed on."""
        if self.before is not None:
            yield True, self.before.rows

    def fetches(self, given: Mapping[int, Callable[[], pa.Table]], none: pa.Table) -> Iterator[tuple[bool, pa.Table]]:
        """Yield the rows of sessions. `given`: each broker's fetches, by fact id; `none`: of no broker."""
        states = {} if self.before is None else self.before.sessions
        for broker in sorted({*given, *states}):
            mine = given[broker]() if broker in given else none
            early = is_before(mine, self.horizon)
            final, self.sessions[broker] = rebuilt_until(mine.filter(early).combine_chunks(), states.get(broker))
            yield from ((True, rows) for rows in final)
            rest = mine.filter(pc.invert(early)).combine_chunks()
            yield from ((False, rows) for rows in rebuilt_from(rest, self.sessions[broker]))

    def note(self, tables: list[pa.Table], are_early: list[bool], standing: StandingWindows) -> None:
        """Keep those of the first part's rows of some partitions that the next order needs.

        `tables`: all rows of these partitions; `are_early`: which of the tables are of the first part.
        """
        if not any(are_early):
            return
        rows = pa.concat_tables(tables, promote_options="default").combine_chunks()
        is_early = np.repeat(are_early, [len(table) for table in tables])
        number, partition_of = by_partition(rows)
        order, spans = spans_of(number)
        hashes = row_hashes(rows)
        keeps = is_early.copy()
        for first, stop in spans:
            mine = order[first:stop]
            of = partition_of(int(number[mine[0]]))
            left = self.left_before.get(of)
            marks = self.marks_of(of, standing) if is_early[mine].any() else []
            if marks:
                some = rows.take(pa.array(mine))
                keeps[mine], left = needed_of(some, hashes[mine], is_early[mine], marks, left)
            if left is not None:
                self.left[of] = left
        self.rows.append(rows.filter(pa.array(keeps)))

    def marks_of(self, of: Of, standing: StandingWindows) -> Alone | list[int]:
        """Return the mark before which a partition's requests are left out, or when its marks are, newest first."""
        if self.alone is not None:
            return self.alone.get(of, [])
        if not standing.places.get(of):
            return []
        boundaries = standing.rows([of])
        if pc.max(boundaries["incarnation"]).as_py() != 0:
            return []
        marks = marked(boundaries, standing.engine, self.until).sort_by("place")
        return list(map(int, numbers(marks["window"])[::-1]))

    def carried(self) -> Carried | None:
        """Return what is handed on; None: that would not be worth while. NeedsAllError: it cannot be told."""
        count = sum(map(len, (*self.rows, *self.sessions.values())))
        few = sum(left.facts for left in self.left.values()) < self.least
        if few or not self.rows or not self.is_steady or self.early is None:
            return None
        if count > most_rows(len(self.early) + (0 if self.before is None else self.before.facts)):
            return None
        told = in_short(None if self.before is None else self.before.told, self.early, self.horizon)
        if len(told.told.requests) > MOST_REQUESTS:
            return None
        rows, whole = (pa.concat_tables(some, promote_options="default") for some in (self.rows, self.whole))
        return Carried(self.horizon, rows, self.sessions, self.left, self.names, whole, told)


def needed_of(
    rows: pa.Table, hashes: Hashes, is_early: Flags, marks: Alone | Sequence[int], before: LeftOut | None
) -> tuple[Flags, LeftOut | None]:
    """Return which early rows of a partition the next order needs, and what is left out of them, and was before.

    `marks`: the last that it may go on from; or when marks are, newest first, of which one is chosen (`followed`).
    """
    facts = facts_of(rows, hashes)
    if facts is None or SET_BACK in steadied(rows).column_names:
        return is_early, before
    alone = marks if isinstance(marks, Alone) else followed(facts, marks)
    if alone is None or (before is not None and alone.since < before.since):
        return is_early, before
    holes = alone.holes if before is None else both(alone.holes, before.holes)
    early = facts.only(is_early)
    of_time = early._replace(us=np.where(early.us < alone.settled_us, NEVER, early.us))
    is_needed = kept(early, holes) | extremes(of_time, alone.since)
    needed = is_early.copy()
    needed[is_early] = is_needed
    left = LeftOut(alone.since, holes, int((~is_needed).sum()), sum_of(early.hashes[~is_needed]))
    if before is not None:
        left = left._replace(facts=left.facts + before.facts, sums=added(left.sums, before.sums))
        if before.since == left.since:
            left = left._replace(mark=before.mark, behind=before.behind)
    return needed, left if left.facts else None


def followed(facts: Facts, marks: Sequence[int]) -> Alone | None:
    """Return what can be left out before the newest mark that has another behind it; None: nothing.

    As long as nothing ends the steady time in which the newest one lies, the order that is to come makes others behind
    it. Behind an older one stands the next. `marks`: when they are, newest first.
    """
    times = facts.times
    for number, since in enumerate(marks):
        time = time_at(times, since)
        if time is not None and (number or time.until_us == NEVER):
            alone = alone_at(facts, since, times)
            if alone is not None:
                return alone
    return None
