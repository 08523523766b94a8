"""When an effect of a request can have happened, from the single stamp and the durations in its line.

The log thread stamps the line after the response was sent. Any time computed from it may therefore be late, by tens of
milliseconds under load, and early only through truncation to whole milliseconds. All times are on the broker's own
clock. Windows of server lines and of the controller's decisions are here too; how far a stamp may be off is in
`stamps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from replay.engine.stamps import STAMP_EARLY_US, STAMP_LATE_US

if TYPE_CHECKING:
    from replay.arrays.ints import Flags, Ints
    from replay.evidence.rows import FactColumns, Row

PHASES = "phases"  # name of a computed column of requests
# What a line says of where its request's time went: parts of `total_us`.
TIMING = ("queue_us", "local_us", "remote_us", "throttle_us", "response_queue_us", "send_us")


class Window(NamedTuple):
    """Earliest, best and latest time of an effect, microseconds UTC; arrays for many effects."""

    lo: Any
    est: Any
    hi: Any


class Phases(NamedTuple):
    """The phases of a request: taken up by a handler, handled locally, completed in purgatory, answered.

    Microseconds UTC; arrays for many requests.
    """

    taken: Any
    local: Any
    completed: Any
    stamp: Any


def phases(row: Row) -> Phases:
    """Phases of a request's line; missing durations count as 0. None without a stamp."""
    columns = row.columns
    if PHASES not in columns:  # computed for all requests of the kind at once
        places = np.arange(columns.length)
        lines = zip(*(part.tolist() for part in phases_at(columns, places)), columns["ts"], strict=True)
        columns[PHASES] = [None if stamp is None else Phases(*line) for *line, stamp in lines]
    found: Phases = columns[PHASES][row.place]
    return found


def phases_at(columns: FactColumns, places: Ints) -> Phases:
    """Phases of the lines at several places, as arrays."""
    stamp = columns.numbers("ts", places)
    total, queue, local, remote = (
        columns.numbers(name, places) for name in ("total_us", "queue_us", "local_us", "remote_us")
    )
    taken = stamp - total + queue
    handled = np.minimum(taken + local, stamp)
    return Phases(taken, handled, np.minimum(handled + remote, stamp), stamp)


def local_window(at: Phases) -> Window:
    """While a handler worked on the request: the read, the append, the update of the follower's state.

    The best estimate is when it was taken up: a stamp is only ever late, and the handler still has to build the answer.
    """
    return Window(at.taken - STAMP_LATE_US, at.taken, at.local + STAMP_EARLY_US)


def completion_window(at: Phases) -> Window:
    """When the request left purgatory: the log was read again, or the HW was where it had to be."""
    return Window(at.local - STAMP_LATE_US, at.completed, at.stamp + STAMP_EARLY_US)


def done_window(delayed: Flags, at: Phases) -> Window:
    """When each request was done: when it left purgatory if delayed, else while its handler worked on it."""
    parked, at_once = completion_window(at), local_window(at)
    return Window(*(np.where(delayed, a, b) for a, b in zip(parked, at_once, strict=True)))


def run_window(at: Phases, until: Any) -> Window:  # noqa: ANN401 - numbers or arrays
    """From the first of a run of fetches to the last."""
    return Window(at.taken - STAMP_LATE_US, at.taken, np.maximum(until, at.taken) + STAMP_EARLY_US)


def line_window(stamp: Any) -> Window:  # noqa: ANN401 - a number or an array
    """A server line is written as the event happens."""
    return Window(stamp - STAMP_EARLY_US, stamp, stamp + STAMP_EARLY_US)


DECISION_LATE_US = 2_000_000  # how long a leader may take to learn of a decision
DECISION_USUAL_US = 30_000


def decision_window(us: int) -> Window:
    """When a leader acts on a decision of the controller, on the leader's clock."""
    return Window(us - STAMP_EARLY_US, us + DECISION_USUAL_US, us + DECISION_LATE_US)
