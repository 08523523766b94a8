"""The notebook runs from its first cell to its last, on a warehouse of a bundled recording."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import nbformat
import pytest
from nbclient import NotebookClient
from warehouse_without_spark import write_warehouse

if TYPE_CHECKING:
    from pathlib import Path

NAME = "unclean-election"


@pytest.fixture
def notebook(repository: Path) -> nbformat.NotebookNode:
    return nbformat.read(repository / "docs" / "notebooks" / "first-look.ipynb", as_version=4)


def test_it_is_kept_without_outputs(notebook: nbformat.NotebookNode) -> None:
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert all(not cell.outputs and cell.execution_count is None for cell in code)


def test_it_shows_what_was_lost(
    notebook: nbformat.NotebookNode,
    repository: Path,
    recordings: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIDEMARK_WAREHOUSE", str(write_warehouse(tmp_path, recordings, [NAME])))
    monkeypatch.setenv("TIDEMARK_RECORDING", NAME)
    monkeypatch.setenv("PYTHONPATH", str(repository))
    NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(repository)}}).execute()
    shown = [output.data for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output]
    texts = "\n".join(data["text/plain"] for data in shown)
    assert re.search(r"payments +0 +unclean_election +S1 +2555 +2555", texts)
    (picture,) = [data["image/svg+xml"] for data in shown if "image/svg+xml" in data]
    assert "Log ends of payments-" in picture
    assert picture.count('aria-roledescription="line mark"') >= 3
    assert picture.count('aria-roledescription="rect mark"') + picture.count('class="mark-rect') >= 1
    assert "unclean.leader.election.enable=false" in texts
