"""What a run says of incidents that earlier runs reported: which are new, which say something else, which are gone.

`incident_reports` has a row for each incident that a complete run ever reported. A run compares these rows with the
incidents that stand, and writes only if something changed. What a run wrote that was killed before its row in `runs` is
not looked at: its incidents were told to nobody, so they are still new to the next, which takes its rows back.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F

from pipelines.stages.revisions import is_judged_otherwise, key_of, reports_changed, retold
from pipelines.warehouse.commit_point import last_complete_run
from schemas.incidents import DATA_LOSS_INCIDENTS
from schemas.runs import INCIDENT_REPORTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from pyspark.sql import DataFrame

    from pipelines.stages.revisions import Row
    from pipelines.warehouse.delta_io import Warehouse

TABLE: Final = DATA_LOSS_INCIDENTS.name
REPORTS: Final = INCIDENT_REPORTS.name
_LEFT_OUT: Final = ("chain",)  # columns that are long, and no use to who is woken up


@dataclass(frozen=True, slots=True)
class Told:
    """What a run says of incidents, compared with what the complete runs before it said."""

    severities: dict[str, int]  # incidents that stand, by severity
    new: list[str]  # ids of those that no run before had
    revised: list[Row]  # those that say something else now, or stand again: what was said and what holds (`retold`)
    withdrawn: list[Row]  # those that no longer stand, in the same way

    def __bool__(self) -> bool:
        """Whether there is any news."""
        return bool(self.new or self.revised or self.withdrawn)

    def what_is_told(self, tell_of: str) -> Told:
        """Return what of it people want to be told: what is `new`, what is judged otherwise (`changed`), or `all`.

        While a failure lasts, its incident grows from run to run. Whoever was woken by it once has no use for that.
        """
        if tell_of == "all":
            return self
        if tell_of == "new":
            return replace(self, revised=[], withdrawn=[])
        return replace(self, revised=[one for one in self.revised if is_judged_otherwise(one)])


def tell(
    warehouse: Warehouse, recording_id: str, run_id: str, started: datetime, last: Mapping[str, int] | None
) -> Told:
    """Compare the incidents that stand with those that were reported, and bring `incident_reports` up to date.

    `last`: after a run that did not come to its end, the versions of the tables that the last one that did left; None:
    they are the newest.
    """
    stand: list[Row] = warehouse.arrow(TABLE, recording_id).to_pylist()
    there: list[Row] = warehouse.arrow(REPORTS, recording_id).to_pylist()
    before = there
    if last is not None:
        before = _rows(warehouse.read_at(REPORTS, last[REPORTS], recording_id)) if REPORTS in last else []
    before = before or _stood_before(warehouse, recording_id)
    changed = reports_changed(before, stand, run_id, started)
    rows = {key_of(row): row for row in (*before, *changed)}
    if rows != {key_of(row): row for row in there}:
        made = pa.Table.from_pylist([*rows.values()], INCIDENT_REPORTS.arrow_schema)
        warehouse.replace(REPORTS, made, recording_id)
    known = {key_of(row): row for row in before}
    pairs = [retold(known[key_of(row)], row) for row in changed if key_of(row) in known]
    return Told(
        dict(Counter(row["severity"] for row in stand)),
        sorted(row["incident_id"] for row in changed if key_of(row) not in known),
        [one for one in pairs if one["now"] is not None],
        [one for one in pairs if one["now"] is None],
    )


def _rows(frame: DataFrame) -> list[Row]:
    rows: list[Row] = frame.toArrow().to_pylist()
    return rows


def _stood_before(warehouse: Warehouse, recording_id: str) -> list[Row]:
    """Return what is to be said of the incidents that an earlier version left, which did not write `incident_reports`.

    Whoever writes it has a row in it for each incident, so where there are incidents and no rows, nobody has.
    """
    last = last_complete_run(warehouse, recording_id, "started", "counts", "table_versions")
    if last is None or not json.loads(last["counts"]).get(TABLE):
        return []
    version = json.loads(last["table_versions"]).get(TABLE)
    stood = _rows(warehouse.read_at(TABLE, version, recording_id))
    return reports_changed([], stood, last["run_id"], last["started"])


def incident_rows(warehouse: Warehouse, recording_id: str, ids: Iterable[str]) -> list[dict[str, Any]]:
    """Return these incidents as plain values, worst and earliest first, with times as text in UTC."""
    rows = warehouse.read(TABLE, recording_id)
    names = [name for name in rows.columns if not name.startswith(_LEFT_OUT)]
    shown = rows.select(F.to_json(F.struct(*names), {"ignoreNullFields": "false"}).alias("row"))
    wanted = set(ids)
    found = [one for one in (json.loads(row.row) for row in shown.collect()) if one["incident_id"] in wanted]
    return sorted(found, key=lambda one: (one["severity"], one["lost_ts"] or "", one["incident_id"]))
