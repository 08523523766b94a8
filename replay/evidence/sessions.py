"""Rebuild fetch sessions (KIP-227): complete what an incremental fetch leaves out.

An incremental request lists only the partitions that changed since the last one, and the answer only those with
records, a new HW or log start, or an error. But a fetch covers *every* partition cached in its session. Each listed row
is therefore completed from the session's cache, and the fetches that list a partition on neither side are run-length
encoded into one row between two listings. Input: the fetch facts of one broker. Rows keep the columns of their facts;
added are `hw_implied` (the HW is the one last sent: the partition is in the request and not in the answer) and the run
columns. A session with a gap in its epochs is dirty: its cache is not used for a partition until that is listed again.

Output is taken from the facts column by column: a row is the places of the facts that it is made of (`Rebuilt`).
"""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import numbers
from replay.engine.stamps import timed_out
from schemas.facts import FACTS
from schemas.model import BOOL, INT64, TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replay.arrays.ints import Flags, Ints

RUN_COLUMNS = (
    pa.field("hw_implied", BOOL),
    pa.field("run_count", INT64),
    pa.field("run_until", TIMESTAMP),
    pa.field("run_gap_us", INT64),
    pa.field("run_timeouts", INT64),
    pa.field("request_bytes", INT64),
    pa.field("request_forced", BOOL),
)
LEFT_OUT = "left_out"  # kind of a row for requests of a session that leave out one of its partitions
SESSION_SCHEMA = pa.schema([*(f.with_nullable(nullable=True) for f in FACTS.arrow_schema), *RUN_COLUMNS])
CACHED = ("fetch_offset", "current_leader_epoch", "last_fetched_epoch", "follower_log_start_offset")

LINE_FIELDS = (
    "ts",
    "ts_error_us",
    "connection",
    "correlation_id",
    "source_line",
    "source_file",
    "fact_id",
    "total_us",
    "queue_us",
    "local_us",
    "remote_us",
    "throttle_us",
    "response_queue_us",
    "send_us",
    "request_bytes",
    "request_forced",
)  # what a run takes from its first line
NOTHING = -1  # no fact has it
ROWS_AT_ONCE = 50_000


class Cached(NamedTuple):
    """What a session remembers of a partition, as places of facts, and which line listed it last."""

    row: int
    asked: int  # the fact whose request fields are in force (`CACHED`)
    hw: int  # the fact with the HW last sent; NOTHING: an error was sent
    listed_at: int


class Rebuilt(NamedTuple):
    """The output rows: places of the facts that each is made of, and for a run its lines."""

    row: array[int]
    line: array[int]
    asked: array[int]
    hw: array[int]
    implied: array[int]
    left_out: array[int]
    first: array[int]  # first and last line of a run; NOTHING: a listed row
    last: array[int]

    def listed(self, row: int, asked: int, hw: int, *, implied: bool) -> None:
        """Add a listed row, which is no run."""
        for column, value in zip(self, (row, row, asked, hw, implied, False, NOTHING, NOTHING), strict=True):
            column.append(value)


