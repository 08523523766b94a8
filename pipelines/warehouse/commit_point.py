"""Which versions of the tables belong together, and what becomes of those that a killed run left behind.

A run's row in `runs` is its commit point: it is written last, and names a version of each table. Readers read those.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pipelines.warehouse.contract import sql_string
from schemas.runs import FAILED
from schemas.tables import REPLAY_TABLES, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pipelines.warehouse.delta_io import Warehouse

# By stage the tables that it writes; what it did not change is as it left it.
WRITTEN: Final[Mapping[str, tuple[str, ...]]] = {
    "ingest": (
        "facts", "rejected_lines", "files", "event_windows", "order_states", "replication_events", "coverage",
        "set_aside",
    ),
    "replay": (
        *(table.name for table in REPLAY_TABLES), "cluster_metrics", "replay_checkpoints", "incident_reports",
        "set_aside",
    ),
    "validate": ("expectation_results",),
}  # fmt: skip
_OF_READING: Final = ("facts", "rejected_lines")
# By stage the tables that it reads of the last complete run, if no stage before it has just written them.
_READ: Final[Mapping[str, tuple[str, ...]]] = {
    "replay": ("event_windows", "replication_events", "coverage"),
    "validate": tuple(name for name in TABLES if name not in {"runs", "expectation_results"}),
    "report": tuple(name for name in TABLES if name != "runs"),
}


def last_complete(warehouse: Warehouse, recording_id: str) -> dict[str, int]:
    """Return the versions of the tables that belong to the last complete run; none: there was no such run."""
    last = last_complete_run(warehouse, recording_id, "table_versions")
    return {} if last is None else json.loads(last["table_versions"])


def last_complete_run(
    warehouse: Warehouse, recording_id: str, *columns: str, stage: str | None = None
) -> dict[str, Any] | None:
    """Return these columns of the last complete run's row, and `run_id`; None: there was no such run.

    `stage`: of the last one that ran this stage; None: whichever it ran.
    """
    runs = complete_runs(warehouse, recording_id, "finished", "run_id", "stages", *columns)
    every = [run for run in runs if stage is None or stage in run["stages"]]
    return max(every, key=lambda row: (row["finished"], row["run_id"]), default=None)


def complete_runs(warehouse: Warehouse, recording_id: str, *columns: str) -> list[dict[str, Any]]:
    """Return these columns of the runs that came to their end."""
    rows = warehouse.arrow("runs", recording_id, ("status", *columns)).to_pylist()
    return [row for row in rows if row["status"] != FAILED]


def pinned(stages: Iterable[str], last: Mapping[str, int]) -> dict[str, int]:
    """Return the versions in which these stages read what they do not write themselves."""
    written: set[str] = set()
    found: dict[str, int] = {}
    for stage in stages:
        found |= {name: last[name] for name in _READ.get(stage, ()) if name in last and name not in written}
        written |= {*WRITTEN.get(stage, ())}
    return found


def versions_after(
    warehouse: Warehouse, recording_id: str, stages: Iterable[str], last: Mapping[str, int]
) -> dict[str, int]:
    """Return the versions that belong together after these stages; to be called while the lease is held.

    Of a table that the run wrote it is its own commit, for other recordings' runs go on. One that its stages left as it
    is has the newest version: what a killed run wrote there is then what this one would have written. `last`: after a
    run that did not come to its end, the versions of the last one that did; those hold for tables of other stages.
    """
    ours = {name for stage in stages for name in WRITTEN.get(stage, ())}
    others = {name: version for name, version in last.items() if name in TABLES and name not in ours}
    newest = {name: warehouse.version(name) for name in TABLES if name != "runs" and name not in others}
    made = {name: version for name, version in warehouse.own_versions(recording_id).items() if name != "runs"}
    return {**newest, **others, **made}


def take_back_reading(warehouse: Warehouse, recording_id: str) -> None:
    """Undo what killed runs brought into `facts` and `rejected_lines` without coming to write the ledger.

    What the ledger says of files holds for these tables as its writer left them: to carry the same changes out twice
    would give rows the names of other files. So for the rows of theirs that are set aside, which go first: what is
    written to the tables then already goes by them.
    """
    last = last_complete(warehouse, recording_id)
    told = {commit.run_id for commit in warehouse.commits("files", recording_id, last.get("files", -1))}
    of_reading = f"table IN ({', '.join(map(sql_string, _OF_READING))})"
    for name, within in (("set_aside", of_reading), *((name, None) for name in _OF_READING)):
        before = None
        for version, run_id in warehouse.commits(name, recording_id, last.get(name, -1)):
            if run_id in told:
                break
            before = version - 1
        if before is not None:
            rows = warehouse.read_at(name, before, recording_id)
            warehouse.replace(name, rows, recording_id, within=within, are_same=True)
