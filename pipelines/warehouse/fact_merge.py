"""Merges facts into their table, and what earlier readings of the same files had stated: by Spark, or here if few."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from pipelines.warehouse import local_tables
from replay.arrays.columns import completed_to
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from delta import DeltaTable
    from deltalake.table import TableMerger
    from pyspark.sql import DataFrame

# What becomes of a fact that stands if it is among the new rows: `is_new` of those that were read now, `what` of those
# that stood under the name of a file that was read again ("gone": unless it is stated again) or renamed ("moved").
_GOES: Final = "NOT new.is_new AND new.what = 'gone'"
_IS_RENAMED: Final = "NOT new.is_new"
_IS_STATED_AGAIN: Final = "new.what IS NOT NULL"
_TOLD: Final = pa.schema([pa.field("what", pa.string()), pa.field("is_new", pa.bool_())])


def merge(known: DeltaTable, rows: DataFrame, changed: DataFrame | None, same: str) -> None:
    """Add the facts that the table does not have yet; `same` says when one of it is one of the given.

    `changed`: the facts of earlier readings that get another name or go (`superseded.changed_facts`). Those of them
    that are given again are updated.
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
    into = into.whenMatchedUpdateAll(_IS_STATED_AGAIN)
    into.whenNotMatchedInsertAll("new.is_new").execute()


def merge_here(place: Path, rows: pa.Table, changed: pa.Table, same: str, recording_id: str, mark: str | None) -> bool:
    """Do the same to a table on this machine with facts that are in the driver's memory; False: Spark is to do it."""
    given = pa.schema([*(field.with_nullable(True) for field in TABLES["facts"].arrow_schema), *_TOLD])  # noqa: FBT003
    what = pc.if_else(changed["is_gone"], "gone", "moved")
    found = completed_to(rows, given)
    found = _with(found, "what", what.take(pc.index_in(rows["fact_id"], changed["fact_id"])))
    others = pc.invert(pc.is_in(changed["fact_id"], rows["fact_id"]))
    left = completed_to(changed.select(["fact_id"]).append_column("source_file", changed["to"]), given)
    left = _with(left, "what", what).filter(others)
    found, left = (
        _with(part, "is_new", pa.array([is_new] * len(part), pa.bool_()))
        for part, is_new in ((found, True), (left, False))
    )

    def clauses(into: TableMerger) -> TableMerger:
        into = into.when_matched_delete(_GOES)
        into = into.when_matched_update({"source_file": "new.source_file"}, _IS_RENAMED)
        into = into.when_matched_update_all(_IS_STATED_AGAIN, except_cols=_TOLD.names)
        return into.when_not_matched_insert_all("new.is_new", except_cols=_TOLD.names)

    new = pa.concat_tables([found, left])
    return local_tables.merge(place, TABLES["facts"], new, recording_id, mark, same, clauses)


def _with(rows: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return rows with other values in a column."""
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(place), values)
