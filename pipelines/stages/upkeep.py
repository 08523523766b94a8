"""The upkeep of a warehouse: each recording tended as a run of its own, then what no table needs any more deleted."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from delta import DeltaTable

from pipelines.stages import run as runs
from pipelines.stages import tending, thinning
from pipelines.stages.tending import Tended
from pipelines.stages.thinning import Retention
from pipelines.stages.watch import Watch
from pipelines.warehouse import care
from pipelines.warehouse.delta_io import Warehouse
from schemas.errors import HeldError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

EVERY: Final = "every recording"  # what the steps on the whole warehouse are logged as


@dataclass(frozen=True, slots=True)
class Holding:
    """What a table holds, and how many bytes its folder takes, with what only older versions need."""

    rows: int
    files: int
    bytes: int
    stored_bytes: int


@dataclass(slots=True)
class Outcome:
    """What became of a recording."""

    recording_id: str
    tended: Tended = field(default_factory=Tended)
    skipped: str | None = None  # why it was left as it is
    error: Exception | None = None  # what ended its upkeep


@dataclass(slots=True)
class Upkeep:
    """What became of a warehouse, or would."""

    warehouse: str
    outcomes: list[Outcome]
    vacuum_hours: int
    staged: list[str]  # of what dead runs had staged: folders, by recording or run
    before: dict[str, Holding]
    after: dict[str, Holding] | None = None  # None: nothing was done

    def as_dict(self) -> dict[str, Any]:
        """Return it for machines, without errors."""
        told: dict[str, Any] = {"warehouse": self.warehouse, "vacuum_hours": self.vacuum_hours, "staged": self.staged}
        told["tables"] = {
            name: {"before": asdict(held), "after": None if self.after is None else asdict(self.after[name])}
            for name, held in self.before.items()
        }
        return told


def planned(spark: SparkSession, path: str, settings: Mapping[str, Any]) -> Upkeep:
    """Return what would be done; nothing is written."""
    warehouse, retention, now_us = Warehouse(spark, path), Retention.of(settings), _now_us()
    outcomes, recordings, past = [], _recordings(warehouse), tending.past_runs(warehouse)
    for recording_id in recordings:
        outcome = Outcome(recording_id, skipped=tending.unfinished(warehouse, recording_id, past))
        if outcome.skipped is None:
            due, small = tending.plan(warehouse, recording_id, past, retention, now_us)
            outcome.tended = Tended({name: rows for name, (_, rows) in due.items()}, small)
        outcomes.append(outcome)
    hours = thinning.vacuum_hours(past, retention, now_us)
    return Upkeep(warehouse.path, outcomes, hours, _staged(warehouse, retention, now_us), _holdings(warehouse))


def maintain(
    spark: SparkSession,
    path: str,
    settings: Mapping[str, Any],
    ended: Callable[[Outcome], object] = lambda _: None,
    wait: float = 0.0,
) -> Upkeep:
    """Do it, recording by recording; `ended` is told of each. A recording that fails does not stop the others.

    One that another driver works on, for longer than we `wait`, is left as it is.
    """
    warehouse, retention = Warehouse(spark, path), Retention.of(settings)
    before = _holdings(warehouse)
    outcomes = []
    for recording_id in _recordings(warehouse):
        outcome = Outcome(recording_id)
        try:
            outcome.skipped = tending.unfinished(warehouse, recording_id, tending.past_runs(warehouse))
            if outcome.skipped is None:
                run = runs.execute(spark, path, recording_id, None, (tending.STAGE,), settings, wait=wait)
                outcome.tended = run.tended or Tended()
        except HeldError as error:
            outcome.skipped = str(error)
        except Exception as error:  # noqa: BLE001 - whatever it is
            outcome.error = error
        outcomes.append(outcome)
        ended(outcome)
    watch = Watch(spark, EVERY, "none")
    now_us = _now_us()
    staged = _staged(warehouse, retention, now_us)
    hours = thinning.vacuum_hours(tending.past_runs(warehouse), retention, now_us)
    with watch.step("vacuum") as counts:
        for name in staged:
            warehouse.drop_staging(name)
        care.vacuum(warehouse, before, hours)
        counts["hours"] = hours
    return Upkeep(warehouse.path, outcomes, hours, staged, before, _holdings(warehouse))


def _recordings(warehouse: Warehouse) -> list[str]:
    """Return the recordings in a warehouse; InputError if it is none, and nothing is made there."""
    if not DeltaTable.isDeltaTable(warehouse.spark, warehouse.table_path("runs")):
        message = "there is no warehouse here; `./spark-submit.sh run --recording DIR --warehouse DIR` makes one"
        raise InputError(message, source=warehouse.path)
    return sorted({run.recording_id for run in tending.past_runs(warehouse)})


def _staged(warehouse: Warehouse, retention: Retention, now_us: int) -> list[str]:
    """Return the dead runs of which something is staged: no run goes on for that long."""
    return care.staged_before(warehouse, now_us // 1000 - retention.vacuum_days * 86_400_000)


def _holdings(warehouse: Warehouse) -> dict[str, Holding]:
    """Return what each table holds, of all recordings."""
    held = {}
    for name in care.tables_there(warehouse):
        files = [file for mine in care.files_of(warehouse, name).values() for file in mine]
        rows, size = sum(file.rows for file in files), sum(file.size for file in files)
        held[name] = Holding(rows, len(files), size, care.stored_bytes(warehouse, name))
    return held


def _now_us() -> int:
    return time.time_ns() // 1000
