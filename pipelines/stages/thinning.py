"""What may go from a warehouse, and what of it is due: decided here, done by `tending` and `upkeep`.

Three tables may lose rows, since nothing is made of these rows: lines that were rejected long ago, results of
expectations of older runs, and states of the replay that no run can go on from. All others are whole or wrong: `files`
and `event_windows` say that facts and rows stand, and the next run makes only what they do not tell of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from replay.tables.resumption import WHOLE, place_of
from schemas.runs import FAILED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from replay.tables.resumption import Row

_HOUR_US: Final = 3_600_000_000
_DAY_US: Final = 24 * _HOUR_US


@dataclass(frozen=True, slots=True)
class Retention:
    """The settings under `retention`: how long what may go is kept; 0: for ever."""

    vacuum_days: int = 7  # files that only older versions of the tables need; never 0
    rejected_lines_days: int = 90
    expectation_results_runs: int = 100

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Retention:
        """Read it from the settings of a job."""
        return cls(**settings.get("retention", {}))


@dataclass(frozen=True, slots=True)
class PastRun:
    """What a row of `runs` says."""

    recording_id: str
    run_id: str
    started_us: int
    finished_us: int
    status: str
    stages: tuple[str, ...]
    engine: str | None  # digest of its sources
    table_versions: Mapping[str, int]


def newest(runs: Iterable[PastRun], stage: str | None = None) -> PastRun | None:
    """Return the last run that did not fail, and that had this stage if one is named."""
    ended = (run for run in runs if run.status != FAILED and (stage is None or stage in run.stages))
    return max(ended, key=lambda run: run.finished_us, default=None)


def lines_gone(runs: Iterable[PastRun], retention: Retention, now_us: int) -> set[str]:
    """Return the runs whose rejected lines go; lines of a run that `runs` does not know have no age, and stay."""
    if not retention.rejected_lines_days:
        return set()
    return {run.run_id for run in runs if run.finished_us < now_us - retention.rejected_lines_days * _DAY_US}


def results_gone(runs: Collection[PastRun], retention: Retention) -> set[str]:
    """Return the runs whose results go: all but the newest so many, and the one that a run with nothing new asks."""
    if not retention.expectation_results_runs:
        return set()
    validated = sorted((run for run in runs if "validate" in run.stages), key=lambda run: run.finished_us)
    asked = newest(runs, "replay")
    return {run.run_id for run in validated[: -retention.expectation_results_runs] if run is not asked}


def states_gone(windows: Iterable[Row], states: Iterable[Row], engines: Collection[str | None]) -> list[Row]:
    """Return the rows of `replay_checkpoints` that no run of these engines can go on from.

    A state is good for its own engine, where a window of the events begins with what it had seen. The rows about whole
    partitions stay: they say what is not to be replayed, whatever engine made it.
    """
    begun = {(*place_of(row), row["place"]): (row["digest"], row["window"]) for row in windows}
    return [
        row
        for row in states
        if row["place"] != WHOLE
        and (
            row["engine"] not in engines or begun.get((*place_of(row), row["place"])) != (row["digest"], row["window"])
        )
    ]


def vacuum_hours(runs: Iterable[PastRun], retention: Retention, now_us: int) -> int:
    """Return for how many hours files are kept: at least since the run of any recording that readers read.

    A file that its tables had was taken out after it had started, so that is always late enough.
    """
    by_recording: dict[str, list[PastRun]] = {}
    for run in runs:
        by_recording.setdefault(run.recording_id, []).append(run)
    read = [last.started_us for one in by_recording.values() if (last := newest(one)) is not None]
    oldest = min(read, default=now_us)
    return max(retention.vacuum_days * 24, -((oldest - now_us) // _HOUR_US) + 1)
