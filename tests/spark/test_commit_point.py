"""Who may write, and which versions of the tables belong together."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import pytest
from pyspark.sql import functions as F
from test_delta_io import TABLE, cuts, facts, frame, seqs

import tidemark
from pipelines.intake.ledger import Change
from pipelines.warehouse.commit_point import last_complete, pinned, take_back_reading, versions_after
from pipelines.warehouse.commits import MARK, mark_of
from pipelines.warehouse.delta_io import Warehouse
from pipelines.warehouse.lease import Holder, Lease
from pipelines.warehouse.lease_files import HadoopFiles, LocalFiles
from schemas.errors import HeldError, InputError
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def drivers(spark: SparkSession, folder: Path, *run_ids: str) -> list[Warehouse]:
    found = []
    for run_id in run_ids:
        warehouse = Warehouse(spark, str(folder / "warehouse"))
        warehouse.run_id = run_id
        found.append(warehouse)
    return found


def test_a_recording_has_one_driver_and_another_recording_another_one(spark: SparkSession, tmp_path: Path) -> None:
    one, two = drivers(spark, tmp_path, "one", "two")
    with one.lease("a"):
        with pytest.raises(HeldError, match=r"the recording 'a' is being worked on by run one \(host "), two.lease("a"):
            pass
        with two.lease("b"):
            one.replace(TABLE, cuts(spark, "a", [1]), "a")
            two.replace(TABLE, cuts(spark, "b", [2]), "b")
    with two.lease("a"):
        two.replace(TABLE, cuts(spark, "a", [3]), "a")
    assert (seqs(one, "a"), seqs(one, "b")) == ([3], [2])


def test_who_lost_a_lease_writes_nothing_more(spark: SparkSession, tmp_path: Path) -> None:
    (one,) = drivers(spark, tmp_path, "one")
    one.replace(TABLE, cuts(spark, "a", [1]), "a")
    with one.lease("a"):
        assert LocalFiles(tmp_path / "warehouse" / "_leases" / "a").create("2", b"another driver's")
        with pytest.raises(HeldError, match="taken over"):
            one.replace(TABLE, cuts(spark, "a", [2]), "a")
    assert seqs(one, "a") == [1]


def test_on_s3_the_lease_is_that_of_the_whole_warehouse(spark: SparkSession) -> None:
    warehouse = Warehouse(spark, "s3a://lake/tidemark")
    assert warehouse._lease_name("a") == warehouse._lease_name("b") == "_warehouse"
    spark.conf.set("spark.delta.logStore.s3a.impl", "io.delta.storage.S3DynamoDBLogStore")
    try:
        assert warehouse._lease_name("a") == "a"
    finally:
        spark.conf.unset("spark.delta.logStore.s3a.impl")


def test_a_lease_in_a_store_of_hadoops_is_as_on_this_machine(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, str(tmp_path))
    path, system = warehouse.hadoop(str(tmp_path / "_leases" / "a"))
    jvm: Any = spark.sparkContext._jvm
    files = HadoopFiles(jvm, system, path)
    assert files.names() == []
    assert files.read("1") is None
    here = Holder.here("one")
    one, two = (Lease(files, "it", replace(here, run_id=name, machine="elsewhere")) for name in ("one", "two"))
    one.take()
    assert not files.create("1", b"another")
    with pytest.raises(HeldError, match="by run one"):
        two.take()
    one.check()
    one.give_back(finished=False)
    two.take()
    assert two.before == ("one",)
    two.give_back(finished=True)
    assert {name for name in files.names() if not name.endswith(".crc")} == {"2"}


@contextmanager
def marked(spark: SparkSession, recording_id: str, warehouse: Warehouse) -> Iterator[None]:
    spark.conf.set(MARK, mark_of(recording_id, warehouse.run_id))
    try:
        yield
    finally:
        spark.conf.unset(MARK)


def ended(spark: SparkSession, warehouse: Warehouse, recording_id: str, minute: int, versions: dict[str, int]) -> None:
    """Write a run's row."""
    at = datetime(2026, 3, 1, 10, minute, tzinfo=UTC)
    row: dict[str, Any] = dict.fromkeys(("versions", "configuration", "inputs", "counts", "durations"), "{}")
    row |= {"recording_id": recording_id, "run_id": warehouse.run_id, "started": at, "finished": at, "status": "ok"}
    row |= {"stages": ["ingest", "replay"], "table_versions": json.dumps(versions)}
    warehouse.append("runs", frame(spark, "runs", [row]))


