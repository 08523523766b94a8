"""Compiled rules are kept under a name made of all sources: numba by itself would go on with what a callee was."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from replay.arrays import code_cache

if TYPE_CHECKING:
    from pathlib import Path

CALLEE = """
from replay.arrays.jit import compiled

@compiled
def callee(number):
    return number + {more}
"""
CALLER = """
import numba
from replay.callee import callee
from replay.arrays.jit import compiled

def caller(number):
    return callee(number)

kept, kept_by_numba = compiled(caller), numba.njit(cache=True)(caller)
"""
SCRIPT = """
from replay.caller import kept, kept_by_numba
print(kept(1), kept_by_numba(1), sum(kept.stats.cache_hits.values()))
"""
NO_PLACE = f"""
from replay.arrays.code_cache import KeptRule
KeptRule._locator_classes = []
{SCRIPT}
"""
MISSING = """
from replay.arrays.code_cache import is_missing
from replay.caller import kept
before = is_missing(kept)
kept(1)
print(before, is_missing(kept))
"""


@pytest.fixture
def copied(repository: Path, tmp_path: Path) -> Path:
    for name in ("schemas", "replay"):
        shutil.copytree(repository / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "replay/callee.py").write_text(CALLEE.format(more=1))
    (tmp_path / "replay/caller.py").write_text(CALLER)
    return tmp_path


def told(folder: Path, script: str = SCRIPT, **environment: str) -> list[str]:
    """What a process of its own prints that has the folder's packages."""
    ours = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "NUMBA_DISABLE_JIT": "0", "NUMBA_CACHE_DIR": ""}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={**os.environ, **ours, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def caches(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("rules-*")}


def test_change_in_a_callee_takes_another_cache_where_numba_goes_on_with_what_was(copied: Path) -> None:
    assert told(copied) == ["2", "2", "0"]
    assert told(copied) == ["2", "2", "1"]
    before = caches(copied)
    assert len(before) == 1
    (copied / "replay/callee.py").write_text(CALLEE.format(more=2))
    assert told(copied) == ["3", "2", "0"]
    assert len(caches(copied) - before) == 1
    (copied / "replay/callee.py").write_text(CALLEE.format(more=1))
    assert told(copied)[0::2] == ["2", "1"], "the first cache is there still"


def test_copies_of_the_sources_share_what_lies_in_the_folder_that_the_environment_names(
    copied: Path, tmp_path: Path
) -> None:
    folder = str(tmp_path / "cache")
    assert told(copied, NUMBA_CACHE_DIR=folder)[2] == "0"
    for name in ("schemas", "replay"):
        shutil.copytree(copied / name, tmp_path / "unpacked anew" / name)
    assert told(tmp_path / "unpacked anew", NUMBA_CACHE_DIR=folder)[2] == "1"
    assert len(caches(tmp_path / "cache")) == 1
    assert not caches(copied / "replay")


def test_rule_that_can_be_kept_nowhere_is_compiled_all_the_same(copied: Path) -> None:
    assert told(copied, NO_PLACE)[0::2] == ["2", "0"]
    assert not caches(copied)


@pytest.mark.parametrize("changed", ["replay/engine/kernel.py", "schemas/events.py"])
def test_name_is_made_of_every_source(copied: Path, changed: str) -> None:
    script = "from replay.arrays.code_cache import name_of_cache; print(name_of_cache())"
    before = told(copied, script)
    assert told(copied, script) == before
    with (copied / changed).open("a") as source:
        source.write("# a change\n")
    assert told(copied, script) != before


@pytest.mark.parametrize("what", ["numba.__version__", "llvmlite.__version__", "np.__version__"])
def test_name_is_made_of_the_versions_that_compile(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    module, attribute = what.split(".")
    before = code_cache.name_of_cache()
    monkeypatch.setattr(getattr(code_cache, module), attribute, "0.0.1")
    assert code_cache.name_of_cache.__wrapped__() != before


def test_name_is_made_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_cache.name_of_cache()
    monkeypatch.setattr(code_cache.binding, "get_host_cpu_name", lambda: "another")
    assert code_cache.name_of_cache.__wrapped__() != before


def test_rule_is_missing_until_a_process_has_compiled_it(copied: Path) -> None:
    assert told(copied, MISSING) == ["True", "False"]
    assert told(copied, MISSING) == ["False", "False"]


def test_rule_that_has_no_place_or_is_not_compiled_is_not_missing(copied: Path) -> None:
    no_place = NO_PLACE.replace(SCRIPT, MISSING)
    assert told(copied, no_place) == ["False", "False"]
    assert told(copied, MISSING, NUMBA_DISABLE_JIT="1") == ["False", "False"]


def test_one_process_at_a_time_writes_down_what_was_compiled(tmp_path: Path) -> None:
    started = []
    with code_cache.alone(str(tmp_path)):
        waits = f"from replay.arrays.code_cache import alone\nwith alone({str(tmp_path)!r}): print('in')"
        started.append(subprocess.Popen([sys.executable, "-c", waits], stdout=subprocess.PIPE, text=True))
        with pytest.raises(subprocess.TimeoutExpired):
            started[0].communicate(timeout=3)
    assert started[0].communicate(timeout=60)[0] == "in\n"
    with code_cache.alone(str(tmp_path / "not there")):
        pass
