"""Makes and writes tables without a Spark job, as long as their files lie on this machine.

Spark plans, compiles and commits for seconds to write some kilobytes; deltalake needs milliseconds for the same commit.
What it does not take, it leaves as it was, and Spark is asked: rows that break a check of the table, a check that it
cannot compute, a table that needs more of a writer, and one that lacks columns.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from pipelines.spark.row_files import RowFile, in_files, in_form, parquet_file
from pipelines.warehouse.contract import check_constraints
from pipelines.warehouse.opened import NO_HOOKS, file_of, in_one_line, place_of, sum_up
from pipelines.warehouse.table_files import TableFiles, has_columns_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from deltalake import DeltaTable

    from pipelines.warehouse.opened import Opened
    from schemas.model import Table

_CHECKING: Final = 3  # Delta's protocol of writers that mind CHECK constraints, and the one before it
_WRITING: Final = 2
_CHECK: Final = "delta.constraints."
# Names of recordings of which Spark and deltalake write the folders' names alike. Of others deltalake would take a file
# of Spark's away under a name that Spark does not know, so that its rows stood twice.
_ALIKE: Final = re.compile(r"[A-Za-z0-9_.-]+")
SMALL_FILE: Final = 512 << 10  # bytes
MOST_SMALL_FILES: Final = 16  # each run adds some, and reads a table up to ten times
NEWEST_SMALL_FILES: Final = 4  # so many stay as they are: the next run has rows of theirs to replace
_LONGEST: Final = 249  # characters of a text in Delta's log, as many as the name of a topic may have
_UP: Final = timedelta(microseconds=999)  # to the next whole millisecond: times in Delta's log have no more digits


def is_there(place: Path) -> bool:
    """Whether a table has a first commit."""
    return (place / "_delta_log" / file_of(0)).exists() or any((place / "_delta_log").glob("*.checkpoint.parquet"))


def make(place: Path, schema: str, comment: str, properties: Mapping[str, str], mark: str | None) -> None:
    """Make a table with the schema that stands here as Spark's JSON, unless another driver just did.

    This is the first commit as Delta's protocol describes it. deltalake makes no tables with properties of ours.
    """
    now_ms = time.time_ns() // 1_000_000
    checks = any(name.startswith(_CHECK) for name in properties)
    form = {
        "id": str(uuid.uuid4()),
        "description": comment,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema,
        "partitionColumns": ["recording_id"],
        "configuration": dict(properties),
        "createdTime": now_ms,
    }
    told = {} if mark is None else {"userMetadata": mark}
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": now_ms, "operation": "CREATE TABLE", "operationParameters": {}, **told}},
        {"metaData": form},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": _CHECKING if checks else _WRITING}},
    ]
    log = place / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    made = log / f".{uuid.uuid4()}.json"  # a link to it is there as a whole or not at all
    made.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    try:
        with suppress(FileExistsError):
            os.link(made, log / file_of(0))
    finally:
        made.unlink()


def form_of(place: Path, opened: Opened) -> tuple[str, dict[str, str], str | None] | None:
    """Return a table's schema as Spark's JSON, its properties, its comment; None: only Spark can read it."""
    try:
        stands = opened.newest(place)
    except DeltaError:
        return None
    form = stands.metadata()
    return stands.schema().to_json(), dict(form.configuration), form.description


def write(
    stands: DeltaTable,
    table: Table,
    rows: pa.Table,
    recording_id: str,
    mark: str | None,
    mode: Literal["append", "overwrite"] = "overwrite",
) -> bool:
    """Add rows of a recording in one commit, in place of those that stand, or beside them; False: Spark is to do it.

    OSError, in one line, if the file system does not let it.
    """
    with in_one_line():
        if not _is_ours(stands, table, recording_id):
            return False
        told: dict[str, Any] = {"commit_properties": _told(mark), "post_commithook_properties": NO_HOOKS}
        try:
            # KeyError: a column is missing. ValueError: a null that must not be.
            given = rows.select(table.arrow_schema.names).cast(table.arrow_schema)
            if mode == "append":
                write_deltalake(stands, given, mode=mode, **told)
            else:
                write_deltalake(stands, given, mode=mode, predicate=f"recording_id = '{recording_id}'", **told)
        except (DeltaError, KeyError, ValueError):
            return False
        _put_together(stands, table, recording_id, mark)
        sum_up(stands)
    return True


def _put_together(stands: DeltaTable, table: Table, recording_id: str, mark: str | None) -> None:
    """Make one file of a recording's small ones, once they are many, but for the newest.

    deltalake's own compaction takes these as well. Delta's log says that no row came or went in this commit: who asks
    what is new is not shown its file. Only runs do it, whose commits are marked. If it fails, the table stands as it
    was, and the next run tries again.
    """
    if mark is None or len(stands.file_uris()) <= MOST_SMALL_FILES:
        return
    is_small = (pc.field("partition.recording_id") == recording_id) & (pc.field("size_bytes") < SMALL_FILE)
    small = pa.table(stands.get_add_actions(flatten=True)).filter(is_small)
    if len(small) <= MOST_SMALL_FILES:
        return
    by_age = small.sort_by([("modification_time", "ascending"), ("path", "ascending")])
    old = TableFiles(table.name, recording_id, stands, by_age.slice(0, len(small) - NEWEST_SMALL_FILES))
    gathered = RowFile(place_of(stands) / f"recording_id={recording_id}")
    with suppress(DeltaError, OSError, ValueError):  # ValueError: Arrow cannot read a file
        for file in old.paths:
            gathered.add(in_form(parquet_file(file).read(), in_files(table.arrow_schema)))
        made = [gathered.folder / name for name in gathered.close()["name"].to_pylist()]
        _commit_files(stands, made, old.files["path"].to_pylist(), recording_id, mark, data_change=False)


def _is_ours(stands: DeltaTable, table: Table, recording_id: str) -> bool:
    """Whether deltalake may write a recording's rows to a table: its writers need no more, and it has our columns."""
    is_plain = stands.protocol().min_writer_version <= _CHECKING and has_columns_of(stands, table)
    return is_plain and _ALIKE.fullmatch(recording_id) is not None


