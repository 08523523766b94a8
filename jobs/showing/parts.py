"""What the answers of `show` have in common: times, places, and whether a row is sure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


def clock(at: datetime | None) -> str:
    """Return the time of a day."""
    return "unknown" if at is None else f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}"


def moment(at: datetime | None) -> str:
    """Return a time with its day."""
    return "at an unknown time" if at is None else f"{at:%Y-%m-%d} {clock(at)} UTC"


def place(row: Mapping[str, Any]) -> str:
    """Return a partition's name, as one asks for it."""
    return f"{row['topic']}-{row['partition']}" + (f"#{row['incarnation']}" if row["incarnation"] else "")


def doubt(evidence: str | None) -> str:
    """Return a mark for what no source states: derived rows are as sure, bounded and unknown ones are not."""
    return "" if evidence in {None, "observed"} else f" ({evidence})"


def source(row: Mapping[str, Any]) -> str:
    """Return where a row was read, for the end of a line."""
    return f"  [{row['source']}]" if row.get("source") else "  [no line states it]"


def listed(ids: object) -> str:
    """Return broker ids."""
    if ids is None:
        return "unknown"
    return ", ".join(map(str, ids)) if isinstance(ids, list) and ids else "none"
