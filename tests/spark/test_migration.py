"""A warehouse of an earlier version goes on: what it holds stays, and what this version writes fits in."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from delta import DeltaTable
from pyspark.sql import functions as F
from recorded_tables import RECORDING, frames_of, valid_rows
from released_tables import released
from whole_run import DERIVED, NAME, rows, run

from pipelines.spark.session import VERSION
from pipelines.warehouse.contract import check_constraints, values_in
from pipelines.warehouse.delta_io import Warehouse
from pipelines.warehouse.migration import MADE_BY, StandingTable, bring_up, completed
from schemas.errors import InputError
from schemas.model import INT32, INT64, STRING, Column, Table, required
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipelines.stages.run import Run

pytestmark = pytest.mark.spark

RELEASES = sorted((Path(__file__).parent.parent / "testdata").glob("schemas-*.json"))
THEN = Table(
    "log_truncations",
    "As it was.",
    (
        required("recording_id", STRING, "Recording."),
        required("seq", INT64, "Place."),
        required("cause", STRING, "Why.", values=("one", "it's two")),
        Column("chain", pa.list_(pa.struct([("seq", INT64)])), "Steps."),
    ),
    ("seq",),
    {"seq_positive": "seq > 0"},
)


def changed(*more: Column, **of_column: Any) -> Table:
    """The table as a later version has it: with more columns, and others instead of those named."""
    columns = [of_column.get(column.name, column) for column in THEN.columns]
    return replace(THEN, columns=(*more, *(column for column in columns if column is not None)))


def cause(*values: str) -> Column:
    return required("cause", STRING, "Why.", values=values)


class OneTable:
    """A table of a warehouse, as one version of Tidemark after the other meets it."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark = spark
        self.path = str(path / "ware house's" / THEN.name)
        self.meet(THEN)
        self.write(THEN, {"seq": 1, "cause": "one", "chain": [{"seq": 7}]})

    def meet(self, table: Table) -> StandingTable:
        bring_up(self.spark, table, self.path)
        return StandingTable.of(self.spark, self.path)

    def write(self, table: Table, *rows: dict[str, Any]) -> None:
        schema = pa.schema([field.with_nullable(nullable=True) for field in table.arrow_schema])
        told = pa.Table.from_pylist([{"recording_id": "r", **row} for row in rows], schema=schema)
        self.spark.createDataFrame(told).write.format("delta").mode("append").save(self.path)

    def read(self) -> DataFrame:
        return self.spark.read.format("delta").load(self.path)

    def version(self) -> int:
        return int(DeltaTable.forPath(self.spark, self.path).history(1).collect()[0].version)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> OneTable:
    return OneTable(spark, tmp_path)


def test_a_table_that_is_up_to_date_is_left_alone(table: OneTable) -> None:
    before = table.version()
    assert table.meet(THEN).properties[MADE_BY] == VERSION
    assert table.version() == before


def test_new_columns_and_fields_are_null_in_rows_from_before(table: OneTable) -> None:
    more = pa.list_(pa.struct([("seq", INT64), ("what", STRING)]))
    later = changed(Column("extra", INT32, "An extra."), chain=Column("chain", more, "Steps, in words."))
    stands = table.meet(later)
    assert stands.fields["extra"].metadata["comment"] == "An extra."
    assert stands.fields["chain"].metadata["comment"] == "Steps, in words."
    table.write(later, {"seq": 2, "cause": "one", "extra": 5, "chain": [{"seq": 8, "what": "cut"}]})
    told = [(row.extra, [*map(tuple, row.chain)]) for row in table.read().orderBy("seq").collect()]
    assert told == [(None, [(7, None)]), (5, [(8, "cut")])]