def take_over(
    stands: DeltaTable,
    table: Table,
    files: Sequence[Path],
    gone: Collection[str] | None,
    recording_id: str,
    mark: str | None,
) -> bool:
    """Add Parquet files with rows of a recording as they are, in one commit, in place of files of it or beside them.

    Nobody looks at the rows again: all of them must be sound. The files stay where they were, too. `gone`: paths of the
    files that they replace, as Delta's log has them; None: all of the recording. False: Spark is to write their rows.
    """
    with in_one_line():
        if not may_take_over(stands, table, recording_id):
            return False
        folder = place_of(stands) / f"recording_id={recording_id}"
        folder.mkdir(exist_ok=True)
        taken = [folder / file.name for file in files]
        for file, target in zip(files, taken, strict=True):
            _put_also(file, target)
        try:
            _commit_files(stands, taken, gone, recording_id, mark)
        except DeltaError:
            return False
        _put_together(stands, table, recording_id, mark)
        sum_up(stands)
    return True


def _commit_files(
    stands: DeltaTable,
    files: Sequence[Path],
    gone: Collection[str] | None,
    recording_id: str,
    mark: str | None,
    *,
    data_change: bool = True,
) -> None:
    """Commit that these files of the table's folder are in place of others (None: of all of the recording).

    `data_change`: whether rows come or go. DeltaError: it was not committed; no one reads the files, and `maintain`
    takes them away.
    """
    skipping = _skipping_columns(stands)
    added = [_added(file, recording_id, skipping, data_change=data_change) for file in files]
    stands.create_write_transaction(
        [*added, *_removed(stands, gone or (), recording_id, data_change=data_change)],
        "overwrite" if gone is None else "append",
        stands.schema(),
        ["recording_id"],
        partition_filters=[("recording_id", "=", recording_id)] if gone is None else None,
        commit_properties=_told(mark),
        post_commithook_properties=NO_HOOKS,
    )
    stands.update_incremental()


