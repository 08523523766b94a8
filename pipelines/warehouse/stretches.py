"""Which stretches of a table are worth being written anew: those of many small files that follow each other in time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pipelines.warehouse.contract import sql_time

if TYPE_CHECKING:
    from collections.abc import Iterable

ALWAYS: Final = -(2**63)  # before any time: where rows without a time stand as well
FILES: Final = 16  # of full size that a stretch has at most: a query for one moment reads no more than these


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a table: its bytes and rows, and the first and last time of these (ALWAYS: none of them has one)."""

    size: int
    rows: int
    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """The rows from one time up to another, and how many bytes they are."""

    since_us: int
    until_us: int
    bytes: int

    def condition(self, column: str) -> str:
        """Return the SQL condition that a row is in it."""
        before = f"{column} < {sql_time(self.until_us)}"
        if self.since_us == ALWAYS:
            return f"({before} OR {column} IS NULL)"
        return f"{column} >= {sql_time(self.since_us)} AND {before}"


def stretches(files: Iterable[DataFile], until_us: int, file_bytes: int) -> list[Stretch]:
    """Return the stretches before a time in which small files follow each other; a file of half the size is not small.

    What was written anew is left alone, but for a last file that is still small. So however often this is done, a row
    is written a few times, not each time.
    """
    found: list[Stretch] = []
    small: list[DataFile] = []

    def end(at_us: int) -> None:
        if len(small) > 1:
            found.append(Stretch(small[0].first_us, at_us, sum(one.size for one in small)))
        small.clear()

    for file in sorted((one for one in files if one.first_us < until_us), key=lambda one: one.first_us):
        is_full = sum(one.size for one in small) >= FILES * file_bytes
        if small and file.first_us > small[-1].first_us and (is_full or file.size * 2 >= file_bytes):
            end(file.first_us)
        if file.size * 2 < file_bytes:
            small.append(file)
    end(until_us)
    return found