class SessionLines:
    """The requests among one broker's fetch facts: by session and epoch; sessionless ones by time."""

    def __init__(self, facts: pa.Table) -> None:
        """`facts`: by fact id, in one chunk."""
        self.facts = facts
        epoch = self.numbers("session_epoch")
        opened = np.where(self.known("session_epoch") & (epoch == 0), self.numbers("response_session_id"), 0)
        session = np.where(epoch > 0, self.numbers("session_id"), opened)  # 0: none
        connection, number = self.ranks("connection"), self.numbers("correlation_id")
        by_line = np.lexsort((number, connection, epoch, session))
        keys = np.stack([session, epoch, connection, number])[:, by_line]
        changes = np.any(keys[:, 1:] != keys[:, :-1], axis=0)
        begin = np.flatnonzero(np.append(len(by_line) > 0, changes))
        session, epoch, connection, number = keys[:, begin]
        stamp = self.numbers("ts")[by_line[begin]]
        order = np.lexsort((number, connection, epoch, stamp, np.where(session == 0, 0, epoch), session))
        size = np.diff(np.append(begin, len(by_line)))[order]
        self.end: Ints = np.cumsum(size)
        self.begin: Ints = self.end - size
        self.rows: Ints = by_line[np.repeat(begin[order] - self.begin, size) + np.arange(len(by_line))]  # in order
        self.head: Ints = self.rows[self.begin]  # the first fact of each line
        self.session, self.epoch = session[order], epoch[order]
        self.taken: Ints = (self.numbers("ts") - self.numbers("total_us") + self.numbers("queue_us"))[self.head]

    def column(self, name: str) -> pa.Array:
        """A column of the facts; null throughout if they lack it."""
        place = self.facts.schema.get_field_index(name)
        if place < 0:
            return pa.nulls(len(self.facts), SESSION_SCHEMA.field(name).type)
        return self.facts.column(place).combine_chunks()

    def numbers(self, name: str, missing: int = 0) -> Ints:
        """A column of numbers, flags or times, as integers."""
        return numbers(self.column(name), missing)

    def known(self, name: str) -> Flags:
        """Where a column is not null."""
        return np.asarray(self.column(name).is_valid().to_numpy(zero_copy_only=False), np.bool_)

    def ranks(self, *names: str) -> Ints:
        """Texts as ranks in sorted order, from the first column with a non-empty value; "" if there is none."""
        texts = [pc.if_else(pc.equal(column, ""), None, column) for column in map(self.column, names)]
        encoded = pc.fill_null(pc.coalesce(*texts), "").dictionary_encode()
        place = np.empty(len(encoded.dictionary), np.int64)
        place[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(place))
        found: Ints = place[encoded.indices.to_numpy(zero_copy_only=False)]
        return found

    def partitions(self) -> Ints:
        """The partition of each fact, as a number; NOTHING if it has none.

        Requests name it by topic id from Fetch v13 on, by name before.
        """
        partition = self.numbers("partition", NOTHING)
        return np.where(partition < 0, NOTHING, self.ranks("topic_id", "topic") * (1 << 32) + partition)

    def note_request(self) -> tuple[Ints, Flags]:
        """For each fact, the bytes in its whole answer, and whether a partition completes the fetch in any case."""
        if not len(self.head):
            return self.head, self.head.astype(bool)
        size = self.end - self.begin
        handed, forced = np.empty(len(self.rows), np.int64), np.empty(len(self.rows), np.bool_)
        handed[self.rows] = np.repeat(np.add.reduceat(self.numbers("bytes")[self.rows], self.begin), size)
        forced[self.rows] = np.repeat(np.logical_or.reduceat(self.forces()[self.rows], self.begin), size)
        return handed, forced

    def forces(self) -> Flags:
        """Whether each fact's partition completes the fetch regardless of bytes (DelayedFetch.tryComplete)."""
        beyond = self.known("fetch_offset") & self.known("hw") & (self.numbers("fetch_offset") > self.numbers("hw"))
        sent_elsewhere = self.numbers("preferred_read_replica", NOTHING) >= 0  # broker 0 is one, -1 is none (KIP-392)
        by_consumer = self.numbers("replica_id", NOTHING) < 0
        failed = (self.numbers("error_code") != 0) | self.known("diverging_epoch")
        found: Flags = failed | sent_elsewhere | (beyond & by_consumer)
        return found


def rebuild_sessions(facts: pa.Table, rows: int = ROWS_AT_ONCE) -> Iterator[pa.Table]:
    """Completed fetch facts of one broker, and run-length rows of the fetches that did not list a partition.

    They are yielded in tables of at most `rows` rows, because together they take more memory than the facts.
    """
    facts = facts.sort_by("fact_id")  # the caller's table is released, if it has let go of it
    facts = facts.combine_chunks()
    lines = SessionLines(facts)
    out = Rebuilt(*(array("q") for _ in Rebuilt._fields))
    changes = np.flatnonzero(np.diff(lines.session)) + 1
    session = Session(lines, out)
    for first, last in pairwise([0, *changes.tolist(), len(lines.session)] if len(facts) else []):
        session.rebuild(first, last)
    return rows_of(lines, out, rows)


class Session:
    """Walk sessions one at a time and collect the output rows."""

    def __init__(self, lines: SessionLines, out: Rebuilt) -> None:
        """`out` is filled."""
        self.out = out
        self.session, self.epoch = lines.session.tolist(), lines.epoch.tolist()
        self.begin, self.end, self.rows, self.partition = (
            array("q", one.tobytes()) for one in (lines.begin, lines.end, lines.rows, lines.partitions())
        )
        self.failed, self.in_request, self.in_response, self.forgotten = (
            (lines.numbers(name) != 0).tolist() for name in ("error_code", "in_request", "in_response", "forgotten")
        )
        self.diverged = lines.known("diverging_epoch").tolist()

    def rebuild(self, first: int, last: int) -> None:
        """Rebuild one session from its lines `first` up to, but not including, `last`."""
        if not self.session[first]:
            for row in self.rows[self.begin[first] : self.end[last - 1]]:
                if self.partition[row] != NOTHING:
                    self.out.listed(row, row, row, implied=False)
            return
        cache: dict[int, Cached] = {}
        left: dict[int, Cached] = {}
        epoch_before = None
        for index in range(first, last):
            epoch = self.epoch[index]
            if epoch_before is not None and epoch not in (epoch_before + 1, 0):
                left.clear()
                cache.clear()  # a line is missing: a partition is unknown until it is listed again
            epoch_before = epoch
            for row in self.rows[self.begin[index] : self.end[index]]:
                key = self.partition[row]
                if key == NOTHING:
                    continue
                held = cache.get(key)
                if held is not None:
                    self.run_between(held, index)
                if key in left:
                    self.run_between(left.pop(key), index, left_out=True)
                if self.forgotten[row]:
                    cache.pop(key, None)
                    self.out.listed(row, row, NOTHING, implied=False)
                    if held is not None and not self.diverged[held.row]:
                        left[key] = held._replace(listed_at=index - 1)
                    continue
                self.complete(row, index, cache)
        for held in cache.values():
            self.run_between(held, last)
        for held in left.values():
            self.run_between(held, last, left_out=True)

    def complete(self, row: int, index: int, cache: dict[int, Cached]) -> None:
        """Complete a listed row from the cache and update the cache; skip it if the cache does not know the offset."""
        held = cache.get(self.partition[row])
        asked = row
        if not self.in_request[row]:
            if held is None:
                return
            asked = held.asked
        implied = self.in_request[row] and not self.in_response[row]
        hw = (held.hw if held is not None else NOTHING) if implied else row
        if self.failed[row]:
            hw = NOTHING
        cache[self.partition[row]] = Cached(row, asked, hw, index)
        self.out.listed(row, asked, hw, implied=implied)

    def run_between(self, held: Cached, index: int, *, left_out: bool = False) -> None:
        """Add the fetches after the last listing and before line `index` as one row, if there are any."""
        first, last = held.listed_at + 1, index - 1
        if last < first or self.failed[held.row]:
            return
        line = self.rows[self.begin[first]]
        values = (held.row, line, held.asked, held.hw, True, left_out, first, last)
        for column, value in zip(self.out, values, strict=True):
            column.append(value)


