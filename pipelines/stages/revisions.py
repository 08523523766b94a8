"""An incident keeps its id; later evidence may complete it or withdraw it: the rule, over plain rows."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from schemas.model import EVIDENCE, PARTITION_KEY
from schemas.runs import SAID

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

Row = dict[str, Any]

_PLACE: Final = tuple(column.name for column in PARTITION_KEY)
_KEPT: Final = (*_PLACE, "incident_id", *SAID)
# No part of what an incident says: whose it is, and in which lines its evidence stands, for files are rolled.
_NOT_SAID: Final = frozenset({"recording_id", "chain_sources"})
# A judgement; the other columns that are kept are how much was lost, which grows while a failure lasts.
_JUDGED: Final = ("mechanism", "severity")


def key_of(row: Row) -> tuple[str, str]:
    """Return what names an incident in all recordings."""
    return row["recording_id"], row["incident_id"]


def digest_of(incident: Row) -> str:
    """Return a digest of what an incident says.

    Places in the partition's order are no part of it: they move when evidence of something else comes in between. Nor
    are columns that are null, so that a release which adds one does not revise all incidents.
    """
    said = {name: value for name, value in incident.items() if value is not None and name not in _NOT_SAID}
    if "chain" in said:
        said["chain"] = [(link["ts"], link["what"]) for link in said["chain"]]
    text = json.dumps(said, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


def reports_changed(before: Iterable[Row], stand: Iterable[Row], run_id: str, at: datetime) -> list[Row]:
    """Return the rows of `incident_reports` that are new or other ones, now that these incidents stand.

    `before`: its rows as they are; `run_id` and `at`: the run that finds the incidents, and its begin.
    """
    known, stands = ({key_of(row): row for row in rows} for rows in (before, stand))
    changed = [
        _revised(row, {}, "withdrawn", run_id, at)
        for key, row in known.items()
        if key not in stands and row["status"] != "withdrawn"
    ]
    for key, incident in stands.items():
        said = {**{name: incident[name] for name in _KEPT}, "digest": digest_of(incident)}
        row = known.get(key)
        if row is None:
            first = {"status": "reported", "first_reported": at, "first_run_id": run_id}
            changed.append({**said, **first, "revised": None, "revised_run_id": None, "revision": 0})
        elif row["status"] == "withdrawn" or row["digest"] != said["digest"]:
            changed.append(_revised(row, said, "revised", run_id, at))
    return sorted(changed, key=key_of)


def _revised(row: Row, said: Row, status: str, run_id: str, at: datetime) -> Row:
    told = {"status": status, "revised": at, "revised_run_id": run_id, "revision": row["revision"] + 1}
    return {**row, **said, **told}


def retold(before: Row, now: Row) -> Row:
    """Return what was said of an incident and what holds now (None: it was withdrawn), for people and programs."""
    said = ("status", *SAID)
    about = {name: now[name] for name in ("incident_id", "topic", "incarnation", "partition", "first_reported")}
    holds = None if now["status"] == "withdrawn" else {name: now[name] for name in said}
    return {**about, "before": {name: before.get(name) for name in said}, "now": holds}


def is_judged_otherwise(one: Row) -> bool:
    """Whether what was retold is another judgement than before, and not only a matter of counts, ranges or details.

    It is one if the incident is withdrawn or stands again, if its mechanism or severity is another one, and if it is
    surer than before. That it is less sure alone changes nothing in what is to be done.
    """
    before, now = one["before"], one["now"]
    if now is None or before["status"] == "withdrawn":
        return True
    is_surer = before["evidence"] is not None and EVIDENCE.index(now["evidence"]) < EVIDENCE.index(before["evidence"])
    return is_surer or any(before[name] != now[name] for name in _JUDGED)
