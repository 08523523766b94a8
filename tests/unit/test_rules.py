"""docs/rules.md: every rule names functions, tests, stories and columns that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from schemas.tables import TABLES

REPOSITORY = Path(__file__).parent.parent.parent
SYSTEMS = 22
NAME = re.compile(r"`([^`]+)`")
PAGE = (REPOSITORY / "docs" / "rules.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| rule |")
]
UNTOLD = "cannot be told"
REPLAYED = [row for row in ROWS if row[2] != UNTOLD]
MARKERS = {"", "; generated histories only", "; stories only"}  # behind the columns


def names_in(path: Path) -> set[str]:
    """Functions, classes, their methods, and constants of a module."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


FUNCTIONS = {
    f"{path.stem}.{name}"
    for room in ("replay", "pipelines", "schemas")
    for path in (REPOSITORY / room).rglob("*.py")
    for name in names_in(path)
}
PINS = {
    f"{path.name}::{name}"
    for path in (REPOSITORY / "tests").rglob("test_*.py")
    for name in names_in(path)
    if name.startswith("test_")
} | {path.name for path in (REPOSITORY / "tests" / "testdata").glob("*.txt")}
COLUMNS = {f"{name}.{column.name}" for name, table in TABLES.items() for column in table.columns}


def test_every_system_has_its_rules() -> None:
    numbers = [int(number) for number in re.findall(r"^## (\d+) ", PAGE, re.MULTILINE)]
    assert numbers == list(range(1, SYSTEMS + 1))
    assert all(len(row) == 5 for row in ROWS)


@pytest.mark.parametrize("row", REPLAYED, ids=lambda row: row[0][:60])
def test_a_rule_names_what_carries_it_out_and_what_pins_it(row: list[str]) -> None:
    functions, pins, columns = (NAME.findall(cell) for cell in row[2:])
    assert functions
    assert "apply.apply" not in functions  # it hands events to the rules and carries out none itself
    assert pins
    assert not set(functions) - FUNCTIONS
    assert not set(pins) - PINS
    assert not set(columns) - COLUMNS
    assert columns
    assert row[4].removeprefix(", ".join(f"`{column}`" for column in columns)) in MARKERS


def test_what_cannot_be_told_claims_nothing() -> None:
    assert all(row[3:] == ["", ""] for row in ROWS if row[2] == UNTOLD)
