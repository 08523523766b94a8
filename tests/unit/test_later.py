"""Rows from a moment on, read some at a time: each once, by their times; and groups of rows that need not be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from worker_runs import RowsInMemory

from pipelines.spark.file_pieces import is_before
from pipelines.warehouse.later import MINUTE_US, Later
from replay.arrays.ints import NEVER
from schemas.model import TIMESTAMP

if TYPE_CHECKING:
    from pathlib import Path

DAY = datetime(2026, 1, 1, tzinfo=UTC)
DAY_US = round(DAY.timestamp() * 1_000_000)


def rows_of(seed: int) -> pa.Table:
    """Rows at some minutes of a day, some without a time; the last but one states an offset of a checkpoint."""
    random = Random(seed)  # noqa: S311 - a test's choice
    times = [DAY + timedelta(minutes=random.randrange(50), seconds=random.randrange(60)) for _ in range(200)]
    kinds, epochs = ["fetch"] * 200 + ["segment_batch", "checkpoint", "checkpoint"], [*[None] * 202, 7]
    return pa.table(
        {
            "ts": pa.array([*times, None, None, None], TIMESTAMP),
            "number": range(203),
            "kind": kinds,
            "leader_epoch": pa.array(epochs, pa.int32()),
        }
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("since", [-NEVER, DAY_US + 7 * MINUTE_US + 30_000_000])
def test_each_row_is_read_once(seed: int, since: int) -> None:
    given = rows_of(seed)
    told: Any = RowsInMemory(given)
    rows = Later(told, since)
    slices = rows.slices(30, ["ts", "number"])
    for _ in range(2):
        read = [one.to_pylist() for one in slices]
        numbers = [row["number"] for one in read for row in one]
        wanted = [
            row["number"]
            for row in given.to_pylist()
            if since == -NEVER or row["number"] == 201 or (row["ts"] and row["ts"] >= DAY + timedelta(minutes=7.5))
        ]
        assert 201 in [row["number"] for row in read[0]]
        assert sorted(numbers) == wanted
        assert rows.count == len(wanted)
        assert max(map(len, read)) < 60
        times = [[row["ts"] for row in one if row["ts"]] for one in read]
        assert all(max(one) < min(other) for one, other in pairwise(times))


def test_slices_end_at_a_moment_if_they_are_to() -> None:
    told: Any = RowsInMemory(rows_of(1))
    until = DAY_US + 20 * MINUTE_US
    ends = Later(told).ends(30, until)
    assert ends[-1] == until
    assert ends == sorted(set(ends))
    assert len(ends) > 1
    assert Later(told).ends(1_000) == [NEVER]
    empty: Any = RowsInMemory(rows_of(1).slice(0, 0))
    assert Later(empty).ends(30) == [NEVER]


def test_a_group_of_rows_is_left_out_if_all_are_from_before(tmp_path: Path) -> None:
    pq.write_table(rows_of(1).slice(0, 200).sort_by("ts"), tmp_path / "rows.parquet", row_group_size=100)
    told = pq.read_metadata(tmp_path / "rows.parquet")
    middle = round(told.row_group(1).column(0).statistics.min.timestamp() * 1_000_000)
    assert [is_before(told.row_group(k), middle) for k in range(2)] == [True, False]
    assert [is_before(told.row_group(k), DAY_US) for k in range(2)] == [False, False]
    assert [is_before(told.row_group(k), DAY_US + 60 * MINUTE_US) for k in range(2)] == [True, True]
