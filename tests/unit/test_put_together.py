"""Small files of a table are put together, and commits that do it, and any others, stand or fail as a whole."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from written_tables import (
    MOVES,
    RESULTS,
    TOPICS,
    at,
    exchanged,
    from_hour,
    has_put_together,
    keys,
    log_of,
    made,
    moves,
    result,
    stands_of,
)

from pipelines.warehouse import local_tables
from pipelines.warehouse.came_and_went import change_of
from pipelines.warehouse.within import has_one_of
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pathlib import Path


def test_a_table_to_which_each_run_adds_has_few_files_of_each_recording(tmp_path: Path) -> None:
    place, runs = made(tmp_path / "t", RESULTS.name), 3 * local_tables.MOST_SMALL_FILES
    table = DeltaTable(place)
    assert local_tables.write(table, RESULTS, result(0, "other"), "other", None, "append")
    for run in range(runs):
        assert local_tables.write(table, RESULTS, result(run), "r", f"mark of {run}", "append")
        stands = stands_of(place, RESULTS.name)
        assert len(stands.paths) <= local_tables.MOST_SMALL_FILES
        assert len(stands.with_text("run_id", f"{run:032x}").paths) == 1
        assert stands.rows(["run_id"])["run_id"].sort().to_pylist() == [f"{k:032x}" for k in range(run + 1)]
    gathered = [commit for commit in log_of(place) if has_put_together(commit)]
    assert 0 < len(gathered) <= runs // (local_tables.MOST_SMALL_FILES - local_tables.NEWEST_SMALL_FILES)
    assert all(commit[0]["commitInfo"]["userMetadata"].startswith("mark of") for commit in gathered)
    others = stands_of(place, RESULTS.name, "other")
    assert [path.name for path in others.paths] == [path.name for path in (place / "recording_id=other").iterdir()]


def test_files_that_were_put_together_are_not_new(tmp_path: Path) -> None:
    place, runs = made(tmp_path / "t", RESULTS.name), local_tables.MOST_SMALL_FILES + 1
    versions = []
    for run in range(runs):
        assert local_tables.write(DeltaTable(place), RESULTS, result(run), "r", "a run", "append")
        versions.append(DeltaTable(place).version())
    assert has_put_together(log_of(place)[-1])

    def since(version: int) -> tuple[list[str], list[str]]:
        change = change_of(stands_of(place, RESULTS.name), version)
        assert change is not None
        came, went = (part.rows(["run_id"])["run_id"].sort().to_pylist() for part in (change.new, change.gone))
        return came, went

    ids = [f"{run:032x}" for run in range(runs)]
    assert since(versions[-2]) == (ids[-1:], [])
    assert since(versions[3]) == (ids, ids[:4])  # some are new of those in the file that has them now
    assert since(versions[-1]) == ([], [])


@pytest.mark.parametrize("how", ["written", "exchanged"])
def test_a_commit_that_stands_is_not_taken_for_one_that_failed(tmp_path: Path, how: str) -> None:
    """In the hundredth commit deltalake would make a checkpoint, and fail if it cannot, though the commit is made."""
    place, ids = made(tmp_path / "t", RESULTS.name), [f"{run:032x}" for run in range(101)]
    for version in (99, 100):
        (place / "_delta_log" / f"{version:020d}.checkpoint.parquet").mkdir()
    for run, run_id in enumerate(ids):
        if how == "written":
            assert local_tables.write(DeltaTable(place), RESULTS, result(run), "r", "a run", "append")
        else:
            assert exchanged(place, RESULTS, result(run), has_one_of("run_id", [run_id]), "a run")
    assert stands_of(place, RESULTS.name).rows(["run_id"])["run_id"].sort().to_pylist() == ids


def test_a_file_that_cannot_be_read_is_not_put_together(tmp_path: Path) -> None:
    place = made(tmp_path / "t", RESULTS.name)
    for run in range(local_tables.MOST_SMALL_FILES):
        assert local_tables.write(DeltaTable(place), RESULTS, result(run), "r", "a run", "append")
    spoiled = stands_of(place, RESULTS.name).paths[3]
    spoiled.write_bytes(b"PAR1" + bytes(spoiled.stat().st_size - 8) + b"PAR1")
    assert local_tables.write(DeltaTable(place), RESULTS, result(99), "r", "a run", "append")
    assert len(stands_of(place, RESULTS.name).paths) == local_tables.MOST_SMALL_FILES + 1


def test_short_bytes_are_not_in_delta_s_log(tmp_path: Path) -> None:
    table = TABLES["order_states"]
    place = made(tmp_path / "t", table.name)
    told = {"horizon": at(1), "facts_version": 1, "engine": "e", "state": b"x"}
    rows = pa.Table.from_pylist([{"recording_id": "r", **told}], table.arrow_schema)
    assert exchanged(place, table, rows, None)
    assert stands_of(place, table.name).rows().to_pylist() == rows.to_pylist()


def test_few_files_stay_few_however_many_runs_add_to_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_tables, "SMALL_FILE", 10_000)  # a file of one row has 5,000
    most = local_tables.MOST_SMALL_FILES
    place, runs, words = made(tmp_path / "t", RESULTS.name), most**2, Random(5)  # noqa: S311 - a test's choice
    table = DeltaTable(place)
    for run in range(runs):
        rows = pa.concat_tables([result(run)] * 40).set_column(
            4, "meaning", pa.array([words.randbytes(40).hex() for _ in range(40)])
        )
        assert local_tables.write(table, RESULTS, rows, "r", "a run", "append")
    stands = stands_of(place, RESULTS.name)
    assert len(stands.rows(["run_id"])) == 40 * runs
    full = [size for size in stands.files["size_bytes"].to_pylist() if size >= 10_000]
    assert len(full) > most
    late = [commit for commit in log_of(place)[-60:] if has_put_together(commit)]
    assert 0 < len(late) <= 60 // (most - local_tables.NEWEST_SMALL_FILES)


def test_a_run_that_does_not_hold_the_recording_puts_no_files_together(tmp_path: Path) -> None:
    place, runs = made(tmp_path / "t", RESULTS.name), local_tables.MOST_SMALL_FILES + 2
    table = DeltaTable(place)
    for run in range(runs):
        assert local_tables.write(table, RESULTS, result(run), "r", None, "append")
    assert len(table.file_uris()) == runs


def test_small_files_of_a_time_stay_together(tmp_path: Path) -> None:
    place, hours = made(tmp_path / "t", MOVES.name), range(local_tables.MOST_SMALL_FILES + 2)
    for hour in hours:
        assert exchanged(place, MOVES, moves(TOPICS, (hour,)), from_hour(hour, TOPICS), "a run")
    stands = stands_of(place, MOVES.name)
    assert keys(stands.rows()) == keys(moves(TOPICS, tuple(hours)))
    assert (
        len(stands.paths) == 1 + local_tables.NEWEST_SMALL_FILES + 1
    )  # those that were put together, the newest, and the next
    last = round(at(hours[-1]).timestamp() * 1_000_000)
    assert len(stands.between("window", last, last).paths) == 1


def test_files_are_picked_by_a_short_text(tmp_path: Path) -> None:
    place = made(tmp_path / "t", RESULTS.name)
    table = DeltaTable(place)
    for run in range(4):
        assert local_tables.write(table, RESULTS, result(run), "r", None, "append")
    stands = stands_of(place, RESULTS.name)
    assert stands.with_text("run_id", f"{2:032x}").rows(["run_id"])["run_id"].to_pylist() == [f"{2:032x}"]
    assert len(stands.with_text("run_id", "none").paths) == 0
    assert len(stands.with_text("example", "none").paths) == 4  # Delta says nothing of it: it is null throughout
