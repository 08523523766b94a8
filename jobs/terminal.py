"""The terminal that a job's answer goes to: how wide it is, and whether it shows colours."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Final

# spark-submit reads the output of a Python driver, which so cannot see a terminal: spark-submit.sh says how wide it is.
SEEN: Final = "TIDEMARK_COLUMNS"
DEFAULT: Final = 100  # for a file, or whoever reads a pipe


def width() -> int:
    """Return how many columns there are."""
    seen = os.environ.get(SEEN, "")
    return int(seen) if seen.isdecimal() and int(seen) else shutil.get_terminal_size((DEFAULT, 24)).columns


def has_colour() -> bool:
    """Whether to colour: only on a terminal, and not where NO_COLOR is set (no-color.org)."""
    return (SEEN in os.environ or sys.stdout.isatty()) and not os.environ.get("NO_COLOR")
