"""Text that comes from logs, made fit to be shown."""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: object) -> str:
    """Return text from a log with its control characters written out."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", str(text))
