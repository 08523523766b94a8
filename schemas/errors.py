"""The errors a user can mend, one root, so that every job says them the same way."""

from __future__ import annotations


class TidemarkError(Exception):
    """Root of every error that Tidemark raises on purpose."""


class InputError(TidemarkError):
    """Raised when what the user gave cannot be used.

    `source` names the file or flag and `line` the 1-based line in it, where there is one; both stand in the message.
    """

    def __init__(self, message: str, *, source: str | None = None, line: int | None = None) -> None:
        """Keep the place apart from the words, and put it in front of them."""
        place = ":".join(str(part) for part in (source, line) if part is not None)
        super().__init__(f"{place}: {message}" if place else message)
        self.source = source
        self.line = line


class TableContractError(TidemarkError):
    """Raised when rows do not meet their table's schema, NOT NULL or CHECK constraints: nothing was written."""


class HeldError(TidemarkError):
    """Raised when another run holds the recording, or has taken it over: nothing more is written."""
