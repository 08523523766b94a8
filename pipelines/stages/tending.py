"""The upkeep of one recording, as a stage of a run: rows that may go, and few files in place of many.

It is a run like any other: it holds the recording alone, and its row in `runs` names the versions that it leaves, so
readers go over to them together.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from pipelines.stages import thinning
from pipelines.stages.thinning import PastRun, Retention
from pipelines.warehouse import care
from pipelines.warehouse.changes import BETWEEN, is_one_of
from pipelines.warehouse.superseded import engine_version
from schemas.runs import EXPECTATION_RESULTS, REJECTED_LINES, RUNS
from schemas.windows import EVENT_WINDOWS, REPLAY_CHECKPOINTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from pyspark.sql import DataFrame

    from pipelines.warehouse.delta_io import Warehouse

STAGE: Final = "maintain"
_STATE_KEY: Final = ("topic", "incarnation", "partition", "place")


@dataclass(slots=True)
class Tended:
    """What was done to a recording's tables, or would be."""

    thinned: dict[str, int] = field(default_factory=dict)  # rows that go, by table
    compacted: list[str] = field(default_factory=list)  # tables whose small files are put together

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return bool(self.thinned or self.compacted)


def past_runs(warehouse: Warehouse) -> list[PastRun]:
    """Return what `runs` says, of all recordings."""
    rows = warehouse.as_it_is(RUNS.name).select(
        "recording_id",
        "run_id",
        F.unix_micros("started").alias("started_us"),
        F.unix_micros("finished").alias("finished_us"),
        "status",
        "stages",
        F.get_json_object("versions", "$.engine").alias("engine"),
        "table_versions",
    )
    told = (row.asDict() for row in rows.collect())
    return [
        PastRun(**{**row, "stages": tuple(row["stages"]), "table_versions": json.loads(row["table_versions"])})
        for row in told
    ]


def plan(
    warehouse: Warehouse, recording_id: str, past: Iterable[PastRun], retention: Retention, now_us: int
) -> tuple[dict[str, tuple[str, int]], list[str]]:
    """Return by table which rows go, as a condition and a count; and tables with small files. Nothing is written."""
    there = care.tables_there(warehouse)
    runs = [run for run in past if run.recording_id == recording_id]
    due: dict[str, tuple[str, int]] = {}
    for table, gone in (
        (REJECTED_LINES, thinning.lines_gone(runs, retention, now_us)),
        (EXPECTATION_RESULTS, thinning.results_gone(runs, retention)),
    ):
        if table.name in there and gone:
            due[table.name] = _of_runs(warehouse.as_it_is(table.name, recording_id=recording_id), gone)
    if {EVENT_WINDOWS.name, REPLAY_CHECKPOINTS.name} <= set(there):
        due[REPLAY_CHECKPOINTS.name] = _states(warehouse, recording_id, runs)
    small = [name for name in there if care.due(name, care.files_of(warehouse, name).get(recording_id, []))]
    return {name: (condition, rows) for name, (condition, rows) in due.items() if rows}, small


def tend(
    warehouse: Warehouse, recording_id: str, retention: Retention, now_us: int, step: Callable[..., Any]
) -> Tended:
    """Do what is due; `step` watches it."""
    tended = Tended()
    with step("thin") as counts:
        due, small = plan(warehouse, recording_id, past_runs(warehouse), retention, now_us)
        for name, (condition, rows) in due.items():
            care.forget(warehouse, name, recording_id, condition)
            tended.thinned[name] = counts[name] = rows
    with step("compact") as counts:
        for name in small:
            care.compact(warehouse, name, recording_id)
            tended.compacted.append(name)
        counts["tables"] = len(tended.compacted)
    return tended


def unfinished(warehouse: Warehouse, recording_id: str, runs: Iterable[PastRun]) -> str | None:
    """Say why a recording's tables cannot be tended: they are not those that its last run left; None: they can."""
    last = thinning.newest(run for run in runs if run.recording_id == recording_id)
    if last is None:
        return "no run of it has come to its end"
    there = set(care.tables_there(warehouse))
    versions = {name: version for name, version in last.table_versions.items() if name in there}
    changed = care.differing(warehouse, recording_id, versions)
    if changed:
        shown = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        return f"a run works on it, or did not come to its end ({shown} changed since run {last.run_id}): run it first"
    return None


def _of_runs(rows: DataFrame, gone: Collection[str]) -> tuple[str, int]:
    """Return the condition that a row is of one of these runs, and how many are."""
    counts = {row["run_id"]: row["count"] for row in rows.groupBy("run_id").count().collect() if row["run_id"] in gone}
    return is_one_of("run_id", counts), sum(counts.values())


def _states(warehouse: Warehouse, recording_id: str, runs: Sequence[PastRun]) -> tuple[str, int]:
    """Return the condition that no run can go on from a state, and how many such states there are."""
    last = thinning.newest(runs)
    windows = warehouse.as_it_is(EVENT_WINDOWS.name, recording_id=recording_id).select(*_STATE_KEY, "digest", "window")
    states = warehouse.as_it_is(REPLAY_CHECKPOINTS.name, recording_id=recording_id).drop("state")
    gone = thinning.states_gone(
        windows.toArrow().to_pylist(),
        states.toArrow().to_pylist(),
        {engine_version(), last.engine if last else None},
    )
    keys = [BETWEEN.join(str(row[name]) for name in _STATE_KEY) for row in gone]
    return is_one_of(f"concat_ws('{BETWEEN}', {', '.join(_STATE_KEY)})", keys), len(keys)
