"""What stands on the incident page, as plain values: everything is text that must still be escaped."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipelines.page.picture import Picture


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: its caption, its heading, its rows."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left_out: str | None = None  # what it does not show, as a sentence


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of the first screen: what is sure stands in it, what is not beside it."""

    label: str
    value: str
    beside: str | None = None  # what is possible beyond it, or why it is not known


@dataclass(frozen=True, slots=True)
class Count:
    """A number of an incident: what is sure, what is possible beyond that; None for both: nothing tells."""

    label: str
    sure: str | None
    possible: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A link of the causal chain, with the line that states it."""

    when: str
    what: str
    source: str | None  # FILE:LINE; None: it follows from other lines
    quote: str | None = None  # that line


@dataclass(frozen=True, slots=True)
class Remedy:
    """A setting that would have kept the records, and why."""

    setting: str
    reason: str


@dataclass(frozen=True, slots=True)
class Badge:
    """A grade, and what it means."""

    name: str
    words: str


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident: its row in the table of all, and its section unless it has none."""

    key: str  # its section's anchor: letters, digits and hyphens
    place: str
    extent: str
    acknowledged: str  # for the table
    mechanism: Badge
    severity: Badge
    evidence: Badge
    when: str
    explanation: str = ""
    counts: Sequence[Count] = ()
    details: Sequence[tuple[str, str]] = ()
    chain: Sequence[Link] = ()
    remedies: Sequence[Remedy] = ()
    pictures: Sequence[Picture] = ()
    is_told: bool = False  # whether it has a section


@dataclass(frozen=True, slots=True)
class Part:
    """A part of what is said of the cluster: sentences, pictures and tables."""

    key: str
    title: str
    sentences: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    grids: Sequence[Grid] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """A query to copy."""

    question: str
    tool: str
    text: str


@dataclass(frozen=True, slots=True)
class Contents:
    """The whole page."""

    recording_id: str
    verdict: str  # lost, possible, unknown, unacknowledged, nothing_lost
    headline: str
    second: str  # the second sentence of the verdict
    figures: Sequence[Figure]
    notes: Sequence[str]
    incidents: Sequence[Incident]
    parts: Sequence[Part]
    warehouse: str
    queries: Sequence[Query]
    made_by: str
    left_out: Sequence[str] = field(default=())  # what the page does not show, and where it is
    docs: str | None = None  # address of Data Docs, relative to the page
    too_large: str | None = None  # what a page of two megabytes has room for, if not for all

    def thinner(self) -> Contents | None:
        """Return the contents without the pictures, or the section, of the last incident that has them; None: no more.

        What goes then is half of the rows: the table is the last that a page can do without.
        """
        for at in reversed(range(len(self.incidents))):
            one = self.incidents[at]
            if one.pictures:
                return self._with(at, replace(one, pictures=()), "pictures")
        for at in reversed(range(len(self.incidents))):
            if self.incidents[at].is_told:
                return self._with(at, replace(self.incidents[at], is_told=False), "a section")
        kept = len(self.incidents) // 2
        if not kept:
            return None
        return replace(self, incidents=self.incidents[:kept], too_large=f"the worst {kept:,} incidents have a row")

    def _with(self, at: int, less: Incident, what: str) -> Contents:
        incidents = [*self.incidents[:at], less, *self.incidents[at + 1 :]]
        return replace(self, incidents=incidents, too_large=f"the worst {at:,} incidents have {what}")
