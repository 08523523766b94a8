"""What one check has compared so far, as `conformance` has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Tally:
    """Counts of one check; which event it first differs at does not depend on the order of the comparisons."""

    compared: int = 0
    matched: int = 0
    first: tuple[int, str] | None = None  # the first event that differs: its seq, and in words

    def note(self, seq: int, text: str, *, agrees: bool) -> None:
        """Count a comparison; `text`: how it differs, if it does not agree."""
        self.compared += 1
        self.matched += agrees
        if not agrees:
            self.first = (seq, text) if self.first is None else min(self.first, (seq, text))

    def rows(self, check: str) -> list[dict[str, Any]]:
        """Return the row of `conformance`; none if nothing was compared."""
        seq, note = self.first or (None, None)
        row = {"check": check, "compared": self.compared, "matched": self.matched}
        return [{**row, "first_mismatch_seq": seq, "note": note}] if self.compared else []
