"""What is kept of a record of the metadata log: what Tidemark reads. The rest may be a secret, and goes."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from pipelines.parse.dumps.metadata_dump import READ_RECORDS, READ_SETTINGS

PAYLOAD: Final = " payload: "
VOTERS: Final = " KRaftVoters"  # names the controllers' hosts


def without_secrets(line: str) -> str:
    """Return a line of a metadata dump without what Tidemark does not read: passwords, credentials, access rules."""
    head, mark, payload = line.partition(PAYLOAD)
    if not mark:
        return line.partition(VOTERS)[0] + VOTERS if VOTERS in line else line
    try:
        record: dict[str, Any] = msgspec.json.decode(payload.rstrip())
        return f"{head}{mark}{msgspec.json.encode(read_only(record)).decode()}"
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError, UnicodeEncodeError):
        return f"{head}{mark}{{}}"


def read_only(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record of the metadata log with only what Tidemark reads of it; its type and version stay."""
    if record["type"] not in READ_RECORDS:
        return {**record, "data": {}}
    data = record["data"]
    if record["type"] == "CONFIG_RECORD" and data["name"] not in READ_SETTINGS:
        return {**record, "data": {**data, "value": None}}
    return record
