"""Data types of the order stage: events before they have their place, and the operations that the merge orders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from replay.evidence.rows import NO_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replay.evidence.request_times import Window
    from replay.evidence.rows import FactColumns, Row

Copied = tuple[str, ...]
Shape = tuple[str, int, Copied, tuple[str, ...]]


def shape_of(kind: str, columns: FactColumns | None, copied: Copied, fields: Mapping[str, object]) -> Shape:
    """Return what drafts must share to become columns together: kind, source columns, copied columns, own fields."""
    return kind, id(columns), copied, tuple(fields)


class Draft:
    """An event that has no place yet: its kind, the fact it was read from, its interval and its fields.

    `fields` holds the event's own values; `copied` names the columns that it copies from its fact (`event_rows`).
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
        """What drafts must have in common to be made into columns together."""
        row = self.row
        columns = None if row is None else NO_COLUMNS if row.stands_alone else row.columns
        return shape_of(self.kind, columns, self.copied, self.fields)

    @property
    def line(self) -> int | None:
        """The number of the log line that it was read from; None if it comes from no fact."""
        return None if self.row is None else self.row["source_line"]


@dataclass(slots=True)
class Operation:
    """What the merge orders: one or more events, the time in which they can have happened, and what they saw."""

    type: int
    window: Window
    drafts: list[Draft]
    offset: int = 0
    seen: int = -1
    hw: int = -1
    exact: bool = False
    updates: int = 0  # of a fetch that was answered at once: its first drafts, which are its update
    handled: int = 0  # and when its handler was done with it
    place: int = 0  # in its chain; only used if the chain has `Block`s too, otherwise operations keep their order
