"""What the driver writes in place of some rows of a table is what Spark would: conditions, and the merge of facts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pipelines.spark.spark_schemas import spark_schema
from pipelines.warehouse import local_tables
from pipelines.warehouse.changes import ALL_US, Changes, among, behind
from pipelines.warehouse.contract import check_constraints
from pipelines.warehouse.fact_merge import merge_here
from pipelines.warehouse.spans import spanned
from pipelines.warehouse.table_files import TableFiles
from pipelines.warehouse.within import MOST_NAMED, either, has_one_of
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from pipelines.warehouse.within import Within

HOUR_US = 3_600_000_000
MOVES = TABLES["leo_timeline"]
TOPICS = ("a", "o'clock", "b\\n")


def made(place: Path, name: str) -> Path:
    """Make an empty table, with its checks."""
    checks = {f"delta.constraints.{key}": check for key, check in check_constraints(TABLES[name]).items()}
    local_tables.make(place, spark_schema(TABLES[name]).json(), "", checks, None)
    return place


def moves(topics: tuple[str, ...], hours: tuple[int | None, ...]) -> pa.Table:
    """A row for each topic, partition and hour."""
    row = {"recording_id": "r", "incarnation": 0, "broker_id": 1, "leo": 1, "evidence": "observed"}
    row |= {"observer": "local", "step": "append"}
    rows = [
        {**row, "topic": topic, "partition": partition, "seq": hour or 0, "window": None if hour is None else at(hour)}
        for topic in topics
        for partition in (0, 1)
        for hour in hours
    ]
    return pa.Table.from_pylist(rows, MOVES.arrow_schema)


def at(hour: int) -> datetime:
    """An hour of a day."""
    return datetime(2026, 1, 1, hour, tzinfo=UTC)


def keys(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Which rows these are."""
    found = (rows[name].to_pylist() for name in ("topic", "partition", "window"))
    return sorted(zip(*found, strict=True), key=repr)


