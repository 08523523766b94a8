"""What a run makes of incidents that earlier runs reported: they keep their id, and say since when and how often."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from pipelines.stages.revisions import Row, digest_of, is_judged_otherwise, key_of, reports_changed, retold
from schemas.incidents import DATA_LOSS_INCIDENTS
from schemas.runs import INCIDENT_REPORTS

START = datetime(2026, 11, 21, 3, 49, tzinfo=UTC)
HOURS = [START + timedelta(hours=hour) for hour in range(9)]


def incident(name: str = "i", recording: str = "r", **said: Any) -> Row:
    """A row of data_loss_incidents as it is read."""
    row: Row = dict.fromkeys(DATA_LOSS_INCIDENTS.arrow_schema.names)
    row |= {"recording_id": recording, "topic": "orders", "incarnation": 0, "partition": 3, "incident_id": name}
    row |= {"mechanism": "unclean_election", "severity": "S1", "first_offset": 7, "last_offset": 9, "records": 3}
    row |= {"ranges": [], "explanation": "Broker 1 died.", "evidence": "derived", "acked_all": 3, "acked_one": 0}
    row |= {"chain": [{"seq": 5, "ts": START, "what": "broker 2 elected"}], "chain_sources": ["server.log:7"]}
    return {**row, **said}


class Runs:
    """Runs that find these incidents, one an hour; the table after them, and what each wrote."""

    def __init__(self) -> None:
        self.table: dict[tuple[str, str], Row] = {}
        self.wrote: list[list[Row]] = []

    def find(self, *stand: Row) -> list[Row]:
        n = len(self.wrote)
        changed = reports_changed(self.table.values(), stand, f"run {n}", HOURS[n])
        pa.Table.from_pylist(changed, INCIDENT_REPORTS.arrow_schema).validate(full=True)
        for row in changed:
            assert row.keys() == set(INCIDENT_REPORTS.arrow_schema.names)
        self.table |= {key_of(row): row for row in changed}
        self.wrote.append(changed)
        return changed

    @property
    def only(self) -> Row:
        (row,) = self.table.values()
        return row


@pytest.fixture
def runs() -> Runs:
    return Runs()


def test_a_new_incident_is_reported_by_the_run_that_finds_it(runs: Runs) -> None:
    (row,) = runs.find(incident())
    assert (row["status"], row["first_reported"], row["first_run_id"]) == ("reported", HOURS[0], "run 0")
    assert (row["revised"], row["revised_run_id"], row["revision"]) == (None, None, 0)
    assert (row["topic"], row["partition"], row["records"], row["severity"]) == ("orders", 3, 3, "S1")


def test_of_an_incident_that_says_the_same_nothing_is_written(runs: Runs) -> None:
    runs.find(incident())
    assert runs.find(incident()) == []


def test_what_moves_without_saying_anything_else_is_no_revision(runs: Runs) -> None:
    runs.find(incident())
    later = [{"seq": 9, "ts": START, "what": "broker 2 elected"}]
    assert runs.find(incident(chain=later, chain_sources=["server.log.1:7"])) == []


@pytest.mark.parametrize(
    "said",
    [
        {"acked_all": 4},
        {"severity": "S0"},
        {"explanation": "Broker 1 was killed."},
        {"chain": [{"seq": 5, "ts": START, "what": "broker 3 elected"}]},
        {"truncated_ts": START},
        {"acked_all": None},
    ],
    ids=lambda said: next(iter(said)),
)
def test_whatever_it_says_otherwise_is_a_revision(runs: Runs, said: dict[str, Any]) -> None:
    runs.find(incident())
    runs.find(incident())
    (row,) = runs.find(incident(**said))
    assert (row["status"], row["revised"], row["revised_run_id"], row["revision"]) == ("revised", HOURS[2], "run 2", 1)
    assert (row["first_reported"], row["first_run_id"]) == (HOURS[0], "run 0")


def test_an_incident_is_completed_by_later_evidence(runs: Runs) -> None:
    (before,) = runs.find(incident(last_offset=None, records=None, evidence="bounded"))
    (row,) = runs.find(incident())
    assert (row["status"], row["last_offset"], row["records"], row["first_reported"]) == ("revised", 9, 3, HOURS[0])
    told = retold(before, row)
    assert (told["before"]["last_offset"], told["now"]["last_offset"]) == (None, 9)
    assert (told["incident_id"], told["first_reported"]) == ("i", HOURS[0])


def test_a_withdrawn_incident_is_kept_with_what_it_said(runs: Runs) -> None:
    runs.find(incident())
    runs.find(incident(acked_all=2))
    before = runs.only
    (row,) = runs.find()
    assert (row["status"], row["revised"], row["revised_run_id"]) == ("withdrawn", HOURS[2], "run 2")
    assert row["revision"] == 2
    assert (row["acked_all"], row["digest"], row["first_reported"]) == (2, before["digest"], HOURS[0])
    told = retold(before, row)
    assert (told["before"]["status"], told["before"]["acked_all"], told["now"]) == ("revised", 2, None)
    assert runs.find() == []  # it is withdrawn once


@pytest.mark.parametrize("acked", [3, 5])
def test_one_that_comes_back_is_revised_and_no_new_one(runs: Runs, acked: int) -> None:
    runs.find(incident())
    runs.find()
    (row,) = runs.find(incident(acked_all=acked))
    assert (row["status"], row["revised"], row["revision"], row["acked_all"]) == ("revised", HOURS[2], 2, acked)
    assert (row["first_reported"], row["first_run_id"]) == (HOURS[0], "run 0")
    assert runs.find(incident(acked_all=acked)) == []


@pytest.mark.parametrize(
    ("first", "then", "told"),
    [
        ({}, {"acked_all": 40, "records": 50, "last_offset": 56}, False),
        ({}, {"explanation": "Broker 1 was killed."}, False),
        ({"severity": "S2"}, {"severity": "S1"}, True),
        ({"severity": "S1"}, {"severity": "S2"}, True),
        ({}, {"mechanism": "last_replica_standing"}, True),
        ({"evidence": "bounded"}, {"evidence": "derived"}, True),
        ({"evidence": "derived"}, {"evidence": "bounded"}, False),
    ],
)
def test_an_incident_that_only_grows_is_judged_as_before(
    runs: Runs, first: dict[str, Any], then: dict[str, Any], *, told: bool
) -> None:
    (before,) = runs.find(incident(**first))
    (now,) = runs.find(incident(**{**first, **then}))
    assert is_judged_otherwise(retold(before, now)) == told


def test_an_incident_that_is_withdrawn_or_stands_again_is_judged_otherwise(runs: Runs) -> None:
    (stood,) = runs.find(incident())
    (gone,) = runs.find()
    (again,) = runs.find(incident())
    assert is_judged_otherwise(retold(stood, gone))
    assert is_judged_otherwise(retold(gone, again))


def test_a_row_that_says_not_how_sure_it_was_has_not_become_surer(runs: Runs) -> None:
    (before,) = runs.find(incident(evidence="bounded"))
    of_an_older_version = {name: value for name, value in before.items() if name != "evidence"}
    (now,) = reports_changed([of_an_older_version], [incident()], "run 1", HOURS[1])
    assert not is_judged_otherwise(retold(of_an_older_version, now))


def test_recordings_and_incidents_have_nothing_to_do_with_each_other(runs: Runs) -> None:
    runs.find(incident("i", "a"), incident("i", "b"), incident("j", "b"))
    changed = runs.find(incident("i", "b"), incident("j", "b", records=4))
    assert [(*key_of(row), row["status"]) for row in changed] == [("a", "i", "withdrawn"), ("b", "j", "revised")]
    assert runs.table["b", "i"]["status"] == "reported"


def test_the_order_of_the_rows_does_not_matter() -> None:
    stood = [incident(name) for name in "abcd"]
    before = reports_changed([], stood, "one", HOURS[0])
    stand = [incident("a"), incident("c", acked_one=9), incident("e"), incident("f")]
    wanted = reports_changed(before, stand, "two", HOURS[1])
    assert [(row["incident_id"], row["status"]) for row in wanted] == [
        ("b", "withdrawn"), ("c", "revised"), ("d", "withdrawn"), ("e", "reported"), ("f", "reported"),
    ]  # fmt: skip
    for known, found in itertools.product(itertools.permutations(before), itertools.permutations(stand)):
        assert reports_changed(known, found, "two", HOURS[1]) == wanted


def test_a_column_that_a_release_adds_revises_nothing() -> None:
    assert digest_of({**incident(), "added": None}) == digest_of(incident())


def test_ten_thousand_incidents_are_few() -> None:
    stood = [incident(f"{n}", topic="t" * 200) for n in range(10_000)]
    before = reports_changed([], stood, "one", HOURS[0])
    random.Random(3).shuffle(stood)  # noqa: S311 - a test's choice
    assert reports_changed(before, stood, "two", HOURS[1]) == []
    changed = reports_changed(before, stood[1:], "two", HOURS[1])
    assert [row["incident_id"] for row in changed] == [stood[0]["incident_id"]]
