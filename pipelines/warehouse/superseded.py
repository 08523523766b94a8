"""What becomes of facts and rejected lines when files are read again, go on, or get other names.

Facts stand under the name of the file that stated them. What the ledger decides (`Change`) is looked up here in the
tables: rows that get another name, and rows that go unless the new reading states them again. Only the data files of
the time in question are read, since a fact's time follows from what its identity is made of.
"""

from __future__ import annotations

import hashlib
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from pipelines.intake.ledger import MOMENTS
from pipelines.spark.staging import as_frame
from pipelines.warehouse.aside import told_in
from pipelines.warehouse.within import has_one_of
from replay.arrays.columns import completed_to
from replay.evidence.steady import OF_THE_END

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from pipelines.intake.ledger import Change
    from pipelines.spark.staging import Rows
    from pipelines.warehouse.delta_io import Warehouse
    from pipelines.warehouse.within import Within

# Files that decide which facts are read, and which rows are made of them.
PARSERS: Final = ("pipelines/lines/*.py", "pipelines/parse/**/*.py", "pipelines/recording/reading.py")
ENGINE: Final = (
    "replay/**/*.py",
    "schemas/*.py",
    "pipelines/overview/*.py",
    "pipelines/spark/saved_states.py",
    "pipelines/stages/carried.py",
    "pipelines/stages/handing_on.py",
    "pipelines/stages/order.py",
    "pipelines/stages/order_marks.py",
    "pipelines/stages/partition_order.py",
    "pipelines/stages/replay.py",
    "pipelines/stages/spilled_*.py",
    "pipelines/stages/standing_windows.py",
    "pipelines/stages/stretches.py",
)
_OFF_US: Final = 2_000_000  # a time from a stamp in whole seconds may be read differently by a second
_FILE: Final = "path STRING, is_moment BOOLEAN, first_ts BIGINT, last_ts BIGINT"
_CHANGE: Final = "path STRING, to STRING, since BIGINT"
_NOT: Final = pa.scalar(False)  # noqa: FBT003 - Arrow's own
_MOST_ENDS: Final = 500  # of files that were read on, in one condition


@cache
def parser_version() -> str:
    """Return a digest of the parsers' source files."""
    return _digest(PARSERS)


@cache
def engine_version() -> str:
    """Return a digest of the source files of order and replay."""
    return _digest(ENGINE)


def _digest(places: Iterable[str]) -> str:
    rooms = Path(__file__).parent.parent.parent
    found = sorted(path for place in places for path in rooms.glob(place))
    return hashlib.blake2b(b"\0".join(path.read_bytes() for path in found), digest_size=8).hexdigest()


def changed_facts(warehouse: Warehouse, recording_id: str, changes: Sequence[Change]) -> Rows | None:
    """Return the facts that get another name or go: `fact_id`, `to`, `source_line`, `is_gone`; None: there are none.

    They have the columns of `OF_THE_END`, too.
    """
    if not changes:
        return None
    spans = [change.span for change in changes]
    columns = ("fact_id", "source_file", "source_line", *OF_THE_END.columns)
    stand = warehouse.around("facts", recording_id, spans, columns, _those_that_go(changes))
    if isinstance(stand, pa.Table):
        told = told_in(stand, changes)
        is_gone = pc.coalesce(pc.greater_equal(stand["source_line"], told["since"]), _NOT)
        are_changed = pc.or_(is_gone, pc.coalesce(pc.not_equal(stand["source_file"], told["to"]), _NOT))
        found = {
            "fact_id": stand["fact_id"],
            "to": told["to"],
            "source_line": stand["source_line"],
            **{name: stand[name] for name in OF_THE_END.columns},
        }
        return pa.table({**found, "is_gone": is_gone}).filter(are_changed)
    changed = stand.join(_told(stand, changes), on=F.col("source_file") == F.col("path"))
    gone = F.coalesce(F.col("source_line") >= F.col("since"), F.lit(False))  # noqa: FBT003
    rows = changed.where(gone | (F.col("source_file") != F.col("to")))
    return rows.select("fact_id", "to", "source_line", *OF_THE_END.columns, gone.alias("is_gone"))


