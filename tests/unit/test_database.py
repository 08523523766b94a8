"""DuckDB reads exactly the files that Delta's log states, as the table has them now, and spills where it is told to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import recorded_tables as recorded
from deltalake import write_deltalake

from pipelines.expectations import database
from pipelines.expectations.database import closed_database
from pipelines.warehouse.table_files import TableFiles
from schemas.runs import COVERAGE
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "a'b*c?{d,e} Ü"


def written(folder: Path, *parts: pa.Table, name: str = "coverage", recording: str = recorded.RECORDING) -> TableFiles:
    for part in parts:
        write_deltalake(folder, part, mode="append", partition_by=["recording_id"], schema_mode="merge")
    found = TableFiles.of(name, folder, None, recording)
    assert found is not None
    return found


def rows_of(name: str = "coverage") -> pa.Table:
    return recorded.arrow_of(recorded.whole_rows())[name]


def with_id(rows: pa.Table, recording: str) -> pa.Table:
    place = rows.column_names.index("recording_id")
    return rows.set_column(place, "recording_id", pa.array([recording] * len(rows), pa.string()))


@pytest.mark.parametrize("name", [name for name, rows in recorded.whole_rows().items() if rows])
def test_rows_are_read_as_the_table_has_them(tmp_path: Path, name: str) -> None:
    rows = rows_of(name)
    with closed_database({name: written(tmp_path / name, rows, name=name)}) as db:
        found = db.table(name).to_arrow_table()
    assert found.column_names == TABLES[name].arrow_schema.names
    key = [(one, "ascending") for one in TABLES[name].key]
    assert found.cast(rows.schema).sort_by(key).to_pylist() == rows.sort_by(key).to_pylist()


def test_names_are_no_patterns_and_other_recordings_are_not_read(tmp_path: Path) -> None:
    place, rows = tmp_path / HOSTILE / "coverage", rows_of()
    (tmp_path / "a'bXcX{d,e} Ü").mkdir()
    written(place, with_id(rows, "other"))
    files = written(place, with_id(rows, HOSTILE), recording=HOSTILE)
    for path in files.paths:
        decoy = tmp_path / "a'bXcX{d,e} Ü" / path.relative_to(tmp_path / HOSTILE)
        decoy.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, decoy)
    with closed_database({"coverage": files}) as db:
        assert db.sql("SELECT DISTINCT recording_id FROM coverage").fetchall() == [(HOSTILE,)]
        assert db.sql("SELECT count(*) FROM coverage").fetchall() == [(len(rows),)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_parquet('{beside}')",
        "SELECT * FROM '{beside}'",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM glob('{folder}/*')",
        "COPY coverage TO '{folder}/copy.parquet'",
        "ATTACH '{folder}/other.db'",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        "INSTALL httpfs",
    ],
)
def test_nothing_else_is_read_or_written(tmp_path: Path, query: str) -> None:
    files, beside = written(tmp_path / "coverage", rows_of()), tmp_path / "beside.parquet"
    pq.write_table(rows_of(), beside)
    with closed_database({"coverage": files}, tmp_path / "spill") as db, pytest.raises(duckdb.Error):
        db.execute(query.format(beside=beside, folder=tmp_path)).fetchall()
    assert sorted(found.name for found in tmp_path.iterdir() if found.name != "spill") == ["beside.parquet", "coverage"]


def test_columns_that_a_file_is_too_old_for_are_null(tmp_path: Path) -> None:
    rows = rows_of()
    files = written(tmp_path / "coverage", rows.drop_columns(["reason"]), rows)
    with closed_database({"coverage": files}) as db:
        (found,) = db.sql("SELECT count(*), count(reason) FROM coverage").fetchall()
        assert db.table("coverage").columns == [column.name for column in COVERAGE.columns]
    assert found == (2 * len(rows), len(rows) - rows["reason"].null_count)


def test_what_does_not_fit_into_memory_goes_to_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "MEMORY", "64MB")
    many, spill = pa.table({"n": pa.array(range(5_000_000), pa.int64())}), tmp_path / "_staging" / "validate"
    with closed_database({"many": many}, spill) as db:
        sorted_rows = db.sql("SELECT n FROM many ORDER BY hash(n)").to_arrow_reader(1000)
        assert len(sorted_rows.read_next_batch()) == 1000
        assert any(spill.iterdir())
        assert sum(map(len, sorted_rows)) == 4_999_000
    assert not spill.exists()
