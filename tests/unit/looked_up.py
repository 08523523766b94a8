"""The tables of a bundled recording for what looks them up, made in this process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
from without_spark import events_of, tables_of

from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping

RECORDING = Path(__file__).parents[1] / "recordings" / "last-replica"


@dataclass
class Shelf:
    """Tables in memory, as `tidemark.snapshot` would find them."""

    tables: Mapping[str, pa.Table]
    recording_id: str = "r"

    def dataset(self, table: str) -> ds.Dataset:
        return ds.dataset(self.tables.get(table, TABLES[table].arrow_schema.empty_table()))


def filled(table: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows of a table, of which only some columns are given."""
    return pa.Table.from_pylist(rows, schema=TABLES[table].arrow_schema)


@cache
def recorded() -> Shelf:
    """The partition of the bundled recording in which records were lost."""
    (events,) = (one for one in events_of(RECORDING) if one["topic"][0].as_py() == "ledger")
    place = {"recording_id": RECORDING.name, "topic": "ledger", "incarnation": 0, "partition": 0}
    coverage = {"recording_id": RECORDING.name, "broker_id": 1, "source": "request_log", "state": "logged", "lines": 7}
    times = {"start_ts": events["ts"][0].as_py(), "end_ts": events["ts"][-1].as_py(), "evidence": "observed"}
    made = {
        **tables_of(events),
        "replication_events": events,
        "event_windows": filled("event_windows", [place]),
        "coverage": filled("coverage", [{**coverage, **times}]),
    }
    return Shelf(made, RECORDING.name)
