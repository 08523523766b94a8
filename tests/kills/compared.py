"""What must be equal after a campaign's kills: the rows that readers see, and what is left lying about."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from deltalake import DeltaTable

import tidemark
from schemas.tables import TABLES

# What belongs to one run and its recording: names, times, and how what it read was divided.
OF_A_RUN: Final = {"recording_id", "run_id", "seen", "modified", "counts", "resume"}

# And when incidents were told: one that was withdrawn meanwhile is told of by no single run.
WHEN_TOLD: Final = {"status", "first_reported", "first_run_id", "revised", "revised_run_id", "revision"}

# What a run hands to the next one: a run after one that was killed reads all facts, and hands on something else.
HANDED_ON: Final = {"order_states"}

# By table what depends on where batches of events ended. Tables that are made from either state are equal.
HELD_OTHERWISE: Final = {"replay_checkpoints": {"state"}}

# By table what is made of rows with the recording's name in them.
OF_A_NAME: Final = {"event_windows": {"facts"}}


def tables_of(warehouse: Path, name: str, *, by_any_name: bool = False) -> dict[str, Counter[str]]:
    """The rows of all tables as their readers see them, without what belongs to one run; or to its recording's name."""
    found = tidemark.snapshot(str(warehouse), name)
    apart = {**HELD_OTHERWISE, **(OF_A_NAME if by_any_name else {})}
    return {
        table: rows_of(found, table, apart.get(table, set())) for table in TABLES if table not in {"runs", *HANDED_ON}
    }


def rows_of(found: tidemark.Snapshot, table: str, apart: set[str]) -> Counter[str]:
    """A table's rows, and how often each stands there."""
    rows = found.arrow(table).to_pylist()
    if table == "expectation_results":  # which each run that came to its end adds to, and no other
        runs = DeltaTable(found.path("runs")).to_pyarrow_table(columns=["run_id", "finished", "status"]).to_pylist()
        ended = {row["run_id"]: row["finished"] for row in runs if row["status"] != "failed"}
        there = {row["run_id"] for row in rows}
        last = max(there & set(ended), key=ended.__getitem__, default=None)
        rows = [row for row in rows if row["run_id"] == last or row["run_id"] not in ended]
        rows = [row for row in rows if "runs" not in row["table"].split(", ")]  # of which there is one for each start
    if table == "incident_reports":
        rows, apart = [row for row in rows if row["status"] != "withdrawn"], apart | WHEN_TOLD
    shown = [{key: value for key, value in row.items() if key not in OF_A_RUN | apart} for row in rows]
    return Counter(json.dumps(row, sort_keys=True, default=str) for row in shown)


def differences(wanted: dict[str, Counter[str]], found: dict[str, Counter[str]]) -> list[str]:
    """What differs in the tables that are wanted, a line for each."""
    return [
        f"{table}: {(found[table] - rows).total()} rows too many, {(rows - found[table]).total()} missing, "
        f"as {next(iter((found[table] - rows) | (rows - found[table])))[:600]}"
        for table, rows in wanted.items()
        if found[table] != rows
    ]


def staged(warehouse: Path) -> list[str]:
    """What is still staged."""
    return [str(path) for path in (warehouse / "_staging").rglob("*") if path.is_file()]
