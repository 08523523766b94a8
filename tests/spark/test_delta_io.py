from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from pipelines.intake.ledger import Change
from pipelines.spark import row_files
from pipelines.spark.row_files import frame_of
from pipelines.warehouse import delta_io, soundness
from pipelines.warehouse.changes import among
from pipelines.warehouse.delta_io import Warehouse
from pipelines.warehouse.narrowing import Narrowing
from schemas.errors import InputError, TableContractError
from schemas.facts import FACTS
from schemas.offsets import LOG_TRUNCATIONS
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pipelines.spark.staging import Rows

pytestmark = pytest.mark.spark

TABLE = "log_truncations"
AWKWARD = "o'clock \\ ü"
HOUR_US = 3_600_000_000
START_US = round(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000


class OfFew(Warehouse):
    """Is given all rows in the driver's memory, as those of a small recording are."""

    def replace(self, table_name: str, found: Rows, recording_id: str, **how: Any) -> None:
        super().replace(table_name, found if isinstance(found, pa.Table) else found.toArrow(), recording_id, **how)

    def append_facts(self, found: Rows, recording_id: str, *told: Any, **how: Any) -> None:
        super().append_facts(found if isinstance(found, pa.Table) else found.toArrow(), recording_id, *told, **how)


class OfLargeTables(OfFew):
    """Is given few rows for tables that are large: files of theirs are put in place of others."""


@pytest.fixture(params=[Warehouse, OfFew, OfLargeTables])
def warehouse(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Warehouse:
    if request.param is OfLargeTables:
        monkeypatch.setattr(delta_io, "TINY_BYTES", -1)
        for module in (row_files, soundness):
            monkeypatch.setattr(module, "HERE_BYTES", 0)
    made: Warehouse = request.param(spark, str(tmp_path / "ware house's"))
    return made


def frame(spark: SparkSession, table: str, rows: list[dict[str, Any]]) -> DataFrame:
    schema = pa.schema([field.with_nullable(nullable=True) for field in TABLES[table].arrow_schema])
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=schema))


def cuts(spark: SparkSession, recording_id: str, seqs: list[int], **changed: object) -> DataFrame:
    row = {"topic": "t", "incarnation": 0, "partition": 0, "broker_id": 1, "leo_after": 5, "cause": "recovery"}
    row |= {"recording_id": recording_id, "evidence": "observed", **changed}
    rows = [{**row, "seq": seq} for seq in seqs]
    return frame(spark, TABLE, rows)


def facts(spark: SparkSession, *lines: tuple[str, str, int]) -> DataFrame:
    named = [{"fact_id": i, "source_file": file, "source_line": line} for i, file, line in lines]
    return frame(spark, "facts", [{"recording_id": "r", "kind": "produce", **row} for row in named])


def seqs(warehouse: Warehouse, recording_id: str) -> list[int]:
    return [row["seq"] for row in warehouse.read(TABLE, recording_id).select("seq").collect()]


def test_a_table_that_nobody_wrote_is_empty_and_has_comments(warehouse: Warehouse) -> None:
    rows = warehouse.read(TABLE)
    assert rows.count() == 0
    assert rows.schema["leo_after"].metadata["comment"] == LOG_TRUNCATIONS.column("leo_after").comment
    assert warehouse.version(TABLE) == 0


def test_replace_replaces_one_recording_and_sorts(spark: SparkSession, warehouse: Warehouse) -> None:
    warehouse.replace(TABLE, cuts(spark, "a", [3, 1, 2]), "a")
    warehouse.replace(TABLE, cuts(spark, AWKWARD, [7]), AWKWARD)
    warehouse.replace(TABLE, cuts(spark, "a", [5, 4]), "a")
    assert seqs(warehouse, "a") == [4, 5]
    assert seqs(warehouse, AWKWARD) == [7]
    assert len(warehouse.read(TABLE, "a").inputFiles()) == 1


