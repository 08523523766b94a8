"""What each broker wrote, second by second, and what else shows that it was at work: of facts in one table.

Spark computes the same of facts that are many (`pipelines.overview.coverage`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import numbers, texts
from replay.arrays.ints import NEVER
from replay.evidence.choices import FETCHES, Choice, any_of
from replay.evidence.coverage import BY_ITSELF, BY_OTHERS, LIFE, MEMBER, METADATA, REQUEST_LOG, SERVER_LOG, Heard
from replay.evidence.sources import sources_of
from replay.evidence.zookeeper_view import VIEW_LINES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replay.arrays.ints import Flags, Ints

WRITTEN: Final = (METADATA, REQUEST_LOG, SERVER_LOG)  # sources whose lines are counted
SERVED: Final = Choice(kinds=("remote_leo_update",))  # a leader's line about a fetch that it handled
# Facts that exist only if ZooKeeper keeps the cluster's state: then there is no metadata log that could be missing.
BY_ZOOKEEPER: Final = (
    Choice(kinds=("leader_and_isr",)),
    Choice(kinds=("isr_update",), names=("zookeeper_write", "zookeeper_conflict")),
    Choice(kinds=("broker_lifecycle",), names=VIEW_LINES),
)
_WHEN: Final = ("second", "us")
_SIGN: Final = ("broker_id", "source", "second", "us", "line")
_NONE: Final = -NEVER  # the broker of the metadata log, and the line of what is a sign only
_FILE: Final = 40  # bits of a line's number


def heard_in(facts: pa.Table) -> dict[int | None, dict[str, Heard]]:
    """Return by broker what was heard of it; None: of the metadata log. A fact may be a sign of several brokers."""
    timed = facts.filter(pc.is_valid(facts["ts"]))
    us = numbers(timed["ts"])
    seconds = np.floor_divide(us, 1_000_000)
    timed = timed.append_column("us", pa.array(us)).append_column("second", pa.array(seconds))
    every = pa.concat_tables([_own(timed), *_signs(timed)])
    place, sources = texts(every["source"])
    broker, second, line = (numbers(every[name], _NONE) for name in ("broker_id", "second", "line"))
    order = np.lexsort((line, second, place, broker))
    broker, place, second, line, us = (part[order] for part in (broker, place, second, line, numbers(every["us"])))
    is_log = _differ(broker, place)
    is_second = is_log | _differ(second)
    is_line = (is_second | _differ(line)) & (line != _NONE)
    begins = np.flatnonzero(is_second)
    sums = ((np.minimum, us), (np.maximum, us), (np.add, is_line.astype(np.int64)))
    columns = [of.reduceat(values, begins) if len(begins) else values for of, values in sums]
    found: dict[int | None, dict[str, Heard]] = {}
    for first, stop in pairwise([*np.flatnonzero(is_log[begins]).tolist(), len(begins)]):
        at = begins[first]
        whose = None if broker[at] == _NONE else int(broker[at])
        found.setdefault(whose, {})[sources[place[at]]] = Heard(*(column[first:stop] for column in columns))
    return found


def _differ(*columns: Ints) -> Flags:
    """Return which rows differ from the one before in any of these columns; the first does."""
    found = np.zeros(len(columns[0]), np.bool_)
    found[:1] = True
    for column in columns:
        found[1:] |= column[1:] != column[:-1]
    return found


def _own(timed: pa.Table) -> pa.Table:
    """Return the lines of sources whose lines are counted; a line that states several facts is there several times."""
    file, _ = texts(timed["source_file"])
    line = (file << _FILE) + numbers(timed["source_line"])
    columns = (timed["broker_id"].cast(pa.int64()), sources_of(timed), timed["second"], timed["us"], pa.array(line))
    rows = pa.table(columns, names=_SIGN)
    return rows.filter(pc.is_in(rows["source"], pa.array(WRITTEN)))


def _signs(timed: pa.Table) -> Iterator[pa.Table]:
    """Yield what is no broker's own line, or says more than that there is a line."""
    by_replicas = pc.and_(FETCHES.mask(timed), pc.greater_equal(pc.coalesce(timed["replica_id"], -1), 0))
    fetches = timed.select(["replica_id", *_WHEN]).filter(by_replicas)
    yield _sign(BY_OTHERS, fetches["replica_id"], fetches)
    served = SERVED.of(timed, ["broker_id", *_WHEN])
    yield _sign(BY_ITSELF, served["broker_id"], served)
    for source, choice in LIFE.items():
        lived = choice.of(timed, ["broker_id", *_WHEN])
        yield _sign(source, lived["broker_id"], lived)
    for column in ("replicas", "isr"):
        named = timed.select([column, *_WHEN]).filter(pc.is_valid(timed[column])).combine_chunks()
        each = named.take(pc.list_parent_indices(named[column]))
        yield _sign(MEMBER, pc.list_flatten(named[column]), each)


def _sign(source: str, brokers: pa.ChunkedArray, rows: pa.Table) -> pa.Table:
    sources, lines = pa.repeat(pa.scalar(source, pa.string()), len(rows)), pa.repeat(_NONE, len(rows))
    return pa.table((brokers.cast(pa.int64()), sources, rows["second"], rows["us"], lines), names=_SIGN)


def span_in(facts: pa.Table) -> tuple[int, int] | None:
    """Return the first and last stamp of the brokers' logs, else of the metadata log, in microseconds; None: none."""
    own = facts.filter(pc.is_valid(facts["broker_id"]))
    for rows in (own, facts):
        ends = pc.min_max(rows["ts"].cast(pa.int64())).as_py()
        if ends["min"] is not None:
            return ends["min"], ends["max"]
    return None


def is_by_zookeeper(facts: pa.Table) -> bool:
    """Return whether ZooKeeper kept the cluster's state."""
    return len(any_of(BY_ZOOKEEPER, facts)) > 0
