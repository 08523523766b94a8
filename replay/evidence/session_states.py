"""Fetch sessions in two parts: what they have cached at some moment, as rows from which a later rebuild goes on.

A state is a row for each partition that a session has in its cache, and one for each session, which says how far it
has come. It looks like a fact that lists the partition, in a line before all others (`SessionLines`), and is none of
the rows that are made. A run of fetches that has begun by then is part of the state, since it may go on. So the rows of
both parts are those of all lines together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.evidence.session_lines import CACHED, LINE_FIELDS, NOTHING, STATE_SCHEMA, SessionLines
from replay.evidence.session_turns import told_of_order, turns_behind
from replay.evidence.sessions import ROWS_AT_ONCE, Rebuilt, Walked, had_begun, rows_of, runs_so_far, walked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replay.arrays.ints import Ints


def rebuilt_until(facts: pa.Table, states: pa.Table | None) -> tuple[list[pa.Table], pa.Table]:
    """Return the rows that are final, whatever follows, and the states behind these facts of one broker.

    `facts`: by fact id, in one chunk. `states`: of `STATE_SCHEMA`, behind which the facts come; else EntangledError.
    """
    lines = SessionLines(facts, states)
    found = walked(lines)
    final = found.rows.only(~found.open)
    return [*rows_of(lines, final, ROWS_AT_ONCE)], states_of(lines, found)


def rebuilt_from(facts: pa.Table, states: pa.Table) -> Iterator[pa.Table]:
    """Return the rows of facts that come behind these states, and of runs that had begun there."""
    lines = SessionLines(facts, states)
    return rows_of(lines, walked(lines).rows, ROWS_AT_ONCE)


def states_of(lines: SessionLines, found: Walked) -> pa.Table:
    """Return what the sessions have cached behind their last lines."""
    sessions, first = np.unique(lines.session, return_index=True)
    last = np.append(first[1:], len(lines.session))[sessions != 0] - 1  # lines are by session
    cached = found.cached
    mine = np.searchsorted(lines.session[last], lines.session[line_of(lines, cached.row)])
    every = Rebuilt(*map(np.concatenate, zip(cached, ends_only(lines.head[last]), strict=True)))
    of = last[np.concatenate([mine, np.arange(len(last))])]  # the last line of each row's session
    handed, forced = lines.note_request()
    failed = lines.numbers("error_code")[every.row] != 0
    is_run = (every.first <= every.last) | had_begun(lines, every)
    opened = is_run & ~failed & (every.first != NOTHING)
    some = every.only(opened)
    count, waited, timeouts, gap, _ = runs_so_far(lines, some, handed)
    row, line = every.row, np.where(opened, every.line, every.row)
    is_marker = np.arange(len(row)) >= len(cached.row)
    columns = {}
    for field in STATE_SCHEMA:
        name = field.name
        if name in lines.facts.column_names:
            places = every.asked if name in CACHED else line if name in LINE_FIELDS else row
            columns[name] = lines.column(name).take(pa.array(places)).cast(field.type)
    columns |= {
        "hw": lines.column("hw").take(pa.array(every.hw, mask=every.hw == NOTHING)),
        "partition": pc.if_else(pa.array(is_marker), None, lines.column("partition").take(pa.array(row))),
        "in_request": pa.repeat(pa.scalar(True), len(row)),
        "in_response": pa.repeat(pa.scalar(True), len(row)),
        "replica_epoch": lines.column("replica_epoch").take(pa.array(lines.head[of])),
        "state_session": pa.array(lines.session[of]),
        "request_bytes": pa.array(handed[line]),
        "request_forced": pa.array(forced[line]),
        "state_epoch": pa.array(lines.epoch[of]),
        "state_taken": pa.array(lines.taken[of]),
        "state_opened": pa.array(opened),
        "state_left": pa.array(every.left_out != 0),
        "run_count": spread(count, opened),
        "run_timeouts": spread(timeouts, opened),
        "run_gap_us": spread(gap, opened),
        "state_waited": spread(waited, opened),
        **{name: ranked(places[row]) for name, places in turns_behind(lines).items()},
        "state_told": pa.array(told_of_order(lines)[of]),
    }
    fields = [field for field in STATE_SCHEMA if field.name in columns]
    return pa.table({field.name: columns[field.name].cast(field.type) for field in fields}, schema=pa.schema(fields))


def ranked(places: Ints) -> pa.Array:
    """Return places as ranks among these: those of a long history are greater than any that later lines give."""
    known = places != NOTHING
    ranks = np.zeros(len(places), np.int64)
    ranks[known] = np.unique(places[known], return_inverse=True)[1]
    return pa.array(ranks, mask=~known)


def ends_only(heads: Ints) -> Rebuilt:
    """Return rows that only say that there is a session."""
    zero, none = np.zeros(len(heads), np.int64), np.full(len(heads), NOTHING)
    return Rebuilt(heads, heads, heads, none, zero, zero, none, none)


def line_of(lines: SessionLines, rows: Ints) -> Ints:
    """Return the lines of some facts."""
    found = np.empty(len(lines.facts), np.int64)
    found[lines.rows] = lines.of_rows()
    places: Ints = found[rows]
    return places


def spread(values: Ints, where: pa.Array) -> pa.Array:
    """Return values at the places that they are of; elsewhere 0."""
    found = np.zeros(len(where), np.int64)
    found[where] = values
    return pa.array(found)
