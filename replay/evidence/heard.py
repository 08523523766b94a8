"""What each broker wrote, second by second, and what else shows that it was at work: of facts in one table.

Spark computes the same of facts that are many (`pipelines.overview.coverage`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import numbers
from replay.evidence.choices import FETCHES, Choice, any_of
from replay.evidence.coverage import BY_ITSELF, BY_OTHERS, LIFE, MEMBER, METADATA, REQUEST_LOG, SERVER_LOG, Heard
from replay.evidence.sources import sources_of
from replay.evidence.zookeeper_view import VIEW_LINES

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
_SIGN: Final = ("broker_id", "source", "second")
_LINE: Final = ("source_file", "source_line")


def heard_in(facts: pa.Table) -> dict[int | None, list[Heard]]:
    """Return by broker what was heard of it; None: of the metadata log. A fact may be a sign of several brokers."""
    timed = facts.filter(pc.is_valid(facts["ts"]))
    us = numbers(timed["ts"])
    seconds = np.floor_divide(us, 1_000_000)
    timed = timed.append_column("us", pa.array(us)).append_column("second", pa.array(seconds))
    own = timed.append_column("source", sources_of(timed))
    own = own.filter(pc.is_in(own["source"], pa.array(WRITTEN)))
    lines = own.group_by([*_SIGN, *_LINE]).aggregate([]).group_by([*_SIGN]).aggregate([([], "count_all")])
    counts = {tuple(row[name] for name in _SIGN): row["count_all"] for row in lines.to_pylist()}
    every = pa.concat_tables([own.select([*_SIGN, "us"]), *_signs(timed)])
    found: dict[int | None, list[Heard]] = {}
    for row in every.group_by([*_SIGN]).aggregate([("us", "min"), ("us", "max")]).to_pylist():
        sign = tuple(row[name] for name in _SIGN)
        one = Heard(row["source"], row["us_min"], row["us_max"], counts.get(sign, 0))
        found.setdefault(row["broker_id"], []).append(one)
    return found


def _signs(timed: pa.Table) -> Iterator[pa.Table]:
    """Yield what is no broker's own line, or says more than that there is a line."""
    fetches = FETCHES.of(timed)
    fetches = fetches.filter(pc.greater_equal(pc.coalesce(fetches["replica_id"], -1), 0))
    yield _sign(BY_OTHERS, fetches["replica_id"], fetches)
    served = SERVED.of(timed)
    yield _sign(BY_ITSELF, served["broker_id"], served)
    for source, choice in LIFE.items():
        lived = choice.of(timed)
        yield _sign(source, lived["broker_id"], lived)
    for column in ("replicas", "isr"):
        named = timed.filter(pc.is_valid(timed[column])).combine_chunks()
        each = named.take(pc.list_parent_indices(named[column]))
        yield _sign(MEMBER, pc.list_flatten(named[column]), each)


def _sign(source: str, brokers: pa.ChunkedArray, rows: pa.Table) -> pa.Table:
    columns = [brokers.cast(pa.int32()), pa.array([source] * len(rows), pa.string()), rows["second"], rows["us"]]
    return pa.table(columns, names=[*_SIGN, "us"])


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
