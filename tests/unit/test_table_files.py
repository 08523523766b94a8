"""Which files of a table are read for rows of some time."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from pipelines.warehouse.spans import MOST, around, is_spanned
from pipelines.warehouse.table_files import TableFiles
from schemas.facts import FACTS

if TYPE_CHECKING:
    from pathlib import Path

    from pipelines.warehouse.spans import Span

FILES = {"old": [1, 2], "old and undated": [1, None], "undated": [None], "new": [20, 21]}  # hours of the facts in each
HOUR_US = 3_600_000_000
MIDNIGHT = datetime(2026, 11, 1, tzinfo=UTC)
AT_TWENTY = round(MIDNIGHT.timestamp() * 1_000_000) + 20 * HOUR_US


def files_of(place: Path) -> TableFiles:
    schema = FACTS.arrow_schema
    for name, hours in FILES.items():
        rows = [
            {
                "recording_id": "a b",
                "fact_id": f"{name} {k}",
                "ts": None if hour is None else MIDNIGHT.replace(hour=hour),
            }
            for k, hour in enumerate(hours)
        ]
        may_be_null = pa.schema([field.with_nullable(True) for field in schema])  # noqa: FBT003 - Arrow's own
        write_deltalake(
            place,
            pa.Table.from_pylist(rows, may_be_null),
            mode="append",
            partition_by=["recording_id"],
            configuration={"delta.dataSkippingStatsColumns": "ts"},
        )
    found = TableFiles.of("facts", place, None, "a b")
    assert found is not None
    assert len(found.files) == len(FILES)
    return found


def ids_around(files: TableFiles, spans: list[Span]) -> list[str]:
    """The facts around these times, or without one."""
    ids: list[str] = files.around("ts", spans).rows(["fact_id"], is_spanned("ts", spans))["fact_id"].to_pylist()
    return ids


def test_undated_rows_are_found_in_files_of_another_time(tmp_path: Path) -> None:
    files = files_of(tmp_path / "facts")
    span = AT_TWENTY, AT_TWENTY
    wanted = ["new 0", "new 1", "old and undated 1", "undated 0"]
    assert sorted(ids_around(files, [span])) == wanted
    some = files.rows(["ts", "fact_id"], is_spanned("ts", [span]))
    assert sorted(some["fact_id"].to_pylist()) == wanted
    assert len(files.around("ts", [span]).files) == 3


def test_files_between_two_times_are_not_read_for_rows_around_each_of_them(tmp_path: Path) -> None:
    files = files_of(tmp_path / "facts")
    before, after = (AT_TWENTY + hours * HOUR_US for hours in (-30, 1))
    dated = {"new 0", "new 1"}
    apart = {*ids_around(files, [(before, before), (after, after)])}
    assert apart == {*dated, "old and undated 1", "undated 0"}
    whole = ids_around(files, [(before, after)])
    assert {"old 0", "old 1", "old and undated 0", *dated} <= {*whole}


def test_conditions_have_few_spans_however_many_there_are() -> None:
    days = [(k * 24 * HOUR_US, k * 24 * HOUR_US) for k in range(400)]
    months_later = [(k * 24 * HOUR_US, k * 24 * HOUR_US) for k in range(500, 510)]
    found = around([*days, *months_later])
    assert len(found) == MOST
    assert max(after[0] - before[1] for before, after in pairwise(found)) > 99 * 24 * HOUR_US
    assert all(any(since < us < until for since, until in found) for us, _ in [*days, *months_later])
    assert str(is_spanned("ts", days)).count(">=") == MOST


def test_rows_that_meet_a_condition_are_read_if_they_are_not_too_many(tmp_path: Path) -> None:
    files = files_of(tmp_path / "facts")
    is_new = pc.starts_with(pc.field("fact_id"), "new")
    found = files.some(["fact_id", "recording_id"], is_new, 2)
    assert found is not None
    assert sorted(found["fact_id"].to_pylist()) == ["new 0", "new 1"]
    assert files.some(["fact_id"], is_new, 1) is None
    none = files.some(["fact_id"], pc.field("fact_id") == "no such", 1)
    assert (len(none), none.column_names) == (0, ["fact_id"])


def test_rows_behind_a_time_are_found_without_files_of_before(tmp_path: Path) -> None:
    later = files_of(tmp_path / "facts").between("ts", AT_TWENTY, AT_TWENTY + HOUR_US)
    found = later.rows(["recording_id", "fact_id"])
    assert {"new 0", "new 1"} <= {*found["fact_id"].to_pylist()}
    assert "old 0" not in found["fact_id"].to_pylist()
    assert found["recording_id"].unique().to_pylist() == ["a b"]
