"""Since when there are news: facts that a run has read and that did not stand, and some that stood and are gone.

A log that grew states its last moment anew, because lines of that moment may have come since. In a log that seldom has
a line that was days ago; if it says what it said, it is no news.

What a run has read that did not come to its end, the next run finds in the ledger of files, and does not read again. So
that run asks Delta's log which files of facts came and went, and looks for the difference in these.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from pipelines.stages.questions import asked_here
from pipelines.warehouse.came_and_went import change_of
from pipelines.warehouse.exchange import given_facts
from pipelines.warehouse.spans import HOUR_US, spans_of
from replay.arrays.digests import row_hashes
from replay.arrays.ints import NEVER
from replay.evidence.steady import OF_THE_END
from replay.evidence.tenures import micros
from schemas.facts import FACTS
from schemas.windows import ORDER_STATES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pipelines.expectations.database import Local
    from pipelines.spark.staging import Rows
    from pipelines.stages.ingest import Parsed
    from pipelines.warehouse.delta_io import Warehouse
    from pipelines.warehouse.spans import Span

MOST: Final = 5_000  # facts that are stated again and are compared with what stands
MOST_BYTES: Final = 256 << 20  # of files that came and went: some ten million facts, for some ten seconds
# One row: how many facts came or went, when the first of them is from, and whether some have no time.
DIFFERING: Final = f"""
    SELECT count(*) AS facts, unix_micros(min(ts)) AS since_us, coalesce(bool_or(is_without), false) AS some_without
    FROM (
      SELECT any_value(ts) AS ts, any_value(is_without) AS is_without
      FROM (
        SELECT hash(fact) AS hashed, ts, ts IS NULL AND NOT ({OF_THE_END.sql}) AS is_without, 1 AS many
        FROM {{came}} AS fact
        UNION ALL
        SELECT hash(fact), ts, ts IS NULL AND NOT ({OF_THE_END.sql}), -1 FROM {{went}} AS fact)
      GROUP BY hashed HAVING sum(many) <> 0)"""


class News(NamedTuple):
    """What of the facts is new to an order."""

    facts: int | None = None  # how many are; None: many, or it is not known
    since_us: int | None = None  # no fact of before that moment is new, changed or gone; None: not known
    are_of_all: bool = False  # whether they are of all runs since the last order that handed something on, not of one

    @classmethod
    def since_handed_on(cls, warehouse: Warehouse, recording_id: str) -> News:
        """Return what differs from the facts of which the last order has handed something on, whoever wrote it.

        Nothing is known where no order has, where more files came and went than are worth it, or where these are only
        for Spark to read.
        """
        versions = warehouse.arrow(ORDER_STATES.name, recording_id, ["facts_version"])["facts_version"].to_pylist()
        files = warehouse.table_files([FACTS.name], recording_id).get(FACTS.name)
        change = change_of(files, versions[0]) if files is not None and len(versions) == 1 else None
        if change is None or change.size_bytes > MOST_BYTES:
            return UNKNOWN
        with suppress(duckdb.OutOfMemoryException):
            return cls.between(change.new, change.gone)
        return UNKNOWN

    @classmethod
    def between(cls, came: Local, went: Local) -> News:
        """Return what differs between facts that came and facts that went; those that are the same are no news."""
        (found,) = asked_here(DIFFERING, {"came": came, "went": went}).to_pylist()
        since_us = NEVER if found["since_us"] is None else found["since_us"]
        return cls(found["facts"], None if found["some_without"] else since_us, are_of_all=True)


UNKNOWN: Final = News()


class Times(NamedTuple):
    """The times of some facts."""

    spans: Sequence[Span]  # in each hour the first and the last; none: there are none
    are_some_without: bool  # but for those `OF_THE_END` of a partition

    @classmethod
    def of(cls, facts: Rows) -> Self:
        """Return those of facts."""
        if isinstance(facts, pa.Table):
            others = facts["ts"].filter(pc.invert(OF_THE_END.mask(facts)))
            return cls(spans_of(facts["ts"]), bool(others.null_count))
        us, is_without = F.unix_micros("ts"), F.expr(f"ts IS NULL AND NOT ({OF_THE_END.sql})")
        ends = F.min(us), F.max(us), F.count_if(is_without)
        rows = facts.groupBy(F.floor(us / HOUR_US)).agg(*ends).collect()
        spans = [(first, last) for _, first, last, _ in rows if first is not None]
        return cls(spans, any(without for *_, without in rows))


def news_since(
    warehouse: Warehouse, recording_id: str, parsed: Parsed, times: Times, changed: Rows | None
) -> int | None:
    """Return the first moment of facts that are new, changed or gone; NEVER: there are none. None: some have none.

    `times`: of all facts that were read; `changed`: those that stand and get another name or go. If what the last order
    has handed on (`order_states`) would not hold, it is asked which of them are as they stood.
    """
    since = first_of([times] if changed is None else [times, Times.of(changed)])
    handed_on = warehouse.arrow(ORDER_STATES.name, recording_id, ["horizon"])["horizon"].to_pylist()
    if not handed_on or (since is not None and since >= max(map(micros, handed_on))):
        return since
    same = as_they_stand(warehouse, recording_id, parsed, changed)
    if not len(same) or changed is None:
        return since
    return first_of([Times.of(without(parsed.facts, same)), Times.of(without(changed, same))])


def first_of(times: Sequence[Times]) -> int | None:
    """Return the first of some times; NEVER: there are none. None: some facts have none."""
    if any(one.are_some_without for one in times):
        return None
    return min((first for one in times for first, _ in one.spans), default=NEVER)


def as_they_stand(warehouse: Warehouse, recording_id: str, parsed: Parsed, changed: Rows | None) -> pa.Array:
    """Return the ids of facts that were read again and say what they said."""
    none = pa.array([], pa.string())
    if not isinstance(changed, pa.Table):
        return none
    ids = pc.unique(changed["fact_id"].filter(changed["is_gone"]))
    if not 0 < len(ids) <= MOST:
        return none
    spans = [change.span for change in parsed.plan.changes]
    stand, read = warehouse.stated(recording_id, spans, ids), parsed.facts
    given = read if isinstance(read, pa.Table) else parsed.files
    if stand is None or not len(given):
        return none
    before, now = (told(some, recording_id, ids) for some in (stand, given))
    return pa.array(sorted(one for one, said in before.items() if now.get(one) == said), pa.string())


def told(given: pa.Table | Sequence[Path], recording_id: str, ids: pa.Array) -> dict[str, int]:
    """Return a digest of what each of some facts says, by its id. `given`: facts, or files of them on this machine."""
    facts = given_facts(given, recording_id, ids, FACTS.arrow_schema.names)
    hashes = row_hashes(facts, without=("recording_id",))
    return dict(zip(facts["fact_id"].to_pylist(), hashes.tolist(), strict=True))


def without(facts: Rows, ids: pa.Array) -> Rows:
    """Return the facts but for some."""
    if isinstance(facts, pa.Table):
        return facts.filter(pc.invert(pc.is_in(facts["fact_id"], ids)))
    return facts.where(~F.col("fact_id").isin(ids.to_pylist()))
