"""The facts of a partition that are too many for memory: they wait in a file, in pieces of a short time.

What has to be known of all of them is summed up as they are written, and while the pieces are read one after the other.
A piece is read for a stretch of time if any of its requests came in that time. Of other pieces, what an order needs in
any case is kept: the lines that are no requests, and the first request on each connection.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from heapq import heapify, heappop
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.spark.buckets import by_partition, divided
from pipelines.stages.fact_file import FactFile
from replay.arrays.columns import numbers_of, texts
from replay.arrays.digests import added, row_hashes, sum_of
from replay.arrays.ints import NEVER
from replay.arrays.memory import give_back
from replay.evidence.clock_steps import SET_BACK, STEP_COLUMNS, RisingLines, steadied
from replay.evidence.steady import (
    ADDITION,
    FACT_COLUMNS,
    MARKER,
    Facts,
    Sums,
    extremes,
    facts_of,
    first_on_connections,
    kept,
    lasts_of,
    open_spans,
)
from replay.evidence.steady_times import MARGIN_US, Series, SteadyTime, steady_times
from replay.protocol.state import NONE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replay.arrays.digests import Hashes
    from replay.arrays.ints import Flags, Ints
    from replay.evidence.steady_times import Hole

HELD: Final = 50_000  # facts of a bucket in memory at most, if those of one partition are more; others wait in a file
PIECE_ROWS: Final = 12_000  # of a piece at most
PEAKS: Final = 64  # tables of few rows, at most, before they become one
GIVEN_BACK: Final = 4  # after so many times that a bucket has written, memory goes back to the system
HASH: Final = "row_hash"  # column: the digest that a row's other columns make
SLIM: Final = (*FACT_COLUMNS, HASH)
Of = tuple[str, int]  # topic and partition


class Span(NamedTuple):
    """The least and the greatest of some numbers."""

    least: int = NEVER
    most: int = -NEVER

    @classmethod
    def of(cls, least: Any, most: Any = None) -> Span:  # noqa: ANN401 - mypy does not know numpy's shapes
        """Return that of arrays: of the least numbers, and of the greatest, if they are others."""
        return cls(int(least.min(initial=NEVER)), int((least if most is None else most).max(initial=-NEVER)))


class Piece(NamedTuple):
    """Facts that stand in the file."""

    at: int
    size: int
    rows: int
    stamps: Span  # of its lines
    times: Span  # when its facts came
    requests: Span  # when the first request came, and until when the last one took
    sums: tuple[int, int]  # of the digests of facts that are no decisions
    lines: pa.Table | None  # what is no request, if there is any
    lasts: dict[tuple[int, int], int]  # when the last came of each follower and producer, see `steady.lasts_of`


class Peaks:
    """The requests with the greatest offsets of each piece, as far as `facts_of` reads them; of all pieces together."""

    def __init__(self) -> None:
        """There are none yet."""
        self.tables: list[pa.Table] = []
        self.pieces: list[int] = []  # of each row the number of its piece

    def add(self, number: int, rows: pa.Table) -> None:
        """Take those of a piece. A table for each would be 30 kB, for two rows."""
        self.tables.append(rows)
        self.pieces += [number] * len(rows)
        if len(self.tables) > PEAKS:
            self.join()

    def join(self) -> None:
        """Let all be in one table."""
        if len(self.tables) > 1:
            self.tables.append(joined_rows(self.tables).combine_chunks())

    def of(self, pieces: Sequence[int]) -> pa.Table | None:
        """Return those of some pieces, if there are any."""
        if not self.tables:
            return None
        self.join()
        return copied(self.tables[0], np.isin(self.pieces, pieces))


class SpilledFacts:
    """The facts of one partition: some of them are in memory, the others in a file."""

    def __init__(self, file: FactFile) -> None:
        """There are none yet."""
        self.file = file
        self.waiting: list[pa.Table] = []  # in memory
        self.in_memory = self.count = 0
        self.digest = (0, 0)  # of all of them
        self.last_us = self.last_record = NONE  # the last line, and the last record of the metadata log
        self.pieces: list[Piece] = []
        self.peaks = Peaks()
        self.is_barred = False  # whether there are facts that bar an order from going on
        self.series: list[Series] = []  # of all pieces
        self.said: list[tuple[Ints, Ints, Flags]] = []  # of transactions, see `steady.open_spans`
        # The first fact on each connection: when it came, the number of its piece, and its row there.
        self.firsts: dict[tuple[int, str], tuple[int, int, int]] = {}
        self.opening_rows: defaultdict[int, list[int]] = defaultdict(list)  # by number of piece, see `find_openings`
        self.openings: dict[int, pa.Table] = {}  # by number of piece: these facts, if they are requests

    def add(self, rows: pa.Table) -> None:
        """Take some facts, with their digests."""
        self.waiting.append(rows)
        self.in_memory += len(rows)
        self.count += len(rows)
        self.digest = added(self.digest, sum_of(digests_of(rows)))
        self.last_us = max(self.last_us, int(numbers_of(rows, "ts", NONE).max()))
        self.last_record = max(self.last_record, int(numbers_of(rows, "metadata_offset", NONE).max()))

    def write(self) -> None:
        """Write what is in memory to the file."""
        rows = joined_rows(self.waiting).combine_chunks()
        self.in_memory = 0
        order = np.argsort(numbers_of(rows, "ts", -NEVER), kind="stable")
        for first in range(0, len(rows), PIECE_ROWS):
            self.write_piece(rows.take(order[first : first + PIECE_ROWS]).combine_chunks())

    def write_piece(self, rows: pa.Table) -> None:
        """Write a piece, sorted by stamp, and note what has to be known of it."""
        stamps = Span.of(numbers_of(rows, "ts", -NEVER))
        place = *self.file.append(rows), len(rows), stamps
        facts = facts_of(rows, digests_of(rows))
        if facts is None:
            self.is_barred = True
            self.pieces.append(Piece(*place, Span(), Span(), (0, 0), None, {}))
            return
        self.note(rows, facts)
        self.series += facts.series()
        of_transactions = facts.only((facts.are(MARKER) | facts.are(ADDITION)) & (facts.who != NONE))
        self.said.append((of_transactions.who, of_transactions.us, of_transactions.are(MARKER)))
        is_request, greatest = facts.kind != NONE, extremes(facts, NEVER)
        if greatest.any():
            self.peaks.add(len(self.pieces), slim(rows).filter(pa.array(greatest)))
        self.pieces.append(
            Piece(
                *place,
                Span.of(facts.us),
                Span.of(facts.us[is_request], facts.until[is_request]),
                sum_of(facts.hashes[~facts.decided]),
                copied(rows, ~is_request),
                lasts_of(facts),
            )
        )

    def note(self, rows: pa.Table, facts: Facts) -> None:
        """Note the first fact on each connection."""
        held = "connection" in rows.column_names
        place, names = texts(rows["connection"]) if held else (np.zeros(len(rows), np.int64), [""])
        for row in np.flatnonzero(first_on_connections(facts)).tolist():
            key = int(facts.broker[row]), names[place[row]]
            first = int(facts.us[row]), len(self.pieces), row
            self.firsts[key] = min(self.firsts.get(key, first), first)

    def is_spilled(self) -> bool:
        """Whether facts had to be written to the file; if so, all of them are there from now on."""
        if self.pieces and self.waiting:
            self.write()
        return bool(self.pieces)

    def whole(self) -> pa.Table:
        """Return all facts, with their digests; what was in memory is let go of."""
        self.waiting[:0] = [self.file.read(one.at, one.size) for one in self.pieces]
        return joined_rows(self.waiting)

    @cached_property
    def times(self) -> list[SteadyTime]:
        """When the partition was steady; all facts are in the file, and none bars an order from going on."""
        return steady_times(self.series)

    @cached_property
    def transactions(self) -> tuple[Ints, Ints]:
        """When transactions began, and when they ended; all facts are in the file."""
        who, us, ends = (np.concatenate(columns) for columns in zip(*self.said, strict=True))
        return open_spans(who, us, ends)

    @cached_property
    def were_clocks_steady(self) -> bool:
        """Whether no clock was set back while a broker ran; all facts are in the file."""
        lines = RisingLines()
        for rows in self.by_stamp():
            lines.add(rows)
        if lines.rise:
            return True
        told = joined_rows([with_codes(self.file.read(one.at, one.size, STEP_COLUMNS)) for one in self.pieces])
        return SET_BACK not in steadied(told.unify_dictionaries()).column_names

    def by_stamp(self) -> Iterator[pa.Table]:
        """Yield all lines, as far as they show a clock's step, by their stamps."""
        told = ((piece.stamps, number) for number, piece in enumerate(self.pieces))
        later = [(stamps.least, number) for stamps, number in told if stamps.most > -NEVER]
        heapify(later)
        held: pa.Table | None = None
        while later:
            piece = self.pieces[heappop(later)[1]]
            mine = self.file.read(piece.at, piece.size, STEP_COLUMNS)
            held = (mine if held is None else joined_rows([held, mine])).sort_by("ts")
            stamps = numbers_of(held, "ts", -NEVER)
            ready = int(np.searchsorted(np.where(stamps == -NEVER, NEVER, stamps), later[0][0])) if later else len(held)
            yield held.slice(0, ready)
            held = held.slice(ready).combine_chunks()

    def later_than(self, us: int) -> int:
        """Return how many facts came later."""
        count = 0
        for piece in self.pieces:
            if piece.times.least > us:
                count += piece.rows
            elif piece.times.most > us:
                count += int((self.slim_facts(piece).us > us).sum())
        return count

    def last(self) -> int:
        """Return when the last fact came."""
        return max(piece.times.most for piece in self.pieces)

    def sums(self, us: int) -> Sums:
        """Return the digest of the facts before a moment, as `Facts.sums`."""
        found = (0, 0)
        for piece in self.pieces:
            if piece.times.most < us:
                found = added(found, piece.sums)
            elif piece.times.least < us:
                found = added(found, self.slim_facts(piece).sums(us).facts)
        return Sums(us, found)

    def slim_facts(self, piece: Piece) -> Facts:
        """Return a piece's facts as columns."""
        return known(self.file.read(piece.at, piece.size, SLIM))

    def find_openings(self) -> None:
        """Keep the first request on each connection in memory; all facts have to be in the file."""
        if self.opening_rows:
            return
        for _, number, row in self.firsts.values():
            self.opening_rows[number].append(row)
        for number, rows in self.opening_rows.items():
            piece = self.pieces[number]
            found = self.file.read(piece.at, piece.size).take(pa.array(sorted(rows)))
            requests = copied(found, known(found).kind != NONE)
            if requests is not None:
                self.openings[number] = requests

    def until(self, end: int, holes: Sequence[Hole] = ()) -> pa.Table:
        """Return the facts that came before a moment, without requests in holes, as `steady.kept` says it.

        Of the last of a follower or a producer in each hole there may be some more.
        """
        return joined_rows([*self.some(end, holes)]).drop_columns(HASH)

    def facts_until(self, end: int, holes: Sequence[Hole], since: int) -> Facts:
        """Return the same as columns, together with requests of the greatest offsets before another moment."""
        return known(joined_rows([slim(rows) for rows in self.some(end, holes, since)]))

    def near(self, since: int, holes: Sequence[Hole]) -> Facts:
        """Return the same of those that came up to shortly behind `since`."""
        return self.facts_until(since + MARGIN_US, holes, since)

    def some(self, end: int, holes: Sequence[Hole], since: int | None = None) -> Iterator[pa.Table]:
        """Yield the facts of `until` piece by piece, or those of `facts_until`, if `since` is given."""
        left_out = []
        skipped = self.pieces_in(holes)
        for number, piece in enumerate(self.pieces):
            if piece.requests.least >= end or number in skipped:
                left_out.append(number)
                for rows in (piece.lines, self.openings.get(number)):
                    if rows is not None and piece.times.least < end:
                        yield rows if piece.times.most < end else rows.filter(pa.array(known(rows).us < end))
                continue
            rows = self.file.read(piece.at, piece.size, None if since is None else SLIM)
            facts = known(rows)
            opens = np.zeros(len(rows), np.bool_)
            opens[self.opening_rows.get(number, [])] = True
            which = (facts.us < end) & kept(facts, holes, opens)
            if since is not None:
                which |= extremes(facts, since)
            yield rows.filter(pa.array(which))
        peaks = None if since is None else self.peaks.of(left_out)
        if peaks is not None:
            yield peaks.filter(pa.array(known(peaks).us < end))

    def pieces_in(self, holes: Sequence[Hole]) -> set[int]:
        """Return the numbers of the pieces that need not be read: all of their requests lie in a hole.

        Those with the last in it of a follower or a producer have to be.
        """
        found: set[int] = set()
        for hole in holes:
            lasts: dict[tuple[int, int], tuple[int, int]] = {}
            for number, piece in enumerate(self.pieces):
                if piece.requests.least > hole.begin and piece.requests.most < hole.end:
                    found.add(number)
                    for whose, us in piece.lasts.items():
                        lasts[whose] = max(lasts.get(whose, (us, number)), (us, number))
            found -= {number for _, number in lasts.values()}
        return found


