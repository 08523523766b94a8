"""Counts the records of the metadata log, over all facts of a recording, that never took effect.

A controller that is cut off keeps writing to its own log until it hears of its successor, which has other records at
the same offsets (`replay.evidence.metadata_log`). The few facts about the dumps' parts tell which records these are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from replay.arrays.ints import NEVER
from replay.evidence.metadata_log import PART, Parts
from replay.evidence.rows import rows_of_facts

if TYPE_CHECKING:
    from pipelines.spark.staging import Rows

_OF_PARTS: Final = ("metadata_offset", "last_offset", "controller_epoch", "in_snapshot")
COLUMNS: Final = ("kind", "fact_id", "name", "ts", *_OF_PARTS)  # of facts that are looked at


def records_set_aside(facts: Rows) -> int:
    """Return how many records of the metadata log a deposed controller wrote that never reached anybody else."""
    if isinstance(facts, pa.Table):
        return _in_memory(facts)
    told = facts.where(F.col("kind") == PART).select(*COLUMNS)
    deposed = Parts(rows_of_facts(told.toArrow())).deposed()
    if not deposed:
        return 0
    ends = facts.sparkSession.createDataFrame([*deposed.items()], "controller_epoch int, deposed_from bigint")
    records = facts.where((F.col("kind") != PART) & F.col("metadata_offset").isNotNull())
    overwritten = (
        records.where(~F.coalesce("in_snapshot", F.lit(False)))  # noqa: FBT003 - a value of a column
        .join(F.broadcast(ends), on="controller_epoch")
        .where("metadata_offset >= deposed_from")
    )
    return overwritten.select("controller_epoch", "metadata_offset").distinct().count()


def _in_memory(facts: pa.Table) -> int:
    is_part = pc.equal(facts["kind"], PART)
    deposed = Parts(rows_of_facts(facts.select([*COLUMNS]).filter(is_part))).deposed()
    if not deposed:
        return 0
    is_record = pc.and_(pc.invert(is_part), pc.is_valid(facts["metadata_offset"]))
    records = facts.select([*_OF_PARTS]).filter(is_record)
    overwritten = {
        (row["controller_epoch"], row["metadata_offset"])
        for row in records.to_pylist()
        if not row["in_snapshot"] and row["metadata_offset"] >= deposed.get(row["controller_epoch"], NEVER)
    }
    return len(overwritten)


def sentences(records: int) -> list[str]:
    """Describe these records for the report."""
    if not records:
        return []
    some = "1 record" if records == 1 else f"{records:,} records"
    was = "was" if records == 1 else "were"
    why = "controllers wrote them that were deposed before a majority had them"
    return [f"{some} of the metadata log {was} set aside: {why}."]
