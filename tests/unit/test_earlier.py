"""A validation that goes on from an earlier one counts what one of all rows counts, whatever has changed since."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import recorded_tables as recorded
from checked_tables import counts_of
from deltalake import DeltaTable, write_deltalake
from planted_faults import FAULTS, put, twice

from pipelines.expectations import counting, earlier
from pipelines.expectations.database import NAMES, closed_database
from pipelines.expectations.earlier import Earlier, digest_of
from pipelines.expectations.suites import EVERY, all_rules
from pipelines.warehouse.came_and_went import change_of
from pipelines.warehouse.table_files import TableFiles
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from planted_faults import Plant

    from pipelines.expectations.rules import TableRule

RULES = [rule for rule in all_rules() if rule.name != "columns"]
HELD = frozenset(rule.id for rule in RULES)
SPARED = {rule.named for rule in RULES if rule.onward or rule.key or rule.condition}  # of what has not changed
PLACE = ("topic", "incarnation", "partition", "seq")
SPOILED = 1  # the partition that has the faults


class Standing:
    """Delta tables of three partitions, each in files of its own; rows of the second change, and are put back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spared = 0  # rules that were not counted in all rows, though something had changed
        self.rows = recorded.arrow_of(recorded.together([recorded.whole_rows(number) for number in range(3)]))
        for name, rows in self.rows.items():
            DeltaTable.create(folder / name, form_of(name), partition_by=["recording_id"])
            for part in parts_of(rows):
                self.add(name, part)

    def add(self, name: str, rows: pa.Table) -> None:
        if len(rows):
            write_deltalake(self.folder / name, rows, mode="append", partition_by=["recording_id"])

    def files(self, rules: Sequence[TableRule] = RULES) -> dict[str, TableFiles]:
        """The tables that these rules read."""
        read = {"hw_timeline", *(name for rule in rules for name in (rule.table, *rule.reads))}
        found = {name: TableFiles.of(name, self.folder / name, None, recorded.RECORDING) for name in read}
        return {name: one for name, one in found.items() if one is not None}

    def changed(self, rows: Mapping[str, pa.Table]) -> dict[str, int]:
        """Put these rows of the second partition in place of those that stand; return what was the version before."""
        versions = {name: DeltaTable(self.folder / name).version() for name in self.rows}
        for name, some in rows.items():
            if has_partitions(some):
                DeltaTable(self.folder / name).delete(f"partition = {SPOILED}")
            else:
                DeltaTable(self.folder / name).delete()
            self.add(name, some)
        return versions

    def counts(
        self, versions: Mapping[str, int], held: frozenset[str] = HELD, rules: Sequence[TableRule] = RULES
    ) -> dict[str, int]:
        """How many rows break each rule, going on from what stood in these versions."""
        now = self.files(rules)
        changes = {name: change for name, one in now.items() if (change := change_of(one, versions[name])) is not None}
        assert changes.keys() == now.keys()
        since = Earlier(held, changes)
        with closed_database({**now, **since.tables}) as db:
            looked = {name: counting.look_through(db, name, rules, since) for name in now}
            return counting.counts_by_duckdb(db, rules, looked, since)

    def after(self, *plants: Plant) -> tuple[dict[str, int], dict[str, int]]:
        """What is counted after these faults by going on, and of all rows; the tables are then as before."""
        sets = [recorded.whole_rows(number) for number in range(3)]
        for plant in plants:
            plant(sets[SPOILED])
        now = recorded.arrow_of(recorded.together(sets))
        changed = {name: rows for name, rows in now.items() if not rows.equals(self.rows[name])}
        versions = self.changed({name: mine_of(rows) for name, rows in changed.items()})
        asked = [rule for rule in RULES if rule.native is None and changed.keys() & {rule.table, *rule.reads}]
        found = self.counts(versions, rules=asked), counts_of(asked, self.files(asked))
        self.changed({name: mine_of(self.rows[name]) for name in changed})
        return found


def form_of(name: str) -> pa.Schema:
    """The table's columns, each of which may be null: rules are to say which must not be."""
    return pa.schema([field.with_nullable(nullable=True) for field in TABLES[name].arrow_schema])


def has_partitions(rows: pa.Table) -> bool:
    return {*PLACE[:3]} <= {*rows.schema.names} and "fact_id" not in rows.schema.names


def parts_of(rows: pa.Table) -> list[pa.Table]:
    if not has_partitions(rows):
        return [rows]
    return [rows.filter(pc.equal(rows["partition"], number)) for number in range(3)]


def mine_of(rows: pa.Table) -> pa.Table:
    """The rows that are not those of the first or third partition."""
    if not has_partitions(rows):
        return rows
    return rows.filter(pc.invert(pc.is_in(rows["partition"], pa.array([0, 2], pa.int32()))))


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Standing:
    return Standing(tmp_path_factory.mktemp("standing"))


