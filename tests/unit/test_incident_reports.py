"""What runs leave in `incident_reports`; of the warehouse only the versions of its tables, of runs only what stands."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from test_revisions import incident

from pipelines.stages import incident_reports
from pipelines.stages.incident_reports import REPORTS, TABLE, Told, tell
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pipelines.stages.revisions import Row


def at(hour: int) -> datetime:
    return datetime(2026, 3, 1, hour, tzinfo=UTC)


@dataclass
class Frame:
    """Rows, as Spark would hand them out."""

    rows: pa.Table

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        return self.rows


@dataclass
class Versions:
    """A warehouse with one recording: the versions of two tables."""

    tables: dict[str, list[pa.Table]] = field(
        default_factory=lambda: {name: [TABLES[name].arrow_schema.empty_table()] for name in (TABLE, REPORTS)}
    )

    def arrow(self, name: str, recording_id: str) -> pa.Table:
        return self.read_at(name, -1, recording_id).rows

    def read_at(self, name: str, version: int, recording_id: str) -> Frame:
        assert recording_id == "r"
        return Frame(self.tables[name][version])

    def replace(self, name: str, rows: pa.Table, recording_id: str) -> None:
        assert recording_id == "r"
        self.tables[name].append(rows)

    def version(self, name: str) -> int:
        return len(self.tables[name]) - 1


@dataclass
class Runs:
    """Runs of the recording, one an hour; some do not come to their end."""

    warehouse: Versions = field(default_factory=Versions)
    hour: int = 0
    unfinished: bool = False
    last: dict[str, Any] | None = None  # the row of the last one that did

    def run(self, *stand: Row, is_killed: bool = False, tells: bool = True) -> Told | None:
        """A run that finds these incidents; None: it is of a release that does not tell of them."""
        run_id, last, told = f"run {self.hour}", self.last, None
        rows = pa.Table.from_pylist(list(stand), TABLES[TABLE].arrow_schema)
        self.warehouse.replace(TABLE, rows, "r")
        if tells:
            versions = None if not self.unfinished else json.loads(last["table_versions"]) if last else {}
            told = tell(self.warehouse, "r", run_id, at(self.hour), versions)  # type: ignore[arg-type]
        self.unfinished = is_killed
        if not is_killed:
            named = {name: self.warehouse.version(name) for name in (TABLE, *([REPORTS] if tells else []))}
            self.last = {"run_id": run_id, "started": at(self.hour), "table_versions": json.dumps(named)}
            self.last["counts"] = json.dumps({TABLE: len(stand)})
        self.hour += 1
        return told

    @property
    def version(self) -> int:
        return self.warehouse.version(REPORTS)

    @property
    def table(self) -> dict[str, tuple[Any, ...]]:
        """What readers see of each incident: its status, by which runs, how often revised, and its records."""
        shown = ("status", "first_run_id", "first_reported", "revised_run_id", "revision", "records")
        assert self.last is not None
        rows = self.warehouse.tables[REPORTS][json.loads(self.last["table_versions"])[REPORTS]].to_pylist()
        return {row["incident_id"]: tuple(row[name] for name in shown) for row in rows}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    made = Runs()
    monkeypatch.setattr(incident_reports, "last_complete_run", lambda *_: made.last)
    return made


def ids(told: Told | None) -> tuple[list[str], list[str], list[str]]:
    """New, revised and withdrawn."""
    assert told is not None
    assert bool(told) == any((told.new, told.revised, told.withdrawn))
    return told.new, [one["incident_id"] for one in told.revised], [one["incident_id"] for one in told.withdrawn]


def test_a_run_writes_what_changed_and_nothing_else(runs: Runs) -> None:
    assert ids(runs.run()) == ([], [], [])
    assert runs.version == 0
    assert ids(runs.run(incident("a"), incident("b"))) == (["a", "b"], [], [])
    version = runs.version
    assert ids(runs.run(incident("b"), incident("a"))) == ([], [], [])
    assert runs.version == version
    assert ids(runs.run(incident("a", records=5), incident("c"))) == (["c"], ["a"], ["b"])
    assert runs.table == {
        "a": ("revised", "run 1", at(1), "run 3", 1, 5),
        "b": ("withdrawn", "run 1", at(1), "run 3", 1, 3),
        "c": ("reported", "run 3", at(3), None, 0, 3),
    }
    told = runs.run(incident("a", records=5), incident("b", severity="S2"))
    assert ids(told) == ([], ["b"], ["c"])
    assert told is not None
    assert told.severities == {"S1": 1, "S2": 1}
    assert runs.table["b"] == ("revised", "run 1", at(1), "run 4", 2, 3)


@pytest.mark.parametrize("kills", [1, 2])
def test_what_killed_runs_said_was_told_to_nobody(runs: Runs, kills: int) -> None:
    runs.run(incident("a"))
    for _ in range(kills):
        assert ids(runs.run(incident("b"), is_killed=True)) == (["b"], [], ["a"])
    assert runs.table == {"a": ("reported", "run 0", at(0), None, 0, 3)}
    assert ids(runs.run(incident("a"), incident("b"))) == (["b"], [], [])
    hour = kills + 1
    assert runs.table == {
        "a": ("reported", "run 0", at(0), None, 0, 3),
        "b": ("reported", f"run {hour}", at(hour), None, 0, 3),
    }


def test_what_a_killed_run_said_is_taken_back_where_nothing_changed_after_all(runs: Runs) -> None:
    runs.run(incident("a"))
    runs.run(incident("a", records=9), is_killed=True)
    assert ids(runs.run(incident("a"))) == ([], [], [])
    assert runs.table == {"a": ("reported", "run 0", at(0), None, 0, 3)}


def test_the_first_run_of_all_may_be_killed(runs: Runs) -> None:
    runs.run(incident("a"), is_killed=True)
    assert ids(runs.run(incident("a"))) == (["a"], [], [])
    assert runs.table == {"a": ("reported", "run 1", at(1), None, 0, 3)}


def test_incidents_of_an_earlier_release_were_reported_by_its_last_run(runs: Runs) -> None:
    runs.run(incident("a"), tells=False)
    runs.run(incident("a"), incident("b"), incident("c"), tells=False)
    assert ids(runs.run(incident("d"), is_killed=True)) == (["d"], [], ["a", "b", "c"])
    assert ids(runs.run(incident("a"), incident("b", records=4), incident("d"))) == (["d"], ["b"], ["c"])
    assert runs.table == {
        "a": ("reported", "run 1", at(1), None, 0, 3),
        "b": ("revised", "run 1", at(1), "run 3", 1, 4),
        "c": ("withdrawn", "run 1", at(1), "run 3", 1, 3),
        "d": ("reported", "run 3", at(3), None, 0, 3),
    }


def test_incidents_of_an_earlier_release_that_stay_as_they_are_are_noted_by_the_next_run(runs: Runs) -> None:
    runs.run(incident("a"), tells=False)
    assert ids(runs.run(incident("a"))) == ([], [], [])
    assert runs.table == {"a": ("reported", "run 0", at(0), None, 0, 3)}


def test_an_earlier_release_that_found_nothing_leaves_nothing(runs: Runs) -> None:
    runs.run(tells=False)
    assert ids(runs.run()) == ([], [], [])
    assert runs.version == 0


def test_an_incident_that_grows_wakes_nobody_again(runs: Runs) -> None:
    """While the failure lasts; that it became graver, or was none after all, is told."""
    told = runs.run(incident("a", severity="S2"), incident("b"))
    assert ids(told.what_is_told("changed") if told else told) == (["a", "b"], [], [])
    for records in range(4, 8):
        told = runs.run(incident("a", severity="S2", records=records), incident("b"))
        assert ids(told) == ([], ["a"], [])
        assert told is not None
        assert [bool(told.what_is_told(of)) for of in ("new", "changed", "all")] == [False, False, True]
    told = runs.run(incident("a", severity="S1", records=8), incident("b", records=9), incident("c"))
    assert ids(told) == (["c"], ["a", "b"], [])
    assert told is not None
    assert ids(told.what_is_told("new")) == (["c"], [], [])
    assert ids(told.what_is_told("changed")) == (["c"], ["a"], [])
    assert told.what_is_told("all") == told
    told = runs.run(incident("a", severity="S1", records=8), incident("c"))
    assert told is not None
    assert ids(told.what_is_told("changed")) == ([], [], ["b"])
    assert ids(told.what_is_told("new")) == ([], [], [])
