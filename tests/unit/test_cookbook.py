"""The cookbook's queries: every engine gives the same answer, and where clients kept their own books, theirs."""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from cookbook import page, plain, queries
from without_spark import tables_of_recording

from pipelines.warehouse.engines import in_duckdb, in_polars

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NAMES: Final = ("last-replica", "unclean-election")
ASKED: Final = {query.name: query for query in queries()}


class Engines:
    """DuckDB and Polars over the same tables."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self.duckdb, self.polars = in_duckdb(tables), in_polars(tables)

    def answers(self, sql: str) -> list[list[dict[str, Any]]]:
        found = self.duckdb.sql(sql).to_arrow_table(), self.polars.execute(sql).collect().to_arrow()
        return [[{name: plain(value) for name, value in row.items()} for row in rows.to_pylist()] for rows in found]


@cache
def engines(root: Path) -> Engines:
    return Engines(tables_of_recording(root))


def test_the_page_is_what_the_queries_answer(repository: Path) -> None:
    stands = (repository / "docs" / "cookbook.md").read_text(encoding="utf-8")
    assert stands == page(), "run: PYTHONPATH=. python tests/unit/cookbook.py > docs/cookbook.md"


def test_all_fifteen_questions_are_asked() -> None:
    numbers = {found.group(1) for name in ASKED if (found := re.match(r"q(\d\d)-", name))}
    assert numbers == {f"{number:02}" for number in range(1, 16)}
    for name, query in ASKED.items():
        found = re.match(r"q(\d\d)-", name)
        asked = rf"Q{int(found.group(1))}[a-z]?\. " if found else r".*\?$"
        assert re.match(asked, query.question), name


@pytest.mark.parametrize("recording", NAMES)
def test_duckdb_and_polars_answer_alike(recordings: Path, recording: str) -> None:
    for query in ASKED.values():
        duckdb, polars = engines(recordings / recording).answers(query.sql)
        assert duckdb == polars, query.name


def test_most_questions_have_an_answer(recordings: Path) -> None:
    asked = engines(recordings / "unclean-election")
    without = [name for name, query in ASKED.items() if [] in asked.answers(query.sql)]
    assert without == ["q09-replicas-that-differ"]  # no two of its replicas do


@pytest.mark.parametrize("recording", NAMES)
def test_what_was_acknowledged_and_is_gone_is_what_clients_lost(recordings: Path, recording: str) -> None:
    truth = recordings / f"{recording}.truth"
    lines = gzip.decompress((truth / "clients-acked.jsonl.gz").read_bytes()).decode().splitlines()
    acknowledged = {
        (one["topic"], one["partition"], one["acks"], one["offset"])
        for one in map(json.loads, lines)
        if one["error"] is None and one["offset"] is not None
    }
    partitions = json.loads(gzip.decompress((truth / "brokers.json.gz").read_bytes()))["partitions"]
    gone = {
        (*name.rsplit("-", 1), offset)
        for name, partition in partitions.items()
        for span in partition["lost_slot"]
        for offset in range(span["from"], span["to"] + 1)
    }
    want = {one for one in acknowledged if (one[0], str(one[1]), one[3]) in gone}
    asked = engines(recordings / recording)
    for rows in asked.answers(ASKED["q01-acknowledged-and-gone"].sql):
        found = [
            (row["topic"], row["partition"], row["acks"], offset)
            for row in rows
            for offset in range(row["first_offset"], row["last_offset"] + 1)
        ]
        assert len(found) == len(set(found))
        assert set(found) == want
        assert {row["extent"] for row in rows} == {"exact"}
    for rows in asked.answers(ASKED["q02-certain-or-possible"].sql):
        assert sum(row["records"] for row in rows if row["acknowledgement"] == "acks=all") == len(want) > 0
        assert {row["certainty"] for row in rows} == {"at least"}


def test_recordings_of_one_warehouse_are_kept_apart(recordings: Path) -> None:
    each = {name: tables_of_recording(recordings / name) for name in NAMES}
    both = {table: pa.concat_tables([each[name][table] for name in NAMES]) for table in each[NAMES[0]]}
    asked = Engines(both)
    for query in ASKED.values():
        sql = re.sub(r"\nLIMIT \d+", "", query.sql)
        for name in NAMES:
            alone, _ = engines(recordings / name).answers(sql)
            for rows in asked.answers(sql):
                assert [row for row in rows if row["recording_id"] == name] == alone, query.name


@pytest.mark.parametrize(("offset", "fates"), [(100, [""]), (240, ["lost"]), (2794, ["lost"])])
def test_one_record_is_lost_and_another_stands(recordings: Path, offset: int, fates: list[str]) -> None:
    sql = ASKED["was-my-record-lost"].sql.replace("1234", str(offset))
    for rows in engines(recordings / "unclean-election").answers(sql):
        assert [row["fate"].removeprefix("nothing says that it is lost") for row in rows] == fates
        assert rows[0]["error_code"] == 0
