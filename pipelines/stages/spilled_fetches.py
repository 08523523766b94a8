"""The fetches of some sessions: if they are too many for memory, they wait in a file and are rebuilt part by part.

They come as streams in no particular order. What is beyond memory's share is written to the file as it comes; of each
broker's fetches the times of some are noted, from which the parts are cut, and then, for each session, which epochs it
has in each part. A session may be cut wherever all of its lines before have lower epochs than all behind: there it goes
on from its state (`replay.evidence.session_states`), and the rows are those of all lines together. Where that does not
hold, two parts become one.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.spark.buckets import divided
from pipelines.spark.packed import rows_of_buffer
from pipelines.stages.fact_file import FactFile
from pipelines.stages.spilled_facts import joined_rows, released
from replay.arrays.columns import differing, numbers, numbers_of
from replay.arrays.ints import NEVER
from replay.evidence.session_lines import NUMBERED, numbered
from replay.evidence.session_states import rebuilt_from, rebuilt_until
from replay.evidence.sessions import rebuild_sessions, sessions_rebuilt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replay.arrays.ints import Flags, Ints

HELD_BYTES: Final = 4 << 20  # of streams in memory at most, which are compressed; about 50,000 fetches
PART_ROWS: Final = 25_000  # that are rebuilt at once, about
NOTED: Final = 500  # of so many fetches the time of one is noted
WIDE: Final = 4  # a stream with fetches of more parts is divided among them
STATES: Final = 2  # times as many fetches as there are states to go on from are rebuilt at once, at least
FAR: Final = 1 << 32  # greater than any epoch
LINE: Final = ("ts", *NUMBERED)


class Stream(NamedTuple):
    """Fetches that stand in the file, and the parts that they are in."""

    at: int
    size: int
    first: int = 0
    last: int = 0


class SpilledFetches:
    """The fetches of some sessions, of any brokers."""

    def __init__(self) -> None:
        """There are none yet."""
        self.held: list[pa.Buffer] = []
        self.held_bytes = 0
        self.brokers: dict[int, Fetches] = {}
        self.states: dict[int, pa.Table] = {}  # by broker: what their sessions go on from

    def go_on_from(self, states: pa.Table) -> None:
        """Take what some sessions have cached before all fetches (`replay.evidence.session_states`)."""
        for broker, mine in divided(numbers(states["broker_id"]), states):
            self.states[broker] = mine.combine_chunks()

    def add(self, stream: pa.Scalar) -> None:
        """Take some fetches; the batch that they came in is let go of."""
        self.held.append(pa.py_buffer(stream.as_buffer().to_pybytes()))
        self.held_bytes += self.held[-1].size
        if self.held_bytes > HELD_BYTES:
            self.write()

    def write(self) -> None:
        """Write what is in memory to the file."""
        while self.held:
            stream = self.held.pop()
            told = rows_of_buffer(stream, ("broker_id", "ts"))
            broker, stamps = numbers(told["broker_id"]), stamps_of(told)
            if broker.min() == broker.max():
                self.of(int(broker[0])).note(self.file.append_stream(stream), stamps)
                continue
            for one, mine in divided(broker, rows_of_buffer(stream)):
                self.of(one).note(self.file.append(mine), stamps_of(mine))
        self.held_bytes = 0

    @cached_property
    def file(self) -> FactFile:
        """The file, which most have no need of."""
        return FactFile()

    def of(self, broker: int) -> Fetches:
        """Return those of a broker that stand in the file."""
        return self.brokers.setdefault(broker, Fetches(self.file))

    def rebuilt(self) -> Iterator[pa.Table]:
        """Yield all fetches with their sessions rebuilt, some at a time. EntangledError: some precede their states."""
        if self.brokers:
            self.write()
            for one in sorted(self.brokers):
                yield from self.brokers.pop(one).rebuilt(self.states.pop(one, None))
        elif self.held:
            given = [joined_rows([*map(rows_of_buffer, released(self.held))])]
            for one, mine in divided(numbers(given[0]["broker_id"]), given.pop()):
                given.append(mine)
                del mine
                states = self.states.pop(one, None)
                if states is None:
                    yield from rebuild_sessions(given.pop())
                else:
                    yield from rebuilt_from(by_id(given.pop()), states)
        for one in sorted(self.states):
            states = self.states.pop(one)
            yield from rebuilt_from(states[:0], states)


class Fetches:
    """Those of one broker that stand in a file."""

    def __init__(self, file: FactFile) -> None:
        """There are none yet."""
        self.file = file
        self.streams: list[Stream] = []
        self.count = 0
        self.noted: list[Ints] = []  # times of some

    def note(self, place: tuple[int, int], stamps: Ints) -> None:
        """Note where some stand, and of some their times."""
        self.streams.append(Stream(*place))
        self.noted.append(stamps[-self.count % NOTED :: NOTED].copy())
        self.count += len(stamps)

    def rebuilt(self, states: pa.Table | None = None) -> Iterator[pa.Table]:
        """Yield them with their sessions rebuilt, part by part. `states`: what the sessions go on from."""
        moments = np.sort(np.concatenate(self.noted))
        ends = np.unique(moments[PART_ROWS // NOTED :: PART_ROWS // NOTED])
        counts, lines = self.divide(ends)
        first = 0
        for last in range(len(counts)):
            is_end = last == len(ends)
            least = 1 if states is None else max(1, STATES * len(states))
            few = int(counts[first : last + 1].sum()) < least
            if not is_end and (lines.entangled[last] or few):
                continue
            facts = by_id(self.read(first, last, ends))
            first = last + 1
            if is_end:
                yield from sessions_rebuilt(facts) if states is None else rebuilt_from(facts, states)
                return
            final, states = rebuilt_until(facts, states)
            yield from final
            del final
            over = lines.are_over(numbers(states["state_session"]), last)
            if over.any():  # of these nothing comes any more
                yield from rebuilt_from(facts[:0], states.filter(pa.array(over)))
                states = states.filter(pa.array(~over)).combine_chunks()

    def divide(self, ends: Ints) -> tuple[Ints, Lines]:
        """Find the parts that each stream is in; return how many fetches are in each part, and in which epochs."""
        counts = np.zeros(len(ends) + 1, np.int64)
        found = []
        placed: list[Stream] = []
        for one in self.streams:
            told = rows_of_buffer(self.file.buffer(one.at, one.size), LINE)
            part = np.searchsorted(ends, stamps_of(told), side="right")
            counts += np.bincount(part, minlength=len(counts))
            found.append(epochs_in(*numbered(told), part))
            if part.max() - part.min() < WIDE:
                placed.append(one._replace(first=int(part.min()), last=int(part.max())))
                continue
            rows = self.file.read(one.at, one.size)
            placed += [Stream(*self.file.append(mine), k, k) for k, mine in divided(part, rows)]
        self.streams = placed
        return counts, Lines(np.concatenate(found, axis=1), len(ends))

    def read(self, first: int, last: int, ends: Ints) -> pa.Table:
        """Return the fetches of some parts."""
        found = []
        for one in self.streams:
            if one.first > last or one.last < first:
                continue
            rows = self.file.read(one.at, one.size)
            if one.first < first or one.last > last:
                part = np.searchsorted(ends, stamps_of(rows), side="right")
                rows = rows.filter(pa.array((first <= part) & (part <= last)))
            found.append(rows)
        return joined_rows(found)


class Lines:
    """In which epochs of each session there are lines in each part."""

    def __init__(self, found: Ints, cuts: int) -> None:
        """`found`: of `epochs_in`, a session and part may be there several times; `cuts`: between the parts."""
        self.session, part, least, most = joined_epochs(found)
        is_next = np.diff(self.session) == 0
        self.last = np.append(part[:-1][~is_next], part[-1:])  # of each session, which are
        self.session = np.append(self.session[:-1][~is_next], self.session[-1:])  # in their order
        # Of each session's parts: the greatest epoch so far, and the least that is still to come.
        nth = np.cumsum(np.append(0, ~is_next))[: len(part)] * FAR
        before = np.maximum.accumulate(most + nth)
        behind = np.minimum.accumulate((least + nth)[::-1])[::-1]
        bad = np.flatnonzero(is_next & (before[:-1] >= behind[1:]))
        steps = np.zeros(cuts + 1, np.int64)
        np.add.at(steps, part[bad], 1)
        np.add.at(steps, part[bad + 1], -1)
        self.entangled: Flags = np.cumsum(steps) > 0  # behind which parts no session can be cut

    def are_over(self, sessions: Ints, last: int) -> Flags:
        """Return of which sessions no lines are behind a part."""
        if not len(self.session):
            return np.ones(len(sessions), np.bool_)
        place = np.minimum(np.searchsorted(self.session, sessions), len(self.session) - 1)
        found: Flags = (self.session[place] != sessions) | (self.last[place] <= last)
        return found


def by_id(fetches: pa.Table) -> pa.Table:
    """Return fetches by their ids, in one chunk."""
    return fetches.sort_by("fact_id").combine_chunks()


def stamps_of(fetches: pa.Table) -> Ints:
    """Return their times; those without one are before all others."""
    return numbers_of(fetches, "ts", -NEVER)


def epochs_in(session: Ints, epoch: Ints, part: Ints) -> Ints:
    """Return rows of a session, a part, and the least and the greatest epoch there."""
    some = session != 0
    return joined_epochs(np.stack([session[some], part[some], epoch[some], epoch[some]]))


def joined_epochs(rows: Ints) -> Ints:
    """Return such rows by session and part, each of which is there once."""
    session, part, least, most = rows[:, np.lexsort((rows[1], rows[0]))]
    begins = np.flatnonzero(differing(session, part)) if len(session) else np.zeros(0, np.int64)
    if not len(begins):
        return rows
    found = np.minimum.reduceat(least, begins), np.maximum.reduceat(most, begins)
    return np.stack([session[begins], part[begins], *found])
