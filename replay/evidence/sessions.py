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

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.alike import alike
from replay.arrays.ints import NEVER
from replay.engine.stamps import timed_out
from replay.evidence.session_lines import CACHED, LEFT_OUT, LINE_FIELDS, NOTHING, SESSION_SCHEMA, SessionLines
from schemas.model import TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replay.arrays.ints import Flags, Ints

ROWS_AT_ONCE = 50_000


class Rebuilt(NamedTuple):
    """The output rows: places of the facts that each is made of, and for a run its lines."""

    row: Ints
    line: Ints
    asked: Ints  # the fact whose request fields are in force (`CACHED`)
    hw: Ints  # the fact with the HW last sent; NOTHING: an error was sent
    implied: Ints
    left_out: Ints
    first: Ints  # first and last line of a run; NOTHING: a listed row
    last: Ints

    def only(self, which: Ints | Flags | slice) -> Rebuilt:
        """Some of the rows."""
        return Rebuilt(*(column[which] for column in self))


def rebuild_sessions(facts: pa.Table, rows: int = ROWS_AT_ONCE) -> Iterator[pa.Table]:
    """Completed fetch facts of one broker, and run-length rows of the fetches that did not list a partition.

    They are yielded in tables of at most `rows` rows, because together they take more memory than the facts.
    """
    facts = facts.sort_by("fact_id")  # the caller's table is released, if it has let go of it
    return sessions_rebuilt(facts.combine_chunks(), rows)


def sessions_rebuilt(facts: pa.Table, rows: int = ROWS_AT_ONCE) -> Iterator[pa.Table]:
    """Return the same of facts by fact id, in one chunk."""
    lines = SessionLines(facts)
    return rows_of(lines, walked(lines).rows, rows)


class Walked(NamedTuple):
    """The rows that were found, and what the sessions have cached behind their last lines."""

    rows: Rebuilt
    open: Flags  # which rows are runs that a later line may make longer
    cached: Rebuilt  # of these, too, each is a run, unless its first line is behind the last one


class Listings(NamedTuple):
    """The facts in sessions that list a partition: by stretch of a session without a gap, then by partition.

    A partition is cached from the first request for it on until a request forgets it; that is one life of it.
    """

    place: Ints  # among all facts in the order of their lines
    row: Ints
    line: Ints
    since: Ints  # the listing, if there is one before, that puts the partition into the cache in this life; else NEVER
    goes_on: Flags  # whether the listing before is of the same partition and stretch
    forgotten: Flags
    failed: Flags
    diverged: Flags

    def are_held(self) -> Flags:
        """Whether each leaves its partition in the cache."""
        found: Flags = ~self.forgotten & (self.since <= np.arange(len(self.row)))
        return found

    def are_left(self) -> Flags:
        """Whether each takes its partition out of the cache, so that the requests from then on leave it out."""
        found: Flags = self.forgotten & self.goes_on & shifted(self.are_held() & ~self.diverged)
        return found


def shifted(flags: Flags) -> Flags:
    """What holds for the one before; nothing does before the first."""
    return np.append(np.False_, flags)[: len(flags)]


def latest(flags: Flags) -> Ints:
    """For each the last one up to it for which the flag is set; NOTHING if there is none."""
    found: Ints = np.maximum.accumulate(np.where(flags, np.arange(len(flags)), NOTHING))
    return found


def listings_of(lines: SessionLines, stretch: Ints) -> Listings:
    """Sort the facts in sessions by what is cached together; `stretch`: of each line."""
    line, key = lines.of_rows(), lines.partitions[lines.rows]
    place = np.flatnonzero((lines.session[line] != 0) & (key != NOTHING))
    place = place[np.lexsort((key[place], stretch[line[place]]))]  # stable
    row, line, key = lines.rows[place], line[place], key[place]
    forgotten, asks, failed = (lines.numbers(name)[row] != 0 for name in ("forgotten", "in_request", "error_code"))
    if lines.stand.any():
        forgotten |= lines.stand[row] & (lines.numbers("state_left")[row] != 0)
    goes_on = np.diff(key, prepend=NOTHING) == 0
    goes_on &= np.diff(stretch[line], prepend=NOTHING) == 0
    life = np.cumsum(~goes_on | shifted(forgotten)) - 1
    since = np.full(len(row), NEVER)
    puts = np.flatnonzero(asks & ~forgotten)
    np.minimum.at(since, life[puts], puts)
    return Listings(place, row, line, since[life], goes_on, forgotten, failed, lines.known("diverging_epoch")[row])