def test_a_closed_list_grows_and_keeps_the_values_that_only_the_table_knows(table: OneTable) -> None:
    later = changed(cause=cause("three", "one"))
    stands = table.meet(later)
    assert values_in(stands.constraints["cause_known"]) == ("three", "one", "it's two")
    table.write(later, {"seq": 2, "cause": "three"})
    table.write(THEN, {"seq": 3, "cause": "it's two"})
    with pytest.raises(Exception, match="DELTA_VIOLATE_CONSTRAINT"):
        table.write(later, {"seq": 4, "cause": "four"})
    version = table.version()
    assert table.meet(THEN).constraints == stands.constraints  # the older one meets the longer list, and leaves it
    assert table.version() == version


def test_a_column_that_is_never_null_says_what_rows_from_before_have_in_it(table: OneTable) -> None:
    later = changed(required("twice", INT64, "Twice the place.", before="seq * 2"))
    table.meet(later)
    table.write(later, {"seq": 5, "cause": "one", "twice": 1})
    with pytest.raises(Exception, match="twice_not_null"):
        table.write(later, {"seq": 6, "cause": "one"})
    assert sorted((row.seq, row.twice) for row in table.read().collect()) == [(1, 2), (5, 1)]
    version = table.version()
    table.meet(later)
    assert table.version() == version


def test_one_that_does_not_say_it_is_refused_where_there_are_rows(table: OneTable, spark: SparkSession) -> None:
    later = changed(required("twice", INT64, "Twice the place."))
    with pytest.raises(InputError, match="the column twice of the table log_truncations is never null") as caught:
        table.meet(later)
    assert "\n" not in str(caught.value)
    DeltaTable.forPath(spark, table.path).delete()
    assert "twice_not_null" in table.meet(later).constraints


def test_a_column_that_may_be_null_now_is_allowed_to(table: OneTable) -> None:
    later = changed(cause=Column("cause", STRING, "Why, if anybody says.", values=("one", "it's two")))
    table.meet(later)
    table.write(later, {"seq": 2})
    assert table.read().where("cause IS NULL").count() == 1


def test_a_check_that_rows_from_before_break_is_left_out_and_not_tried_again(table: OneTable) -> None:
    later = replace(THEN, checks={"seq_large": "seq > 1"})
    assert set(table.meet(later).constraints) == {"cause_known"}
    version = table.version()
    table.meet(later)
    assert table.version() == version
    assert table.meet(replace(THEN, checks={"seq_large": "seq >= 1"})).constraints["seq_large"] == "seq >= 1"


def test_a_column_of_another_type_is_refused_and_nothing_changes(table: OneTable) -> None:
    version = table.version()
    with pytest.raises(InputError, match="the column seq of the table log_truncations is bigint there, and not string"):
        table.meet(changed(Column("extra", INT32, "An extra."), seq=required("seq", STRING, "Place.")))
    assert table.version() == version


def test_an_older_version_that_meets_columns_of_a_later_one_says_so_and_destroys_nothing(table: OneTable) -> None:
    later = changed(Column("extra", INT32, "An extra."))
    table.meet(later)
    table.write(later, {"seq": 2, "cause": "one", "extra": 5})
    version = table.version()
    with pytest.raises(InputError) as caught:
        table.meet(THEN)
    told = str(caught.value)
    assert "columns that this version does not know (extra)" in told
    assert f"this is Tidemark {VERSION}, and Tidemark {VERSION} changed it last" in told
    assert table.version() == version


def test_a_later_version_s_table_is_left_as_it_is(table: OneTable, spark: SparkSession) -> None:
    spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('{MADE_BY}' = '99.1.0')")
    version = table.version()
    table.meet(replace(THEN, comment="Other words.", checks={"seq_positive": "seq > 5"}))
    assert table.version() == version
    with pytest.raises(InputError, match=r"no longer has the columns extra.*Tidemark 99\.1\.0 changed it last"):
        table.meet(changed(Column("extra", INT32, "An extra.")))


def test_a_column_that_went_away_without_having_held_anything_is_no_hindrance(table: OneTable) -> None:
    table.meet(changed(Column("idle", INT32, "Nothing.")))
    table.meet(THEN)
    table.write(THEN, {"seq": 2, "cause": "one"})
    assert completed(THEN, table.read()).columns == ["recording_id", "seq", "cause", "chain"]