@pytest.mark.parametrize(
    ("changed", "severity", "reason"),
    [
        ({"leo_after": None}, "error", "leo_after IS NOT NULL"),
        ({"cause": "whim"}, "error", "cause_known: cause IN ("),
    ],
)
def test_a_row_that_breaks_a_check_is_set_aside_and_the_others_are_written(
    spark: SparkSession, warehouse: Warehouse, changed: dict[str, object], severity: str, reason: str
) -> None:
    warehouse.run_id = "run"
    warehouse.replace(TABLE, cuts(spark, "a", [1]), "a")
    warehouse.replace(TABLE, cuts(spark, "b", [9], cause="whim"), "b")
    mixed = cuts(spark, "a", [4, 3]).union(cuts(spark, "a", [2], **changed))
    warehouse.replace(TABLE, mixed, "a")
    assert seqs(warehouse, "a") == [3, 4]
    (row,) = warehouse.read("set_aside", "a").collect()
    assert (row.table, row.run_id, row.severity) == (TABLE, "run", severity)
    assert row.reason.startswith(reason)
    assert ";" not in row.reason
    assert json.loads(row.key) == {"topic": "t", "incarnation": 0, "partition": 0, "seq": 2, "broker_id": 1}
    assert json.loads(row.row)["leo_after"] == changed.get("leo_after", 5)
    again = Warehouse(spark, warehouse.path)
    again.replace(TABLE, cuts(spark, "a", [5]), "a")
    assert again.read("set_aside", "a").count() == 0
    assert again.read("set_aside", "b").count() == 1


def test_a_row_whose_numbers_cannot_be_is_set_aside_as_a_warning(spark: SparkSession, warehouse: Warehouse) -> None:
    row = {"recording_id": "a", "topic": "t", "incarnation": 0, "partition": 0, "broker_id": 1, "role": "leader"}
    row |= {"step": "role", "evidence": "observed"}
    rows = [{**row, "seq": seq, "hw": hw} for seq, hw in ((1, 5), (2, -1))]
    warehouse.replace("hw_timeline", frame(spark, "hw_timeline", rows), "a")
    assert [row.hw for row in warehouse.read("hw_timeline", "a").collect()] == [5]
    (aside,) = warehouse.read("set_aside", "a").collect()
    assert (aside.severity, aside.reason) == ("warning", "hw_not_negative: hw >= 0")


def test_checks_that_another_version_gave_a_table_are_renewed(spark: SparkSession, warehouse: Warehouse) -> None:
    Warehouse(spark, warehouse.path).ensure(TABLE)
    table = f"delta.`{warehouse.table_path(TABLE)}`"
    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT gone CHECK (leo_after < 5)")
    spark.sql(f"ALTER TABLE {table} DROP CONSTRAINT cause_known")
    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT cause_known CHECK (cause = 'leader_epoch')")
    warehouse.replace(TABLE, cuts(spark, "a", [1]), "a")
    assert seqs(warehouse, "a") == [1]
    assert warehouse.read("set_aside", "a").count() == 0
    warehouse.replace(TABLE, cuts(spark, "a", [1], cause="whim"), "a")
    assert warehouse.read("set_aside", "a").count() == 1


def test_a_fact_that_breaks_a_check_is_set_aside(spark: SparkSession, warehouse: Warehouse) -> None:
    told = facts(spark, ("1", "a.log", 1), ("2", "a.log", 2))
    warehouse.append_facts(told.withColumn("kind", F.when(F.col("fact_id") == "1", F.col("kind"))), "r")
    assert [row.fact_id for row in warehouse.read("facts", "r").collect()] == ["1"]
    assert warehouse.read("set_aside", "r").count() == 1


def test_what_later_writes_do_not_replace_stays_aside(spark: SparkSession, warehouse: Warehouse) -> None:
    def write(topic: str, seq: int, **changed: object) -> set[str]:
        found = cuts(spark, "a", [seq, seq + 1], topic=topic, **changed)
        warehouse.replace(TABLE, found, "a", within=among([(topic, 0, 0)]))
        return {json.loads(row.row)["topic"] for row in warehouse.read("set_aside", "a").collect()}

    assert write("t", 1, cause="whim") == {"t"}
    assert write("it's", 1) == {"t"}
    assert write("it's", 3, cause="whim") == {"t", "it's"}
    assert write("t", 3) == {"it's"}
    warehouse.replace(TABLE, warehouse.read(TABLE, "a"), "a", within="seq > 1", are_same=True)
    assert warehouse.read("set_aside", "a").count() == len((3, 4))
    warehouse.replace(TABLE, cuts(spark, "a", [9], topic="it's"), "a", within="topic = 'it''s' AND seq > 3")
    assert [json.loads(row.row)["seq"] for row in warehouse.read("set_aside", "a").collect()] == [3]


