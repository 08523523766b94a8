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
import pyarrow.parquet as pq
from deltalake import CommitProperties, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from pipelines.warehouse.contract import check_constraints
from pipelines.warehouse.opened import file_of, in_one_line, place_of, sum_up
from pipelines.warehouse.table_files import has_columns_of

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
# What is written again beside new rows, because it was in a file with rows that they replace, goes to files about as
# large as theirs. In one file with them it would be written again by every run that goes on where this one ended.
# Small files are an exception: to read very many of them costs a run more than to write a few again.
PACKED: Final = 16  # bytes of rows in memory that are one in a file, about
LEAST_BYTES: Final = 1 << 20  # of such a file
MOST_SMALL: Final = 16  # files of less than half of that: each run adds some, and reads a table up to ten times
_UP: Final = timedelta(microseconds=999)  # to the next whole millisecond: times in Delta's log have no more digits
_ALIKE: Final = re.compile(r"[A-Za-z0-9_.-]+")


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


def write(  # noqa: PLR0913, PLR0917 - what is written, and in place of what
    stands: DeltaTable,
    table: Table,
    rows: pa.Table,
    recording_id: str,
    mark: str | None,
    mode: Literal["append", "overwrite"] = "overwrite",
    only: str | None = None,
) -> bool:
    """Add rows of a recording in one commit, in place of those that stand, or beside them; False: Spark is to do it.

    `only`: the condition of the rows that are replaced, which new rows have to meet; None: all are.
    OSError, in one line, if the file system does not let it.
    """
    with in_one_line():
        if not _is_ours(stands, table, recording_id):
            return False
        told = _told(mark)
        try:
            # KeyError: a column is missing. ValueError: a null that must not be.
            given = rows.select(table.arrow_schema.names).cast(table.arrow_schema)
            if mode == "append":
                write_deltalake(stands, given, mode=mode, commit_properties=told)
            else:
                mine = f"recording_id = '{recording_id}'" + (f" AND ({only})" if only else "")
                size = max(given.nbytes // PACKED, LEAST_BYTES) if only else None
                write_deltalake(stands, given, mode=mode, predicate=mine, commit_properties=told, target_file_size=size)
        except (DeltaError, KeyError, ValueError):
            return False
        if mark is not None:
            _put_together(stands, recording_id, told)
        sum_up(stands)
    return True


def _put_together(stands: DeltaTable, recording_id: str, told: CommitProperties) -> None:
    """Make few files of a recording's small ones, once they are many; files that follow each other stay together.

    Only a run that holds the recording may do it, whose commits are marked: deltalake does not notice that another
    driver has put the same files together meanwhile, and then their rows would stand twice. If it fails, the table
    stands as it was.
    """
    if len(stands.file_uris()) <= MOST_SMALL:
        return
    files = pa.table(stands.get_add_actions(flatten=True)).select(["partition.recording_id", "size_bytes"])
    small = [
        of == recording_id and size < LEAST_BYTES // 2 for of, size in zip(*files.to_pydict().values(), strict=True)
    ]
    if sum(small) > MOST_SMALL:
        with suppress(DeltaError, OSError):
            mine = [("recording_id", "=", recording_id)]
            stands.optimize.compact(mine, LEAST_BYTES, max_concurrent_tasks=1, commit_properties=told)


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
        skipping = stands.metadata().configuration.get("delta.dataSkippingStatsColumns", "").split(",")
        folder = place_of(stands) / f"recording_id={recording_id}"
        folder.mkdir(exist_ok=True)
        taken: list[Path] = []
        try:
            for file in files:
                taken.append(folder / file.name)
                _put_also(file, taken[-1])
            actions: list[AddAction | RemoveAction] = [_added(file, recording_id, skipping) for file in taken]
            actions += _removed(stands, gone or (), recording_id)
            stands.create_write_transaction(
                actions,
                "overwrite" if gone is None else "append",
                stands.schema(),
                ["recording_id"],
                partition_filters=[("recording_id", "=", recording_id)] if gone is None else None,
                commit_properties=_told(mark),
            )
        except DeltaError:
            for file in taken:
                file.unlink(missing_ok=True)
            return False
        stands.update_incremental()
        sum_up(stands)
    return True


def may_take_over(stands: DeltaTable, table: Table, recording_id: str) -> bool:
    """Whether a table may take over files of a recording."""
    return _is_ours(stands, table, recording_id) and _has_only_checks_of(stands, table)


def _removed(stands: DeltaTable, gone: Collection[str], recording_id: str) -> list[RemoveAction]:
    """Return what Delta's log says of files that go. DeltaError: one of them is no longer there."""
    files = pa.table(stands.get_add_actions(flatten=True)).select(["path", "size_bytes"]).to_pylist()
    every = {file["path"]: file["size_bytes"] for file in files}
    if lost := set(gone).difference(every):
        message = f"no longer there: {', '.join(sorted(lost))}"
        raise DeltaError(message)
    now_ms = time.time_ns() // 1_000_000
    of: dict[str, str | None] = {"recording_id": recording_id}
    return [
        RemoveAction(path, data_change=True, deletion_timestamp=now_ms, size=every[path], partition_values=of)
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


def _added(file: Path, recording_id: str, skipping: Sequence[str]) -> AddAction:
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
            least[column.path] = _in_log(min(one.min for one in some))
            largest[column.path] = _in_log(max(one.max for one in some), _UP)
    stats = {"numRecords": told.num_rows, "minValues": least, "maxValues": largest, "nullCount": nulls}
    return AddAction(
        f"recording_id={recording_id}/{file.name}",
        stat.st_size,
        {"recording_id": recording_id},
        stat.st_mtime_ns // 1_000_000,
        data_change=True,
        stats=json.dumps(stats),
    )


def _in_log(value: object, more: timedelta = timedelta()) -> object:
    """Return a value as Delta's log states it: of a time, to which `more` is added, the whole milliseconds."""
    if not isinstance(value, datetime):
        return value
    return f"{(value + more).astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
