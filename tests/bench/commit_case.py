"""A whole run by this code and by that of another commit, in turns, over the same recording; and what both wrote."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import duckdb
from made_shape import Shape
from measure import side_by_side
from start_cases import ROOT, submitted
from workbench import ID, Line

import tidemark
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from workbench import Bench

NOT_COMPARED = ("run_id", "first_reported", "reported_run", "revised")  # which run told a row, and when
OF_RUNS = ("runs", "expectation_results", "incident_reports", "files")
OURS = "this code"
ONLY = "SELECT count(*) FROM (SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other})"
LOCK = "requirements.lock"


def case_commit(bench: Bench, events: int) -> list[Line]:
    """`run` with a new warehouse as a command of its own, by the code here and by `--commit`'s."""
    folder = bench.recording(Shape(events=events // 2, partitions=60, elections=1))

    with checked_out(bench.commit, bench.fresh("commit")) as tree:
        contenders = {
            OURS: lambda: submitted(folder, bench.fresh("commit-ours")),
            bench.commit: lambda: submitted(folder, bench.fresh("commit-theirs"), tree),
        }
        costs = side_by_side(contenders, bench.rounds)
    differing = differences(str(bench.place / "commit-ours"), str(bench.place / "commit-theirs"))
    note = f"tables differ: {', '.join(differing)}" if differing else "equal tables"
    ours, theirs = costs[OURS], costs[bench.commit]
    return [
        Line("a run, by commit", OURS, ours.wall / theirs.wall, "<= 1", ours, events / ours.wall, note=note),
        Line("a run, by commit", bench.commit, None, "", theirs, events / theirs.wall),
    ]


@contextmanager
def checked_out(commit: str, place: Path) -> Iterator[Path]:
    """A work tree of a commit that pins the packages we have; ValueError for one that pins others."""
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--detach", str(place), commit], check=True, capture_output=True)
    try:
        if (place / LOCK).read_bytes() != (ROOT / LOCK).read_bytes():
            message = f"{commit} pins other packages in {LOCK}: with ours it would not be that commit which is measured"
            raise ValueError(message)
        yield place
    finally:
        subprocess.run([*git, "remove", "--force", str(place)], check=True, capture_output=True)


def differences(one: str, other: str) -> list[str]:
    """The tables of two warehouses whose rows are not the same, in the columns that both have."""
    ours, theirs = tidemark.snapshot(one, ID), tidemark.snapshot(other, ID)
    found = []
    with duckdb.connect() as database:
        for name in sorted(TABLES.keys() & ours.versions.keys() & theirs.versions.keys()):
            if name in OF_RUNS:
                continue
            a, b = ours.dataset(name), theirs.dataset(name)
            both = [column for column in a.schema.names if column in b.schema.names and column not in NOT_COMPARED]
            columns = ", ".join(f'"{column}"' for column in both)
            database.register("a", a)
            database.register("b", b)
            only = [ONLY.format(columns=columns, one=x, other=y) for x, y in ("ab", "ba")]
            if any(database.execute(query).fetchall() != [(0,)] for query in only):
                found.append(name)
    return found
