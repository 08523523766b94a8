"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent.parent
ROOMS = ("schemas", "replay", "pipelines", "jobs")
SOURCES = sorted(path for room in (*ROOMS, "tests") for path in (REPOSITORY / room).rglob("*.py"))
TEXTS = [
    *SOURCES,
    *(p for p in REPOSITORY.glob("*") if p.suffix in {".md", ".sh", ".toml"}),
    *(REPOSITORY / "docs").rglob("*.md"),
]
LINES_MAX = 450
LEFT_OVER = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK")) + r")\b")
SAYS_NOTHING = {"utils", "util", "helpers", "helper", "common", "misc"}
NOT_PURE = {"time", "datetime", "random", "secrets", "uuid", "os", "io", "pathlib", "tempfile", "socket", "subprocess"}
LOCKS_A_FILE = "replay/arrays/code_cache.py"  # where compiled rules lie; nothing that a rule says depends on it


def name_of(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_file_can_be_read_in_one_go(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES_MAX


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_nothing_is_left_for_later(path: Path) -> None:
    assert not LEFT_OVER.findall(path.read_text())


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_name_says_what_is_in_it(path: Path) -> None:
    assert not SAYS_NOTHING & {part.removesuffix(".py") for part in path.relative_to(REPOSITORY).parts}


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if p.parts[len(REPOSITORY.parts)] in {"schemas", "replay"}], ids=name_of
)
def test_the_protocol_has_no_clock_no_chance_and_no_files(path: Path) -> None:
    tree = ast.parse(path.read_text())
    imported = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    imported |= {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    drawn = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} & {"random", "default_rng"}
    assert not imported & NOT_PURE
    assert not called & ({"print", "input"} if name_of(path) == LOCKS_A_FILE else {"open", "print", "input"})
    assert not drawn


JOBS = [path for path in SOURCES if path.parent.name == "jobs" and "__main__" in path.read_text()]


def test_the_submit_script_starts_every_job() -> None:
    script = (REPOSITORY / "spark-submit.sh").read_text()
    for path in JOBS:
        assert path.name in script or re.search(rf"^  .*\b{path.stem}\b.*\) job=\$command\.py", script, re.MULTILINE)


@pytest.mark.parametrize("path", JOBS, ids=name_of)
def test_a_job_carries_its_command(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert f"jobs/{path.name}" in docstring
    assert "./spark-submit.sh " in docstring
    assert len(path.read_text().splitlines()) <= 80