def _those_that_go(changes: Sequence[Change]) -> pc.Expression | None:
    """Return which facts change where no file gets another name; None: facts of whole files may."""
    if len(changes) > _MOST_ENDS or any(change.path != change.to for change in changes):
        return None
    file, line = pc.field("source_file"), pc.field("source_line")
    ends = [(file == one.path) & (line >= one.since) for one in changes if one.since is not None]
    return reduce(or_, ends, pc.scalar(False))  # noqa: FBT003 - Arrow's own


def restated_facts(
    warehouse: Warehouse, recording_id: str, facts: Rows, inputs: Iterable[Mapping[str, Any]]
) -> DataFrame | None:
    """Return the facts that stand though no ledger tells of their files, and that a reading of files replaces.

    They are of a version of Tidemark without a ledger, whose parsers read otherwise. Those that are stated again are
    updated. Of the others those go that stand under the name and in the time of a file that was read: under the name of
    a log there may also be older lines, which have been rolled away. Columns as in `changed_facts`; None: none stands.
    """
    if warehouse.is_empty("facts", recording_id):
        return None
    stand = warehouse.read("facts", recording_id)
    spark = warehouse.spark
    told = [(one["path"], one["content"] in MOMENTS, one["first_ts"], one["last_ts"]) for one in inputs]
    # By way of an RDD, so that the plan does not grow with the number of files.
    files = F.broadcast(spark.createDataFrame(spark.sparkContext.parallelize(told, 1), _FILE))
    stamp = F.unix_micros("ts")
    inside = stamp.between(F.col("first_ts") - _OFF_US, F.col("last_ts") + _OFF_US)
    of_file = (F.col("source_file") == F.col("path")) & (F.col("is_moment") | F.col("ts").isNull() | inside)
    gone = stand.join(files, on=of_file, how="left_semi")
    stated = as_frame(spark, facts).select("fact_id")
    again = stand.join(stated, on="fact_id", how="left_semi").select(stand.columns)
    columns = ("fact_id", F.col("source_file").alias("to"), "source_line", F.expr("true").alias("is_gone"))
    return gone.select(stand.columns).unionByName(again).select(*columns).distinct()


def rejected_after(
    warehouse: Warehouse, recording_id: str, changes: Sequence[Change], rejected: Rows, read: Iterable[str]
) -> tuple[Rows, Within]:
    """Return the rejected lines of files that were read or renamed, and the condition of the rows that they replace."""
    names = sorted({*read, *(name for change in changes for name in (change.path, change.to))})
    within = has_one_of("source_file", names)
    small = warehouse.small("rejected_lines", recording_id) if isinstance(rejected, pa.Table) else None
    if small is not None:
        here, _ = within.split(small.rows)
        told = told_in(here, changes)
        place = here.schema.get_field_index("source_file")
        moved = here.set_column(place, here.schema.field(place), told["to"])
        stays = pc.coalesce(pc.less(here["source_line"], told["since"]), pc.is_valid(told["to"]))
        return pa.concat_tables([moved.filter(stays), completed_to(rejected, here.schema)]), within
    spark = warehouse.spark
    stand = warehouse.read("rejected_lines", recording_id).where(within.sql)
    here = stand.join(_told(stand, changes), on=F.col("source_file") == F.col("path"))
    stays = here.where(F.col("since").isNull() | (F.col("source_line") < F.col("since")))
    moved = stays.withColumn("source_file", F.col("to")).select(stand.columns)
    return moved.unionByName(as_frame(spark, rejected)), within


def _told(rows: DataFrame, changes: Sequence[Change]) -> DataFrame:
    """Return the changes as a frame; by way of an RDD, so that the plan does not grow with the number of files."""
    spark = rows.sparkSession
    listed = spark.sparkContext.parallelize([(change.path, change.to, change.since) for change in changes], 1)
    return F.broadcast(spark.createDataFrame(listed, _CHANGE))
