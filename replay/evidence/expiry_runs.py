"""When each broker's isr-expiration task ran: one task for all partitions that the broker leads.

It runs as the replica manager starts and then at a fixed rate (`ReplicaManager.startup`), so one run tells all others,
until the broker starts again. Its first run is told at INFO: in the same breath the replica manager starts its
LogDirFailureHandler, whose line is written some milliseconds later. Each shrink tells a run too, whichever partition
it is of, but for those right after a standstill: these came late. Of a minute's shrinks the first is enough.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from replay.arrays.columns import numbers
from replay.evidence.broker_pauses import between
from replay.evidence.choices import Choice
from replay.evidence.tenures import micros
from schemas.model import INT32, INT64

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from replay.evidence.broker_pauses import Standstills
    from replay.evidence.rows import Row

# Brokers' lines about shrinks whose times are exact.
SHRINKS: Final = Choice(
    kinds=("isr_update",), names=("shrink", "pending_shrink"), filled=("broker_id", "ts"), empty=("ts_error_us",)
)
SHRINK_SCHEMA: Final = pa.schema([pa.field("broker_id", INT32), pa.field("us", INT64)])
MINUTE_US: Final = 60_000_000
HELD_UP_US: Final = 5_000_000  # how long after a standstill a shrink may be one that it had held up
MANAGER_STARTED: Final = "replica_manager_started"
BEGINNINGS: Final = ("start", "clean_start", "unclean_start")  # lines of a broker's start before its first run
VERSION: Final = "version"  # a line of its start from behind the first run


class ExpiryMark(NamedTuple):
    """A run of a broker's task; or its start, from which on earlier runs tell nothing."""

    us: int
    is_run: bool


Marks = dict[int, list[ExpiryMark]]  # by broker, rising


def shrinks_in(facts: pa.Table) -> pa.Table:
    """Times of lines about shrinks, by broker."""
    lines = SHRINKS.of(facts, ("broker_id", "ts"))
    return pa.table([lines["broker_id"], numbers(lines["ts"])], schema=SHRINK_SCHEMA)


def first_shrinks(shrinks: pa.Table) -> pa.Table:
    """Of each broker and minute the first of these times."""
    told = shrinks.append_column("minute", pa.array(numbers(shrinks["us"]) // MINUTE_US))
    found = told.group_by(["broker_id", "minute"]).aggregate([("us", "min")])
    return pa.table([found["broker_id"], found["us_min"]], schema=SHRINK_SCHEMA)


def marks_of(shrinks: pa.Table, rows: Iterable[Row], standstills: Standstills) -> Marks:
    """Every broker's marks. `shrinks`: of `first_shrinks`; `rows`: the lines about brokers' lives among others."""
    found: Marks = defaultdict(list)
    for broker, us in zip(*(shrinks[name].to_pylist() for name in SHRINK_SCHEMA.names), strict=True):
        if not between(standstills.get(broker, ()), us - HELD_UP_US, us):
            found[broker].append(ExpiryMark(us, is_run=True))
    lives: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for row in rows:
        if row["kind"] == "broker_lifecycle" and row["ts"] is not None and row["broker_id"] is not None:
            lives[row["broker_id"]].append((micros(row["ts"]), row["name"]))
    for broker, told in lives.items():
        found[broker] += starts_in(sorted(told))
    return {broker: sorted(marks) for broker, marks in sorted(found.items())}


def starts_in(told: Sequence[tuple[int, str]]) -> list[ExpiryMark]:
    """A broker's starts, by the times and names of the lines of its life, rising."""
    out = []
    is_running = False  # whether the first run of this life was told
    for us, name in told:
        if name in BEGINNINGS or (name == VERSION and not is_running):
            out.append(ExpiryMark(us, is_run=False))
            is_running = False
        elif name == MANAGER_STARTED:
            out.append(ExpiryMark(us, is_run=True))
            is_running = True
        elif name == VERSION:
            is_running = False  # another such line without a first run is of another start
    return out


def run_before(marks: Mapping[int, Sequence[ExpiryMark]], broker: int, us: int, apart_us: int) -> int | None:
    """When a broker's task is known to have run last, at least `apart_us` before `us`; None: not in this life."""
    mine = marks.get(broker, ())
    for mark in reversed(mine[: bisect_right(mine, us, key=lambda one: one.us)]):
        if not mark.is_run:
            return None
        if mark.us <= us - apart_us:
            return mark.us
    return None