def test_what_held_before_the_first_change_is_not_looked_at(
    standing: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: dict[str, bool] = {}
    count = counting._count

    def noted(db: Any, rule: Any, names: Mapping[str, str]) -> int:
        if rule.onward:
            read[rule.named] = names is NAMES
        return count(db, rule, names)

    monkeypatch.setattr(counting, "_count", noted)
    versions = standing.changed({"hw_timeline": spoiled("hw_timeline", hw_before=0)})
    found = standing.counts(versions)
    standing.changed({"hw_timeline": mine_of(standing.rows["hw_timeline"])})
    assert [rule.named for rule in RULES if found[rule.id]] == []
    assert {name: found[name] for name in standing.rows} == {name: len(rows) for name, rows in standing.rows.items()}
    assert read == dict.fromkeys((rule.named for rule in RULES if rule.onward), False)


@pytest.mark.parametrize("name", [name for name in FAULTS if name in SPARED])
def test_each_planted_fault_is_found_in_what_has_changed(standing: Standing, name: str) -> None:
    going_on, whole = standing.after(FAULTS[name])
    assert going_on == whole


def test_any_change_is_counted_as_in_all_rows(standing: Standing) -> None:
    dice = random.Random(11)  # noqa: S311 - no secret
    every = recorded.whole_rows()
    names = [name for rule in RULES if rule.onward for name in (rule.table, *rule.reads)]
    broken: set[str] = set()
    for number in range(20):
        plants = []
        for _ in range(1 + number % 3):
            table = TABLES[dice.choice([name for name in names if every[name]])]
            index = dice.randrange(len(every[table.name]))
            columns = [one for one in table.columns if one.name not in {"recording_id", "partition"}]
            column = dice.choice(columns)
            values = [*column.values] or [dice.choice([-1, 0, 1, 2, 3, 5, 8, 60])]
            if not column.values and not str(table.arrow_schema.field(column.name).type).startswith("int"):
                continue
            plants.append(
                dice.choice([put(table.name, index, **{column.name: dice.choice(values)}), twice(table.name)])
            )
        going_on, whole = standing.after(*plants)
        assert going_on == whole, number
        broken |= {rule.named for rule in RULES if whole.get(rule.id) and rule.onward}
    assert len(broken) > 6


def test_a_rule_that_did_not_hold_is_counted_as_a_whole(standing: Standing) -> None:
    versions = standing.changed({"hw_timeline": spoiled("hw_timeline", hw=11)})
    later = {name: DeltaTable(standing.folder / name).version() for name in standing.rows}
    failed = standing.counts(versions)["hw_timeline__hw_within_leo"]
    assert failed
    assert standing.counts(later)["hw_timeline__hw_within_leo"] == 0  # it is taken to hold, as nothing has changed
    assert standing.counts(later, HELD - {"hw_timeline__hw_within_leo"})["hw_timeline__hw_within_leo"] == failed
    standing.changed({"hw_timeline": mine_of(standing.rows["hw_timeline"])})


def spoiled(table: str, **values: object) -> pa.Table:
    """The rows of the second partition, of which the last one has these values."""
    rows = recorded.whole_rows(SPOILED)
    put(table, -1, **values)(rows)
    return recorded.arrow_of(rows)[table]


def test_rows_that_say_no_place_are_looked_at_with_all_others(standing: Standing) -> None:
    rows = standing.rows["hw_timeline"].to_pylist()
    now = standing.files()
    for column in PLACE:
        with closed_database(
            {
                "hw_timeline": rows_of(rows),
                "hw_timeline__new": rows_of([rows[-1] | {column: None}]),
                "hw_timeline__gone": rows_of([]),
            }
        ) as db:
            change = change_of(now["hw_timeline"], now["hw_timeline"].table.version())
            assert change is not None
            assert earlier.find_changed(db, Earlier(HELD, {"hw_timeline": change})) is None


def rows_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, form_of("hw_timeline"))


def test_a_log_that_was_cleaned_says_nothing(standing: Standing) -> None:
    files = standing.files()["facts"]
    assert change_of(files, files.table.version()) is not None
    assert change_of(files, None) is None
    assert change_of(files, files.table.version() + 1) is None
    log = standing.folder / "facts" / "_delta_log" / f"{files.table.version():020}.json"
    text = log.read_text()
    log.unlink()
    assert change_of(files, files.table.version() - 1) is None
    log.write_text(text)


def test_a_file_that_was_vacuumed_says_nothing(standing: Standing) -> None:
    versions = standing.changed({"hw_timeline": spoiled("hw_timeline", hw=1)})
    files = standing.files()["hw_timeline"]
    change = change_of(files, versions["hw_timeline"])
    assert change is not None
    (path,) = change.gone.paths
    kept = path.read_bytes()
    path.unlink()
    assert change_of(files, versions["hw_timeline"]) is None
    path.write_bytes(kept)
    standing.changed({"hw_timeline": mine_of(standing.rows["hw_timeline"])})


def test_rules_that_go_onward_read_only_tables_with_places() -> None:
    onward = [rule for rule in RULES if rule.onward]
    assert len(onward) > 12
    for rule in onward:
        for name in (rule.table, *rule.reads):
            assert {*PLACE} <= {column.name for column in TABLES[name].columns}, rule.named


def test_other_rules_have_another_digest() -> None:
    assert digest_of(RULES) == digest_of(all_rules()[:0] + RULES)
    assert digest_of(RULES) != digest_of(RULES[1:])
    assert len({digest_of([rule]) for rule in RULES}) == len(RULES)


def test_many_changed_rows_are_not_compared_and_count_the_same(
    standing: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier, "COMPARED_ROWS", 0)
    for name in ("hw_timeline.hw_within_leo", "replication_events.rows_join_events", "leo_timeline.key_unique"):
        plant = FAULTS.get(name, twice("leo_timeline"))
        going_on, whole = standing.after(plant)
        assert going_on == whole
        assert sum(whole.get(rule.id, 0) for rule in RULES) > 0
    assert len(EVERY) == len(standing.rows)