class Bucket:
    """The facts of some partitions, apart; of those that are too many for memory, most wait in a file."""

    def __init__(self) -> None:
        """There are none yet."""
        self.parts: dict[Of, SpilledFacts] = {}
        self.in_memory = 0
        self.file = FactFile()
        self.writes = 0

    def add(self, facts: pa.Table) -> None:
        """Take some facts of whatever partitions."""
        number, partition_of = by_partition(facts)
        for one, mine in divided(number, with_digests(facts)):
            rows = mine if len(mine) == len(facts) else mine.take(pa.array(np.arange(len(mine))))
            self.parts.setdefault(partition_of(one), SpilledFacts(self.file)).add(rows)
        self.in_memory += len(facts)
        if self.in_memory > HELD:
            self.write()

    def write(self) -> None:
        """Write facts to the file, of partitions with most of them in memory first, until few are left."""
        for one in sorted(self.parts.values(), key=attrgetter("in_memory"), reverse=True):
            if self.in_memory <= HELD // 2:
                break
            self.in_memory -= one.in_memory
            one.write()
        self.writes += 1
        if self.writes % GIVEN_BACK == 0:  # or the C library would keep 40 MB of each million facts
            give_back()


def joined_rows(tables: list[pa.Table]) -> pa.Table:
    """Return the rows of some tables, with all columns that any of them has; the list is emptied."""
    found = pa.concat_tables(tables, promote_options="default")
    tables.clear()
    return found


