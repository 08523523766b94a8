"""Which files of a table came and which went since an earlier version, by Delta's log on this machine."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from pipelines.warehouse.opened import file_of, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pipelines.warehouse.table_files import TableFiles

_LISTED: Final = pa.schema([("path", pa.string()), ("size_bytes", pa.int64())])


class Change(NamedTuple):
    """The files of a table that came since, and those that went."""

    new: TableFiles
    gone: TableFiles

    @property
    def size_bytes(self) -> int:
        """The size of all of them, as they are compressed."""
        return self.new.size_bytes + self.gone.size_bytes


def changes_of(files: Mapping[str, TableFiles], versions: Mapping[str, int]) -> dict[str, Change]:
    """Return by table how a recording's files differ from those of earlier versions, where Delta's log says it."""
    found = {name: change_of(one, versions.get(name)) for name, one in files.items()}
    return {name: change for name, change in found.items() if change is not None}


def change_of(files: TableFiles, version: int | None) -> Change | None:
    """Return how a recording's files differ from those of an earlier version; None: Delta's log does not say it."""
    if version is None or version > files.table.version():
        return None
    came: set[str] = set()
    went: dict[str, int | None] = {}
    try:
        for commit in _commits(files, version):
            added = [told["path"] for action, told in commit if action == "add"]
            removed = {told["path"]: told.get("size") for action, told in commit if action == "remove"}
            if not any(told.get("dataChange", True) for _, told in commit) and came.isdisjoint(removed):
                continue  # files that stood were put together: they are in others now, and no row came or went
            came.update(added)
            went |= {path: size for path, size in removed.items() if path not in came}
            came.difference_update(removed)
    except (OSError, ValueError):
        return None
    now = files.files["path"].to_pylist()
    lost = [{"path": path, "size_bytes": size} for path, size in went.items()]
    left = replace(files, files=pa.Table.from_pylist(lost, _LISTED))
    if not came.issubset(now) or not went.keys().isdisjoint(now) or not all(path.exists() for path in left.paths):
        return None
    return Change(files.only(came), left)


def _commits(files: TableFiles, version: int) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Yield what each commit after a version says of files of the recording. OSError, ValueError: it is not there."""
    log, folder = place_of(files.table) / "_delta_log", f"recording_id={files.recording_id}/"

    def is_ours(told: dict[str, Any]) -> bool:
        values = told.get("partitionValues")
        return bool(told["path"].startswith(folder) if values is None else files.recording_id in values.values())

    for number in range(version + 1, files.table.version() + 1):
        lines = (log / file_of(number)).read_text(encoding="utf-8").splitlines()
        actions = (action for line in lines for action in json.loads(line).items())
        yield [(name, told) for name, told in actions if name in {"add", "remove"} and is_ours(told)]
