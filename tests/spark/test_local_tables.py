"""Tables that the driver makes and writes by itself are as Spark makes and writes them, and the two may take turns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F
from written_tables import log_of

from pipelines.spark import row_files
from pipelines.spark.packed import STREAM, rows_of, stream_of
from pipelines.spark.row_files import RowFile
from pipelines.spark.spark_schemas import spark_ddl, spark_schema
from pipelines.spark.staging import Staged, stage
from pipelines.warehouse import delta_reads, local_tables, migration
from pipelines.warehouse.delta_io import Warehouse
from pipelines.warehouse.within import Within
from schemas.errors import TableContractError
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pipelines.stages.run import Run

pytestmark = pytest.mark.spark

TABLE = TABLES["log_truncations"]


def form_of(table: Path) -> dict[str, Any]:
    told = {name: action for commit in log_of(table)[:1] for one in commit for name, action in one.items()}
    form = told["metaData"]
    kept = {name: form[name] for name in ("description", "format", "partitionColumns", "configuration")}
    return {**kept, "schema": json.loads(form["schemaString"]), "protocol": told["protocol"]}


def cuts(recording_id: str, *seqs: int) -> pa.Table:
    row = {"topic": "t", "incarnation": 0, "partition": 0, "broker_id": 1, "leo_after": 5, "cause": "recovery"}
    rows = [{**row, "recording_id": recording_id, "evidence": "observed", "seq": seq} for seq in seqs]
    return pa.Table.from_pylist(rows, TABLE.arrow_schema)


def seqs(warehouse: Warehouse, recording_id: str) -> list[int]:
    by_spark = sorted(row.seq for row in warehouse.read(TABLE.name, recording_id).select("seq").collect())
    assert sorted(warehouse.arrow(TABLE.name, recording_id, ["seq"])["seq"].to_pylist()) == by_spark
    return by_spark


def test_a_table_is_made_as_spark_makes_it(spark: SparkSession, tmp_path: Path) -> None:
    for name, table in TABLES.items():
        migration.bring_up(spark, table, str(tmp_path / "spark" / name))
        migration.bring_up(spark, table, str(tmp_path / "driver" / name), tmp_path / "driver" / name)
        assert form_of(tmp_path / "driver" / name) == form_of(tmp_path / "spark" / name), name
        assert [len(log_of(tmp_path / made / name)) for made in ("driver", "spark")] == [1, 1], name


def test_who_is_second_to_make_a_table_leaves_it(tmp_path: Path) -> None:
    for comment in ("first", "second"):
        local_tables.make(tmp_path / "t", '{"type":"struct","fields":[]}', comment, {}, None)
    assert form_of(tmp_path / "t")["description"] == "first"
    assert [path.name for path in (tmp_path / "t" / "_delta_log").iterdir()] == [f"{0:020d}.json"]


def test_a_small_recording_is_written_without_spark(first: Run) -> None:
    for name, count in first.counts.items():
        writers = [commit[0]["commitInfo"].get("engineInfo", "") for commit in log_of(first.warehouse.place_of(name))]  # type: ignore[arg-type]
        assert all(writer.startswith("delta-rs") for writer in writers[1:]), name
        assert len(writers) > 1 or not count, name


@pytest.mark.parametrize("name", ["prod-eu_1.b", "a b+c=d,e@f (é).x"])
def test_spark_and_the_driver_write_in_turn(spark: SparkSession, tmp_path: Path, name: str) -> None:
    warehouse = Warehouse(spark, str(tmp_path / "w"))
    for turn in range(0, 14, 2):  # Spark writes a checkpoint after ten commits
        warehouse.replace(TABLE.name, cuts(name, turn, turn + 1), name)
        if turn % 3 == 0:
            assert seqs(warehouse, name) == [turn, turn + 1]
            warehouse.replace(TABLE.name, spark.createDataFrame(cuts(name, turn)), name)
            assert seqs(warehouse, name) == [turn]
            warehouse.append(TABLE.name, cuts(name, 99))
            assert seqs(warehouse, name) == [turn, 99]
    warehouse.replace(TABLE.name, cuts("another", 7), "another")
    assert seqs(warehouse, name) == [12, 99]
    warehouse.replace(TABLE.name, cuts(name, 1, 30), name, within="seq >= 23")
    assert seqs(warehouse, name) == [12, 30]
    assert seqs(warehouse, "another") == [7]


def test_commits_say_which_run_made_them(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, str(tmp_path / "w"))
    spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", '{"recording_id": "r", "run_id": "mine"}')
    try:
        warehouse.replace(TABLE.name, cuts("r", 1), "r")
    finally:
        spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")
    warehouse.replace(TABLE.name, cuts("s", 1), "s")
    assert [(one.version, one.run_id) for one in warehouse.commits(TABLE.name, "r", -1)] == [(1, "mine")]


def test_a_check_that_the_driver_cannot_compute_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, str(tmp_path / "w"))
    warehouse.ensure(TABLE.name)
    path = warehouse.table_path(TABLE.name)
    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT odd CHECK (bit_count(seq) % 2 = 1)")
    place = warehouse.place_of(TABLE.name)
    assert place is not None
    assert not local_tables.write(DeltaTable(place), TABLE, cuts("r", 1, 2), "r", None)
    warehouse.replace(TABLE.name, cuts("r", 1, 2), "r")
    assert seqs(warehouse, "r") == [1, 2]


def staged(spark: SparkSession, folder: Path, *streams: pa.Table) -> Staged:
    """Streams of the table's rows, each in a file of its own, and streams of other rows beside them."""
    others = cuts("r", 100)
    rows = [(name, stream_of(told)) for told in streams for name, told in ((TABLE.name, told), ("others", others))]
    frame = spark.createDataFrame(rows, spark_ddl(STREAM)).repartition(len(streams), F.md5("rows"))
    return stage(frame, str(folder), 2)