def test_a_version_from_before_is_read_with_the_columns_of_now(table: OneTable) -> None:
    old = table.version()
    later = changed(Column("extra", INT32, "Extra."), required("twice", INT64, "Twice the place.", before="seq * 2"))
    table.meet(later)
    frame = table.spark.read.format("delta").option("versionAsOf", old).load(table.path)
    (row,) = completed(later, frame).collect()
    assert (row.extra, row.twice, row.seq) == (None, 2, 1)


def test_two_that_bring_a_table_up_at_once_come_to_the_same(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, str(tmp_path))
    path = warehouse.table_path("log_truncations")
    bring_up(spark, replace(TABLES["log_truncations"], columns=TABLES["log_truncations"].columns[:-3]), path)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: Warehouse(spark, warehouse.path).ensure("log_truncations"), range(4)))
    stands = StandingTable.of(spark, path)
    assert set(check_constraints(TABLES["log_truncations"])) <= set(stands.constraints)
    assert set(stands.fields) == {column.name for column in TABLES["log_truncations"].columns}


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.stem)
def test_every_table_of_an_earlier_release_takes_the_rows_of_now(
    spark: SparkSession, tmp_path: Path, release: Path
) -> None:
    warehouse = Warehouse(spark, str(tmp_path))
    frames = frames_of(spark, valid_rows())
    old = released(release)
    for name, table in old.items():
        bring_up(spark, table, warehouse.table_path(name))
        if name in frames:
            cut = frames[name].select([column.name for column in table.columns])
            before = cut.withColumn("recording_id", F.lit("before"))
            before.write.format("delta").mode("append").save(warehouse.table_path(name))
    for name, frame in frames.items():
        warehouse.replace(name, frame, RECORDING)
        assert warehouse.read(name, RECORDING).count() == frame.count(), name
        assert warehouse.read(name, "before").count() == (frame.count() if name in old else 0), name
    assert warehouse.read("set_aside").count() == 0


def test_a_recording_of_an_earlier_release_is_run_again_as_if_the_warehouse_were_new(
    spark: SparkSession, first: Run, recordings: Path, tmp_path: Path
) -> None:
    warehouse = Warehouse(spark, str(tmp_path))
    old = released(RELEASES[0])
    versions = {}
    for name, table in sorted(old.items(), key=lambda one: one[0] == "runs"):  # as a run writes them
        then = lessened(table)
        bring_up(spark, then, warehouse.table_path(name))
        cut = first.warehouse.read(name, NAME).select([column.name for column in then.columns])
        if name == "runs":
            cut = cut.withColumn("table_versions", F.lit(json.dumps(versions)))
        if name == "facts":  # its parsers took a line for something else
            cut = cut.unionByName(cut.limit(1).withColumn("fact_id", F.lit("misread")))
        met = " AND ".join(f"({condition})" for condition in check_constraints(then).values()) or "true"
        cut.where(met).write.format("delta").mode("append").save(warehouse.table_path(name))
        versions[name] = int(DeltaTable.forPath(spark, warehouse.table_path(name)).history(1).collect()[0].version)
    again = run(spark, recordings / NAME, tmp_path, ("ingest", "replay", "report"))
    for name in ("facts", *DERIVED, "coverage"):
        assert rows(again.warehouse, name) == rows(first.warehouse, name), name
    assert again.report is not None
    assert again.warehouse.read("set_aside").count() == 0


def lessened(table: Table) -> Table:
    """The table without a column that may be null and is no part of what names a row, and with half of the values."""
    named = {*table.key, *re.findall(r"\w+", " ".join(table.checks.values()))}
    loose = [column for column in table.columns if column.nullable and column.name not in named]
    kept = [column for column in table.columns if column not in loose[-1:]]
    return replace(table, columns=tuple(replace(column, values=column.values[::2]) for column in kept))
