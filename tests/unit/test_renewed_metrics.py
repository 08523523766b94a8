"""`cluster_metrics` is written anew from the first minute on of which another row stands."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from test_meters import part, stretch

from pipelines.overview.metrics import cluster_metrics, first_changed
from replay.evidence.coverage import REQUEST_LOG
from schemas.meters import PARTITION_METERS

MINUTE_US = 60_000_000


def made(parts: list[dict[str, Any]], minutes: int) -> pa.Table:
    """The rows of a broker whose request log goes on for so long."""
    rows = pa.Table.from_pylist(parts, PARTITION_METERS.arrow_schema)
    found = cluster_metrics(rows, [stretch(REQUEST_LOG, 0, 60 * minutes - 1)], "r")
    assert isinstance(found, pa.Table)
    return found


def minute(rows: pa.Table, number: int) -> int:
    first = min(rows["minute"].to_pylist())
    return round(first.timestamp() * 1_000_000) + number * MINUTE_US


def test_the_same_rows_in_another_order_change_nothing() -> None:
    rows = made([part(30, 2)], 5)
    turned = rows.take(pa.array(range(len(rows) - 1, -1, -1)))
    assert first_changed(turned, rows) is None
    assert first_changed(rows.slice(0, 0), rows.slice(0, 0)) is None


def test_minutes_that_came_are_new_and_those_before_stay() -> None:
    """The last one of before was not covered to its end."""
    before, after = made([part(30, 2)], 5), made([part(30, 2)], 8)
    assert first_changed(before, after) == minute(after, 4)
    assert first_changed(after, before) == minute(after, 4)


def test_another_value_of_long_ago_changes_what_is_from_then_on() -> None:
    before, after = made([part(30, 2)], 9), made([part(30, 2), part(150, 3)], 9)
    assert first_changed(before, after) == minute(after, 2)


def test_a_value_that_is_not_known_any_more_differs_from_one_that_is() -> None:
    rows = made([part(30, 2)], 3)
    lacking = rows.set_column(
        rows.schema.get_field_index("value"), "value", pa.nulls(len(rows), rows.schema.field("value").type)
    )
    assert first_changed(rows, lacking) == minute(rows, 0)
    assert first_changed(lacking, lacking) is None


def test_a_row_more_in_the_middle_changes_its_minute_and_what_follows() -> None:
    rows = made([part(30, 2)], 6)
    at = rows["minute"].cast(pa.int64()).to_numpy() == minute(rows, 3)
    less = rows.filter(pa.array(~at))
    assert first_changed(less, rows) == minute(rows, 3)
