"""Files in place of others of a table on this machine: of new rows, and of what is left of files that stand.

What an hour brings takes the place of some rows, in files with others that stay. Each of these files is written again
by itself, so that a file has the rows of one run: were they written together, every file would soon have rows of all
times, and each run would write all of them again. The driver writes what it has in memory, and workers the rest.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.lines.rows import LATEST
from pipelines.spark.row_files import GROUP_ROWS, PARTITIONED, RowFile, arrow_of, rewritten, without
from pipelines.spark.staging import may_be_null
from pipelines.warehouse.fact_merge import is_before, merged
from pipelines.warehouse.spans import Near, spans_of
from replay.arrays.columns import completed_to
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pipelines.spark.row_files import Mask
    from pipelines.warehouse.spans import Span
    from pipelines.warehouse.table_files import TableFiles
    from pipelines.warehouse.within import Within

MOST_CHANGED: Final = 300_000  # facts that stand and change: they are in the driver's memory, with some 500 bytes each
_FACTS: Final = TABLES["facts"]
_NOT: Final = pa.scalar(False)  # noqa: FBT003 - Arrow's own
_PLACED: Final = ("fact_id", "ts", "source_file", "source_line")


class Exchange(NamedTuple):
    """Files of rows on this machine, and in whose place a table takes them over."""

    files: list[Path]
    gone: list[str] | None  # paths as Delta's log has them; None: of all the recording's files


def in_place_of(
    spark: SparkSession, stand: TableFiles, given: pa.Table | Sequence[Path], within: Within | None, folder: Path
) -> Exchange | None:
    """Write rows, and what is left of files with rows in whose place they are.

    `given`: the rows, or files with streams of them. `within`: which rows are replaced, and which new ones are written;
    None: all. None: some rows are another recording's, lack a column, do not fit one, or break a check.
    """
    schema = may_be_null(TABLES[stand.name].arrow_schema)
    if isinstance(given, pa.Table):
        made = _written(stand, given if within is None else within.split(given)[0], folder)
    else:
        made = rewritten(spark, given, folder, stand.recording_id, schema, None if within is None else within.are_met)
    if made is None or not _are_sound(spark, stand, made):
        return None
    if within is None:
        return Exchange(made, None)
    some = stand if within.since is None else stand.between("window", within.since, LATEST, or_none=True)
    left = _parted(spark, some, within.are_met, within.reads, folder)
    return Exchange([*made, *left.files], left.gone)


def facts_in_place_of(
    spark: SparkSession,
    stand: TableFiles,
    given: pa.Table | Sequence[Path],
    changed: pa.Table | None,
    spans: Sequence[Span | None] | None,
    folder: Path,
) -> Exchange | None:
    """Write the facts that do not stand yet, and others in place of those that change, by the rules of `merged`.

    `given`: the facts, or Parquet files of them on this machine. `changed`, `spans`: as of `Warehouse.append_facts`;
    where nothing changes, facts are only added. None: as of `in_place_of`, or too many change.
    """
    near = stand if spans is None else stand.around("ts", spans)
    placed = ("fact_id",) if changed is None else _PLACED
    known = near.rows(placed, pc.field("fact_id").isin(_ids_of(given, near)))
    known_ids = known["fact_id"].combine_chunks()
    news = _news(spark, stand, given, known_ids, folder)
    left = Exchange([], [])
    if news is not None and changed is not None:
        again = given_facts(given, stand.recording_id, known_ids, _PLACED)
        rows = again.take(pc.index_in(known["fact_id"], again["fact_id"]))
        earlier = known.filter(pc.coalesce(is_before(rows, known), _NOT))
        touched = _ids_in([changed, earlier])
        if len(touched) > MOST_CHANGED:
            return None
        where = Near.of(changed["ts"], earlier["ts"])
        hours = [span for one in (changed, earlier) for span in spans_of(one["ts"])]
        some = near if where.span is None else near.within("ts", hours)
        stood = some.rows((), where.filter("ts") & pc.field("fact_id").isin(touched))
        left = _parted(spark, some, partial(_are_among, touched), ("fact_id",), folder)
        stated = given_facts(given, stand.recording_id, touched, _FACTS.arrow_schema.names)
        others = _written(stand, merged(stood, stated, changed, known["fact_id"]), folder)
        news = None if others is None else [*news, *others]
    return None if news is None or not _are_sound(spark, stand, news) else Exchange([*news, *left.files], left.gone)


def _are_sound(spark: SparkSession, stand: TableFiles, files: Sequence[Path]) -> bool:
    """Whether no row in files breaks a check of their table."""
    from pipelines.warehouse.soundness import are_sound  # noqa: PLC0415 - workers import this module, and no DuckDB

    return are_sound(spark, stand.name, stand.recording_id, files)


def _parted(
    spark: SparkSession,
    stand: TableFiles,
    are_gone: Callable[[pa.Table], Mask],
    reads: Collection[str],
    folder: Path,
) -> Exchange:
    """Return what is left of files without certain rows, in place of those that had any."""
    named = dict(zip(stand.paths, stand.files["path"].to_pylist(), strict=True))
    found = without(spark, [*named], are_gone, reads, folder, TABLES[stand.name].arrow_schema)
    return Exchange([left for _, left in found if left is not None], [named[file] for file, _ in found])


def _ids_of(given: pa.Table | Sequence[Path], near: TableFiles) -> pa.Array:
    """Return the ids of facts; none if nothing stands that they could be compared with."""
    if not len(near.files):
        return pa.array([], pa.string())
    if isinstance(given, pa.Table):
        return _ids_in([given])
    return _ids_in(pq.read_table(file, columns=["fact_id"]) for file in given)


def _ids_in(tables: Iterable[pa.Table]) -> pa.Array:
    """Return the ids of all these facts."""
    return pa.chunked_array([ids for rows in tables for ids in rows["fact_id"].chunks], pa.string()).combine_chunks()


def _are_among(ids: pa.Array, rows: pa.Table) -> Mask:
    return pc.is_in(rows["fact_id"], ids)


def given_facts(given: pa.Table | Sequence[Path], recording_id: str, ids: pa.Array, columns: Sequence[str]) -> pa.Table:
    """Return these columns of the given facts that have one of these ids."""
    schema = pa.schema([_FACTS.arrow_schema.field(name).with_nullable(True) for name in columns])  # noqa: FBT003
    if isinstance(given, pa.Table):
        return completed_to(given.filter(_are_among(ids, given)), schema)
    rows = arrow_of(given, recording_id, schema, pc.field("fact_id").isin(ids))
    return pa.Table.from_batches(rows, schema)


def _news(
    spark: SparkSession, stand: TableFiles, given: pa.Table | Sequence[Path], known: pa.Array, folder: Path
) -> list[Path] | None:
    """Return files of the given facts that do not stand; None: Spark is to write them (`_written`)."""
    if isinstance(given, pa.Table):
        return _written(stand, given.filter(pc.invert(_are_among(known, given))), folder)
    if not len(known):
        return [*given]
    found = dict(without(spark, given, partial(_are_among, known), ("fact_id",), folder, _FACTS.arrow_schema))
    return [left for file in given if (left := found.get(file, file)) is not None]


def _written(stand: TableFiles, rows: pa.Table, folder: Path) -> list[Path] | None:
    """Write rows into a file, if there are any; None: some are another recording's, lack a column, or do not fit it."""
    schema = may_be_null(TABLES[stand.name].arrow_schema)
    try:
        whole = rows.select(schema.names).cast(schema)
    except (KeyError, ValueError):
        return None
    if whole[PARTITIONED].unique().to_pylist() not in ([], [stand.recording_id]):
        return None
    file = RowFile(folder)
    for begin in range(0, len(whole), GROUP_ROWS):
        file.add(whole.slice(begin, GROUP_ROWS))
    return [folder / name for name in file.close()["name"].to_pylist()]
