"""What an order hands to the next one, so that facts of long ago need not be read again.

Of the facts before some moment the next order needs few: lines that are no requests, requests of partitions that are
ordered as a whole, and of the others those that an order that goes on keeps (`replay.evidence.steady`). These are
carried along, with their sessions rebuilt; of the others, what they add to digests. With what fetch sessions have
cached at that moment (`replay.evidence.session_states`) and the facts since then, the order finds what it finds in all
facts. Where it cannot tell, it asks for all of them (`NeedsAllError`, `EntangledError`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.spark.buckets import spans_of
from pipelines.spark.saved_states import bytes_of, state_of
from pipelines.stages.order_marks import LONG
from replay.arrays.columns import numbers, texts
from replay.arrays.digests import added, row_hashes, sum_of
from replay.arrays.ints import NEVER
from replay.evidence.clock_steps import SET_BACK, STEP_COLUMNS, RisingLines, steadied
from replay.evidence.cluster import WHOLE, ClusterFacts
from replay.evidence.session_states import rebuilt_from, rebuilt_until
from replay.evidence.steady import MARGIN_US, LeftOut, NeedsAllError, extremes, facts_of, hole_of, kept
from replay.evidence.summary import SUMMED, names_in
from replay.evidence.tenures import micros
from schemas.model import TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pipelines.stages.standing_windows import Of, StandingWindows
    from replay.arrays.digests import Hashes
    from replay.arrays.ints import Flags

# Columns of facts from which it is told what the logs cover, and what holds for the cluster but for `WHOLE`, `NAMING`.
NARROW: Final = [*SUMMED, "recording_id", "partition"]
MOST_ROWS: Final = 100_000  # that are carried along, at most


class Carried(NamedTuple):
    """What stands for the facts before a moment."""

    horizon: int  # microseconds: of the facts with an earlier stamp, or none
    rows: pa.Table  # of partitions, with their sessions rebuilt
    sessions: dict[int, pa.Table]  # by broker, of `STATE_SCHEMA`
    left: dict[Of, LeftOut]
    names: dict[str, str]  # of topics, by their ids
    whole: pa.Table  # facts of the cluster,
    named: pa.Table  # and such as name topics

    def cluster(self, narrow: ClusterFacts, facts: pa.Table) -> ClusterFacts:
        """Return what is collected of all facts. `narrow`: from few of their columns; `facts`: those since then."""
        whole = pa.concat_tables([self.whole, WHOLE.of(facts)], promote_options="default")
        named = pa.concat_tables([self.named, names_in(facts)], promote_options="default")
        return narrow._replace(whole=whole, named=named)


def as_bytes(carried: Carried) -> bytes:
    """Return it as a table keeps it."""
    return bytes_of(carried._asdict())


def from_bytes(data: bytes) -> Carried:
    """Return what `as_bytes` was given."""
    return Carried(**state_of(data))


def is_before(facts: pa.Table, us: int) -> pa.ChunkedArray:
    """Return which facts are from before a moment; those without a time are."""
    moment = pa.scalar(us, pa.int64()).cast(TIMESTAMP)
    return pc.coalesce(pc.less(facts["ts"], moment), pa.scalar(True))  # noqa: FBT003 - Arrow's own


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
    named: list[pa.Table] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    is_steady: bool = False  # whether no clock was set back, and no lines are missing
    least: int = LONG  # requests that are left out, for which it is worth while

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

    def begin(self, facts: pa.Table, names: dict[str, str], *, is_whole: bool) -> None:
        """Look at the facts; NeedsAllError if what was handed on does not hold any more, or will not tell all.

        If a clock was set back, lines of before the moment may have been stamped behind it; then nothing is handed on.
        """
        self.names = names
        lines = RisingLines()
        lines.add(facts.select(STEP_COLUMNS).sort_by("ts"))
        self.is_steady = lines.rise and is_whole
        if self.before is not None and not (self.is_steady and names == self.before.names):
            raise NeedsAllError
        early = facts.filter(is_before(facts, self.horizon))
        self.whole = [*([] if self.before is None else [self.before.whole]), WHOLE.of(early)]
        self.named = [*([] if self.before is None else [self.before.named]), names_in(early)]

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

    def note(self, tables: list[pa.Table], standing: StandingWindows) -> None:
        """Keep those of the first part's rows of some partitions that the next order needs."""
        if not tables:
            return
        rows = pa.concat_tables(tables, promote_options="default").combine_chunks()
        place, topics = texts(rows["topic"])
        partition = numbers(rows["partition"])
        order, spans = spans_of(partition * len(topics) + place)
        hashes = row_hashes(rows)[order]
        keeps = np.ones(len(rows), np.bool_)
        for first, stop in spans:
            of = topics[place[order[first]]], int(partition[order[first]])
            before = self.left_before.get(of)
            if standing.places.get(of):
                some = rows.take(order[first:stop])
                boundaries = standing.rows([of])
                marks = marked(boundaries, standing.engine, self.until)
                is_one = pc.max(boundaries["incarnation"]).as_py() == 0
                newest = marks.sort_by("place")["state"].slice(max(len(marks) - 1, 0)).to_pylist() if is_one else []
                needed, left = needed_of(some, hashes[first:stop], next(iter(newest), None), before)
                keeps[order[first:stop]] = needed
            else:
                left = before
            if left is not None:
                self.left[of] = left
        self.rows.append(rows.filter(pa.array(keeps)))

    def carried(self) -> Carried | None:
        """Return what is handed on; None: that would not be worth while."""
        count = sum(map(len, (*self.rows, *self.sessions.values())))
        few = sum(left.facts for left in self.left.values()) < self.least
        if few or not self.rows or count > MOST_ROWS or not self.is_steady:
            return None
        rows, whole, named = (
            pa.concat_tables(some, promote_options="default") for some in (self.rows, self.whole, self.named)
        )
        return Carried(self.horizon, rows, self.sessions, self.left, self.names, whole, named)


def needed_of(
    rows: pa.Table,
    hashes: Hashes,
    mark: bytes | None,
    before: LeftOut | None,
) -> tuple[Flags, LeftOut | None]:
    """Return which rows of a partition the next order needs, and what is left out of them, and was before.

    `mark`: the last that it may go on from.
    """
    every = np.ones(len(rows), np.bool_)
    if mark is None:
        return every, before
    told = state_of(mark)
    steady, since = told["steady"], told["mark"].since
    if before is not None and (steady != before.steady or since < before.since):
        return every, before
    facts, hole = facts_of(rows, hashes), hole_of(steady, since)
    if facts is None or hole is None or SET_BACK in steadied(rows).column_names:
        return every, before
    if facts.settled_us(steady.epoch, steady.leader) != steady.settled_us:
        return every, before
    of_tenure = facts._replace(us=np.where(facts.us < steady.settled_us, NEVER, facts.us))
    needed: Flags = kept(facts, hole) | extremes(of_tenure, since)
    count, sums = int((~needed).sum()), sum_of(hashes[~needed])
    if before is not None:
        count, sums = count + before.facts, added(sums, before.sums)
    return needed, LeftOut(steady, since, count, sums) if count else None