def test_facts_stay_aside_until_they_are_read_again(spark: SparkSession, warehouse: Warehouse) -> None:
    whim = F.lit("whim")
    warehouse.append_facts(facts(spark, ("1", "a.log", 1), ("2", "a.log", 2)).withColumn("kind", whim), "r", changes=())
    warehouse.append_facts(facts(spark, ("3", "b.log", 1)), "r", changes=())
    again = facts(spark, ("1", "c.log", 1), ("4", "c.log", 2)).withColumn("kind", whim)
    warehouse.append_facts(again, "r", changes=(Change("a.log", "a.log.1", 2, None),))
    told = [json.loads(row.row) for row in warehouse.read("set_aside", "r").collect()]
    found = {(row["fact_id"], row["source_file"]) for row in told}
    assert found == {("1", "a.log.1"), ("4", "c.log")}
    assert warehouse.read("facts", "r").count() == 1


def test_a_narrowed_write_leaves_what_lies_outside_of_it(spark: SparkSession, warehouse: Warehouse) -> None:
    for topic, seq in (("t", 1), ("it's", 2)):
        within = Narrowing((topic,)).condition(LOG_TRUNCATIONS)
        warehouse.replace(TABLE, cuts(spark, "a", [seq], topic=topic).union(cuts(spark, "a", [9])), "a", within=within)
    assert sorted(seqs(warehouse, "a")) == [1, 2, 9]
    late = Narrowing(since="2026-01-01T00:00:00+00:00").condition(LOG_TRUNCATIONS)
    times = [datetime(2025, 12, 31, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)]
    warehouse.replace(TABLE, cuts(spark, "b", [1], ts=times[0]).union(cuts(spark, "b", [2], ts=times[1])), "b")
    warehouse.replace(TABLE, cuts(spark, "b", [3], ts=times[1]), "b", within=late)
    assert sorted(seqs(warehouse, "b")) == [1, 3]


def test_rows_of_another_recording_are_one_plain_error(spark: SparkSession, warehouse: Warehouse) -> None:
    warehouse.replace(TABLE, cuts(spark, "a", [1]), "a")
    with pytest.raises(TableContractError) as caught:
        warehouse.replace(TABLE, cuts(spark, "b", [2]), "a")
    assert "recording_id = 'a'" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert seqs(warehouse, "a") == [1]


def test_missing_columns_are_named(spark: SparkSession, warehouse: Warehouse) -> None:
    with pytest.raises(TableContractError, match="lack the columns cause"):
        warehouse.replace(TABLE, cuts(spark, "a", [1]).drop("cause"), "a")


def test_another_schema_in_the_table_s_place_is_refused(spark: SparkSession, warehouse: Warehouse) -> None:
    spark.range(1).write.format("delta").save(warehouse.table_path(TABLE))
    with pytest.raises(InputError, match="other columns"):
        warehouse.ensure(TABLE)


def test_facts_are_taken_once_however_often_they_come(spark: SparkSession, warehouse: Warehouse) -> None:
    warehouse.append_facts(facts(spark, ("1", "a.log", 9), ("2", "b.log", 3)), "r")
    warehouse.append_facts(facts(spark, ("3", "c.log", 1), ("2", "0.log", 1)), "r")
    rows = warehouse.read("facts", "r").select("fact_id", "source_file", "source_line").collect()
    assert sorted(map(tuple, rows)) == [("1", "a.log", 9), ("2", "b.log", 3), ("3", "c.log", 1)]


def test_of_files_that_go_on_and_state_the_same_the_first_counts(spark: SparkSession, warehouse: Warehouse) -> None:
    warehouse.append_facts(facts(spark, ("1", "b.dump", 1), ("2", "b.dump", 2), ("3", "b.dump", 3)), "r", changes=())
    gone = {"fact_id": ["3"], "to": ["b.dump"], "source_line": [3], "is_gone": [True]}
    table = pa.table({**gone, "ts": pa.array([None], pa.timestamp("us", "UTC"))})
    changed: Rows = table if isinstance(warehouse, OfFew) else spark.createDataFrame(table)
    again = facts(spark, ("2", "a.dump", 9), ("3", "c.dump", 7), ("1", "c.dump", 5), ("4", "b.dump", 4))
    warehouse.append_facts(again, "r", changed, [None], changes=[Change("b.dump", "b.dump", 3, None)])
    rows = warehouse.read("facts", "r").select("fact_id", "source_file", "source_line").collect()
    assert sorted(map(tuple, rows)) == [("1", "b.dump", 1), ("2", "a.dump", 9), ("3", "c.dump", 7), ("4", "b.dump", 4)]


