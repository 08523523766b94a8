"""Minutes of `cluster_metrics` stand before the first that news may change, and are made alike from it on."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from test_meters import MINUTE_US, WHOLE, Row, part, stretch
from without_spark import tables_of_recording

from pipelines.overview.metrics import cluster_metrics, stretches_of
from replay.evidence.coverage import LOSSY, REQUEST_LOG, SERVER_LOG
from replay.tables.changed_minutes import first_changed_minute, stretches_before
from schemas.meters import PARTITION_METERS

if TYPE_CHECKING:
    from pathlib import Path

RECORDINGS = ("unclean-election", "last-replica", "min-isr-refused-zookeeper")


def made(parts: pa.Table, coverage: list[Row], since: int | None = None) -> list[Row]:
    found = cluster_metrics(parts, coverage, "r", since)
    assert isinstance(found, pa.Table)
    return sorted(found.to_pylist(), key=lambda row: (row["minute"], str(row["broker_id"]), row["metric"]))


def us(row: Row) -> int:
    return round(row["minute"].timestamp() * 1_000_000)


def checked(before: pa.Table, now: pa.Table, was: list[Row], coverage: list[Row]) -> int | None:
    """The minute, of which what it promises was checked."""
    minute = first_changed_minute(now, before, now, was, coverage)
    if minute is not None:
        rows = made(now, coverage)
        assert [row for row in made(before, was) if us(row) < minute] == [row for row in rows if us(row) < minute]
        assert made(now, coverage, minute) == [row for row in rows if us(row) >= minute]
    return minute


def table(*rows: Row) -> pa.Table:
    return pa.Table.from_pylist([*rows], PARTITION_METERS.arrow_schema)


def ended(coverage: list[Row], end: int) -> list[Row]:
    """The stretches up to a time."""
    return [{**row, "end_ts": min(row["end_ts"], end)} for row in coverage if row["start_ts"] < end]


@pytest.mark.parametrize("name", RECORDINGS)
@pytest.mark.parametrize("seed", range(4))
def test_what_was_recorded_up_to_any_time_leaves_the_minutes_before_it(recordings: Path, name: str, seed: int) -> None:
    chance = Random(f"{name} {seed}")  # noqa: S311 - a test's choice
    tables = tables_of_recording(recordings / name)
    parts, coverage = tables["partition_meters"], stretches_of(tables["coverage"])
    first, last = min(row["start_ts"] for row in coverage), max(row["end_ts"] for row in coverage)
    end = first + round((last - first) * chance.uniform(0.5, 1.1))
    of_time = np.array([ts is None or round(ts.timestamp() * 1_000_000) < end for ts in parts["ts"].to_pylist()])
    late = np.array([chance.random() < 0.02 for _ in range(len(parts))]) & (chance.random() < 0.5)
    assert checked(parts.filter(pa.array(of_time & ~late)), parts, ended(coverage, end), coverage) is not None


def test_an_hour_that_follows_is_made_from_its_first_minute_on() -> None:
    before, came = table(part(20, 1), part(70, 0)), part(200, 1)
    parts = pa.concat_tables([before, table(came)])
    longer = [{**row, "end_ts": 260_000_000} for row in WHOLE]
    assert checked(before, parts, WHOLE, longer) == 3 * MINUTE_US
    assert checked(parts, parts, longer, longer) == 4 * MINUTE_US


def test_what_lay_behind_the_last_minute_counts_elsewhere_once_there_are_more() -> None:
    parts = table(part(20, 1), part(250, 0))
    minute = checked(parts, parts, [stretch(REQUEST_LOG, 0, 170)], [stretch(REQUEST_LOG, 0, 300)])
    assert minute == 2 * MINUTE_US


def test_it_counts_elsewhere_again_where_logs_end_earlier_than_before() -> None:
    parts = table(part(250, 1))
    longer = [stretch(REQUEST_LOG, 0, 58), stretch(REQUEST_LOG, 62, 300)]
    assert checked(parts, parts, longer, longer[:1]) == 0
    assert checked(parts, parts, [longer[0], stretch(REQUEST_LOG, 200, 300)], longer[:1]) == 0


def test_a_clock_that_was_set_back_counts_from_the_row_before() -> None:
    """The row behind the one that comes is earlier in time, so it moves with that one."""
    there, behind = part(20, 1, seq=1), part(70, 0, seq=3)
    came = part(130, 1, seq=2)
    assert checked(table(there, behind), table(there, came, behind), WHOLE, WHOLE) == MINUTE_US


def test_a_part_that_goes_and_one_that_is_told_otherwise_count_like_one_that_comes() -> None:
    first, second = part(20, 1), part(130, 0)
    assert checked(table(first, second), table(first), WHOLE, WHOLE) == 2 * MINUTE_US
    assert checked(table(first, second), table(first, {**second, "value": 1}), WHOLE, WHOLE) == 2 * MINUTE_US
    assert checked(table(second, first), table(first, second), WHOLE, WHOLE) == 3 * MINUTE_US


@pytest.mark.parametrize("second", [70, 130])
def test_a_stretch_counts_from_where_it_differs(second: int) -> None:
    holes = [stretch(REQUEST_LOG, 0, second), stretch(REQUEST_LOG, second, 180, LOSSY), *WHOLE[1:]]
    parts = table(part(20, 1))
    minute = second * 1_000_000 // MINUTE_US * MINUTE_US
    assert checked(parts, parts, WHOLE, holes) == checked(parts, parts, holes, WHOLE) == minute


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ([stretch(REQUEST_LOG, 61, 170)], [stretch(REQUEST_LOG, 0, 170)]),  # it begins earlier
        ([stretch(SERVER_LOG, 0, 170)], [stretch(SERVER_LOG, 0, 170), stretch(REQUEST_LOG, 80, 170)]),  # a broker more
        ([], WHOLE),
        (WHOLE, []),
    ],
)  # fmt: skip
def test_all_minutes_may_differ(was: list[Row], now: list[Row]) -> None:
    parts = table(part(20, 1))
    assert first_changed_minute(parts, parts, parts, was, now) is None


@pytest.mark.parametrize("fields", [{"quota_limit": 9}, {"ts": None}])
def test_a_byte_rate_and_a_part_without_a_time_may_change_all(fields: dict[str, Any]) -> None:
    came, there = part(130, 1, **fields), part(20, 1)
    assert first_changed_minute(table(there, came), table(there), table(there, came), WHOLE, WHOLE) is None
    assert first_changed_minute(table(there), table(there, came), table(there), WHOLE, WHOLE) is None


def test_stretches_as_they_stood() -> None:
    one, other, third = (table(part(second, 1)) for second in (1, 2, 3))
    found = stretches_before(pa.concat_tables([one, other]), other, third)
    assert found.to_pylist() == [*one.to_pylist(), *third.to_pylist()]
