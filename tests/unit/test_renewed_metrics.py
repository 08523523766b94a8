"""`cluster_metrics` is written anew from the first minute on of which another row stands."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
import written_tables
from deltalake import DeltaTable
from test_meters import part, stretch

from pipelines.overview import metrics
from pipelines.overview.metrics import cluster_metrics, first_changed, stretches_of
from pipelines.warehouse import local_tables
from pipelines.warehouse.delta_reads import Tables
from pipelines.warehouse.superseded import engine_version
from pipelines.warehouse.table_files import TableFiles
from replay.evidence.coverage import REQUEST_LOG
from schemas.meters import PARTITION_METERS
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from pipelines.warehouse.delta_io import Warehouse
    from pipelines.warehouse.within import Within

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


NAMES = ("cluster_metrics", "partition_meters", "coverage", "runs")


class Stored(Tables):
    """Four tables on this machine, without Spark."""

    def __init__(self, place: Path) -> None:
        self.tables = {name: written_tables.made(place / name, name) for name in NAMES}
        self.hours = 0
        self._small = {}
        self.replaced: list[Within | None] = []

    def _files(self, table_name: str, recording_id: str) -> TableFiles | None:
        return TableFiles.of(table_name, self.tables[table_name], None, recording_id)

    def small_rows(self, table_name: str, recording_id: str) -> pa.Table:
        return self.arrow(table_name, recording_id)

    def replace(self, table_name: str, rows: pa.Table, _recording_id: str, *, within: Within | None = None) -> None:
        self.replaced.append(within)
        self.write(table_name, rows, within)

    def write(self, table_name: str, rows: pa.Table, within: Within | None = None) -> None:
        assert written_tables.exchanged(self.tables[table_name], TABLES[table_name], rows, within)

    def tell(self, parts: list[dict[str, Any]], end: int) -> None:
        """Write what metrics are made of: a request log up to a second, and parts."""
        log = stretch(REQUEST_LOG, 0, end) | {"recording_id": "r", "lines": 1, "evidence": "observed"}
        self.write("coverage", pa.Table.from_pylist([log], TABLES["coverage"].arrow_schema))
        self.write("partition_meters", pa.Table.from_pylist(parts, PARTITION_METERS.arrow_schema))

    def end(self, *stages: str, engine: str | None = None) -> None:
        """Write the row of a run that comes to its end."""
        self.hours += 1
        ended = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=self.hours)
        versions = {name: DeltaTable(place).version() for name, place in self.tables.items() if name != "runs"}
        said = dict.fromkeys(("configuration", "inputs", "counts", "durations", "counters"), "{}")
        said |= {"versions": json.dumps({"engine": engine or engine_version()}), "table_versions": json.dumps(versions)}
        row = {"recording_id": "r", "run_id": str(self.hours), "started": ended, "finished": ended, "status": "ok"}
        rows = pa.Table.from_pylist([{**row, **said, "stages": stages}], TABLES["runs"].arrow_schema)
        assert local_tables.write(DeltaTable(self.tables["runs"]), TABLES["runs"], rows, "r", None, "append")

    def renewed(self) -> int | None:
        """Renew the metrics, which are then what one run makes; the first second that was made; None: all were."""
        asked: list[int | None] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(metrics, "cluster_metrics", lambda *given: asked.append(given[-1]) or cluster_metrics(*given))
            metrics.renew(cast("Warehouse", self), "r", goes_on=True)
        whole = cluster_metrics(self.arrow("partition_meters", "r"), stretches_of(self.arrow("coverage", "r")), "r")
        assert isinstance(whole, pa.Table)
        assert first_changed(self.arrow("cluster_metrics", "r"), whole) is None
        return None if asked[0] is None else asked[0] // 1_000_000


def test_a_run_makes_the_minutes_from_the_first_on_that_news_may_change(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.tell([part(20, 1)], 170)
    assert stored.renewed() is None  # the first run
    stored.end("ingest", "replay")
    stored.tell([part(20, 1), part(200, 0)], 290)
    assert stored.renewed() == 120
    stored.end("ingest", "replay")
    DeltaTable(stored.tables["partition_meters"]).optimize.compact()
    assert stored.renewed() == 240  # nothing came, though other files stand
    stored.tell([part(20, 1), part(70, 0), part(200, 0)], 290)
    stored.end("ingest")  # so what came is not in the metrics yet
    assert stored.renewed() == 60
    assert [within is None for within in stored.replaced] == [True, False, False]


def test_a_run_makes_all_minutes_where_others_may_stand(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.tell([part(20, 1)], 170)
    stored.renewed()
    stored.end("ingest", "replay", engine="another")
    assert stored.renewed() is None
    stored.end("ingest", "replay")
    stored.write("cluster_metrics", stored.arrow("cluster_metrics", "r").slice(1))  # by whom?
    assert stored.renewed() is None