@pytest.mark.parametrize("in_files", [False, True])
def test_facts_of_a_large_table_change_in_their_own_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_files: bool
) -> None:
    for module in (row_files, soundness) if in_files else ():
        monkeypatch.setattr(module, "HERE_BYTES", 0)
    warehouse = Warehouse(spark, str(tmp_path / "w"))

    def at(hour: int, *lines: tuple[str, str, int]) -> pa.Table:
        rows = facts(spark, *lines).toArrow()
        times = pa.array([datetime(2026, 1, 1, hour, tzinfo=UTC)] * len(rows), FACTS.arrow_schema.field("ts").type)
        return rows.set_column(rows.schema.get_field_index("ts"), "ts", times)

    def bring(rows: pa.Table, changed: pa.Table | None, hour: int, *changes: Change) -> None:
        spans = [(START_US + hour * HOUR_US, START_US + hour * HOUR_US)]
        if not in_files:
            warehouse.append_facts(rows, "r", changed, spans, changes=changes)
            return
        file = tmp_path / f"{uuid.uuid4()}.parquet"
        pq.write_table(rows.drop_columns("recording_id"), file)
        given = frame_of(spark, [file], "r", FACTS.arrow_schema)
        warehouse.append_facts(given, "r", changed, spans, [file], changes)

    def files() -> dict[str, list[str]]:
        read = {path.name: pq.read_table(path)["fact_id"].to_pylist() for path in warehouse.paths("facts", "r")}
        return {name: sorted(ids) for name, ids in read.items()}

    for hour in (1, 5, 9):
        bring(at(hour, (f"{hour}a", "a.log", hour), (f"{hour}b", "a.log", hour + 1)), None, hour)
    before = files()
    assert sorted(before.values()) == [["1a", "1b"], ["5a", "5b"], ["9a", "9b"]]
    stated = at(9, ("9b", "a.log", 10), ("9c", "a.log", 11))
    gone = pa.table({"fact_id": ["9b"], "to": ["a.log"], "is_gone": [True], "ts": stated["ts"].slice(0, 1)})
    bring(stated, gone, 9, Change("a.log", "a.log", 10, None))
    after = files()
    assert sorted(after.values()) == [["1a", "1b"], ["5a", "5b"], ["9a"], ["9b"], ["9c"]]
    assert {name for name in before if name in after} == {name for name, ids in before.items() if "9a" not in ids}
    # Others that state again what stands add nothing.
    bring(stated, None, 9)
    assert files() == after


def test_runs_side_by_side_do_not_harm_each_other(spark: SparkSession, warehouse: Warehouse) -> None:
    def replace(number: int) -> None:
        name = f"r{number % 2}"
        type(warehouse)(spark, warehouse.path).replace(TABLE, cuts(spark, name, [1, 2]), name)

    def bring(_: int) -> None:
        type(warehouse)(spark, warehouse.path).append_facts(facts(spark, ("1", "a.log", 1), ("2", "a.log", 2)), "r")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(replace, range(4)))
        list(threads.map(bring, range(3)))
    assert (seqs(warehouse, "r0"), seqs(warehouse, "r1")) == ([1, 2], [1, 2])
    assert warehouse.read("facts", "r").count() == 2


def test_staging_is_dropped_and_pages_replace_pages(warehouse: Warehouse, tmp_path: Path) -> None:
    warehouse.run_id = "run"
    staged = tmp_path / "ware house's" / "_staging" / "r" / "run"
    killed = staged.parent / "killed"
    for one in (staged, killed):
        (one / "replay").mkdir(parents=True)
    assert warehouse.staging_dir("r") == str(staged)
    warehouse.drop_staging("r")
    warehouse.drop_staging("r")
    assert not staged.parent.exists()
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.html").write_text(name)
        shelf = warehouse.publish(str(tmp_path / name), "_data_docs/x%2Fy")
    assert shelf == str(tmp_path / "ware house's" / "_data_docs" / "x%2Fy")
    assert [page.name for page in (tmp_path / "ware house's" / "_data_docs" / "x%2Fy").iterdir()] == ["new.html"]


def test_file_takes_the_place_of_the_one_before_and_leaves_no_checksum(warehouse: Warehouse, tmp_path: Path) -> None:
    for text in ("a longer text", "\N{MICRO SIGN}s"):
        where = warehouse.write("reports/r.md", text.encode())
    (written,) = (tmp_path / "ware house's" / "reports").iterdir()
    assert str(written) == where
    assert written.read_text() == "\N{MICRO SIGN}s"
