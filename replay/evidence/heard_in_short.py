"""What was heard of brokers before a moment, in few rows, from which the same follows whatever is heard later.

Coverage asks of a request log from when to when its lines follow each other, and of signs of life whether there is one
well within a silence; of other logs it asks for the first and the last line only. So lines that follow each other
become one row, and of the signs there remains, for each moment from which a silence may last, the first that lies well
behind it. Near a broker's start or stop its lines stay as they are, since a shutdown divides them; so do those of the
seconds in which requests begin or end to be missing, since lines are counted between these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import numbers
from replay.evidence.coverage import (
    BY_ITSELF,
    BY_OTHERS,
    CLOCKS_US,
    CLOSING_US,
    LIFE,
    MEMBER,
    METADATA,
    NOTHING_HEARD,
    OWN_SIGN_US,
    REQUEST_LOG,
    SERVER_LOG,
    SILENT_US,
    Heard,
)
from replay.evidence.heard import HEARD_SCHEMA, heard_by_broker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replay.arrays.ints import Flags, Ints

SECOND_US: Final = 1_000_000
NEAR_US: Final = CLOSING_US + SECOND_US  # of a broker's start or stop
SIGNS: Final = {BY_ITSELF: OWN_SIGN_US, BY_OTHERS: CLOCKS_US}  # how far inside a silence a sign has to lie


def heard_in_short(rows: pa.Table, until_us: int, since_us: int, edges: Mapping[int | None, Ints]) -> pa.Table:
    """Return rows (`HEARD_SCHEMA`) that tell the same as these, and as these with any that are later than `until_us`.

    `rows`: of `heard_together`, perhaps with some that were shortened before. `since_us`: where the recording begins.
    `edges`: by broker, moments at which requests begin or end to be missing.
    """
    is_early = pc.less(rows["second"], until_us // SECOND_US)
    late = rows.filter(pc.invert(is_early))
    found = [late]
    for broker, spoke in heard_by_broker(rows.filter(is_early)).items():
        short = shortened(spoke, since_us, edges.get(broker, np.zeros(0, np.int64)))
        found += [in_rows(broker, source, mine) for source, mine in short.items()]
    return pa.concat_tables(found)


def stand_alone(rows: pa.Table, edges: Mapping[int | None, Ints]) -> bool:
    """Whether the second of each of these moments, by broker, is a row of its own, so that lines up to it are told."""
    of_log = rows.filter(pc.equal(rows["source"], REQUEST_LOG))
    broker, first, last = (numbers(of_log[name]) for name in ("broker_id", "first", "last"))
    together = first // SECOND_US < last // SECOND_US
    for one, moments in edges.items():
        mine = np.flatnonzero(together & (broker == one))
        begun, ended = np.sort(first[mine]), np.sort(last[mine])
        if (np.searchsorted(begun, moments) > np.searchsorted(ended, moments)).any():
            return False
    return True


def shortened(spoke: Mapping[str, Heard], since_us: int, edges: Ints) -> dict[str, Heard]:
    """Return in short what was heard of one broker, by source."""
    lives = np.sort(np.concatenate([spoke.get(name, NOTHING_HEARD).first for name in LIFE]))
    found = dict(spoke)
    ends = np.zeros(0, np.int64)
    if REQUEST_LOG in spoke:
        lines = spoke[REQUEST_LOG]
        lines = found[REQUEST_LOG] = run_together(lines, ~follow_each_other(lines, lives) | are_at(lines, edges))
        ends = np.maximum.accumulate(lines.last)
    begins = np.concatenate([[since_us], ends, lives])  # from where a silence may last
    for source, inside_us in SIGNS.items():
        if source in spoke:
            first = np.searchsorted(spoke[source].first, begins + inside_us)
            found[source] = some_of(spoke[source], np.unique([0, *first[first < len(spoke[source].first)]]))
    for source in (METADATA, SERVER_LOG):
        if source in spoke:
            found[source] = run_together(spoke[source], np.arange(len(spoke[source].first)) == 0)
    if MEMBER in spoke:
        found[MEMBER] = some_of(spoke[MEMBER], np.zeros(1, np.int64))
    return found


def follow_each_other(lines: Heard, lives: Ints) -> Flags:
    """Whether the lines of a second follow those of the one before, and neither are near a broker's start or stop."""
    last = np.maximum.accumulate(lines.last)
    is_near = np.searchsorted(lives, last + NEAR_US, "right") > np.searchsorted(lives, lines.first - NEAR_US)
    found = np.zeros(len(last), np.bool_)
    found[1:] = (lines.first[1:] - last[:-1] <= SILENT_US) & ~is_near[1:] & ~is_near[:-1]
    return found


def are_at(lines: Heard, edges: Ints) -> Flags:
    """Whether a second holds one of these moments, or is the first behind one."""
    behind = np.searchsorted(lines.first, edges, "right")
    places = np.concatenate([behind - 1, behind, np.searchsorted(lines.first, edges) - 1])
    found = np.zeros(len(lines.first), np.bool_)
    found[places[(places >= 0) & (places < len(found))]] = True
    return found


def run_together(heard: Heard, is_new: Flags) -> Heard:
    """Return one row for each that is new and those behind it."""
    begins = np.flatnonzero(is_new)
    return Heard(heard.first[begins], np.maximum.reduceat(heard.last, begins), np.add.reduceat(heard.lines, begins))


def some_of(heard: Heard, places: Ints) -> Heard:
    """Return the rows at these places."""
    return Heard(*(column[places] for column in heard))


def in_rows(broker: int | None, source: str, heard: Heard) -> pa.Table:
    """Return it as rows that belong to no file."""
    count = len(heard.first)
    columns = {
        "broker_id": pa.array([broker] * count, pa.int64()),
        "source": pa.repeat(pa.scalar(source), count),
        "second": heard.first // SECOND_US,
        "file": pa.nulls(count, pa.string()),
        "line": np.ones(count, np.int64),
        "until": heard.lines,
        "first": heard.first,
        "last": heard.last,
    }
    return pa.table([pa.array(columns[name]) for name in HEARD_SCHEMA.names], schema=HEARD_SCHEMA)
