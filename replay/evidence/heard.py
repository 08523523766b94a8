"""What each broker wrote, second by second, and what else shows that it was at work.

Facts may be told in pieces, cut anywhere: lines of one file that follow each other within a second are one row, whose
ends are kept, so that a line that states several facts counts once, whichever pieces these are in.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import differing, numbers, texts
from replay.arrays.ints import NEVER
from replay.evidence.choices import FETCHES, Choice, any_mask
from replay.evidence.coverage import BY_ITSELF, BY_OTHERS, LIFE, MEMBER, METADATA, REQUEST_LOG, SERVER_LOG, Heard
from replay.evidence.sources import sources_of
from replay.evidence.zookeeper_view import VIEW_LINES
from schemas.model import BOOL, INT64, STRING

if TYPE_CHECKING:
    from collections.abc import Iterator


WRITTEN: Final = (METADATA, REQUEST_LOG, SERVER_LOG)  # sources whose lines are counted
SERVED: Final = Choice(kinds=("remote_leo_update",))  # a leader's line about a fetch that it handled
# Facts that exist only if ZooKeeper keeps the cluster's state: then there is no metadata log that could be missing.
BY_ZOOKEEPER: Final = (
    Choice(kinds=("leader_and_isr",)),
    Choice(kinds=("isr_update",), names=("zookeeper_write", "zookeeper_conflict")),
    Choice(kinds=("broker_lifecycle",), names=VIEW_LINES),
)
HEARD_SCHEMA: Final = pa.schema(
    [
        pa.field("broker_id", INT64),  # null: the metadata log
        pa.field("source", STRING),
        pa.field("second", INT64),
        pa.field("file", STRING),  # null: signs of life, whose lines are not counted
        pa.field("line", INT64),  # the first of lines that follow each other
        pa.field("until", INT64),  # the last of them; of signs less than the first
        pa.field("first", INT64),  # microseconds
        pa.field("last", INT64),
    ]
)
SPAN_SCHEMA: Final = pa.schema(
    [
        pa.field("own", BOOL),  # whether a broker's log says it
        pa.field("first", INT64),  # microseconds
        pa.field("last", INT64),
        pa.field("by_zookeeper", BOOL),
    ]
)
_WHEN: Final = ("second", "us")
_SIGN: Final = ("broker_id", "source", "second", "us", "file", "line")
_NONE: Final = -NEVER  # the broker of the metadata log
_NO_LINE: Final = (1, 0)
_LINE_BITS: Final = 36


def heard_in(facts: pa.Table) -> pa.Table:
    """Return what facts tell of brokers, a row for each (`HEARD_SCHEMA`). A fact may be a sign of several brokers."""
    timed = facts.filter(pc.is_valid(facts["ts"]))
    us = numbers(timed["ts"])
    seconds = np.floor_divide(us, 1_000_000)
    timed = timed.append_column("us", pa.array(us)).append_column("second", pa.array(seconds))
    every = pa.concat_tables([_own(timed), *_signs(timed)])
    line = numbers(every["line"], _NO_LINE[0])
    is_sign = every["line"].is_null().to_numpy() if len(every) else np.zeros(0, np.bool_)
    until = np.where(is_sign, _NO_LINE[1], line)
    columns = (*(every[name] for name in ("broker_id", "source", "second", "file")), line, until)
    return pa.table([*columns, every["us"], every["us"]], schema=HEARD_SCHEMA)


def heard_together(rows: pa.Table) -> pa.Table:
    """Return the same with one row for lines that follow each other in a file within a second, or for such signs."""
    keys = [numbers(rows["broker_id"], _NONE), *(texts(rows[name])[0] for name in ("source", "file"))]
    second, line, until, first, last = (numbers(rows[name]) for name in ("second", *HEARD_SCHEMA.names[4:]))
    order = np.lexsort((line, *keys, second))
    line, until, first, last = (column[order] for column in (line, until, first, last))
    is_other = differing(second[order], *(key[order] for key in keys))
    # Behind the last line of all before it, within its file and second.
    reached = np.maximum.accumulate((np.cumsum(is_other) << _LINE_BITS) + until) & ((1 << _LINE_BITS) - 1)
    is_new = is_other.copy()
    is_new[1:] |= line[1:] > reached[:-1] + 1
    begins = np.flatnonzero(is_new)
    if not len(begins):
        return rows
    ends = (np.maximum.reduceat(until, begins), np.minimum.reduceat(first, begins), np.maximum.reduceat(last, begins))
    told = rows.select(HEARD_SCHEMA.names[:4]).take(order[begins])
    return pa.table([*told.columns, line[begins], *ends], schema=HEARD_SCHEMA)


def heard_by_broker(rows: pa.Table) -> dict[int | None, dict[str, Heard]]:
    """Return by broker what was heard of it, from rows of which each line is in one; None: of the metadata log."""
    place, sources = texts(rows["source"])
    broker, second = numbers(rows["broker_id"], _NONE), numbers(rows["second"])
    first, last = numbers(rows["first"]), numbers(rows["last"])
    lines = numbers(rows["until"]) - numbers(rows["line"]) + 1
    order = np.lexsort((second, place, broker))
    broker, place, second, first, last, lines = (part[order] for part in (broker, place, second, first, last, lines))
    is_log = differing(broker, place)
    begins = np.flatnonzero(is_log | differing(second))
    sums = ((np.minimum, first), (np.maximum, last), (np.add, lines))
    columns = [of.reduceat(values, begins) if len(begins) else values for of, values in sums]
    found: dict[int | None, dict[str, Heard]] = {}
    for begin, stop in pairwise([*np.flatnonzero(is_log[begins]).tolist(), len(begins)]):
        at = begins[begin]
        whose = None if broker[at] == _NONE else int(broker[at])
        found.setdefault(whose, {})[sources[place[at]]] = Heard(*(column[begin:stop] for column in columns))
    return found


def _own(timed: pa.Table) -> pa.Table:
    """Return the lines of sources whose lines are counted; a line that states several facts is there several times."""
    sources = sources_of(timed)
    line = pc.coalesce(timed["source_line"].cast(INT64), 0)
    columns = (timed["broker_id"].cast(INT64), sources, timed["second"], timed["us"], timed["source_file"], line)
    return pa.table(columns, names=_SIGN).filter(pc.is_in(sources, pa.array(WRITTEN)))


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
    count = len(rows)
    told = (pa.repeat(pa.scalar(source, STRING), count), rows["second"], rows["us"])
    return pa.table((brokers.cast(INT64), *told, pa.nulls(count, STRING), pa.nulls(count, INT64)), names=_SIGN)


def spans_in(facts: pa.Table) -> pa.Table:
    """Return the first and last stamp of the brokers' logs, and of all (`SPAN_SCHEMA`), and who kept the state."""
    by_zookeeper = pc.any(any_mask(BY_ZOOKEEPER, facts)).as_py() or False
    stamps = facts["ts"].cast(INT64)
    ends = [pc.min_max(one).as_py() for one in (stamps.filter(pc.is_valid(facts["broker_id"])), stamps)]
    told = ([True, False], *([one[end] for one in ends] for end in ("min", "max")), [by_zookeeper] * 2)
    return pa.table([*map(pa.array, told)], SPAN_SCHEMA.names).cast(SPAN_SCHEMA)


def spans_together(rows: pa.Table) -> pa.Table:
    """Return the same with one row for each."""
    sums = [("first", "min"), ("last", "max"), ("by_zookeeper", "max")]
    return rows.group_by("own").aggregate(sums).rename_columns(SPAN_SCHEMA.names)


def span_of(spans: pa.Table) -> tuple[int, int] | None:
    """Return the first and last stamp of the brokers' logs, else of the metadata log, in microseconds; None: none."""
    for row in sorted(spans.to_pylist(), key=lambda row: not row["own"]):
        if row["first"] is not None:
            return row["first"], row["last"]
    return None


def is_by_zookeeper(spans: pa.Table) -> bool:
    """Return whether ZooKeeper kept the cluster's state."""
    return bool(pc.any(spans["by_zookeeper"]).as_py())
