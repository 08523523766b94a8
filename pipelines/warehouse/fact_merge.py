"""Merges facts into their table, and what earlier readings of the same files had stated: by Spark, or here if few."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from replay.arrays.columns import completed_to

if TYPE_CHECKING:
    from delta import DeltaTable
    from pyspark.sql import DataFrame

# What becomes of a fact that stands if it is among the new rows: `is_new` of those that were read now, `what` of those
# that stood under the name of a file that was read again ("gone": unless it is stated again) or renamed ("moved").
_GOES: Final = "NOT new.is_new AND new.what = 'gone'"
_NOT: Final = pa.scalar(False)  # noqa: FBT003 - Arrow's own
_IS_RENAMED: Final = "NOT new.is_new"
_IS_STATED_AGAIN: Final = "new.what IS NOT NULL"
# Of several files that go on and state a fact it stands under the first: one run over all of them takes it from there.
_IS_STATED_BEFORE: Final = (
    "new.source_file < known.source_file OR new.source_file = known.source_file AND new.source_line < known.source_line"
)


def merge(known: DeltaTable, rows: DataFrame, changed: DataFrame | None, same: str) -> None:
    """Add the facts that the table does not have yet; `same` says when one of it is one of the given.

    `changed`: the facts of earlier readings that get another name or go (`superseded.changed_facts`). Those of them
    that are given again are updated; so are those that are given in an earlier file.
    """
    table = known.alias("known")
    if changed is None:
        table.merge(rows.alias("new"), same).whenNotMatchedInsertAll().execute()
        return
    told = changed.select("fact_id", "to", F.when(F.col("is_gone"), "gone").otherwise("moved").alias("what"))
    anew = rows.join(told.select("fact_id", "what"), on="fact_id", how="left")
    others = told.join(rows, on="fact_id", how="left_anti").withColumnRenamed("to", "source_file")
    new = anew.withColumn("is_new", F.expr("true")).unionByName(
        others.withColumn("is_new", F.expr("false")), allowMissingColumns=True
    )
    into = table.merge(new.alias("new"), same)
    into = into.whenMatchedDelete(_GOES)
    into = into.whenMatchedUpdate(_IS_RENAMED, {"source_file": "new.source_file"})
    into = into.whenMatchedUpdateAll(f"{_IS_STATED_AGAIN} OR {_IS_STATED_BEFORE}")
    into.whenNotMatchedInsertAll("new.is_new").execute()


def merged(stand: pa.Table, rows: pa.Table, changed: pa.Table, known: pa.ChunkedArray) -> pa.Table:
    """Return what stands in place of some facts once these have been merged into them, by the same rules.

    `stand`: those that change are among them. `known`: the ids of all that stand and may be given again.
    """
    place = pc.index_in(stand["fact_id"], changed["fact_id"])
    is_changed = pc.is_valid(place)
    is_gone = pc.coalesce(changed["is_gone"].take(place), _NOT)
    again = pc.index_in(stand["fact_id"], rows["fact_id"])
    is_stated = pc.is_valid(again)
    are_before = pc.coalesce(is_before(rows.take(again), stand), _NOT)
    at = stand.schema.get_field_index("source_file")
    named = pc.if_else(pc.and_(is_changed, pc.invert(is_stated)), changed["to"].take(place), stand["source_file"])
    stays = pc.invert(pc.or_(are_before, pc.and_(is_changed, pc.or_(is_stated, is_gone))))
    left = stand.set_column(at, stand.schema.field(at), named).filter(stays)
    anew = pa.chunked_array([*changed["fact_id"].chunks, *stand["fact_id"].filter(are_before).chunks], pa.string())
    is_new = pc.or_(pc.invert(pc.is_in(rows["fact_id"], known)), pc.is_in(rows["fact_id"], anew))
    return pa.concat_tables([left, completed_to(rows, stand.schema).filter(is_new)])


def is_before(rows: pa.Table, others: pa.Table) -> pa.ChunkedArray:
    """Whether each row is of an earlier place than the other: an earlier file, or line of it."""
    is_same = pc.equal(rows["source_file"], others["source_file"])
    is_line_before = pc.less(rows["source_line"], others["source_line"])
    return pc.or_(pc.less(rows["source_file"], others["source_file"]), pc.and_(is_same, is_line_before))
