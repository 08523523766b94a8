"""What the order stage works on: events before they have their place, and the operations that the merge orders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replay.evidence.request_times import Window
    from replay.evidence.rows import Columns, Row

Copied = tuple[str, ...]
Shape = tuple[str, int, Copied, tuple[str, ...]]


def shape_of(kind: str, columns: Columns | None, copied: Copied, fields: Mapping[str, object]) -> Shape:
    """Kind, the columns of the facts that the drafts were read from, what they repeat of these, what they say."""
    return kind, id(columns), copied, tuple(fields)


class Draft:
    """An event before it has its place: kind, the fact it was read from, its interval, its fields.

    `fields` are what the event says itself; `copied` names what it repeats of its fact, by column (`event_rows`).
    """

    __slots__ = ("copied", "fields", "kind", "row", "window")

    def __init__(self, kind: str, row: Row | None, window: Window, fields: dict[str, Any], copied: Copied = ()) -> None:
        """`window` is (earliest, best, latest) in microseconds."""
        self.kind = kind
        self.row = row
        self.window = window
        self.fields = fields
        self.copied = copied

    @property
    def shape(self) -> Shape:
        """What is alike of drafts that are made into columns together."""
        return shape_of(self.kind, None if self.row is None else self.row.columns, self.copied, self.fields)

    @property
    def line(self) -> int | None:
        """The line that it was read from."""
        return None if self.row is None else self.row["source_line"]


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
    place: int = 0  # in its chain, beside `Block`s; after what came before it, else