def walked(lines: SessionLines) -> Walked:
    """Complete each listed row from its session's cache, and find the fetches that came between two listings.

    A row is skipped if the cache does not know the offset. The cache is empty behind a gap: where a line is missing, a
    partition is unknown until it is listed again.
    """
    begins = ~shifted(np.ones(len(lines.session), np.bool_))
    begins[1:] |= np.diff(lines.session) != 0
    stretch = np.cumsum(begins | ((np.diff(lines.epoch, prepend=NOTHING) != 1) & (lines.epoch != 0)))
    found = listings_of(lines, stretch)
    stands = lines.stand[found.row]
    opened, was_left = (stands & (lines.numbers(name)[found.row] != 0) for name in ("state_opened", "state_left"))
    held, left = found.are_held(), found.are_left() | was_left
    asks, answers = (lines.numbers(name)[found.row] != 0 for name in ("in_request", "in_response"))
    implied = asks & ~answers & ~found.forgotten
    sent = latest(~implied | found.failed)
    is_unsent = ((sent < found.since) | found.failed[sent] | found.forgotten) & ~stands
    nothing, none = np.full(len(found.row), NOTHING), np.zeros(len(found.row), np.int64)
    listed = Rebuilt(
        row=found.row,
        line=found.row,
        asked=np.where(found.forgotten, found.row, found.row[latest(asks)]),
        hw=np.where(is_unsent, NOTHING, found.row[sent]),
        implied=implied.astype(np.int64),
        left_out=none,
        first=nothing,
        last=nothing,
    )
    # What a listing leaves behind lasts until the next one of its partition, or until its session ends. Where a gap
    # ends it, nothing is known of the fetches before the gap.
    ends = np.append(np.flatnonzero(begins)[1:], len(begins))[np.cumsum(begins) - 1][found.line]
    is_last = ~np.append(found.goes_on, np.False_)[1:]
    is_known = ~is_last | (stretch[found.line] == stretch[ends - 1])
    own = left & ~stands  # its own line leaves the partition out
    first, last = found.line + ~own, np.where(is_last, ends, np.roll(found.line, -1)) - 1
    behind = np.arange(len(held)) - own  # the listing whose values are in force
    in_force = (held | left) & is_known
    # A consumer leaves a partition out whenever it still has records of it, and nothing follows from that.
    is_told = held | (lines.numbers("replica_id", NOTHING)[found.row] >= 0)
    runs = np.flatnonzero(in_force & is_told & ((first <= last) | opened) & ~found.failed[behind])
    begun = np.where(opened, found.row, lines.head[np.minimum(first, len(lines.head) - 1)]) if len(first) else first
    between = listed.only(behind[runs])._replace(
        line=begun[runs],
        implied=np.ones(len(runs), np.int64),
        left_out=left[runs].astype(np.int64),
        first=first[runs],
        last=last[runs],
    )
    # In the order of their lines. What a session's end leaves comes behind its last line: first what is cached, in the
    # order in which it came to be, then what was forgotten.
    at_end = is_last[runs]
    place = np.where(at_end, lines.end[ends[runs] - 1], np.roll(found.place, -1)[runs])
    since = found.place[np.where(left, np.arange(len(held)), np.minimum(found.since, len(held) - 1))[runs]]
    shown = (held | found.forgotten) & ~stands
    alone = lines.sessionless()
    turn = np.concatenate([2 * found.place[shown] + 1, 2 * place, 2 * alone + 1])
    stage, tie = np.zeros((2, len(turn)), np.int64)
    some = slice(int(shown.sum()), int(shown.sum()) + len(runs))
    stage[some], tie[some] = at_end * (1 + left[runs]), at_end * since
    every = [listed.only(shown), between, as_they_are(lines.rows[alone])]
    order = np.lexsort((tie, stage, turn))
    rows = Rebuilt(*map(np.concatenate, zip(*every, strict=True))).only(order)
    is_open = np.zeros(len(turn), np.bool_)
    is_open[some] = at_end
    keeps = np.flatnonzero(in_force & is_last)
    cached = listed.only(behind[keeps])._replace(
        line=begun[keeps], left_out=left[keeps].astype(np.int64), first=first[keeps], last=last[keeps]
    )
    return Walked(rows, is_open[order], cached)


def as_they_are(rows: Ints) -> Rebuilt:
    """Rows of fetches without a session, to which nothing is added."""
    none = np.zeros(len(rows), np.int64)
    return Rebuilt(rows, rows, rows, rows, implied=none, left_out=none, first=none + NOTHING, last=none + NOTHING)


def rows_of(lines: SessionLines, out: Rebuilt, rows: int) -> Iterator[pa.Table]:
    """The output rows, at most `rows` per table."""
    handed, forced = lines.note_request()
    runs = out.first != NOTHING
    nth = np.where(runs, np.cumsum(runs) - 1, NOTHING)
    told = run_columns(lines, out.only(runs), handed)
    for begin in range(0, max(len(runs), 1), rows):
        some = slice(begin, begin + rows)
        yield columns_of(lines, out.only(some), nth[some], told, handed, forced)


