"""Delta tables on this machine as deltalake has them, each opened once by a run.

Every commit makes Delta's log longer, and who opens a table reads all of it since the last checkpoint. A run asks for
its tables hundreds of times, which would make the runs of a schedule dearer and dearer.
"""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from deltalake import DeltaTable, PostCommitHookProperties
from deltalake.exceptions import DeltaError

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKPOINT: Final = 10  # commits from one checkpoint to the next, as Spark has it
NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_DRAWN: Final = re.compile("\x1b\\[[0-9;]*m|\u21b3")  # deltalake draws an error's causes as a tree, in colours


class Opened:
    """The tables that were opened."""

    def __init__(self) -> None:
        """None was."""
        self._tables: dict[Path, DeltaTable] = {}

    def newest(self, place: Path) -> DeltaTable:
        """Return a table as it stands now: of its log only what is new since it was last asked for is read."""
        with in_one_line():
            if (table := self._tables.get(place)) is None:
                table = self._tables[place] = DeltaTable(place)
            elif (place / "_delta_log" / file_of(table.version() + 1)).exists():  # quicker than to list the log
                table.update_incremental()
        return table


def file_of(version: int) -> str:
    """Return the name of a commit in Delta's log."""
    return f"{version:020d}.json"


def sum_up(table: DeltaTable) -> None:
    """Let readers begin at the version that was just committed, if they cannot at any of the last ones.

    Nothing depends on it: where there is no checkpoint, readers take one commit after the other. deltalake would do it
    in the commit itself (`NO_HOOKS`), which then fails though it stands.
    """
    if table.version() % CHECKPOINT == 0:
        with suppress(DeltaError, OSError):
            table.create_checkpoint()
            table.cleanup_metadata()  # commits of long ago, as the table's properties say


def place_of(table: DeltaTable) -> Path:
    """Return the path of a table on this machine."""
    return Path(unquote(urlsplit(table.table_uri).path))


@contextmanager
def in_one_line() -> Iterator[None]:
    """Let an error of the file system say in one line which file it is about, and why."""
    try:
        yield
    except OSError as error:
        raise type(error)(" ".join(_DRAWN.sub(" ", str(error)).split())) from error
