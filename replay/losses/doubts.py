"""Leader epochs about which lines contradict each other, or whose leader is unknown.

Findings about the former are `bounded` at best. The leader of the latter may have had earlier records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from replay.engine.codes import CONTRADICTED, LEADER_UNKNOWN
from replay.protocol.state import BOUNDED, UNKNOWN
from schemas.model import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.arrays.records import Records
    from replay.losses.findings import Finding

LINES_AGREE = "lines_agree"  # the check in `conformance`
CERTAIN = EVIDENCE[:BOUNDED]


R = TypeVar("R")


@dataclass(slots=True)
class Doubts:
    """The contradictions of one partition."""

    epochs: set[int] = field(default_factory=set)
    # those of `epochs` in which no missing line explains the contradiction
    broken: set[int] = field(default_factory=set)
    unled: set[int] = field(default_factory=set)  # epochs whose leader is unknown
    first: dict[str, Any] | None = None  # the first contradiction
    lines: set[tuple[str, int]] = field(default_factory=set)

    def take(self, observations: Iterable[dict[str, Any]]) -> None:
        """Take in observations in replay order; those about other things are skipped."""
        for row in observations:
            if row["cause"] == LEADER_UNKNOWN:
                self.unled.add(row["leader_epoch"])
            elif row["cause"] == CONTRADICTED:
                self.first = self.first or row
                self.lines.add((row["source_file"], row["source_line"]))
                if row["leader_epoch"] is not None:
                    self.epochs.add(row["leader_epoch"])
                    self.broken |= {row["leader_epoch"]} if row["evidence"] == EVIDENCE[UNKNOWN] else set()

    def doubt(self, found: Finding) -> None:
        """Lower the certainty of a finding. A later leader that is unknown may have had the records in any case."""
        first, last = found.epochs
        if any(first <= epoch <= last for epoch in self.broken) or any(epoch > last for epoch in self.unled):
            found.doubt()
        found.stated = found.stated and not any(epoch >= first for epoch in self.epochs)

    def graded(self, rows: Records[R]) -> Records[R]:
        """A copy of rows from the fold; those of epochs in doubt are `bounded` at best."""
        out = rows.copy()
        if self.epochs and len(rows):
            doubted = np.isin(out["epoch"], list(self.epochs)) & (out["evidence"] < BOUNDED)
            out["evidence"][doubted] = BOUNDED
        return out

    def grade(self, rows: Iterable[dict[str, Any]]) -> None:
        """Do the same in place for rows with a `leader_epoch` and an `evidence` in words."""
        for row in rows:
            if row["leader_epoch"] in self.epochs and row["evidence"] in CERTAIN:
                row["evidence"] = EVIDENCE[BOUNDED]

    def checks(self) -> list[dict[str, Any]]:
        """A row of `conformance` if lines contradict each other."""
        if self.first is None:
            return []
        told = {"compared": len(self.lines), "matched": 0, "first_mismatch_seq": self.first["seq"]}
        return [{"check": LINES_AGREE, **told, "note": self.first["note"]}]
