"""From the arguments of `show` to what the tables tell."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import tidemark
from pipelines.lookup import brokers, incidents, partitions, places, records
from pipelines.lookup.reading import recordings_in
from schemas.errors import InputError

if TYPE_CHECKING:
    import argparse

    from pipelines.lookup.reading import Tables


def tables_of(args: argparse.Namespace) -> tuple[Tables, dict[str, Any]]:
    """Return the recording's tables, and which they are."""
    there = recordings_in(args.warehouse)
    name = args.recording_id
    if name is None and len(there) == 1:
        name = there[0]
    if name not in there:
        named = ", ".join(there) if there else "none"
        problem = "say which recording with --recording-id" if name is None else f"there is no recording {name!r}"
        message = f"{problem}: there are {named}"
        raise InputError(message, source=args.warehouse)
    tables = tidemark.snapshot(args.warehouse, name)
    return tables, {"recording_id": name, "run_id": tables.run_id}


def found_in(tables: Tables, args: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Return the answer, and the name of what it is."""
    if args.what == "broker":
        return "broker", brokers.broker(tables, int(args.name))
    if args.what == "record":
        return "record", records.record(tables, *places.record_named(tables, args.name))
    if args.what == "incident":
        if args.name is None:
            return "incidents", {"incidents": incidents.incidents(tables)}
        return "incident", incidents.incident(tables, args.name)
    if args.name is None:
        return "partitions", {"partitions": places.partitions_of(tables)}
    at = datetime.fromisoformat(args.at) if args.at else None
    moment = partitions.Moment(at, args.around, args.steps)
    return "partition", partitions.partition(tables, places.partition_named(tables, args.name), moment)


def as_json(value: object) -> str:
    """Return a value that JSON does not have: times, as ISO 8601 has them."""
    return value.isoformat() if isinstance(value, datetime) else str(value)
