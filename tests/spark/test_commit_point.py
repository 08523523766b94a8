"""Who may write, and which versions of the tables belong together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from test_delta_io import TABLE, cuts, seqs

from pipelines.warehouse.delta_io import Warehouse
from pipelines.warehouse.lease import Holder, Lease
from pipelines.warehouse.lease_files import HadoopFiles, LocalFiles
from schemas.errors import HeldError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

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
    path, system = warehouse._hadoop(str(tmp_path / "_leases" / "a"))
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
