"""One incident, by its id or the beginning of it; and all of them, worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelines.lookup.places import shown
from pipelines.lookup.reading import Row, rows
from schemas.errors import InputError

if TYPE_CHECKING:
    from pipelines.lookup.reading import Tables

NAMED = 8  # of the ids that there are, so many are named


def incidents(tables: Tables) -> list[Row]:
    """Return all incidents: by severity, then by how many acknowledged records are gone."""

    def badness(row: Row) -> tuple[Any, ...]:
        acknowledged = (row["acked_all"] or 0) + (row["acked_one"] or 0)
        place = (row["topic"], row["incarnation"], row["partition"], row["first_offset"])
        return (row["severity"], -acknowledged, -(row["acked_possible"] or 0), *place)

    return sorted(rows(tables, "data_loss_incidents"), key=badness)


def incident(tables: Tables, prefix: str) -> Row:
    """Return the incident whose id begins so, and what earlier runs made of it; InputError if not one is meant."""
    every = incidents(tables)
    found = [row for row in every if row["incident_id"].startswith(prefix.lower())]
    if not found:
        _refuse_withdrawn(tables, prefix)
    if len(found) != 1:
        raise InputError(_not_one(prefix, found or every, tables.recording_id, is_known=bool(found)))
    (told,) = found
    reported = [row for row in rows(tables, "incident_reports") if row["incident_id"] == told["incident_id"]]
    return {**told, "reported": reported[0] if reported else None}


def _refuse_withdrawn(tables: Tables, prefix: str) -> None:
    """InputError if an incident begins so that earlier runs reported and the last one did not find."""
    for row in rows(tables, "incident_reports"):
        if row["status"] == "withdrawn" and row["incident_id"].startswith(prefix.lower()):
            place = f"{shown(row['topic'])}-{row['partition']}"
            when = "" if row["revised"] is None else f" at {row['revised']:%Y-%m-%d %H:%M:%S} UTC"
            message = f"incident {row['incident_id']} ({place}) was withdrawn{when}: no run finds it any more"
            raise InputError(message)


def _not_one(prefix: str, there: list[Row], recording: str, *, is_known: bool) -> str:
    named = ", ".join(f"{row['incident_id']} ({shown(row['topic'])}-{row['partition']})" for row in there[:NAMED])
    more = f" and {len(there) - NAMED:,} more" if len(there) > NAMED else ""
    if is_known:
        return f"several incidents begin with '{shown(prefix)}': {named}{more}"
    if not there:
        return f"there is no incident '{shown(prefix)}': {recording} has none"
    return f"there is no incident '{shown(prefix)}' in {recording}: there are {named}{more}"
