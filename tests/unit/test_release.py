"""What a release may change of the tables: nothing that a warehouse of an earlier release could not be given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.release import as_text, release
from schemas.tables import TABLES

RELEASES = sorted((Path(__file__).parent.parent / "testdata").glob("schemas-*.json"))
COLUMNS = [
    (table, name, column)
    for path in RELEASES
    for table, told in json.loads(path.read_text(encoding="utf-8")).items()
    for name, column in told["columns"].items()
]
NOW = json.loads(as_text(release()))


def test_there_is_a_release_to_compare_with() -> None:
    assert [path.name for path in RELEASES][:1] == ["schemas-0.1.0.json"]


def test_the_text_of_a_release_says_all_of_it() -> None:
    assert json.loads(json.dumps(release())) == NOW


@pytest.mark.parametrize(("table", "name", "column"), COLUMNS, ids=lambda part: part if isinstance(part, str) else "")
def test_a_released_column_stays_and_keeps_its_type_and_values(table: str, name: str, column: dict[str, Any]) -> None:
    now = NOW[table]["columns"][name]
    assert now["type"] == column["type"] or "struct<" in column["type"]
    assert now["values"] == [] or set(column["values"]) <= set(now["values"])


@pytest.mark.parametrize("path", RELEASES, ids=lambda path: path.stem)
def test_a_column_that_is_never_null_says_what_rows_from_before_have_in_it(path: Path) -> None:
    then = json.loads(path.read_text(encoding="utf-8"))
    silent = [
        f"{table.name}.{column.name}"
        for table in TABLES.values()
        if table.name in then
        for column in table.columns
        if not column.nullable and column.before is None
        if then[table.name]["columns"].get(column.name, {"nullable": True})["nullable"]
    ]
    assert silent == [], "give the column `before`, SQL for its value in rows of older warehouses"
