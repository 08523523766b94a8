"""Every kind of expectation: a clean set of tables meets it, a planted fault breaks it and nothing else."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import recorded_tables as recorded

from pipelines.expectations.counting import counts_by_spark, counts_in_memory
from pipelines.expectations.data_docs import escaped, publish_docs
from pipelines.expectations.invariants import CONFORMANCE_TIES, DECIDED_BY_TIME, invariants
from pipelines.stages import validate
from pipelines.stages.validate import KEPT_BYTES, VALIDATED, all_rules, check
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


Plant = Callable[[dict[str, list[dict[str, Any]]]], object]


def failed(spark: SparkSession, *plants: Plant) -> dict[str, dict[str, Any]]:
    """What does not hold of a recording in which every plant has a partition of its own."""
    sets = [recorded.valid_rows(partition) for partition, _ in enumerate(plants)]
    for rows, plant in zip(sets, plants, strict=True):
        plant(rows)
    results, _ = check(spark, recorded.frames_of(spark, recorded.together(sets)).__getitem__, "small", "run")
    return {f"{row['table'].split(', ')[0]}.{row['expectation']}": row for row in results if not row["success"]}


def put(table: str, index: int, **values: object) -> Plant:
    return lambda rows: rows[table][index].update(values)


def twice(table: str) -> Plant:
    return lambda rows: rows[table].append(dict(rows[table][-1]))


LOST_ELSEWHERE = [{"leader_epoch": 0, "first_offset": 4, "last_offset": 6}]

# One for each kind derived from the schemas, and one for each invariant.
FAULTS: dict[str, Plant] = {
    "isr_timeline.evidence_not_null": put("isr_timeline", 0, evidence=None),
    "conformance.check_not_null": put("conformance", 1, check=None),
    "hw_timeline.role_known": put("hw_timeline", 1, role="observer"),
    "data_loss_incidents.severity_known": put("data_loss_incidents", 0, severity="S9"),
    "conformance.matched": put("conformance", 1, matched=51),
    "rejected_lines.key_unique": twice("rejected_lines"),
    "facts.key_unique": twice("facts"),
    "hw_timeline.hw_within_leo": put("hw_timeline", 2, hw=11),
    "hw_timeline.leader_hw_never_back": put("hw_timeline", 2, hw=4),
    "leo_timeline.local_leo_not_negative": lambda rows: (rows["leo_timeline"][2].update(leo=-1, evidence="bounded"),),
    "isr_timeline.isr_within_assignment": put("isr_timeline", 1, isr=[2, 9]),
    "isr_timeline.leader_in_isr": put("isr_timeline", 1, isr=[1]),
    "isr_timeline.leader_epoch_never_back": put("isr_timeline", 1, leader_epoch=-1),
    "isr_timeline.partition_epoch_only_up": put("isr_timeline", 1, partition_epoch=0),
    "log_truncations.truncation_cuts": lambda rows: (rows["log_truncations"][0].update(leo_before=6, leo_after=7),),
    "data_loss_incidents.loss_within_cut": put(
        "data_loss_incidents", 0, ranges=LOST_ELSEWHERE, first_offset=4, last_offset=6
    ),
    "data_loss_incidents.loss_totals": put("data_loss_incidents", 0, records=4, unacked=1),
    "data_loss_incidents.loss_accounted": put("data_loss_incidents", 0, unacked=1),
    "replica_divergences.divergence_below_hw": put("replica_divergences", 0, hw_b=3),
    "partition_risk.risk_spans_apart": put("partition_risk", 0, end_seq=6),
    "partition_risk.names_incident": put("partition_risk", 0, incident_id="nowhere"),
    "consumer_effects.names_incident": put("consumer_effects", 0, incident_id="nowhere"),
    "coverage.coverage_disjoint": put("coverage", 0, end_ts=recorded.at(6)),
    "coverage.lossy_counted": put("coverage", 1, lines_missing=0),
    "commit_latency.commit_raises_hw": put("commit_latency", 0, commit_seq=2),
    "fetch_rounds.at_once_did_not_wait": put("fetch_rounds", 0, completed_by="no_wait"),
    "replication_events.rows_join_events": put("log_truncations", 0, seq=60),
    "replication_events.partitions_have_isr": lambda rows: rows["isr_timeline"].clear(),
    "set_aside.rows_are_whole": lambda rows: rows["set_aside"].append(recorded.set_aside("error")),
    "set_aside.rows_hold_checks": lambda rows: rows["set_aside"].append(recorded.set_aside("warning")),
    "conformance.engine_conforms": put("conformance", 0, matched=190),
}


def test_a_clean_set_meets_every_expectation(spark: SparkSession) -> None:
    assert failed(spark, lambda rows: rows) == {}


@pytest.mark.parametrize("kept_bytes", [KEPT_BYTES, -1])
def test_each_planted_fault_breaks_its_expectation_and_no_other(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, kept_bytes: int
) -> None:
    monkeypatch.setattr(validate, "KEPT_BYTES", kept_bytes)  # so that tables are evaluated in memory, or by Spark
    broken = failed(spark, *FAULTS.values())
    assert set(broken) == set(FAULTS)
    for partition, (name, row) in enumerate((name, broken[name]) for name in FAULTS):
        (example,) = json.loads(row["example"])
        # One row only, and it is in the fault's own partition: no other fault breaks this expectation.
        assert row["rows_failed"] == 1, name
        assert example.get("partition", partition) == partition, name


def test_duckdb_and_spark_count_the_same_of_any_rows(spark: SparkSession) -> None:
    dice = random.Random(7)  # noqa: S311 - no secret
    sets = [recorded.valid_rows(partition) for partition in range(200)]
    for rows in sets:
        for _ in range(4):
            table = TABLES[dice.choice([name for name in rows if rows[name]])]
            column = dice.choice(table.columns)
            some = dice.choice(rows[table.name])
            some[column.name] = dice.choice([None, *_others(table.arrow_schema.field(column.name).type, column.values)])
    frames = recorded.frames_of(spark, recorded.together(sets))
    asked = [rule for rule in all_rules() if rule.native is None]
    for name, frame in frames.items():
        frame.createOrReplaceTempView(f"noisy_{name}")
    names = [table.name for table in VALIDATED]
    by_spark = counts_by_spark(spark, asked, {name: f"noisy_{name}" for name in names}, names)
    small = {name: frames[name].toArrow() for name in names}
    in_memory = counts_in_memory(asked, small)
    assert in_memory | {name: rows.num_rows for name, rows in small.items()} == by_spark
    assert sum(1 for found in in_memory.values() if found) > len(asked) // 2


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
    return [-2, -1, 0, 1, 7, 100]


def test_every_invariant_has_a_planted_fault() -> None:
    assert {f"{rule.table}.{rule.name}" for rule in invariants()} <= set(FAULTS)


def few(check_name: str, differing: int) -> Plant:
    """A check of which a handful was compared."""
    return put("conformance", 1, check=check_name, compared=12, matched=12 - differing)


@pytest.mark.parametrize("name", [DECIDED_BY_TIME[0], DECIDED_BY_TIME[-1]])
def test_one_or_two_of_a_handful_may_be_ties_in_time_and_more_are_told(spark: SparkSession, name: str) -> None:
    assert failed(spark, few(name, CONFORMANCE_TIES)) == {}
    assert set(failed(spark, few(name, CONFORMANCE_TIES + 1))) == {"conformance.engine_conforms"}


def test_a_check_that_holds_in_any_order_is_told_the_first_time(spark: SparkSession) -> None:
    assert set(failed(spark, few("state_moves", 1))) == {"conformance.engine_conforms"}


def test_ties_of_all_partitions_count_together(spark: SparkSession) -> None:
    assert set(failed(spark, *[few("role_hw", 1)] * (CONFORMANCE_TIES + 1))) == {"conformance.engine_conforms"}


def test_a_setting_says_how_many_ties_there_may_be(spark: SparkSession) -> None:
    rows = recorded.valid_rows()
    few("role_hw", 1)(rows)
    results, _ = check(spark, recorded.frames_of(spark, rows).__getitem__, "small", "run", 0)
    assert [row["expectation"] for row in results if not row["success"]] == ["engine_conforms"]


def test_a_table_with_other_columns_is_told(spark: SparkSession) -> None:
    frames = recorded.frames_of(spark, recorded.valid_rows())
    frames["conformance"] = frames["conformance"].selectExpr("*", "1 AS stray")
    results, _ = check(spark, frames.__getitem__, "small", "run")
    (row,) = (row for row in results if not row["success"])
    assert row["expectation"] == "columns"
    assert "stray" in row["example"]


def test_what_is_not_known_breaks_nothing(spark: SparkSession) -> None:
    open_end = [{"leader_epoch": 0, "first_offset": 7, "last_offset": None}]
    bounded_leo = put("leo_timeline", 0, leo=3, evidence="bounded")
    acks_unknown = put("data_loss_incidents", 0, acked_one=None, acked_all=None)
    open_loss = put("data_loss_incidents", 0, last_offset=None, records=None, ranges=open_end)
    nobody_leads = put("isr_timeline", 1, leader_id=None, isr=[1])
    assert failed(spark, bounded_leo, acks_unknown, open_loss, nobody_leads) == {}


def test_no_rows_at_all_break_nothing(spark: SparkSession) -> None:
    assert failed(spark, lambda rows: [some.clear() for some in rows.values()]) == {}


def test_pages_fetch_and_run_nothing_and_escape_names(spark: SparkSession, tmp_path: Path) -> None:
    rows = recorded.valid_rows()
    rows["hw_timeline"][1].update(role="<script>alert(1)</script> $role ${x}")
    _, suites = check(spark, recorded.frames_of(spark, rows).__getitem__, "small", "run")

    class Shelf:
        def publish(self, local_dir: str, name: str) -> str:
            for page in Path(local_dir).iterdir():
                (tmp_path / page.name).write_bytes(page.read_bytes())
            return name

    assert publish_docs(suites, Shelf(), "a/b") == "_data_docs/a%2Fb/index.html"  # type: ignore[arg-type]
    pages = {page.name: page.read_text(encoding="utf-8") for page in tmp_path.iterdir()}
    assert {"index.html", "hw_timeline.html", "invariants.html"} <= set(pages)
    for name, page in pages.items():
        assert not re.search(r"<(script|link|img|iframe)\b", page, re.IGNORECASE), name
        assert not re.search(r"""(?:href|src)=["']\s*(?:https?:|//|javascript:)""", page, re.IGNORECASE), name
        assert not re.search(r"\son\w+=", page), name
        assert not re.search(r"url\(|@import", page), name
    assert escaped("<script>alert(1)</script> $role ${x}") in pages["hw_timeline.html"]
