"""What came of the upkeep of a warehouse, for people and for machines."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobs.endings import Failure
    from pipelines.stages.upkeep import Holding, Outcome, Upkeep


def told(outcome: Outcome, failure: Failure | None) -> dict[str, Any]:
    """What became of a recording, for machines."""
    about = {"recording_id": outcome.recording_id, "skipped": outcome.skipped, **asdict(outcome.tended)}
    return {**about, **(failure.as_dict() if failure else {})}


def lines(upkeep: Upkeep, failures: dict[str, Failure]) -> list[str]:
    """What became of a warehouse, for people: a line for each recording, and a table of all tables."""
    is_done = upkeep.after is not None
    found = []
    for one in upkeep.outcomes:
        if one.recording_id in failures:
            said = failures[one.recording_id].message
        elif one.skipped:
            said = f"left as it is: {one.skipped}"
        else:
            gone = [f"{rows:,} rows of {name}" for name, rows in one.tended.thinned.items()]
            small = [f"small files of {', '.join(one.tended.compacted)}"] if one.tended.compacted else []
            would = "" if is_done else "would "
            parts = [f"{would}let go of {' and '.join(gone)}"] if gone else []
            parts += [f"{would}put together {small[0]}"] if small else []
            said = "; ".join(parts) or "nothing to do"
        found.append(f"{one.recording_id}: {said}")
    done = "deleted" if is_done else "would delete"
    found.append(f"{done} files that no version of the last {upkeep.vacuum_hours / 24:.0f} days needs")
    if upkeep.staged:
        found.append(f"{done} what dead runs had staged in {len(upkeep.staged)} folders")
    return [*found, "", *table(upkeep.before, upkeep.after)]


def table(before: dict[str, Holding], after: dict[str, Holding] | None) -> list[str]:
    """Rows, files and megabytes of each table, before and after."""
    head = f"{'':<22}{'rows':>14}{'files':>16}{'MB':>22}{'MB with older versions':>26}"
    found = [head]
    for name, was in before.items():
        now = was if after is None else after[name]
        files, size, stored = (
            one if after is None or one == other else f"{one} -> {other}"
            for one, other in (
                (f"{was.files:,}", f"{now.files:,}"),
                (f"{was.bytes / 1e6:,.1f}", f"{now.bytes / 1e6:,.1f}"),
                (f"{was.stored_bytes / 1e6:,.1f}", f"{now.stored_bytes / 1e6:,.1f}"),
            )
        )
        found.append(f"{name:<22}{now.rows:>14,}{files:>16}{size:>22}{stored:>26}")
    return found
