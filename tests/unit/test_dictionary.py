from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.dictionary import dictionary
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pathlib import Path


def test_the_page_is_what_the_schemas_say(repository: Path) -> None:
    page = (repository / "docs" / "tables.md").read_text(encoding="utf-8")
    assert page == dictionary(), "run: python -m schemas.dictionary > docs/tables.md"


def test_every_table_has_a_query_to_start_from() -> None:
    assert [table.name for table in TABLES.values() if not table.questions] == []
