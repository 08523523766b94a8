"""Merges facts into their table, and what earlier readings of the same files had stated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from delta import DeltaTable
    from pyspark.sql import DataFrame


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
    into = into.whenMatchedDelete("NOT new.is_new AND new.what = 'gone'")
    into = into.whenMatchedUpdate("NOT new.is_new", {"source_file": "new.source_file"})
    into = into.whenMatchedUpdateAll("new.what IS NOT NULL")
    into.whenNotMatchedInsertAll("new.is_new").execute()
