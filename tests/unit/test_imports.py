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


def copy_of_the_rooms(repository: Path, folder: Path) -> None:
    for name in ROOMS:
        shutil.copytree(repository / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(repository / "pyproject.toml", folder)


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
        ("replay.tables", "from pipelines.stages import run"),
        ("replay.arrays", "from replay.protocol import state"),
        ("replay.protocol", "from replay.engine import codes"),
        ("replay.engine", "from replay.evidence import rows"),
        ("replay.evidence", "from replay.order import merge"),
        ("replay.order", "from replay.losses import slots"),
        ("replay.losses", "from replay.tables import output"),
        ("replay", "from schemas import model"),  # a module in none of the rooms
        ("pipelines.lines", "from pipelines.recording import names"),
        ("pipelines.recording", "from pipelines.parse.files import content"),
        ("pipelines.parse.wordings", "from pipelines.parse.requests import request_log"),
        ("pipelines.parse.dumps", "from pipelines.parse.files import content"),
        ("pipelines.parse", "from pipelines.lines import rows"),  # in none of its rooms
        ("pipelines.parse.files", "from pipelines.intake import inputs"),
        ("pipelines.intake", "from pipelines.spark import packed"),
        ("pipelines.intake", "from pyspark.sql import functions"),
        ("pipelines.spark", "from pipelines.warehouse import delta_io"),
        ("pipelines.warehouse", "from pipelines.overview import coverage"),
        ("pipelines.overview", "from pipelines.expectations import rules"),
        ("pipelines.expectations", "from pipelines.stages import validate"),
        ("pipelines", "from schemas import model"),  # a module in none of the rooms
        ("pipelines", "from jobs import cli"),
        ("jobs", "from pyspark.sql import functions"),
    ],
)
def test_a_planted_import_breaks_the_rule(repository: Path, tmp_path: Path, room: str, planted: str) -> None:
    copy_of_the_rooms(repository, tmp_path)
    (tmp_path / room.replace(".", "/") / "planted.py").write_text(f"{planted}\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1, result.stdout
    assert f"{room}.planted" in result.stdout


@pytest.mark.parametrize(
    "module", ["pipelines.parse.files.prefix", "replay.evidence.views", "schemas.model", "jobs.cli"]
)
def test_a_planted_circle_breaks_the_rule_though_it_is_for_types_only(
    repository: Path, tmp_path: Path, module: str
) -> None:
    copy_of_the_rooms(repository, tmp_path)
    room, name = module.rsplit(".", 1)
    (tmp_path / room.replace(".", "/") / "planted.py").write_text(f"from {room} import {name}\n")
    with (tmp_path / f"{module.replace('.', '/')}.py").open("a") as source:
        source.write(f"\nif TYPE_CHECKING:\n    from {room} import planted\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1, result.stdout
    assert "not even for types" in result.stdout


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
