"""What a worker keeps between tasks: nothing of it is looked through again, and all of it still works."""

from __future__ import annotations

import gc
import importlib
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from pipelines.spark import workers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    yield
    gc.unfreeze()
    workers.settle.cache_clear()


def test_what_is_loaded_is_looked_through_once_a_stage() -> None:
    workers.settle("replay")
    loaded = gc.get_freeze_count()
    assert loaded > 10_000
    later = [[] for _ in range(1000)]
    workers.settle("replay")
    assert gc.get_freeze_count() <= loaded
    workers.settle("order")
    assert gc.get_freeze_count() >= loaded + len(later) - 100


def test_modules_of_an_archive_are_found_after_its_importer_was_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("early_in_archive.py", "told = 1")
        packed.writestr("late_in_archive.py", "told = 2")
    monkeypatch.syspath_prepend(str(archive))
    assert importlib.import_module("early_in_archive").told == 1
    workers.settle("replay")
    assert str(archive) not in sys.path_importer_cache
    assert importlib.import_module("late_in_archive").told == 2
