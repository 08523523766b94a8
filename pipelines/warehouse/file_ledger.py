"""The table `files`: the ledger of what was read, as entries and as rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pipelines.intake.ledger import Entry
from pipelines.warehouse.contract import time_of
from pipelines.warehouse.within import has_one_of
from replay.evidence.tenures import micros
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipelines.warehouse.delta_io import Warehouse

_SAME: Final = (
    "path",
    "run_id",
    "state",
    "same_as",
    "content",
    "layout",
    "size",
    "said",
    "parser_version",
    "length",
    "digest",
    "settled",
)
_RESUME: Final = ("head_length", "broken", "is_cut", "settled_digest", "settled_line", "block", "is_attributed")


def entries_of(warehouse: Warehouse, recording_id: str) -> list[Entry]:
    """Return the ledger of a recording."""
    return [_entry(row) for row in warehouse.arrow("files", recording_id).to_pylist()]


def write_entries(warehouse: Warehouse, recording_id: str, before: Sequence[Entry], now: Sequence[Entry]) -> bool:
    """Write what has changed in the ledger; return whether anything has."""
    stood, stands = ({entry.path: entry for entry in entries} for entries in (before, now))
    changed = sorted(path for path in {*stood, *stands} if stood.get(path) != stands.get(path))
    if not changed:
        return False
    rows = [_row(recording_id, stands[path]) for path in changed if path in stands]
    found = pa.Table.from_pylist(rows, TABLES["files"].arrow_schema)
    within = has_one_of("path", changed) if stood else None
    warehouse.replace("files", found, recording_id, within=within)
    return True


def _row(recording_id: str, entry: Entry) -> dict[str, Any]:
    every = [*entry.settled_counts, *entry.open_counts]
    span = entry.span()
    return {
        **{name: getattr(entry, name) for name in _SAME},
        "recording_id": recording_id,
        "broker_id": json.loads(entry.said)[0],
        "modified": None if entry.modified_us is None else time_of(entry.modified_us),
        "seen": time_of(entry.seen_us),
        "fingerprint": entry.head,
        **{name: sum(part[name] for part in every) for name in ("lines", "facts", "rejected")},
        "first_ts": None if span is None else time_of(span[0]),
        "last_ts": None if span is None else time_of(span[1]),
        "resume": json.dumps({name: getattr(entry, name) for name in _RESUME}),
        "counts": json.dumps([entry.settled_counts, entry.open_counts], sort_keys=True),
    }


def _entry(row: dict[str, Any]) -> Entry:
    settled, rest = json.loads(row["counts"])
    return Entry(
        **{name: row[name] for name in _SAME},
        **json.loads(row["resume"]),
        head=row["fingerprint"],
        modified_us=None if row["modified"] is None else micros(row["modified"]),
        seen_us=micros(row["seen"]),
        settled_counts=settled,
        open_counts=rest,
    )
