"""Every kind of expectation: a clean set of tables meets it, a planted fault breaks it and nothing else."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import recorded_tables as recorded
from checked_tables import counts_of, files_of
from planted_faults import FAULTS, Plant, put

from pipelines.expectations.counting import counts_by_spark
from pipelines.expectations.data_docs import Shown, escaped, publish_docs
from pipelines.expectations.invariants import CONFORMANCE_TIES, DECIDED_BY_TIME
from pipelines.expectations.suites import EVERY, all_rules
from pipelines.stages import validate
from pipelines.stages.validate import check
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def failed(spark: SparkSession, *plants: Plant, folder: Path | None = None) -> dict[str, dict[str, Any]]:
    """What does not hold of a recording in which every plant has a partition of its own.

    `folder`: where the rows are put into files, which DuckDB reads; None: they are frames of Spark's.
    """
    sets = [recorded.whole_rows(partition) for partition, _ in enumerate(plants)]
    for rows, plant in zip(sets, plants, strict=True):
        plant(rows)
    together = recorded.together(sets)
    local = None if folder is None else files_of(recorded.arrow_of(together), folder)
    frame_of = recorded.frames_of(spark, together).__getitem__ if local is None else _no_frame
    results, _ = check(spark, frame_of, "small", "run", local=local)
    return {f"{row['table'].split(', ')[0]}.{row['expectation']}": row for row in results if not row["success"]}


def _no_frame(name: str) -> DataFrame:
    raise AssertionError(name)


def test_a_clean_set_meets_every_expectation(spark: SparkSession) -> None:
    assert failed(spark, lambda rows: rows) == {}


def test_each_planted_fault_breaks_its_expectation_and_no_other(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory = failed(spark, *FAULTS.values())
    assert in_memory == failed(spark, *FAULTS.values(), folder=tmp_path)
    monkeypatch.setattr(validate, "KEPT_BYTES", -1)
    assert in_memory == failed(spark, *FAULTS.values())  # by Spark: counts, examples, places, and all
    assert set(in_memory) == set(FAULTS)
    for partition, (name, row) in enumerate((name, in_memory[name]) for name in FAULTS):
        (example,) = json.loads(row["example"])
        # One row only, and it is in the fault's own partition: no other fault breaks this expectation.
        assert row["rows_failed"] == 1, name
        assert example.get("partition", partition) == partition, name


def test_duckdb_and_spark_count_the_same_of_any_rows(spark: SparkSession, tmp_path: Path) -> None:
    dice = random.Random(7)  # noqa: S311 - no secret
    sets = [recorded.whole_rows(partition) for partition in range(200)]
    for rows in sets:
        for _ in range(4):
            table = TABLES[dice.choice([name for name in rows if rows[name]])]
            column = dice.choice([one for one in table.columns if one.name != "recording_id"])  # else it is another's
            some = dice.choice(rows[table.name])
            some[column.name] = dice.choice([None, *_others(table.arrow_schema.field(column.name).type, column.values)])
    frames = recorded.frames_of(spark, recorded.together(sets))
    asked = [rule for rule in all_rules() if rule.native is None]
    for name, frame in frames.items():
        frame.createOrReplaceTempView(f"noisy_{name}")
    names = [table.name for table in EVERY]
    by_spark = counts_by_spark(spark, asked, {name: f"noisy_{name}" for name in names}, names)
    tables = recorded.arrow_of(recorded.together(sets))
    assert counts_of(asked, tables) == by_spark
    assert counts_of(asked, files_of(tables, tmp_path)) == by_spark
    assert sum(1 for rule in asked if by_spark[rule.id]) > len(asked) // 2


def _others(kind: pa.DataType, words: tuple[str, ...]) -> list[Any]:
    """Values that a column of this type may hold, most of them at odds with the rows beside them."""
    if pa.types.is_timestamp(kind):
        return [recorded.at(0), recorded.at(9)]
    if pa.types.is_list(kind):
        return [[], [9], [2, 9, 1]] if pa.types.is_integer(kind.value_type) else [[], None]
    if pa.types.is_boolean(kind):
        return [True, False]
    if pa.types.is_string(kind):
        return list(words) or ["", "else"]
    return [b"", b"else"] if pa.types.is_binary(kind) else [-2, -1, 0, 1, 7, 100]


def few(check_name: str, differing: int) -> Plant:
    """A check of which a handful was compared."""
    return put("conformance", 1, check=check_name, compared=12, matched=12 - differing, first_mismatch_seq=4)


@pytest.mark.parametrize("name", [DECIDED_BY_TIME[0], DECIDED_BY_TIME[-1]])
def test_one_or_two_of_a_handful_may_be_ties_in_time_and_more_are_told(spark: SparkSession, name: str) -> None:
    assert failed(spark, few(name, CONFORMANCE_TIES)) == {}
    assert set(failed(spark, few(name, CONFORMANCE_TIES + 1))) == {"conformance.engine_conforms"}


def test_a_check_that_holds_in_any_order_is_told_the_first_time(spark: SparkSession) -> None:
    assert set(failed(spark, few("state_moves", 1))) == {"conformance.engine_conforms"}


def test_ties_of_all_partitions_count_together(spark: SparkSession) -> None:
    assert set(failed(spark, *[few("role_hw", 1)] * (CONFORMANCE_TIES + 1))) == {"conformance.engine_conforms"}


def test_a_setting_says_how_many_ties_there_may_be(spark: SparkSession) -> None:
    rows = recorded.whole_rows()
    few("role_hw", 1)(rows)
    results, _ = check(spark, recorded.frames_of(spark, rows).__getitem__, "small", "run", all_rules(0))
    assert [row["expectation"] for row in results if not row["success"]] == ["engine_conforms"]


def test_a_table_with_other_columns_is_told(spark: SparkSession) -> None:
    frames = recorded.frames_of(spark, recorded.whole_rows())
    frames["conformance"] = frames["conformance"].selectExpr("*", "1 AS stray")
    results, _ = check(spark, frames.__getitem__, "small", "run")
    (row,) = (row for row in results if not row["success"])
    assert row["expectation"] == "columns"
    assert "stray" in row["example"]


def test_what_is_not_known_breaks_nothing(spark: SparkSession) -> None:
    open_end = [{"leader_epoch": 0, "first_offset": 7, "last_offset": None}]
    bounded_leo = put("leo_timeline", 0, leo=3, evidence="bounded")
    nobody_leads = put("isr_timeline", 1, leader_id=None, isr=[1])

    def acks_unknown(rows: dict[str, list[dict[str, Any]]]) -> None:
        for table in ("data_loss_incidents", "incident_reports"):
            rows[table][0].update(acked_one=None, acked_all=None)

    def open_loss(rows: dict[str, list[dict[str, Any]]]) -> None:
        for table in ("data_loss_incidents", "incident_reports"):
            rows[table][0].update(last_offset=None, records=None)
        rows["data_loss_incidents"][0].update(ranges=open_end)

    assert failed(spark, bounded_leo, acks_unknown, open_loss, nobody_leads) == {}


def test_no_rows_at_all_break_nothing(spark: SparkSession) -> None:
    assert failed(spark, lambda rows: [some.clear() for some in rows.values()]) == {}


def test_pages_fetch_and_run_nothing_and_escape_names(spark: SparkSession, tmp_path: Path) -> None:
    rows = recorded.whole_rows()
    rows["hw_timeline"][1].update(role="<script>alert(1)</script> $role ${x}")
    _, suites = check(spark, recorded.frames_of(spark, rows).__getitem__, "small", "run")

    class Shelf:
        def publish(self, local_dir: str, name: str) -> str:
            for page in Path(local_dir).iterdir():
                (tmp_path / page.name).write_bytes(page.read_bytes())
            return name

    assert publish_docs(suites, Shelf(), Shown("a/b", "run", recorded.at(0))) == "_data_docs/a%2Fb/index.html"  # type: ignore[arg-type]
    pages = {page.name: page.read_text(encoding="utf-8") for page in tmp_path.iterdir()}
    assert {"index.html", "hw_timeline.html", "invariants.html"} <= set(pages)
    for name, page in pages.items():
        assert not re.search(r"<(script|link|img|iframe)\b", page, re.IGNORECASE), name
        assert not re.search(r"""(?:href|src)=["']\s*(?:https?:|//|javascript:)""", page, re.IGNORECASE), name
        assert not re.search(r"\son\w+=", page), name
        assert not re.search(r"url\(|@import", page), name
    assert escaped("<script>alert(1)</script> $role ${x}") in pages["hw_timeline.html"]