def replaced_by_workers(warehouse: Warehouse, told: Staged, recording_id: str) -> None:
    frame = rows_of(told.frame, TABLE.name, TABLE.arrow_schema)
    warehouse.replace(TABLE.name, frame, recording_id, streams=told.streams(TABLE.name))


def writers(warehouse: Warehouse) -> list[str]:
    """Who made each commit but the first."""
    place = warehouse.place_of(TABLE.name)
    assert place is not None
    infos = (next(action for action in commit if "commitInfo" in action)["commitInfo"] for commit in log_of(place)[1:])
    return ["driver" if info.get("engineInfo", "").startswith("delta-rs") else "Spark" for info in infos]


def test_workers_write_the_rows_of_streams(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_files, "LEAST_BYTES", 1)  # so that there is more than one file
    warehouse = Warehouse(spark, str(tmp_path / "w"))
    replaced_by_workers(warehouse, staged(spark, tmp_path / "1", cuts("r", 1), cuts("r", 2)), "r")
    replaced_by_workers(warehouse, staged(spark, tmp_path / "2", cuts("another", 3)), "another")
    replaced_by_workers(warehouse, staged(spark, tmp_path / "3", *(cuts("r", k, k + 1) for k in (4, 6, 8))), "r")
    assert writers(warehouse) == ["driver"] * 3
    assert seqs(warehouse, "r") == [*range(4, 10)]
    assert seqs(warehouse, "another") == [3]
    assert len(warehouse.read(TABLE.name, "r").inputFiles()) > 1
    rows = pa.concat_tables([cuts("r", k, k + 1) for k in (4, 6, 8)])
    assert warehouse.arrow(TABLE.name, "r").sort_by("seq").equals(rows)


