"""How a validation ended: by itself, since Great Expectations takes seconds to import, and some runs only ask this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Validation:
    """The results: rows of `expectation_results`, how many rules did not hold, and where the pages are."""

    results: list[dict[str, Any]]
    errors: int
    warnings: int
    docs_path: str
    rules: str = ""  # a digest of what was counted; empty: the results are an earlier run's
