"""Which incidents are new: those that no earlier complete run of the recording had. They are what somebody is told of.

Each run's row in `runs` lists its own, so together the rows list every incident that was ever new. Runs of a release
that listed none, and rows that were deleted since, are made up for by the incidents that stood when the last complete
run ended. What a run left behind that was killed before its row was written is therefore still new to the next.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from schemas.incidents import DATA_LOSS_INCIDENTS
from schemas.runs import COMPLETE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pipelines.warehouse.delta_io import Warehouse

TABLE: Final = DATA_LOSS_INCIDENTS.name
_LEFT_OUT: Final = ("chain",)  # columns that are long, and no use to who is woken up


def standing(warehouse: Warehouse, recording_id: str) -> dict[str, str]:
    """Return the severity of each incident that stands now, by its id."""
    rows = warehouse.read(TABLE, recording_id).select("incident_id", "severity").collect()
    return {row.incident_id: row.severity for row in rows}


def new_among(stand: Iterable[str], warehouse: Warehouse, recording_id: str) -> list[str]:
    """Return those of the ids that no earlier complete run had; to be called before this run's row is written."""
    new = set(stand)
    if not new:
        return []
    runs = warehouse.read("runs", recording_id).where(COMPLETE)
    earlier = runs.select("new_incidents", "table_versions").collect()
    new.difference_update(*(row.new_incidents or () for row in earlier))
    versions = [json.loads(row.table_versions).get(TABLE) for row in earlier]
    last = max((version for version in versions if version is not None), default=None)
    if new and last is not None:
        then = warehouse.read_at(TABLE, last, recording_id).select("incident_id")
        new.difference_update(row.incident_id for row in then.collect())
    return sorted(new)


def incident_rows(warehouse: Warehouse, recording_id: str, ids: Iterable[str]) -> list[dict[str, Any]]:
    """Return these incidents as plain values, worst and earliest first, with times as text in UTC."""
    rows = warehouse.read(TABLE, recording_id)
    names = [name for name in rows.columns if not name.startswith(_LEFT_OUT)]
    shown = rows.select(F.to_json(F.struct(*names), {"ignoreNullFields": "false"}).alias("row"))
    wanted = set(ids)
    found = [one for one in (json.loads(row.row) for row in shown.collect()) if one["incident_id"] in wanted]
    return sorted(found, key=lambda one: (one["severity"], one["lost_ts"] or "", one["incident_id"]))