def replaced_from(warehouse: Warehouse, told: Staged, begin: int) -> None:
    """Replace the rows from a seq on by those of streams."""
    within = Within(f"seq >= {begin}", lambda rows: pc.greater_equal(rows["seq"], begin), ("seq",))
    frame = rows_of(told.frame, TABLE.name, TABLE.arrow_schema)
    warehouse.replace(TABLE.name, frame, "r", within=within, streams=told.streams(TABLE.name))


def files_of(warehouse: Warehouse) -> dict[str, list[int]]:
    """The rows of each of a recording's files."""
    read = {path.name: pq.read_table(path)["seq"].to_pylist() for path in warehouse.paths(TABLE.name, "r")}
    return {name: sorted(told) for name, told in read.items()}


def test_workers_write_the_rows_of_streams_in_place_of_some(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, str(tmp_path / "w"))
    warehouse.replace(TABLE.name, cuts("another", 5), "another")
    warehouse.replace(TABLE.name, cuts("r", 1, 2, 3, 4), "r")
    replaced_from(warehouse, staged(spark, tmp_path / "1", cuts("r", 3), cuts("r", 5, 7)), 3)
    before = files_of(warehouse)
    assert sorted(before.values()) == [[1, 2], [3, 5, 7]]  # what is new is in a file of its own
    # 6 is in place of nothing.
    replaced_from(warehouse, staged(spark, tmp_path / "2", cuts("r", 6, 8), cuts("r", 9)), 7)
    after = files_of(warehouse)
    assert sorted(after.values()) == [[1, 2], [3, 5], [8, 9]]
    assert [name for name in after if name in before] == [name for name, told in before.items() if told == [1, 2]]
    assert seqs(warehouse, "r") == [1, 2, 3, 5, 8, 9]
    assert writers(warehouse) == ["driver"] * 4
    with pytest.raises(TableContractError):
        replaced_from(warehouse, staged(spark, tmp_path / "3", cuts("r", 10), cuts("another", 11)), 9)
    replaced_from(warehouse, staged(spark, tmp_path / "4", cuts("r", 1)), 0)
    assert seqs(warehouse, "r") == [1]
    assert seqs(warehouse, "another") == [5]


def test_rows_of_streams_that_break_a_check_are_set_aside(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, str(tmp_path / "w"))
    warehouse.replace(TABLE.name, cuts("r", 1, 2), "r")
    odd = cuts("r", 3, 4)
    place = odd.schema.get_field_index("cause")
    odd = odd.set_column(place, odd.schema.field(place), pa.array(["recovery", "weather"]))
    replaced_from(warehouse, staged(spark, tmp_path / "1", odd, cuts("r", 5)), 2)
    assert seqs(warehouse, "r") == [1, 3, 5]
    assert warehouse.arrow("set_aside", "r")["table"].to_pylist() == [TABLE.name]
    assert writers(warehouse) == ["driver", "Spark"]


def test_a_stream_is_read_without_those_beside_it(spark: SparkSession, tmp_path: Path) -> None:
    many, noise = 24, np.random.default_rng(1)
    rows = [("n", stream_of(pa.table({"n": noise.integers(0, 1 << 62, 100_000)}))) for _ in range(many)]
    frame = spark.createDataFrame(rows, spark_ddl(STREAM)).coalesce(1)
    (file,) = stage(frame, str(tmp_path / "s"), 1).streams("n")
    size, before, most, count = len(rows[0][1]), pa.total_allocated_bytes(), 0, 0
    for batch in row_files.streamed([file], pa.schema([("n", pa.int64())])):
        count += len(batch)
        most = max(most, pa.total_allocated_bytes() - before)
    assert count == many * 100_000
    assert most < 6 * size  # as bytes packed and unpacked, as rows, and what was read ahead


