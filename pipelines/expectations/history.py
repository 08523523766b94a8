"""How the validations of a recording ended, run after run: how much held, what newly failed, what was mended."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.compute as pc

from replay.arrays.columns import numbers, texts
from schemas.runs import FAILED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    import numpy.typing as npt
    import pyarrow as pa

    _Ends = npt.NDArray[np.int8]  # how each rule ended

RESULT_COLUMNS: Final = ("run_id", "table", "expectation", "severity", "success")
RUN_COLUMNS: Final = ("run_id", "started", "finished", "status")
SHOWN_RUNS: Final = 5  # in the report's text; the findings and the tables have all
SHOWN_NAMES: Final = 3
_NOT_EVALUATED, _BROKEN, _HOLDS = -1, 0, 1


def quality_history(
    results: pa.Table, runs: Iterable[Mapping[str, Any]], run_id: str | None = None
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
    rules, held = _held_by_run(results)
    failed = results.filter(pc.invert(results["success"]))
    broken = Counter(zip(failed["run_id"].to_pylist(), failed["severity"].to_pylist(), strict=True))
    history: list[dict[str, Any]] = []
    before: _Ends | None = None
    for run, started in begins.items():
        now = held.get(run)
        if now is None:
            continue
        newly_failed, mended = (
            None if before is None else sorted(rules[k] for k in np.flatnonzero((before == was) & (now == is_now)))
            for was, is_now in ((_HOLDS, _BROKEN), (_BROKEN, _HOLDS))
        )
        history.append(
            {
                "run_id": run,
                "started_ts": started,
                "checked": int((now != _NOT_EVALUATED).sum()),
                "held": int((now == _HOLDS).sum()),
                "failed_errors": broken[run, "error"],
                "failed_warnings": broken[run, "warning"],
                "newly_failed": newly_failed,
                "mended": mended,
            }
        )
        before = now
    return history


def _held_by_run(results: pa.Table) -> tuple[list[str], dict[str, _Ends]]:
    """Return the names of all rules, and by run how each ended. Hundreds of runs have as many thousands of rows."""
    (run, runs), (table, tables), (rule, rules) = (texts(results[name]) for name in ("run_id", "table", "expectation"))
    pairs, pair = np.unique(table * len(rules) + rule, return_inverse=True)
    names = [f"{tables[of].split(',')[0]}.{rules[k]}" for of, k in (divmod(one, len(rules)) for one in pairs.tolist())]
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    ends = np.full((len(runs), len(places)), _NOT_EVALUATED, np.int8)
    ends[run, np.array([places[name] for name in names], np.int64)[pair]] = numbers(results["success"])
    return [*places], dict(zip(runs, ends, strict=True))


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
