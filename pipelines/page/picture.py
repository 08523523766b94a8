"""What a picture on the page is: a Vega-Lite specification, and the same in words and as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_MARKS: Final = 2_000  # what a picture shows at most; what it leaves out, it says


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture, and everything that somebody needs who cannot see it."""

    key: str  # names it within its page: letters, digits and hyphens
    title: str
    caption: str  # what it shows, and how to read it
    spec: Mapping[str, Any]  # Vega-Lite, with its data inline
    columns: Sequence[str]  # the same as a table: its heading,
    rows: Sequence[Sequence[str]]  # and its rows
    left_out: str | None = None  # what the picture does not show, as a sentence; None: nothing