def longest_of(tables: list[pa.Table]) -> int:
    """Return how many facts the partition has that has most of them."""
    counts: Counter[Of] = Counter()
    for rows in tables:
        number, partition_of = by_partition(rows)
        for one, count in zip(*(found.tolist() for found in np.unique(number, return_counts=True)), strict=True):
            counts[partition_of(one)] += count
    return max(counts.values(), default=0)


def released(tables: list[pa.Table]) -> Iterator[pa.Table]:
    """Yield some tables, which are taken out of their list."""
    while tables:
        yield tables.pop(0)


def taken_digests(given: list[pa.Table]) -> Hashes:
    """Return the digests of the facts in a list, which are left without them."""
    found = digests_of(given[0])
    given[0] = given[0].drop_columns(HASH)
    return found


def with_digests(rows: pa.Table) -> pa.Table:
    """Return facts with a digest of each."""
    return rows.append_column(HASH, pa.array(row_hashes(rows)))


def digests_of(rows: pa.Table) -> Hashes:
    """Return the digests of facts that have them."""
    found: Hashes = rows[HASH].to_numpy()
    return found


def slim(rows: pa.Table) -> pa.Table:
    """Return the columns of facts that `facts_of` reads, and the digests."""
    return rows.select([name for name in SLIM if name in rows.column_names])


def with_codes(rows: pa.Table) -> pa.Table:
    """Return lines with the names of their files as codes."""
    place = rows.schema.get_field_index("source_file")
    return rows if place < 0 else rows.set_column(place, "source_file", rows["source_file"].dictionary_encode())


def copied(rows: pa.Table, which: Flags) -> pa.Table | None:
    """Return some rows, few of many, if there are any: they hold no memory of the others."""
    return rows.filter(pa.array(which)).combine_chunks() if which.any() else None


def known(rows: pa.Table) -> Facts:
    """Return facts as columns, of which none bars an order from going on."""
    facts = facts_of(rows, digests_of(rows))
    if facts is None:
        msg = "facts that bar an order from going on are no longer looked at"
        raise ValueError(msg)
    return facts