def test_workers_leave_to_spark_what_breaks_a_check(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, str(tmp_path / "w"))
    odd = pa.Table.from_pylist([{**row, "cause": "magic"} for row in cuts("r", 1).to_pylist()], TABLE.arrow_schema)
    replaced_by_workers(warehouse, staged(spark, tmp_path / "1", odd, cuts("r", 2)), "r")
    assert writers(warehouse)[-1] == "Spark"
    assert seqs(warehouse, "r") == [2]
    (aside,) = warehouse.read("set_aside", "r").collect()
    assert json.loads(aside.row)["cause"] == "magic"
    replaced_by_workers(warehouse, staged(spark, tmp_path / "2", cuts("r", 3)), "r")
    assert writers(warehouse)[-1] == "driver"
    assert warehouse.is_empty("set_aside", "r")


def test_workers_leave_to_spark_what_they_do_not_know(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, str(tmp_path / "w"))
    with pytest.raises(TableContractError):
        replaced_by_workers(warehouse, staged(spark, tmp_path / "1", cuts("r", 1), cuts("another", 2)), "r")
    assert seqs(warehouse, "r") == []
    spark.sql(f"ALTER TABLE delta.`{warehouse.table_path(TABLE.name)}` ADD CONSTRAINT odd CHECK (bit_count(seq) = 1)")
    replaced_by_workers(warehouse, staged(spark, tmp_path / "2", cuts("r", 1)), "r")
    assert writers(warehouse)[-1] == "Spark"
    assert seqs(warehouse, "r") == [1]


def test_spark_reads_what_is_too_much_to_be_handed_to_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = Warehouse(spark, str(tmp_path / "w"))
    warehouse.replace(TABLE.name, cuts("r", 1, 2, 3), "r")
    assert warehouse.looked_at(TABLE.name, "r").inputFiles() == []  # from memory
    monkeypatch.setattr(delta_reads, "FRAME_ROWS", 2)
    assert len(warehouse.looked_at(TABLE.name, "r").inputFiles()) == 1
    assert warehouse.small(TABLE.name, "r") is not None


def test_of_a_file_that_is_taken_over_delta_s_log_states_the_same_as_of_one_that_is_written(tmp_path: Path) -> None:
    facts, times = TABLES["facts"], [None, 1_764_000_000_123_000, 1_764_000_001_654_321]
    row = {"recording_id": "r", "kind": "api", "source_file": "a", "broker_id": 1}
    told = [{**row, "fact_id": str(k), "source_line": k, "ts": ts, "topic": "t"} for k, ts in enumerate(times)]
    rows = pa.Table.from_pylist(told, facts.arrow_schema)
    file = RowFile(tmp_path / "staged")
    for k in range(len(rows)):
        file.add(rows.slice(k, 1))
    stated = []
    for how in ("written", "taken"):
        place = tmp_path / how
        schema, properties = spark_schema(facts).json(), {"delta.dataSkippingStatsColumns": "ts,topic,partition,kind"}
        local_tables.make(place, schema, facts.comment, properties, None)
        if how == "written":
            assert local_tables.write(DeltaTable(place), facts, rows, "r", "mark", "append")
        else:
            files = [tmp_path / "staged" / name for name in file.close()["name"].to_pylist()]
            assert local_tables.take_over(DeltaTable(place), facts, files, (), "r", "mark")
        info, added = log_of(place)[1]
        assert info["commitInfo"]["userMetadata"] == "mark"
        assert (place / added["add"]["path"]).exists()
        stated.append({**json.loads(added["add"]["stats"]), "of": added["add"]["partitionValues"]})
        assert table_rows(place) == rows.to_pylist()
    # Times have whole milliseconds there: deltalake cuts the latest off, which could hide rows from a reader.
    assert stated[0]["maxValues"].pop("ts") == "2025-11-24T16:00:01.654Z"
    assert stated[1]["maxValues"].pop("ts") == "2025-11-24T16:00:01.655Z"
    assert stated[1] == stated[0]


def table_rows(place: Path) -> list[dict[str, Any]]:
    names = TABLES["facts"].arrow_schema.names
    rows: list[dict[str, Any]] = DeltaTable(place).to_pyarrow_table(columns=names).sort_by("source_line").to_pylist()
    return rows