def columns_of(
    lines: SessionLines, some: Rebuilt, nth: Ints, told: dict[str, pa.Array], handed: Ints, forced: Flags
) -> pa.Table:
    """Some output rows, column by column; `nth`: each row's index among all runs, into the columns in `told`."""
    row, line, asked, hw, implied, left_out, _, _ = some
    runs = nth != NOTHING
    of_runs = {name: column.take(pa.array(nth, mask=~runs)) for name, column in told.items()}
    noted = {
        "hw": lines.column("hw").take(pa.array(hw, mask=hw == NOTHING)),
        "hw_implied": pa.array(implied != 0),
        "request_bytes": pa.array(handed[line]),
        "request_forced": pa.array(forced[line]),
        "bytes_before": pa.array(lines.before[row], mask=runs | (lines.before[row] == NOTHING)),
    }
    columns = []
    for field in SESSION_SCHEMA:
        name = field.name
        if name in noted or name in RUN_ONLY:
            column = noted[name] if name in noted else of_runs[name]
        elif name not in lines.facts.column_names:  # as half of the columns are that all facts have
            column = pa.nulls(len(row), field.type)
        else:
            column = lines.column(name).take(
                pa.array(asked if name in CACHED else line if name in LINE_FIELDS else row)
            )
        if name in REPLACED:
            column = pc.if_else(pa.array(runs), pa.scalar(REPLACED[name], field.type), column)
        elif name in of_runs:
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
    "bytes_listed_before": None,
    "diverging_epoch": None,
    "diverging_end_offset": None,
}


def run_columns(lines: SessionLines, runs: Rebuilt, handed: Ints) -> dict[str, pa.Array]:
    """Per run: number of fetches, end time, the largest gap between two, and how many waited until the timeout.

    Time in purgatory is the mean. The broker epoch is the last one that they name: a broker fetches before it knows it.
    """
    count, waited, timeouts, gap, last = runs_so_far(lines, runs, handed)
    return {
        "run_count": pa.array(count),
        "run_until": pa.array(lines.taken[last]).cast(TIMESTAMP),
        "run_gap_us": pa.array(gap),
        "run_timeouts": pa.array(timeouts),
        "remote_us": pa.array(waited // np.maximum(count, 1)),
        "replica_epoch": lines.column("replica_epoch").take(pa.array(lines.head[last])),
    }


def had_begun(lines: SessionLines, runs: Rebuilt) -> Flags:
    """Per run: whether it goes on from a state. One of a partition that was forgotten since then is another one."""
    opened, left = (lines.numbers(name)[runs.row] for name in ("state_opened", "state_left"))
    found: Flags = lines.stand[runs.row] & (opened != 0) & (left == runs.left_out)
    return found


def runs_so_far(lines: SessionLines, runs: Rebuilt, handed: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Per run: number of fetches, how long they waited, how many in vain, the largest gap, and the last line.

    A run that had begun before the lines goes on from its state.
    """
    first, last = runs.first, runs.last
    local, wait, most = (lines.numbers(name)[lines.head] for name in ("local_us", "remote_us", "max_wait_ms"))
    in_vain = timed_out(local, wait, most * 1000) & (handed[lines.head] == 0)
    waits, vain = np.append(0, np.cumsum(wait)), np.append(0, np.cumsum(in_vain))
    count, waited, timeouts = last - first + 1, waits[last + 1] - waits[first], vain[last + 1] - vain[first]
    if not lines.stand.any():
        return count, waited, timeouts, largest_gaps(lines.taken, first, last), last
    went_on = had_begun(lines, runs)
    before = ("run_count", "state_waited", "run_timeouts", "run_gap_us")
    count0, waited0, timeouts0, gap0 = (np.where(went_on, lines.numbers(name)[runs.row], 0) for name in before)
    gap = np.maximum(gap0, largest_gaps(lines.taken, first - went_on, last))
    return count + count0, waited + waited0, timeouts + timeouts0, gap, last


def largest_gaps(taken: Ints, first: Ints, last: Ints) -> Ints:
    """Largest step of `taken` within each stretch of lines; 0 for a single line.

    Partitions that idle together share their stretches, so each distinct stretch is computed once.
    """
    spans, which = alike(np.stack([first, last]))
    steps = np.append(np.diff(taken), 0)
    found = np.maximum.reduceat(steps, spans.T.ravel())[::2] if spans.size else spans[0]
    out: Ints = np.where(spans[0] == spans[1], 0, found)[which]
    return out