def rows_of(lines: SessionLines, out: Rebuilt, rows: int) -> Iterator[pa.Table]:
    """The output rows, at most `rows` per table."""
    handed, forced = lines.note_request()
    first = np.array(out.first, np.int64)
    runs = first != NOTHING
    nth = np.where(runs, np.cumsum(runs) - 1, NOTHING)
    told = run_columns(lines, first[runs], np.array(out.last, np.int64)[runs], handed)
    for begin in range(0, max(len(first), 1), rows):
        some = slice(begin, begin + rows)
        yield columns_of(lines, Rebuilt(*(column[some] for column in out)), nth[some], told, handed, forced)


def columns_of(
    lines: SessionLines, some: Rebuilt, nth: Ints, told: dict[str, pa.Array], handed: Ints, forced: Flags
) -> pa.Table:
    """Some output rows, column by column; `nth`: each row's index among all runs, into the columns in `told`."""
    row, line, asked, hw, implied, left_out, _, _ = (np.array(column, np.int64) for column in some)
    runs = nth != NOTHING
    of_runs = {name: column.take(pa.array(nth, mask=~runs)) for name, column in told.items()}
    noted = {
        "hw": lines.column("hw").take(pa.array(hw, mask=hw == NOTHING)),
        "hw_implied": pa.array(implied != 0),
        "request_bytes": pa.array(handed[line]),
        "request_forced": pa.array(forced[line]),
    }
    columns = []
    for field in SESSION_SCHEMA:
        name = field.name
        if name in noted or name in RUN_ONLY:
            column = noted[name] if name in noted else of_runs[name]
        else:
            column = lines.column(name).take(
                pa.array(asked if name in CACHED else line if name in LINE_FIELDS else row)
            )
        if name in REPLACED:
            column = pc.if_else(pa.array(runs), pa.scalar(REPLACED[name], field.type), column)
        elif name == "remote_us":
            column = pc.if_else(pa.array(runs), of_runs[name], column)
        elif name == "kind":
            column = pc.if_else(pa.array(left_out != 0), LEFT_OUT, column)
        columns.append(column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=SESSION_SCHEMA)


RUN_ONLY = ("run_count", "run_until", "run_gap_us", "run_timeouts")
REPLACED = {  # values of an unlisted fetch that replace those of the listed one
    "in_request": False,
    "in_response": False,
    "bytes": 0,
    "diverging_epoch": None,
    "diverging_end_offset": None,
}


def run_columns(lines: SessionLines, first: Ints, last: Ints, handed: Ints) -> dict[str, pa.Array]:
    """Per run: number of fetches, end time, the largest gap between two, and how many waited until the timeout.

    Time in purgatory is the mean.
    """
    count = last - first + 1
    local, wait, most = (lines.numbers(name)[lines.head] for name in ("local_us", "remote_us", "max_wait_ms"))
    in_vain = timed_out(local, wait, most * 1000) & (handed[lines.head] == 0)
    waited, timeouts = np.append(0, np.cumsum(wait)), np.append(0, np.cumsum(in_vain))
    return {
        "run_count": pa.array(count),
        "run_until": pa.array(lines.taken[last]).cast(TIMESTAMP),
        "run_gap_us": pa.array(largest_gaps(lines.taken, first, last)),
        "run_timeouts": pa.array(timeouts[last + 1] - timeouts[first]),
        "remote_us": pa.array((waited[last + 1] - waited[first]) // count),
    }


def largest_gaps(taken: Ints, first: Ints, last: Ints) -> Ints:
    """Largest step of `taken` within each stretch of lines; 0 for a single line.

    Partitions that idle together share their stretches, so each distinct stretch is computed once.
    """
    spans, which = np.unique(np.stack([first, last]), axis=1, return_inverse=True)
    steps = np.append(np.diff(taken), 0)
    found = np.maximum.reduceat(steps, spans.T.ravel())[::2] if spans.size else spans[0]
    out: Ints = np.where(spans[0] == spans[1], 0, found)[which.ravel()]
    return out
