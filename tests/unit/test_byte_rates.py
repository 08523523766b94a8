"""The rate of all that a broker throttles together: what it was at least, and when it was above its limit (KIP-73)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from test_meters import WHOLE, part, stretch

from pipelines.overview.metrics import cluster_metrics
from replay.evidence.coverage import NOTHING_TELLS, REQUEST_LOG, SILENT
from schemas.meters import PARTITION_METERS

Row = dict[str, Any]
NAMES = ("value", "lowest", "highest", "quota_limit", "over_quota_seconds", "evidence")
LIMIT, WINDOW, KEPT = 1000, 12, 10


def sent(seconds: int, size: int, *, window: int = WINDOW, limit: int | None = LIMIT, partition: int = 0) -> Row:
    fields = {"quota_limit": limit, "quota_window": window, "partition": partition, "evidence": "bounded"}
    return part(seconds, size, metric="LeaderReplication", **fields)


def holds(seconds: int, limit: int | None, partition: int = 0) -> Row:
    """A row that only tells of a limit; `seq` is before those of the same second."""
    fields = {"quota_limit": limit, "partition": partition, "seq": seconds - 1}
    return part(seconds, 0, metric="LeaderReplication", evidence="bounded", **fields)


def rates(parts: list[Row], coverage: list[Row] = WHOLE) -> list[tuple[Any, ...]]:
    found = cluster_metrics(pa.Table.from_pylist(parts, PARTITION_METERS.arrow_schema), coverage, "r")
    assert isinstance(found, pa.Table)
    rows = [row for row in found.to_pylist() if row["metric"] == "LeaderReplication"]
    return [(row["minute"].minute, *(row[name] for name in NAMES)) for row in rows]


def test_what_other_partitions_add_is_above_the_limit_that_no_partition_is_above_alone() -> None:
    """Each partition sends 700 B/s at least, of 1,000 that the broker may send; both together 1,400."""
    both = [sent(s, 700 * WINDOW // KEPT, partition=k) for s in range(10, 30) for k in (0, 1)]
    alone = [row for row in both if row["partition"] == 0]
    ends = [holds(59, None, partition=k) for k in (0, 1)]
    assert rates([*alone, ends[0]]) == [(0, 0, 0, 700, LIMIT, 0, "bounded")]
    # Above 1,000 from the 8th second of sending on, until fewer than 8 of its seconds are left.
    assert rates([*both, *ends]) == [(0, 0, 0, 1400, LIMIT, 15, "bounded")]


@pytest.mark.parametrize(("window", "least"), [(11, 9 * 110 // 11), (12, 10 * 110 // 12)])
def test_a_rate_goes_over_the_window_of_its_broker_of_which_two_seconds_may_have_been_dropped(
    window: int, least: int
) -> None:
    ((_, _, _, highest, *_),) = rates([sent(s, 110, window=window) for s in range(20, 50)] + [holds(59, None)])
    assert highest == least


def test_a_minute_ends_with_the_rate_of_its_last_seconds_and_the_next_begins_with_it() -> None:
    found = rates([holds(0, LIMIT), *(sent(s, 120) for s in range(55, 60)), holds(119, None)])
    assert [(minute, value, highest) for minute, value, _, highest, *_ in found] == [(0, 50, 50), (1, 0, 50)]


def test_minutes_without_a_limit_are_not_told_of() -> None:
    assert [row[0] for row in rates([holds(65, LIMIT), holds(100, None)])] == [1]
    assert rates([part(5, 1)]) == []


def test_a_rate_is_above_its_limit_only_in_seconds_in_which_the_same_limit_surely_held() -> None:
    """The same 900 B/s are above 500 until the limit is raised, and again once the raised one surely holds no more."""
    steady = [sent(s, 1080, limit=500 if s < 20 or s >= 40 else 5000) for s in range(5, 59)]
    ((_, _, _, _, limit, over, _),) = rates([*steady, holds(59, None)])
    before, after = range(10, 19), range(42, 59)  # until the 10th second at most 5 are counted: 450 B/s
    assert (limit, over) == (500, len(before) + len(after))


def test_of_a_broker_of_which_nothing_shows_that_it_was_up_no_rate_is_told() -> None:
    dark = [stretch(REQUEST_LOG, 0, 60), stretch(REQUEST_LOG, 60, 120, SILENT, NOTHING_TELLS)]
    found = rates([holds(0, LIMIT)], [*dark, stretch(REQUEST_LOG, 120, 180), *WHOLE[1:]])
    assert [row[1:] for row in found[:3]] == [
        (0, 0, 0, LIMIT, 0, "bounded"),
        (None, None, None, LIMIT, None, "unknown"),
        (0, 0, 0, LIMIT, 0, "bounded"),
    ]