def entry(spark: SparkSession, path: str, run_id: str) -> DataFrame:
    """A row of the ledger."""
    row: dict[str, Any] = dict.fromkeys(("fingerprint", "digest", "said", "parser_version", "resume", "counts"), "")
    row |= dict.fromkeys(("size", "length", "settled", "lines", "facts", "rejected"), 1)
    row |= {"recording_id": "r", "path": path, "run_id": run_id, "state": "read", "content": "server_log"}
    return frame(spark, "files", [{**row, "seen": datetime(2026, 3, 1, tzinfo=UTC)}])


def read_facts(warehouse: Warehouse) -> list[str]:
    return sorted(row.fact_id for row in warehouse.read("facts", "r").collect())


def test_a_run_names_its_own_commits_whoever_writes_after_it(spark: SparkSession, tmp_path: Path) -> None:
    one, two = drivers(spark, tmp_path, "one", "two")
    two.ensure("hw_timeline")
    for warehouse, recording_id, seq in ((one, "a", 1), (two, "b", 2), (one, "a", 3), (two, "b", 4)):
        with marked(spark, recording_id, warehouse):
            warehouse.replace(TABLE, cuts(spark, recording_id, [seq]), recording_id)
    assert (one.own_versions("a"), two.own_versions("b")) == ({TABLE: 3}, {TABLE: 4})
    assert [(one.version, one.run_id) for one in two.commits(TABLE, "a", 0)] == [(3, "one"), (1, "one")]
    found = versions_after(one, "a", ("replay",), {})
    assert (found[TABLE], found["hw_timeline"]) == (3, 0)
    found = versions_after(two, "b", ("ingest",), {"facts": 9, "isr_timeline": 9, TABLE: 9})
    assert (found["facts"], found["isr_timeline"], found[TABLE]) == (0, 9, 4)


def test_readers_stay_with_the_last_run_that_came_to_its_end(spark: SparkSession, tmp_path: Path) -> None:
    one, two = drivers(spark, tmp_path, "one", "two")
    two.ensure("runs")
    with pytest.raises(InputError, match="no run of the recording 'a' has come to its end"):
        tidemark.snapshot(str(two.path), "a", spark)
    with marked(spark, "a", one):
        one.replace(TABLE, cuts(spark, "a", [1]), "a")
    with marked(spark, "b", one):
        one.replace(TABLE, cuts(spark, "b", [7]), "b")
    ended(spark, one, "a", 1, {TABLE: 1})
    ended(spark, one, "b", 2, {TABLE: 2})
    with marked(spark, "a", two):  # does not come to its end
        two.replace(TABLE, cuts(spark, "a", [2]), "a")
    reader = Warehouse(spark, one.path)
    reader.pin(pinned(("report",), last_complete(reader, "a")))
    assert (seqs(reader, "a"), seqs(two, "a")) == ([1], [2])
    for through in (spark, None):
        tables = tidemark.snapshot(one.path, "a", through)
        assert (tables.run_id, tables.versions) == ("one", {TABLE: 1})
        assert tables.arrow(TABLE)["seq"].to_pylist() == [1]
        assert [row.seq for row in tables.spark(spark, TABLE).collect()] == [1]
    cut = tables.dataset(TABLE)
    assert duckdb.sql("SELECT seq FROM cut").fetchall() == [(1,)]
    del cut


def test_stages_read_what_they_do_not_write_as_the_last_complete_run_left_it() -> None:
    last = dict.fromkeys(TABLES, 5)
    assert pinned(("ingest", "replay", "validate", "report"), last) == {}
    assert set(pinned(("replay",), last)) == {"coverage", "event_windows", "replication_events"}
    assert {TABLE, "facts", "replication_events"} <= set(pinned(("validate",), last))
    assert set(pinned(("report",), last)) == set(TABLES) - {"runs"}
    assert pinned(("report",), {}) == {}


