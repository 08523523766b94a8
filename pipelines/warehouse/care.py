"""What keeps a table small and quick to read: how large it is, few files in place of many, and files that may go.

Nothing here changes what a table says, but for `forget`, whose caller knows that nothing is made of the rows.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Final

from delta import DeltaTable
from pyspark.sql import DataFrame

from pipelines.recording.names import inside
from pipelines.spark.configured import configured
from pipelines.warehouse.contract import row_key, sql_string
from pipelines.warehouse.delta_io import FILE_BYTES, WRITES_AT_ONCE
from pipelines.warehouse.stretches import ALWAYS, DataFile, Stretch, stretches
from replay.evidence.tenures import micros
from schemas.events import REPLICATION_EVENTS
from schemas.facts import FACTS
from schemas.tables import REPLAY_TABLES, TABLES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pipelines.warehouse.delta_io import Warehouse
    from schemas.model import Table

GROWING: Final = (REPLICATION_EVENTS, *REPLAY_TABLES)
OPEN_US: Final = 24 * 3_600_000_000  # of the newest rows: how far back a run usually replaces them
_DELTA: Final = "spark.databricks.delta."


def tables_there(warehouse: Warehouse) -> list[str]:
    """Return the tables that there are; none is made."""
    return [name for name in TABLES if DeltaTable.isDeltaTable(warehouse.spark, warehouse.table_path(name))]


def files_of(warehouse: Warehouse, name: str) -> dict[str, list[DataFile]]:
    """Return by recording the files of a table, from what Delta notes of them."""
    table = DeltaTable.forPath(warehouse.spark, warehouse.table_path(name))
    # Delta has no public way to this that does not read the files themselves.
    listed = DataFrame(table._jdt.deltaLog().unsafeVolatileSnapshot().allFiles().toDF(), warehouse.spark)  # noqa: SLF001
    column = time_column(TABLES[name])
    found: dict[str, list[DataFile]] = {}
    for values, size, told in listed.select("partitionValues", "size", "stats").collect():
        stats = json.loads(told or "{}")
        first, last = (_micros(stats.get(end, {}).get(column)) for end in ("minValues", "maxValues"))
        file = DataFile(size, stats.get("numRecords", 0), first, last)
        found.setdefault(values["recording_id"], []).append(file)
    return found


def _micros(told: str | None) -> int:
    return ALWAYS if told is None else micros(datetime.fromisoformat(told))


def due(name: str, files: Collection[DataFile], file_bytes: int = FILE_BYTES) -> list[Stretch]:
    """Return the stretches of a recording's part of a table that are due; of a table without times, one of all."""
    if time_column(TABLES[name]) is not None:
        until = max((one.last_us for one in files), default=ALWAYS) - OPEN_US
        return stretches(files, until, file_bytes)
    small = [one.size for one in files if one.size * 2 < file_bytes]
    return [Stretch(ALWAYS, ALWAYS, sum(small))] if len(small) > 1 else []


def stored_bytes(warehouse: Warehouse, name: str) -> int:
    """Return how many bytes the table's folder holds, with its log and with files that only older versions need."""
    path, system = warehouse.hadoop(warehouse.table_path(name))
    return int(system.getContentSummary(path).getLength())


def differing(warehouse: Warehouse, recording_id: str, versions: Mapping[str, int]) -> list[str]:
    """Return the tables of which the recording's part is not made of the files that it had in these versions."""

    def files(name: str, version: int | None) -> set[str]:
        return set(warehouse.as_it_is(name, version, recording_id).inputFiles())

    return [
        name
        for name, version in versions.items()
        if version != warehouse.version(name) and files(name, version) != files(name, None)
    ]


def forget(warehouse: Warehouse, name: str, recording_id: str, condition: str) -> None:
    """Delete the recording's rows that meet a condition."""
    table = DeltaTable.forPath(warehouse.spark, warehouse.table_path(name))
    which = f"recording_id = {sql_string(recording_id)} AND ({condition})"
    warehouse.commit(name, lambda: table.delete(which))


def time_column(table: Table) -> str | None:
    """Return the column by which a table grows; None: runs replace all rows of a partition, or there are few."""
    if table is FACTS:
        return "ts"
    names = {column.name for column in table.columns}
    return "window" if table in GROWING and "window" in names else None


def order_of(table: Table) -> tuple[str, ...]:
    """Return the columns by which a stretch of a table is ordered: facts are asked for by time, rows by partition."""
    return ("ts", "fact_id") if table is FACTS else row_key(table)


def compact(warehouse: Warehouse, name: str, recording_id: str, file_bytes: int = FILE_BYTES) -> None:
    """Put small files of the recording together. The rows stay as they are, and readers of older versions as well.

    Delta's own OPTIMIZE puts small files of any time together, or orders the whole table each time. Tables that grow
    with time are therefore written anew in stretches of small files, each in order (docs/decisions/0013). The last day
    stays as it is: the next run replaces rows of it, and would have to write larger files once more.
    """
    table = TABLES[name]
    column, order = time_column(table), order_of(table)
    if column is None:
        _optimize(warehouse, name, recording_id, file_bytes)
        return
    for stretch in due(name, files_of(warehouse, name).get(recording_id, []), file_bytes):
        within = stretch.condition(column)
        rows = warehouse.read(name, recording_id).where(within)
        count = -(-stretch.bytes // file_bytes)
        ranges = rows.repartitionByRange(count, *order) if count > 1 else rows.coalesce(1)
        found = ranges.sortWithinPartitions(*order)
        warehouse.replace(name, found, recording_id, arranged=True, within=within, are_same=True)


def _optimize(warehouse: Warehouse, name: str, recording_id: str, file_bytes: int) -> None:
    table = DeltaTable.forPath(warehouse.spark, warehouse.table_path(name))
    told = {f"{_DELTA}optimize.maxFileSize": file_bytes, f"{_DELTA}optimize.minFileSize": file_bytes // 2}
    with configured(warehouse.spark, told):
        mine = f"recording_id = {sql_string(recording_id)}"
        warehouse.commit(name, lambda: table.optimize().where(mine).executeCompaction())


def vacuum(warehouse: Warehouse, names: Iterable[str], hours: int) -> None:
    """Delete files that no version of the last so many hours needs."""
    # Otherwise Delta takes a number of hours, and then goes by each table's own property.
    told = {f"{_DELTA}{name}.enabled": "false" for name in ("vacuum.retentionWindowIgnore", "retentionDurationCheck")}
    # A commit here could replace one of a run that goes on at the same time.
    told[f"{_DELTA}vacuum.logging.enabled"] = "false"

    def sweep(name: str) -> None:
        DeltaTable.forPath(warehouse.spark, warehouse.table_path(name)).vacuum(hours)

    with configured(warehouse.spark, told), ThreadPoolExecutor(WRITES_AT_ONCE) as pool:
        for _ in pool.map(sweep, names):
            pass


def staged_before(warehouse: Warehouse, moment_ms: int) -> list[str]:
    """Return the folders in which something is staged, and nothing was written since a moment of the store's clock."""
    root, system = warehouse.hadoop(inside(warehouse.path, "_staging"))
    if not system.exists(root):
        return []
    found = []
    for folder in system.listStatus(root):
        newest = folder.getModificationTime()
        files = system.listFiles(folder.getPath(), True)  # noqa: FBT003 - Java's recursive
        while files.hasNext():
            newest = max(newest, files.next().getModificationTime())
        if newest < moment_ms:
            found.append(str(folder.getPath().getName()))
    return sorted(found)
