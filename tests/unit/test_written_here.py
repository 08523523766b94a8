"""What the driver writes in place of some rows of a table is what Spark would: conditions, and the merge of facts."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from written_tables import MOVES, NO_SPARK, TOPICS, at, exchanged, from_hour, keys, made, moves, stands_of, taken_over

from pipelines.warehouse import local_tables
from pipelines.warehouse.changes import ALL_US, Changes, among, behind
from pipelines.warehouse.exchange import facts_in_place_of
from pipelines.warehouse.fact_merge import merged
from pipelines.warehouse.opened import CHECKPOINT, Opened
from pipelines.warehouse.spans import Near
from pipelines.warehouse.table_files import TableFiles
from pipelines.warehouse.within import either, has_one_of
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pipelines.warehouse.within import Within

HOUR_US = 3_600_000_000


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
def test_what_meets_a_condition_is_replaced(tmp_path: Path, name: str) -> None:
    within, count = CONDITIONS[name]
    place, hours = made(tmp_path / "t", MOVES.name), (None, 0, 1, 2)
    table = DeltaTable(place)
    for hour in hours:  # a file for each
        assert local_tables.write(table, MOVES, moves(TOPICS, (hour,)), "r", None, "append")
    every = moves(TOPICS, hours)
    met, left = within.split(every)
    assert len(met) == count
    new, before = met.slice(0, 1), {*stands_of(place, MOVES.name).paths}
    given = pa.concat_tables([left.slice(0, 1), new])  # a new row that does not meet the condition is not written
    assert exchanged(place, MOVES, given, within)
    stands = stands_of(place, MOVES.name)
    assert keys(stands.rows()) == keys(pa.concat_tables([left, new]))
    untouched = {hour for hour in hours if not len(within.split(moves(TOPICS, (hour,)))[0])}
    assert len({*stands.paths} & before) == len(untouched)


def test_rows_that_break_a_check_are_left_to_spark(tmp_path: Path) -> None:
    place, every, within = made(tmp_path / "t", MOVES.name), moves(TOPICS, (1, 2)), among([("a", 0, 0)])

    def with_some(column: str, value: object) -> pa.Table:
        rows = every.to_pylist()
        rows[0][column] = value
        return pa.Table.from_pylist(rows, pa.schema([one.with_nullable(True) for one in every.schema]))  # noqa: FBT003

    assert exchanged(place, MOVES, every, None)
    before = DeltaTable(place).version()
    for column, value in (("leo", None), ("evidence", "rumoured"), ("recording_id", "another")):
        assert not exchanged(place, MOVES, with_some(column, value), within), column
    assert not exchanged(place, MOVES, every.drop_columns(["leo"]), within)
    texts = every.set_column(every.schema.get_field_index("leo"), "leo", pa.array(["many"] * len(every)))
    assert not exchanged(place, MOVES, texts, within)
    assert DeltaTable(place).version() == before
    assert exchanged(place, MOVES, with_some("leo", 7), within)
    assert sorted(stands_of(place, MOVES.name).rows()["leo"].to_pylist()) == [1] * 11 + [7]


@pytest.mark.parametrize("name", TABLES)
def test_the_checks_of_every_table_find_a_row_that_has_nothing(tmp_path: Path, name: str) -> None:
    place, schema = made(tmp_path / "t", name), TABLES[name].arrow_schema
    columns = [pa.array(["r" if field.name == "recording_id" else None], field.type) for field in schema]
    assert not exchanged(place, TABLES[name], pa.table(columns, schema), None)


def fact(number: int, file: str, line: int, hour: int | None = 1, **said: object) -> dict[str, object]:
    """A fact of a line."""
    stamp = None if hour is None else at(hour)
    found = {"recording_id": "r", "fact_id": str(number), "kind": "produce", "source_file": file, "source_line": line}
    return {**found, "ts": stamp, **said}


def changed(*rows: tuple[int, str, int, bool], hours: Mapping[int, int | None] | None = None) -> pa.Table:
    """What `changed_facts` returns; `hours`: of facts that are not of the first."""
    names = ("fact_id", "to", "source_line", "is_gone")
    found = pa.Table.from_pylist([dict(zip(names, (str(row[0]), *row[1:]), strict=True)) for row in rows])
    told = [None if hour is None else at(hour) for hour in ((hours or {}).get(row[0], 1) for row in rows)]
    return found.append_column("ts", pa.array(told, TABLES["facts"].arrow_schema.field("ts").type))


def facts_of(*rows: dict[str, object]) -> pa.Table:
    """Facts, with all columns."""
    return pa.Table.from_pylist(list(rows), TABLES["facts"].arrow_schema)


def test_facts_are_merged_with_what_earlier_readings_stated(tmp_path: Path) -> None:
    place = made(tmp_path / "t", "facts")
    table = DeltaTable(place)
    far, stood = (
        facts_of(fact(1, "a.log", 1, 5)),
        facts_of(
            fact(2, "a.log", 2, None),
            fact(3, "a.log", 3),
            fact(4, "b.log", 1),
            fact(5, "c.log", 1),
            fact(6, "a.log", 6),
        ),
    )
    for some in (far, stood):
        assert local_tables.write(table, TABLES["facts"], some, "r", None, "append")
    other = stood.set_column(stood.schema.get_field_index("recording_id"), "recording_id", pa.array(["s"] * 5))
    assert local_tables.write(table, TABLES["facts"], other, "s", None, "append")
    # 2 and 3 stood in lines that are read again: 2 is stated again, 3 is not. b.log is renamed, and 4 with it; 6 would
    # be, but another file states it now. 5 is stated by another file as well, and stays. 7 is new.
    told = changed(
        (2, "a.log", 2, True), (3, "a.log", 3, True), (4, "b.log.1", 1, False), (6, "z.log", 6, False), hours={2: None}
    )
    new = facts_of(
        fact(2, "a.log", 2, None, client_id="anew"),
        fact(5, "d.log", 1),
        fact(6, "e.log", 9, client_id="anew"),
        fact(7, "a.log", 4),
    )
    spans = [(HOUR_US * 24 * 365 * 56, HOUR_US * 24 * 365 * 57)]  # in which 2026 begins
    stand = stands_of(place, "facts")
    brought = facts_in_place_of(NO_SPARK, stand, new, told, spans, tmp_path / "files")
    assert taken_over(place, TABLES["facts"], brought)
    stands = stands_of(place, "facts")
    assert len({*stands.paths} & {*stand.paths}) == 1  # the file of another time is as it was
    columns = ("fact_id", "source_file", "source_line", "client_id")
    assert sorted(tuple(row.values()) for row in stands.rows(columns).to_pylist()) == [
        ("1", "a.log", 1, None),
        ("2", "a.log", 2, "anew"),
        ("4", "b.log.1", 1, None),
        ("5", "c.log", 1, None),
        ("6", "e.log", 9, "anew"),
        ("7", "a.log", 4, None),
    ]
    others = stands_of(place, "facts", "s")
    assert others.rows().equals(other.cast(others.rows().schema))


@pytest.mark.parametrize("seed", range(100))
def test_facts_are_merged_in_memory_by_the_clauses_of_spark_s_merge(seed: int) -> None:
    chosen = Random(seed)  # noqa: S311 - nothing secret
    stand, new = (
        {k: (chosen.choice(names), chosen.randrange(9)) for k in range(8) if chosen.random() < share}
        for names, share in (("bcd", 0.7), ("abde", 0.4))
    )
    told = {k: (chosen.choice("xyz"), chosen.random() < 0.5) for k in stand if chosen.random() < 0.4}
    hours = [chosen.choice((None, 1, 2, 3, 4)) for _ in range(10)]
    expected = {k: line for k, line in new.items() if k not in stand or k in told}
    for k, (name, line) in stand.items():
        to, is_gone = told.get(k, (name, False))
        if k in new:  # stated again, or by another file as well: the first of them counts
            expected.setdefault(k, min((name, line), new[k]))
        elif not is_gone:
            expected[k] = (to, line)
    facts, others, those = (
        facts_of(*(fact(k, *of[k], hours[k]) for k in of)) for of in (stand, new, {k: stand[k] for k in told})
    )
    near = Near.of(others["ts"], those["ts"])
    some = facts.filter(near.filter("ts"))
    left = facts.filter(pc.invert(pc.is_in(facts["fact_id"], some["fact_id"])))
    told_of = changed((9, "", 0, False), *((k, to, 0, gone) for k, (to, gone) in told.items()))
    rows = pa.concat_tables([left, merged(some, others, told_of, facts["fact_id"])])
    found = rows.select(["fact_id", "source_file", "source_line"]).to_pylist()
    assert sorted(tuple(row.values()) for row in found) == sorted((str(k), *line) for k, line in expected.items())


def test_facts_that_break_a_check_are_left_to_spark(tmp_path: Path) -> None:
    place, folder = made(tmp_path / "t", "facts"), tmp_path / "files"
    odd, sound = facts_of(fact(1, "a.log", 1, None, kind="odd")), facts_of(fact(1, "a.log", 1, None))
    column = sound.schema.get_field_index("recording_id")
    others = sound.set_column(column, sound.schema.field(column), pa.array(["another"]))
    for unfit in (odd, others, sound.drop_columns(["client_id"])):
        assert facts_in_place_of(NO_SPARK, stands_of(place, "facts"), unfit, None, None, folder) is None
    made_of = facts_in_place_of(NO_SPARK, stands_of(place, "facts"), sound, None, None, folder)
    assert made_of is not None
    assert not local_tables.take_over(DeltaTable(place), TABLES["facts"], *made_of, "it's", None)
    assert DeltaTable(place).version() == 0
    assert taken_over(place, TABLES["facts"], made_of)


def test_files_of_a_time_are_found_by_delta_s_log(tmp_path: Path) -> None:
    place = made(tmp_path / "t", "facts")
    table = DeltaTable(place)
    for hour in range(0, 20, 4):
        assert local_tables.write(table, TABLES["facts"], facts_of(fact(hour, "a", 1, hour)), "r", None, "append")
    stands = stands_of(place, "facts")
    time = round(at(8).timestamp() * 1_000_000)
    assert len(stands.around("ts", [(time, time)]).files) == 1  # an hour around it has no other
    assert len(stands.around("ts", [(time, time), (time - 3 * HOUR_US, time)]).files) == 2
    assert stands.around("ts", [None]) is stands


def test_a_table_that_was_opened_shows_what_others_have_committed_since(tmp_path: Path) -> None:
    place, opened = made(tmp_path / "t", MOVES.name), Opened()
    first = opened.newest(place)
    for hour in (0, 1):
        assert local_tables.write(DeltaTable(place), MOVES, moves(TOPICS, (hour,)), "r", None, "append")
        stands = TableFiles.of(MOVES.name, place, None, "r", opened)
        assert stands is not None
        assert keys(stands.rows()) == keys(moves(TOPICS, (*range(hour + 1),)))
    assert opened.newest(place) is first


def test_readers_of_a_long_log_begin_at_its_last_checkpoint(tmp_path: Path) -> None:
    place, hours = made(tmp_path / "t", MOVES.name), range(CHECKPOINT + 2)
    for hour in hours:
        assert local_tables.write(DeltaTable(place), MOVES, moves(TOPICS, (hour,)), "r", None, "append")
    for version in range(CHECKPOINT):
        (place / "_delta_log" / f"{version:020d}.json").unlink()
    stands = stands_of(place, MOVES.name)
    assert keys(stands.rows()) == keys(moves(TOPICS, (*hours,)))
    since = round(at(3).timestamp()) * 1_000_000
    assert len(stands.between("window", since, since).files) == 1  # what is known of the files is known as before


def test_rows_that_a_run_replaces_are_not_in_one_file_with_all_others(tmp_path: Path) -> None:
    place, topics = made(tmp_path / "t", MOVES.name), tuple(f"topic-{k}" for k in range(40))
    written: list[set[str]] = []
    for hour in range(6):  # each run replaces the newest hour and adds one
        new = moves(topics, (*range(max(hour - 1, 0), hour + 1),))
        assert exchanged(place, MOVES, new, from_hour(max(hour - 1, 0), topics))
        written.append({*DeltaTable(place).file_uris()})
    assert all(len(now & before) >= len(before) - 2 for before, now in pairwise(written[2:]))
    assert len(written[-1]) > 3
    assert keys(stands_of(place, MOVES.name).rows()) == keys(moves(topics, (*range(6),)))


def test_columns_in_another_order_are_written_and_one_that_is_missing_is_left_to_spark(tmp_path: Path) -> None:
    place = made(tmp_path / "t", MOVES.name)
    rows = moves(TOPICS, (1,))
    table, turned = DeltaTable(place), rows.select(rows.column_names[::-1])
    assert not local_tables.write(table, MOVES, rows.drop_columns(["leo"]), "r", None)
    assert local_tables.write(table, MOVES, turned, "r", None)
    stands = stands_of(place, MOVES.name)
    assert stands.rows().select(rows.column_names).to_pylist() == rows.to_pylist()
