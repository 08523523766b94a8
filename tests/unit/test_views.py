"""Views over lists that are null, empty or hostile, and the statements that register tables and views."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import sqlglot

from jobs import views as job
from pipelines.warehouse.engines import in_duckdb, in_polars
from pipelines.warehouse.views import DIALECTS, DUCKDB, SHOWN, SPARK, statements, view_sql
from schemas.errors import InputError
from schemas.tables import TABLES
from schemas.views import VIEWS

HOSTILE = "pay'; DROP TABLE x; -- \\ \" `|<b>"


def made(table: str, *rows: dict[str, Any]) -> pa.Table:
    """Rows of which only these values are given; all others are null, or as plain as their type allows."""
    plain = {"string": HOSTILE, "int32": 0, "int64": 0}
    schema = TABLES[table].arrow_schema
    told = [
        {field.name: None if field.nullable else plain.get(str(field.type), []) for field in schema} | r for r in rows
    ]
    return pa.Table.from_pylist(told, schema=schema)


STEPS = [{"seq": 1, "ts": None, "what": HOSTILE}, {"seq": 2, "ts": None, "what": "the end"}]
INCIDENTS = made(
    "data_loss_incidents",
    {"incident_id": "full", "chain": STEPS, "chain_sources": ["a:1", None], "producers": [HOSTILE, "b"]},
    {"incident_id": "null", "chain": None, "chain_sources": None, "producers": None},
    {"incident_id": "empty", "chain": [], "chain_sources": [], "producers": []},
    {"incident_id": "open", "ranges": [{"leader_epoch": 3, "first_offset": 7, "last_offset": None}]},
)
TABLE = {"data_loss_incidents": INCIDENTS}


def both(tables: dict[str, pa.Table], sql: str) -> list[list[tuple[Any, ...]]]:
    found = in_duckdb(tables).sql(sql).to_arrow_table(), in_polars(tables).execute(sql).collect().to_arrow()
    return [[tuple(row.values()) for row in rows.to_pylist()] for rows in found]


def test_lists_are_unnested_side_by_side_and_null_or_empty_ones_have_no_rows() -> None:
    for rows in both(TABLE, "SELECT incident_id, place, seq, what, source FROM incident_steps ORDER BY place"):
        assert rows == [("full", 1, 1, HOSTILE, "a:1"), ("full", 2, 2, "the end", None)]


def test_an_open_end_stays_open() -> None:
    for rows in both(TABLE, "SELECT leader_epoch, first_offset, last_offset, records FROM lost_ranges"):
        assert rows == [(3, 7, None, None)]


def test_a_list_as_text_is_null_only_where_nothing_tells() -> None:
    for rows in both(TABLE, "SELECT incident_id, producers FROM incidents ORDER BY incident_id"):
        assert rows == [("empty", ""), ("full", f"{HOSTILE}, b"), ("null", None), ("open", None)]


def test_there_are_only_views_of_tables_that_are_there() -> None:
    moves = {"isr_timeline": made("isr_timeline")}
    assert in_duckdb(moves).sql("SELECT * FROM isr_moves").fetchall() == []
    assert sorted(in_polars(moves).tables()) == ["isr_moves", "isr_timeline"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_path_of_any_characters_is_one_literal(dialect: str) -> None:
    said = statements(f"/lake/{HOSTILE}", dialect, tables=["hw_timeline"])
    (literal,) = (one for one in sqlglot.tokenize(said[-1], read=dialect) if one.token_type.name == "STRING")
    assert literal.text == f"/lake/{HOSTILE}/hw_timeline"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_table_of_use_and_every_view_is_registered_in_a_database(dialect: str) -> None:
    said = statements("s3a://lake/tidemark", dialect, "evidence")
    assert [one for one in said if one.endswith("evidence")] == ["CREATE SCHEMA IF NOT EXISTS evidence", "USE evidence"]
    words = "CREATE OR REPLACE VIEW" if dialect == DUCKDB else "CREATE TABLE IF NOT EXISTS"
    assert all(any(one.startswith(f"{words} {name} ") for one in said) for name in SHOWN)
    assert all(any(one.startswith(f"CREATE OR REPLACE VIEW {name} ") for one in said) for name in VIEWS)
    assert not any("replay_checkpoints" in one for one in said)
    assert not any(word in one.split()[:1] for one in said for word in ("DROP", "DELETE", "ALTER"))


@pytest.mark.parametrize("name", ["", "a b", "x; DROP SCHEMA y", "`a`", "1st"])
def test_a_database_has_a_name_that_every_catalog_takes(name: str) -> None:
    with pytest.raises(InputError, match="cannot name a database"):
        statements("/lake", SPARK, name)


def test_spark_is_asked_for_nothing_that_it_does_not_know() -> None:
    for view in VIEWS.values():
        said = view_sql(view, SPARK)
        assert "EPOCH" not in said.upper().replace("_EPOCH", ""), view.name
        assert "array_to_string" not in said.lower(), view.name


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_job_prints_statements_and_says_which_were_never_run(
    dialect: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["views", "--warehouse", "/lake", "--dialect", dialect])
    assert job.main() == 0
    printed = capsys.readouterr().out
    assert [one for one in sqlglot.parse(printed, read=dialect) if one] != []
    assert ("never run" in printed) == (dialect == DUCKDB)


def test_the_job_runs_nothing_in_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["views", "--warehouse", "/lake", "--dialect", "duckdb", "--run"])
    with pytest.raises(InputError, match="--run is for Spark"):
        job.main()
