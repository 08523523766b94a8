"""The rooms import one way, and the check that says so does notice when they do not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOMS = ("schemas", "replay", "pipelines", "jobs")


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    return subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False
    )


def test_the_rooms_keep_the_import_rule(repository: Path) -> None:
    result = lint_imports(repository)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("room", "planted"),
    [
        ("schemas", "import replay"),
        ("schemas", "import numpy"),
        ("replay.protocol", "import time"),
        ("replay.order", "import random"),
        ("replay.tables", "import pyspark.sql"),
        ("replay.tables", "from pipelines import run"),
        ("replay.arrays", "from replay.protocol import state"),
        ("replay.protocol", "from replay.engine import codes"),
        ("replay.engine", "from replay.evidence import rows"),
        ("replay.evidence", "from replay.order import merge"),
        ("replay.order", "from replay.losses import slots"),
        ("replay.losses", "from replay.tables import output"),
        ("replay", "from schemas import model"),  # a module in none of the rooms
        ("pipelines", "from jobs import cli"),
        ("jobs", "from pyspark.sql import functions"),
    ],
)
def test_a_planted_import_breaks_the_rule(repository: Path, tmp_path: Path, room: str, planted: str) -> None:
    for name in ROOMS:
        shutil.copytree(repository / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(repository / "pyproject.toml", tmp_path)
    (tmp_path / room.replace(".", "/") / "planted.py").write_text(f"{planted}\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1, result.stdout
    assert f"{room}.planted" in result.stdout


@pytest.mark.parametrize("room", ["schemas", "replay"])
def test_a_pure_room_can_be_imported_without_spark(repository: Path, room: str) -> None:
    program = (
        "import importlib, pkgutil, sys\n"
        f"package = importlib.import_module({room!r})\n"
        f"for module in pkgutil.walk_packages(package.__path__, '{room}.'): importlib.import_module(module.name)\n"
        "heavy = {'pyspark', 'delta', 'great_expectations', 'pandas'} & set(sys.modules)\n"
        "sys.exit(f'imports {heavy}' if heavy else 0)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=repository, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
