"""How the validations of a recording ended, run after run: how much held, what newly failed, what was mended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from schemas.runs import FAILED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

RESULT_COLUMNS: Final = ("run_id", "table", "expectation", "severity", "success")
RUN_COLUMNS: Final = ("run_id", "started", "finished", "status")
SHOWN_RUNS: Final = 5  # in the report's text; the findings and the tables have all
SHOWN_NAMES: Final = 3


def quality_history(
    results: Iterable[Mapping[str, Any]], runs: Iterable[Mapping[str, Any]], run_id: str | None = None
) -> list[dict[str, Any]]:
    """Return a row of plain values for each run that validated the recording and came to its end, oldest first.

    `results`: rows of expectation_results; `runs`: rows of runs; `run_id`: the run that goes on, which comes last and
    is not in `runs` yet. `newly_failed` and `mended` name rules (table.rule) by comparison with the run before; they
    are null for the first. A rule that was not evaluated in one of two runs is neither.
    """
    begins: dict[str, datetime | None] = {
        run["run_id"]: run["started"]
        for run in sorted(runs, key=lambda run: (run["finished"], run["run_id"]))
        if run["status"] != FAILED
    }
    if run_id is not None and run_id not in begins:
        begins[run_id] = None
    held: dict[str, dict[str, bool]] = {}
    failed: dict[tuple[str, str], int] = {}
    for row in results:
        run, rule = row["run_id"], f"{row['table'].split(',')[0]}.{row['expectation']}"
        held.setdefault(run, {})[rule] = row["success"]
        if not row["success"]:
            failed[run, row["severity"]] = failed.get((run, row["severity"]), 0) + 1
    history: list[dict[str, Any]] = []
    before: dict[str, bool] | None = None
    for run, started in begins.items():
        now = held.get(run)
        if now is None:
            continue
        both = sorted(now.keys() & (before or {}).keys())
        history.append(
            {
                "run_id": run,
                "started_ts": started,
                "checked": len(now),
                "held": sum(now.values()),
                "failed_errors": failed.get((run, "error"), 0),
                "failed_warnings": failed.get((run, "warning"), 0),
                "newly_failed": None if before is None else [name for name in both if before[name] and not now[name]],
                "mended": None if before is None else [name for name in both if now[name] and not before[name]],
            }
        )
        before = now
    return history


def history_lines(history: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the trend for people, newest run first; nothing for a single run, which has no trend."""
    if len(history) < 2:
        return []
    lines = [_line(row) for row in reversed(history[-SHOWN_RUNS:])]
    more = len(history) - len(lines)
    return [*lines, f"and {more} earlier in expectation_results"] if more else lines


def _line(row: Mapping[str, Any]) -> str:
    when = "this run" if row["started_ts"] is None else f"{row['started_ts']:%Y-%m-%d %H:%M:%S} UTC"
    line = f"{when}: {row['held']:,} of {row['checked']:,} hold"
    if row["failed_errors"] or row["failed_warnings"]:
        failed = ((row["failed_errors"], "error"), (row["failed_warnings"], "warning"))
        line += "".join(f", {count:,} {noun}{'' if count == 1 else 's'}" for count, noun in failed)
    for words, name in (("newly failed", "newly_failed"), ("mended", "mended")):
        if row[name]:
            others = len(row[name]) - SHOWN_NAMES
            line += f"; {words}: {', '.join(row[name][:SHOWN_NAMES])}{f' and {others} more' if others > 0 else ''}"
    return line