SINCE = {("o'clock", 0, 0): round(at(2).timestamp() * 1_000_000), ("b\\n", 0, 1): ALL_US}
CONDITIONS: dict[str, tuple[Within, int]] = {  # and how many rows meet it
    "from a window on": (Changes(SINCE).within(MOVES), 1 + 4),
    "of a time": (Changes({("a", 0, 1): SINCE["o'clock", 0, 0]}).within(MOVES), 1),
    "of a partition": (among([("o'clock", 0, 1), ("none", 0, 0)]), 4),
    "of none": (among([]), 0),
    "behind a number": (behind("seq", {("a", 0, 0): 0, ("b\\n", 0, 1): 1}), 3),
    "of a partition, with a number": (among([("b\\n", 0, 0)]).but("seq", 1), 1),
    "one of a text": (has_one_of("topic", ["o'clock", "b\\n"]), 16),
    "either": (either(has_one_of("topic", ["a"]), behind("seq", {("b\\n", 0, 1): 1})), 9),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_deltalake_replaces_what_meets_a_condition_in_memory(tmp_path: Path, name: str) -> None:
    within, count = CONDITIONS[name]
    place, hours = made(tmp_path / "t", MOVES.name), (None, 0, 1, 2)
    for hour in hours:  # a file for each
        assert local_tables.write(place, MOVES, moves(TOPICS, (hour,)), "r", None, "append")
    every = moves(TOPICS, hours)
    met, left = within.split(every)
    assert len(met) == count
    new = met.slice(0, 1)
    assert local_tables.write(place, MOVES, new, "r", None, only=within.here)
    stands = TableFiles.of(MOVES.name, place, None, "r")
    assert stands is not None
    assert keys(stands.rows()) == keys(pa.concat_tables([left, new]))
    if len(left):  # a new row that does not meet the condition is left to Spark, which leaves it out
        assert not local_tables.write(place, MOVES, left.slice(0, 1), "r", None, only=within.here)


def test_of_many_partitions_deltalake_gets_no_condition() -> None:
    many = [("t", 0, number) for number in range(MOST_NAMED + 1)]
    assert among(many).here is None
    assert among(many[1:]).here is not None
    assert Changes(dict.fromkeys(many, 0)).within(MOVES).here is None
    assert behind("seq", dict.fromkeys(many, 0)).here is None
    assert either(among(many), among([])).here is None


def fact(number: int, file: str, line: int, hour: int | None = 1, **said: object) -> dict[str, object]:
    """A fact of a line."""
    stamp = None if hour is None else at(hour)
    found = {"recording_id": "r", "fact_id": str(number), "kind": "produce", "source_file": file, "source_line": line}
    return {**found, "ts": stamp, **said}


def changed(*rows: tuple[int, str, int, bool]) -> pa.Table:
    """What `changed_facts` returns."""
    names = ("fact_id", "to", "source_line", "is_gone")
    return pa.Table.from_pylist([dict(zip(names, (str(row[0]), *row[1:]), strict=True)) for row in rows])


def facts_of(*rows: dict[str, object]) -> pa.Table:
    """Facts, with all columns."""
    return pa.Table.from_pylist(list(rows), TABLES["facts"].arrow_schema)


def test_facts_are_merged_with_what_earlier_readings_stated(tmp_path: Path) -> None:
    place = made(tmp_path / "t", "facts")
    stood = facts_of(
        fact(1, "a.log", 1, 5),
        fact(2, "a.log", 2, None),
        fact(3, "a.log", 3),
        fact(4, "b.log", 1),
        fact(5, "c.log", 1),
        fact(6, "a.log", 6),
    )
    assert local_tables.write(place, TABLES["facts"], stood, "r", None, "append")
    other = stood.set_column(stood.schema.get_field_index("recording_id"), "recording_id", pa.array(["s"] * 6))
    assert local_tables.write(place, TABLES["facts"], other, "s", None, "append")
    # 2 and 3 stood in lines that are read again: 2 is stated again, 3 is not. b.log is renamed, and 4 with it; 6 would
    # be, but another file states it now. 5 is stated by another file as well, and stays. 7 is new.
    told = changed((2, "a.log", 2, True), (3, "a.log", 3, True), (4, "b.log.1", 1, False), (6, "z.log", 6, False))
    new = facts_of(
        fact(2, "a.log", 2, None, client_id="anew"),
        fact(5, "d.log", 1),
        fact(6, "e.log", 9, client_id="anew"),
        fact(7, "a.log", 4),
    )
    same = f"known.recording_id = 'r' AND known.fact_id = new.fact_id AND {spanned('known.ts', [(0, HOUR_US)])}"
    assert merge_here(place, facts_of(fact(1, "a.log", 1, 5)), told.slice(0, 0), same, "r", "mark")  # not of that time
    same = same.replace(spanned("known.ts", [(0, HOUR_US)]), "true")
    assert merge_here(place, new, told, same, "r", None)
    stands = TableFiles.of("facts", place, None, "r")
    assert stands is not None
    columns = ("fact_id", "source_file", "source_line", "client_id")
    rows = sorted(tuple(row.values()) for row in stands.rows(columns).to_pylist())
    assert rows == [
        ("1", "a.log", 1, None),
        ("1", "a.log", 1, None),  # it was looked for in another time
        ("2", "a.log", 2, "anew"),
        ("4", "b.log.1", 1, None),
        ("5", "c.log", 1, None),
        ("6", "e.log", 9, "anew"),
        ("7", "a.log", 4, None),
    ]
    others = TableFiles.of("facts", place, None, "s")
    assert others is not None
    assert others.rows().equals(other.cast(others.rows().schema))


def test_facts_that_break_a_check_are_left_to_spark(tmp_path: Path) -> None:
    place = made(tmp_path / "t", "facts")
    same = "known.recording_id = 'r' AND known.fact_id = new.fact_id"
    assert not merge_here(place, facts_of(fact(1, "a.log", 1, kind="odd")), changed((2, "b", 1, True)), same, "r", None)
    assert local_tables.newest(place) == 0
    assert not merge_here(place, facts_of(fact(1, "a.log", 1)), changed((2, "b", 1, True)), same, "it's", None)


def test_files_of_a_time_are_found_by_delta_s_log(tmp_path: Path) -> None:
    place = made(tmp_path / "t", "facts")
    for hour in range(0, 20, 4):
        assert local_tables.write(place, TABLES["facts"], facts_of(fact(hour, "a", 1, hour)), "r", None, "append")
    stands = TableFiles.of("facts", place, None, "r")
    assert stands is not None
    time = round(at(8).timestamp() * 1_000_000)
    assert len(stands.around("ts", [(time, time)]).files) == 1  # an hour around it has no other
    assert len(stands.around("ts", [(time, time), (time - 3 * HOUR_US, time)]).files) == 2
    assert stands.around("ts", [None]) is stands
