"""No name leads outside the warehouse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipelines.recording.names import inside, recording_name
from pipelines.recording.recording import discover, from_paths
from pipelines.stages.run import execute
from pipelines.warehouse.delta_io import Warehouse
from schemas.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

OUTSIDE = (
    "..",
    ".",
    "",
    "/",
    "../x",
    "a/../..",
    "a/..",
    "/etc",
    "a/b",
    "a\\..\\b",
    "..\0",
    ".hidden",
    "-x",
    "x\n",
    "x" * 201,
)


def a_log(folder: Path) -> Path:
    path = folder / "logs" / "node-1" / "server.log"
    path.parent.mkdir(parents=True)
    path.write_text("")
    return folder


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_recording_is_never_called_by_a_name_that_leads_elsewhere(name: str, tmp_path: Path) -> None:
    log = a_log(tmp_path / "x")
    with pytest.raises(InputError, match="cannot name a recording"):
        from_paths(name, {1: [log]})
    with pytest.raises(InputError, match="cannot name a recording"):
        execute(None, str(tmp_path), name, None, ("replay",), {}, lambda *_: None)  # type: ignore[arg-type]
    if name:  # else it is called after its folder
        with pytest.raises(InputError, match="cannot name a recording"):
            discover(log, recording_id=name)


@pytest.mark.parametrize("name", ["prod", "2025-03-01", "Störung 1", "a.b_c+d=e@f,g (2)"])
def test_a_recording_may_be_called_by_any_plain_name(name: str) -> None:
    assert recording_name(name) == name


def test_a_folder_named_from_inside_it_is_called_by_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = a_log(tmp_path / "night")
    monkeypatch.chdir(root / "logs")
    assert discover("..").recording_id == "night"
    monkeypatch.chdir(root)
    assert discover(".").recording_id == "night"


@pytest.mark.parametrize("name", ["_data_docs/..", "reports/../../x", "..", "", "/x", "a//b", "./a"])
def test_nothing_outside_the_warehouse_is_written_or_deleted(name: str, tmp_path: Path) -> None:
    warehouse = Warehouse(None, str(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="inside the warehouse"):
        warehouse.publish(str(tmp_path), name)
    with pytest.raises(InputError, match="inside the warehouse"):
        warehouse.write(name, b"")
    with pytest.raises(InputError, match="inside the warehouse"):
        inside("s3a://bucket/lake", name)


def test_a_run_deletes_no_staging_directory_but_its_own(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="inside the warehouse"):
        Warehouse(None, str(tmp_path)).drop_staging("..")  # type: ignore[arg-type]
