"""Repeats a commit to a table that another run got ahead of, and says which rules of a table its rows broke."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from schemas.errors import TableContractError

if TYPE_CHECKING:
    from collections.abc import Callable

COMMIT_ATTEMPTS: Final = 8
ERRORS: Final = (Py4JJavaError, PySparkException)  # with which Spark says that Delta failed
# Another run committed in between; Delta's Python classes for it have no common base.
_LOST_RACES: Final = (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)

# Another run is creating the table: its directory exists, but its first commit does not, or did not when we looked.
_HALF_MADE_MARKS: Final = ("[DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION]", "[DELTA_TABLE_NOT_FOUND]")

# Delta's errors for rows that break the table's contract, most specific first: a replacing write reports every broken
# constraint as a mismatch with the actual one as its cause; for rows of another recording that is EXPRESSION.
_CONTRACT_MARKS: Final = (
    "[DELTA_NOT_NULL_CONSTRAINT_VIOLATED]",
    "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES]",
    "[DELTA_REPLACE_WHERE_MISMATCH]",
)
_FOREIGN_ROW_MARK: Final = "CHECK constraint EXPRESSION("


def attempt(table_name: str, action: Callable[[], object], check: Callable[[], None]) -> None:
    """Run the action, again if another run committed in between; TableContractError for broken contracts.

    `check` is called before each attempt, and raises what keeps the driver from it.
    """
    for turn in range(1, COMMIT_ATTEMPTS + 1):
        check()
        try:
            action()
        except (*_LOST_RACES, *ERRORS) as error:
            broken = _broken_contract(error)
            if broken is not None:
                message = f"{table_name}: {broken}; nothing was written"
                raise TableContractError(message) from error
            lost_race = is_half_made(error) or isinstance(error, _LOST_RACES)
            if not lost_race or turn == COMMIT_ATTEMPTS:
                raise
            time.sleep(0.1 * turn)
        else:
            return


def is_half_made(error: BaseException) -> bool:
    """Whether the table has a directory, but no first commit."""
    return any(mark in str(error) for mark in _HALF_MADE_MARKS)


def _broken_contract(error: Py4JJavaError | PySparkException) -> str | None:
    """Return Delta's own words for a broken constraint from anywhere in the chain of causes; None for other errors."""
    throwable = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    said: list[str] = []
    while throwable is not None:
        said.append(str(throwable.getMessage()))
        throwable = throwable.getCause()
    for mark in _CONTRACT_MARKS:
        for message in reversed(said):
            if mark in message and (mark == _CONTRACT_MARKS[-1] or _FOREIGN_ROW_MARK not in message):
                words = message[message.index(mark) + len(mark) :].split("[DELTA_", 1)[0]
                return " ".join(words.split())
    return None
