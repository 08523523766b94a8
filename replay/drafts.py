"""What the order stage works on: events before they have their place, and the operations that the merge orders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replay.rows import Row
    from replay.windows import Window


class Draft:
    """An event before it has its place: kind, the fact it was read from, its interval, its fields."""

    __slots__ = ("fields", "kind", "row")

    def __init__(self, kind: str, row: Row | None, window: tuple[int, int, int], fields: dict[str, Any]) -> None:
        """`window` is (earliest, best, latest) in microseconds."""
        lo, est, hi = window
        source = {"source_file": row["source_file"], "source_line": row["source_line"]} if row else {}
        if row and row["correlation_id"] is not None:
            source["request_id"] = f"{row['broker_id']}/{row['connection']}/{row['correlation_id']}"
        if row and row["ts_error_us"] is not None:
            source["ts_error_us"] = row["ts_error_us"]
        self.kind = kind
        self.row = row
        self.fields = {"kind": kind, "ts": est, "ts_lo": min(lo, est), "ts_hi": max(hi, est), **source, **fields}


@dataclass(slots=True)
class Operation:
    """What the merge orders: its events, its window, and what it saw."""

    type: int
    window: Window
    drafts: list[Draft]
    offset: int = 0
    seen: int = -1
    hw: int = -1
    exact: bool = False