def test_what_was_read_without_coming_to_the_ledger_is_taken_back(spark: SparkSession, tmp_path: Path) -> None:
    one, two, three, four = drivers(spark, tmp_path, "one", "two", "three", "four")
    with marked(spark, "r", one):
        one.append_facts(facts(spark, ("a", "server.log", 1)), "r")
        one.replace("files", entry(spark, "server.log", "one"), "r")
    ended(spark, one, "r", 1, {"facts": one.version("facts"), "files": one.version("files"), "rejected_lines": 0})
    with marked(spark, "r", two):  # killed after its ledger: that stays
        two.append_facts(facts(spark, ("b", "server.log", 2)), "r")
        two.replace("files", entry(spark, "server.log", "two"), "r")
    with marked(spark, "r", three):  # killed before
        three.append_facts(facts(spark, ("c", "server.log", 3)), "r")
        three.append_facts(facts(spark, ("d", "server.log", 4)), "r")
    assert read_facts(three) == ["a", "b", "c", "d"]
    for _ in range(2):
        with marked(spark, "r", four):
            take_back_reading(four, "r")
        assert read_facts(four) == ["a", "b"]


def test_what_was_set_aside_is_taken_back_with_its_facts(spark: SparkSession, tmp_path: Path) -> None:
    one, two, three, four = drivers(spark, tmp_path, "one", "two", "three", "four")
    changes = (Change("a.log", "a.log", 0, None), Change("b.log", "b.log.1", None, None))

    def bring_in(warehouse: Warehouse, changes: tuple[Change, ...], *lines: tuple[str, str, int]) -> None:
        found = facts(spark, *lines).withColumn("kind", F.when(F.col("fact_id") < "n", "whim").otherwise("produce"))
        warehouse.append_facts(found, "r", changes=changes)

    def are_aside(warehouse: Warehouse) -> list[str]:
        return sorted(json.loads(row.row)["source_file"] for row in warehouse.read("set_aside", "r").collect())

    with marked(spark, "r", one):
        bring_in(one, (), ("a", "a.log", 1))
        one.replace("files", entry(spark, "a.log", "one"), "r")
    ended(spark, one, "r", 1, {name: one.version(name) for name in ("facts", "files", "rejected_lines", "set_aside")})
    with marked(spark, "r", two):  # killed after its ledger: that stays
        bring_in(two, (), ("b", "b.log", 1))
        two.replace("files", entry(spark, "b.log", "two"), "r")
    with marked(spark, "r", three):  # killed before
        bring_in(three, changes, ("x", "a.log", 1))
    assert are_aside(three) == ["b.log.1"]
    with marked(spark, "r", four):
        take_back_reading(four, "r")
        assert are_aside(four) == ["a.log", "b.log"]
        bring_in(four, changes, ("x", "a.log", 1))
    assert are_aside(four) == ["b.log.1"]


def test_nothing_that_delta_has_forgotten_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    one, two = drivers(spark, tmp_path, "one", "two")
    told = dict.fromkeys(("run_id", "reason", "severity", "key", "row"), "")
    one.replace("set_aside", frame(spark, "set_aside", [{"recording_id": "b", "table": "facts", **told}]), "b")
    deltalake.DeltaTable(one.table_path("set_aside")).create_checkpoint()
    for kind in ("json", "crc"):
        (tmp_path / f"warehouse/set_aside/_delta_log/{0:020d}.{kind}").unlink(missing_ok=True)
    with marked(spark, "r", one):
        one.append_facts(facts(spark, ("a", "server.log", 1)), "r", changes=())
    with marked(spark, "r", two):
        take_back_reading(two, "r")
    assert read_facts(two) == []


def test_to_make_the_ledger_is_not_to_write_it(spark: SparkSession, tmp_path: Path) -> None:
    one, two, three = drivers(spark, tmp_path, "one", "two", "three")
    with marked(spark, "r", one):  # killed before it had any facts
        one.ensure("files")
    with marked(spark, "r", two):
        take_back_reading(two, "r")
        assert read_facts(two) == []
        two.append_facts(facts(spark, ("a", "server.log", 1)), "r")
    with marked(spark, "r", one):  # who made the ledger
        one.append_facts(facts(spark, ("b", "server.log", 2)), "r")
    with marked(spark, "r", three):
        take_back_reading(three, "r")
    assert read_facts(three) == []


def test_a_table_whose_driver_was_killed_before_its_first_commit_is_made_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    (one,) = drivers(spark, tmp_path, "one")
    log = tmp_path / "warehouse" / TABLE / "_delta_log"
    log.mkdir(parents=True)
    (log / ".00000000000000000000.json.1b4e28ba.tmp").write_text("cut o")
    one.replace(TABLE, cuts(spark, "a", [1]), "a")
    assert seqs(one, "a") == [1]
