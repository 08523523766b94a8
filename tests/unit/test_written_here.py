"""What the driver writes in place of some rows of a table is what Spark would: conditions, and the merge of facts."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from pipelines.spark.spark_schemas import spark_schema
from pipelines.warehouse import local_tables
from pipelines.warehouse.changes import ALL_US, Changes, among, behind
from pipelines.warehouse.contract import check_constraints
from pipelines.warehouse.fact_merge import merged
from pipelines.warehouse.opened import CHECKPOINT, Opened
from pipelines.warehouse.spans import Near, is_spanned
from pipelines.warehouse.table_files import TableFiles
from pipelines.warehouse.within import MOST_NAMED, either, has_one_of, time_here
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
    table = DeltaTable(place)
    for hour in hours:  # a file for each
        assert local_tables.write(table, MOVES, moves(TOPICS, (hour,)), "r", None, "append")
    every = moves(TOPICS, hours)
    met, left = within.split(every)
    assert len(met) == count
    new = met.slice(0, 1)
    assert local_tables.write(table, MOVES, new, "r", None, only=within.here)
    stands = TableFiles.of(MOVES.name, place, None, "r")
    assert stands is not None
    assert keys(stands.rows()) == keys(pa.concat_tables([left, new]))
    if len(left):  # a new row that does not meet the condition is left to Spark, which leaves it out
        assert not local_tables.write(table, MOVES, left.slice(0, 1), "r", None, only=within.here)


RESULTS = TABLES["expectation_results"]


def result(run: int, recording_id: str = "r") -> pa.Table:
    """What a run adds."""
    row = {"recording_id": recording_id, "run_id": f"{run:032x}", "table": "t", "expectation": "e", "meaning": "m"}
    return pa.Table.from_pylist([{**row, "severity": "error", "success": True}], RESULTS.arrow_schema)


def test_a_table_to_which_each_run_adds_has_few_files_of_each_recording(tmp_path: Path) -> None:
    place, runs = made(tmp_path / "t", RESULTS.name), 3 * local_tables.MOST_SMALL
    table = DeltaTable(place)
    assert local_tables.write(table, RESULTS, result(0, "other"), "other", None, "append")
    for run in range(runs):
        assert local_tables.write(table, RESULTS, result(run), "r", f"mark of {run}", "append")
        stands = TableFiles.of(RESULTS.name, place, None, "r", Opened())
        assert stands is not None
        assert len(stands.paths) <= local_tables.MOST_SMALL
        assert len(stands.with_text("run_id", f"{run:032x}").paths) == 1
        assert stands.rows(["run_id"])["run_id"].sort().to_pylist() == [f"{k:032x}" for k in range(run + 1)]
    commits = [json.loads(path.read_text().splitlines()[0])["commitInfo"] for path in sorted(place.rglob("*.json"))]
    gathered = [one for one in commits if one["operation"] == "OPTIMIZE"]
    assert 0 < len(gathered) <= runs // (local_tables.MOST_SMALL - 1)
    assert all(one["userMetadata"].startswith("mark of") for one in gathered)
    others = TableFiles.of(RESULTS.name, place, None, "other", Opened())
    assert others is not None
    assert [path.name for path in others.paths] == [path.name for path in (place / "recording_id=other").iterdir()]


def test_few_files_stay_few_however_many_runs_add_to_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_tables, "LEAST_BYTES", 20_000)  # a file of one row has 5,000
    place, runs, words = made(tmp_path / "t", RESULTS.name), 120, Random(5)  # noqa: S311 - a test's choice
    table = DeltaTable(place)
    for run in range(runs):
        rows = pa.concat_tables([result(run)] * 40).set_column(
            4, "meaning", pa.array([words.randbytes(40).hex() for _ in range(40)])
        )
        assert local_tables.write(table, RESULTS, rows, "r", "a run", "append")
    stands = TableFiles.of(RESULTS.name, place, None, "r", Opened())
    assert stands is not None
    assert len(stands.rows(["run_id"])) == 40 * runs
    full = [size for size in stands.files["size_bytes"].to_pylist() if size >= 10_000]
    assert len(full) > local_tables.MOST_SMALL
    commits = [path.read_text() for path in sorted(place.rglob("*.json"))]
    late = [text for text in commits[-60:] if '"OPTIMIZE"' in text]
    assert 0 < len(late) <= 60 // (local_tables.MOST_SMALL // 2)


def test_a_run_that_does_not_hold_the_recording_puts_no_files_together(tmp_path: Path) -> None:
    place, runs = made(tmp_path / "t", RESULTS.name), local_tables.MOST_SMALL + 2
    table = DeltaTable(place)
    for run in range(runs):
        assert local_tables.write(table, RESULTS, result(run), "r", None, "append")
    assert len(table.file_uris()) == runs


def test_small_files_of_a_time_stay_together(tmp_path: Path) -> None:
    place, hours = made(tmp_path / "t", MOVES.name), range(local_tables.MOST_SMALL + 2)
    table = DeltaTable(place)
    for hour in hours:
        only = f"window >= {time_here(round(at(hour).timestamp() * 1_000_000))}"
        assert local_tables.write(table, MOVES, moves(TOPICS, (hour,)), "r", "a run", only=only)
    stands = TableFiles.of(MOVES.name, place, None, "r", Opened())
    assert stands is not None
    assert keys(stands.rows()) == keys(moves(TOPICS, tuple(hours)))
    assert len(stands.paths) == 2  # the one that made them too many, and the next
    last = round(at(hours[-1]).timestamp() * 1_000_000)
    assert len(stands.between("window", last, last).paths) == 1


def test_files_are_picked_by_a_short_text(tmp_path: Path) -> None:
    place = made(tmp_path / "t", RESULTS.name)
    table = DeltaTable(place)
    for run in range(4):
        assert local_tables.write(table, RESULTS, result(run), "r", None, "append")
    stands = TableFiles.of(RESULTS.name, place, None, "r", Opened())
    assert stands is not None
    assert stands.with_text("run_id", f"{2:032x}").rows(["run_id"])["run_id"].to_pylist() == [f"{2:032x}"]
    assert len(stands.with_text("run_id", "none").paths) == 0
    assert len(stands.with_text("example", "none").paths) == 4  # Delta says nothing of it: it is null throughout


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
    told = changed((2, "a.log", 2, True), (3, "a.log", 3, True), (4, "b.log.1", 1, False), (6, "z.log", 6, False))
    new = facts_of(
        fact(2, "a.log", 2, None, client_id="anew"),
        fact(5, "d.log", 1),
        fact(6, "e.log", 9, client_id="anew"),
        fact(7, "a.log", 4),
    )
    spans = [(HOUR_US * 24 * 365 * 56, HOUR_US * 24 * 365 * 57)]  # in which 2026 begins
    stand = TableFiles.of("facts", place, None, "r")
    assert stand is not None
    known = stand.rows(["fact_id"], is_spanned("ts", spans))["fact_id"]
    near = Near.of(new["ts"], stood["ts"])
    rows = merged(stand.rows((), near.filter("ts")), new, told, known)
    assert local_tables.write(table, TABLES["facts"], rows, "r", None, only=near.here("ts"))
    stands = TableFiles.of("facts", place, None, "r")
    assert stands is not None
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
    others = TableFiles.of("facts", place, None, "s")
    assert others is not None
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
    place = made(tmp_path / "t", "facts")
    table = DeltaTable(place)
    only = "ts IS NULL"
    odd, sound = facts_of(fact(1, "a.log", 1, None, kind="odd")), facts_of(fact(1, "a.log", 1, None))
    assert not local_tables.write(table, TABLES["facts"], odd, "r", None, only=only)
    assert DeltaTable(place).version() == 0
    assert not local_tables.write(table, TABLES["facts"], sound, "it's", None, only=only)
    assert local_tables.write(table, TABLES["facts"], sound, "r", None, only=only)


def test_files_of_a_time_are_found_by_delta_s_log(tmp_path: Path) -> None:
    place = made(tmp_path / "t", "facts")
    table = DeltaTable(place)
    for hour in range(0, 20, 4):
        assert local_tables.write(table, TABLES["facts"], facts_of(fact(hour, "a", 1, hour)), "r", None, "append")
    stands = TableFiles.of("facts", place, None, "r")
    assert stands is not None
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
    stands = TableFiles.of(MOVES.name, place, None, "r")
    assert stands is not None
    assert keys(stands.rows()) == keys(moves(TOPICS, (*hours,)))
    since = round(at(3).timestamp()) * 1_000_000
    assert len(stands.between("window", since, since).files) == 1  # what is known of the files is known as before


def test_rows_that_a_run_replaces_are_not_in_one_file_with_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_tables, "LEAST_BYTES", 1)
    table, topics = DeltaTable(made(tmp_path / "t", MOVES.name)), tuple(f"topic-{k}" for k in range(400))
    written: list[set[str]] = []
    for hour in range(6):  # each run replaces the newest hour and adds one
        only = f"window >= {time_here(round(at(max(hour - 1, 0)).timestamp()) * 1_000_000)}"
        new = moves(topics, (*range(max(hour - 1, 0), hour + 1),))
        assert local_tables.write(table, MOVES, new, "r", None, only=only)
        written.append({*table.file_uris()})
    assert all(len(now & before) >= len(before) - 2 for before, now in pairwise(written[2:]))
    assert len(written[-1]) > 3
    assert keys(table.to_pyarrow_table()) == keys(moves(topics, (*range(6),)))


def test_columns_in_another_order_are_written_and_one_that_is_missing_is_left_to_spark(tmp_path: Path) -> None:
    place = made(tmp_path / "t", MOVES.name)
    rows = moves(TOPICS, (1,))
    table, turned = DeltaTable(place), rows.select(rows.column_names[::-1])
    assert not local_tables.write(table, MOVES, rows.drop_columns(["leo"]), "r", None)
    assert local_tables.write(table, MOVES, turned, "r", None)
    stands = TableFiles.of(MOVES.name, place, None, "r")
    assert stands is not None
    assert stands.rows().select(rows.column_names).to_pylist() == rows.to_pylist()
