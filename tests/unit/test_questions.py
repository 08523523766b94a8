"""Questions to tables that lie on this machine: of tables in memory and of tables in files the answer is the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from deltalake import DeltaTable
from written_tables import MOVES, TOPICS, made, moves

from pipelines.expectations import database
from pipelines.stages.questions import Questions
from pipelines.warehouse import local_tables
from pipelines.warehouse.table_files import TableFiles

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb
    import pyarrow as pa

    from pipelines.warehouse.delta_io import Warehouse

HW = "hw_timeline"
QUESTION = "SELECT topic, count(*) AS times, max(window) AS last FROM {leo_timeline} GROUP BY topic ORDER BY topic"
SORTED = (
    "SELECT * FROM (SELECT *, row_number() OVER (ORDER BY seq, topic DESC, partition, window) AS n "
    "FROM {leo_timeline}) WHERE n = 7"
)


class Standing:
    """A warehouse with one table, of which it hands over what a test wants."""

    def __init__(self, files: TableFiles, *, is_small: bool) -> None:
        """Hand over rows, or files."""
        self.files, self.is_small = files, is_small
        self.spark = SimpleNamespace(sql=self.asked)

    def small_rows(self, _name: str, _recording_id: str) -> pa.Table | None:
        """Return the rows."""
        return self.files.rows() if self.is_small else None

    def files_within(self, names: list[str], _recording_id: str, most: int) -> dict[str, TableFiles]:
        """Return the files."""
        return {self.files.name: self.files} if names and self.files.size_bytes <= most else {}

    def looked_at(self, name: str, _recording_id: str) -> str:
        """Return a frame, so to speak."""
        return name

    def asked(self, _question: str, **frames: Any) -> SimpleNamespace:
        """Answer as Spark would."""
        return SimpleNamespace(toArrow=lambda: frames)


def files_of(place: Path, hours: tuple[int | None, ...]) -> TableFiles:
    """A table of a file for each hour."""
    table = DeltaTable(made(place, MOVES.name))
    for hour in hours:
        assert local_tables.write(table, MOVES, moves(TOPICS, (hour,)), "r", None, "append")
    files = TableFiles.of(MOVES.name, place, None, "r")
    assert files is not None
    return files


def test_tables_in_files_are_asked_as_those_in_memory(tmp_path: Path) -> None:
    files = files_of(tmp_path / "t", (None, 0, 1, 2))
    for question in (QUESTION, SORTED):
        in_memory, in_files = (
            Questions(cast("Warehouse", Standing(files, is_small=is_small)), "r")(question, MOVES.name)
            for is_small in (True, False)
        )
        assert in_files == in_memory
        assert in_files


@pytest.mark.parametrize(("name", "value"), [("READ_BYTES", 1), ("MEMORY", "1KB")])
def test_what_is_too_much_for_this_machine_is_asked_of_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: int | str
) -> None:
    files = files_of(tmp_path / "t", (0, 1))
    for module in ("pipelines.stages.questions", database.__name__):
        monkeypatch.setattr(f"{module}.{name}", value, raising=False)
    found = Questions(cast("Warehouse", Standing(files, is_small=False)), "r").arrow(SORTED, MOVES.name)
    assert found == {MOVES.name: MOVES.name}


@pytest.mark.parametrize("is_small", [True, False])
def test_who_asks_again_is_told_what_was_written_meanwhile(tmp_path: Path, *, is_small: bool) -> None:
    standing = Standing(files_of(tmp_path / "t", (0, 1)), is_small=is_small)
    ask = Questions(cast("Warehouse", standing), "r")
    before = ask(QUESTION, MOVES.name)
    assert ask(QUESTION, MOVES.name) == before
    standing.files = files_of(tmp_path / "t", (2,))
    after = ask(QUESTION, MOVES.name)
    assert after != before
    assert after == Questions(cast("Warehouse", standing), "r")(QUESTION, MOVES.name)


def test_tables_that_stay_are_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []

    def count(tables: dict[str, database.Local]) -> duckdb.DuckDBPyConnection:
        opened.append(tables)
        return database.closed_database(tables)

    monkeypatch.setattr("pipelines.stages.questions.closed_database", count)
    ask = Questions(cast("Warehouse", Standing(files_of(tmp_path / "t", (0, 1)), is_small=False)), "r")
    for question in (QUESTION, SORTED, QUESTION):
        ask(question, MOVES.name)
    assert len(opened) == 1


def test_tables_that_are_asked_one_after_the_other_share_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[list[str]] = []

    def count(tables: dict[str, database.Local]) -> duckdb.DuckDBPyConnection:
        opened.append(sorted(tables))
        return database.closed_database(tables)

    monkeypatch.setattr("pipelines.stages.questions.closed_database", count)
    both = {MOVES.name: files_of(tmp_path / "leo", (0, 1)), HW: files_of(tmp_path / "hw", (2,))}
    standing = Standing(both[MOVES.name], is_small=False)
    monkeypatch.setattr(standing, "files_within", lambda names, _id, _most: {one: both[one] for one in names})
    ask = Questions(cast("Warehouse", standing), "r", together=both)
    apart = Questions(cast("Warehouse", standing), "r")
    other = QUESTION.replace(MOVES.name, HW)
    assert ask(QUESTION, MOVES.name) == apart(QUESTION, MOVES.name) != ask(other, HW) == apart(other, HW)
    assert opened == [sorted(both), [MOVES.name], [HW]]


def test_a_table_is_asked_by_itself_where_not_all_fit(tmp_path: Path) -> None:
    standing = Standing(files_of(tmp_path / "t", (0, 1)), is_small=False)  # has no other table
    ask = Questions(cast("Warehouse", standing), "r", together=[MOVES.name, HW])
    assert ask(QUESTION, MOVES.name) == Questions(cast("Warehouse", standing), "r")(QUESTION, MOVES.name)