def may_take_over(stands: DeltaTable, table: Table, recording_id: str) -> bool:
    """Whether a table may take over files of a recording."""
    return _is_ours(stands, table, recording_id) and _has_only_checks_of(stands, table)


def _removed(stands: DeltaTable, gone: Collection[str], recording_id: str, *, data_change: bool) -> list[RemoveAction]:
    """Return what Delta's log says of files that go. DeltaError: one of them is no longer there."""
    files = pa.table(stands.get_add_actions(flatten=True)).select(["path", "size_bytes"]).to_pylist()
    every = {file["path"]: file["size_bytes"] for file in files}
    if lost := set(gone).difference(every):
        message = f"no longer there: {', '.join(sorted(lost))}"
        raise DeltaError(message)
    now_ms = time.time_ns() // 1_000_000
    of: dict[str, str | None] = {"recording_id": recording_id}
    return [
        RemoveAction(path, data_change=data_change, deletion_timestamp=now_ms, size=every[path], partition_values=of)
        for path in gone
    ]


def _has_only_checks_of(stands: DeltaTable, table: Table) -> bool:
    """Whether Delta is to check nothing of the rows but what the table's own checks are."""
    names = {name.removeprefix(_CHECK) for name in stands.metadata().configuration if name.startswith(_CHECK)}
    return names <= {name.lower() for name in check_constraints(table)}


def _told(mark: str | None) -> CommitProperties:
    """Return what a commit says of the run that makes it."""
    return CommitProperties(custom_metadata=None if mark is None else {"userMetadata": mark})


def _put_also(file: Path, target: Path) -> None:
    """Let a file be in another place as well, where the file system can without copying it."""
    try:
        os.link(file, target)
    except OSError:
        shutil.copyfile(file, target)


def _skipping_columns(stands: DeltaTable) -> Sequence[str]:
    """Return the columns by which readers skip files: those that the table names, or else the first 32, as in Delta."""
    named = stands.metadata().configuration.get("delta.dataSkippingStatsColumns")
    return [field.name for field in stands.schema().fields][:32] if named is None else named.split(",")


def _added(file: Path, recording_id: str, skipping: Sequence[str], *, data_change: bool) -> AddAction:
    """Return what Delta's log says of a file, with the least and the largest value of some columns."""
    told, stat = pq.read_metadata(file), file.stat()
    least: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for place in range(told.num_columns):
        column = told.schema.column(place)
        found = [told.row_group(k).column(place).statistics for k in range(told.num_row_groups)]
        if column.path not in skipping or any(one is None or not one.has_null_count for one in found):
            continue
        nulls[column.path] = sum(one.null_count for one in found)
        some = [one for one in found if one.has_min_max]
        if some and len(some) == sum(one.num_values > 0 for one in found):
            ends = min(one.min for one in some), max(one.max for one in some)
            if not any(isinstance(end, bytes) or (isinstance(end, str) and len(end) > _LONGEST) for end in ends):
                least[column.path], largest[column.path] = _in_log(ends[0]), _in_log(ends[1], _UP)
    stats = {"numRecords": told.num_rows, "minValues": least, "maxValues": largest, "nullCount": nulls}
    return AddAction(
        f"recording_id={recording_id}/{file.name}",
        stat.st_size,
        {"recording_id": recording_id},
        stat.st_mtime_ns // 1_000_000,
        data_change=data_change,
        stats=json.dumps(stats),
    )


def _in_log(value: object, more: timedelta = timedelta()) -> object:
    """Return a value as Delta's log states it: of a time, to which `more` is added, the whole milliseconds."""
    if not isinstance(value, datetime):
        return value
    return f"{(value + more).astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
