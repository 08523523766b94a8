"""What was collected already: by content, so that a rolled, renamed or packed file is known again.

The ledger lies hidden in the recording. It holds digests, sizes and the names in the recording, never a name or a path
of where the files came from.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from schemas.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDER: Final = ".collect"
UNFINISHED: Final = ".collecting-"  # what a name begins with until the file is whole
WINDOW: Final = 4096  # bytes at the beginning and before the end of what was taken that tell a log again
_VERSION: Final = 1


def signature(path: Path) -> list[int]:
    """Return what changes if a file is written to, but not if it is renamed."""
    found = path.stat()
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns]


@dataclass(slots=True)
class TakenLog:
    """A log, as far as it was taken. Its content is told by its first bytes, and by those before where it was left."""

    broker: int
    target: str  # name in the recording
    stored: int  # bytes of the target; what stands behind them was never noted, and is written again
    taken: int = 0  # bytes of the log itself, unpacked
    head: str = ""
    head_bytes: int = 0
    tail: str = ""
    seen: list[int] = field(default_factory=list)  # the source's signature when all of it had been taken


@dataclass(slots=True)
class TakenFiles:
    """Everything that was collected into one recording."""

    logs: list[TakenLog] = field(default_factory=list)
    copies: dict[str, list[int]] = field(default_factory=dict)  # target of a dump or copy -> signature of its source
    redacted: str | None = None  # which key made the pseudonyms; None: there are none
    has_topic_names: bool = True
    begun: bool = False

    def holds(self, target: str, source: Path, root: Path) -> bool:
        """Whether the target was made of the source as it is now."""
        return self.copies.get(target) == signature(source) and (root / target).exists()


@contextmanager
def ledger_of(recording: Path) -> Iterator[TakenFiles]:
    """Open the ledger of a recording, alone; it is written when the block ends, however it ends.

    Raises InputError if another collect is at work there, or the ledger cannot be read.
    """
    folder = recording / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        message = f"cannot be written: {(error.strerror or str(error)).lower()}"
        raise InputError(message, source=str(recording)) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = "another collect is writing to this recording"
            raise InputError(message, source=str(recording)) from None
        for left in recording.rglob(f"{UNFINISHED}*"):  # by a collect that was killed
            left.unlink()
        ledger = _read(folder / "ledger.json")
        try:
            yield ledger
        finally:
            write(recording, ledger)
    finally:
        os.close(handle)


def write(recording: Path, ledger: TakenFiles) -> None:
    """Write the ledger, whole or not at all."""
    place = recording / FOLDER / "ledger.json"
    fresh = place.with_suffix(".new")
    fresh.write_text(json.dumps({"version": _VERSION, **asdict(ledger)}), encoding="utf-8")
    fresh.replace(place)


def _read(place: Path) -> TakenFiles:
    if not place.exists():
        return TakenFiles()
    try:
        told: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
        if told.pop("version") != _VERSION:
            message = "was written by another version of Tidemark: collect into another folder"
            raise InputError(message, source=str(place))
        return TakenFiles(**{**told, "logs": [TakenLog(**entry) for entry in told["logs"]]})
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"is no ledger of a recording ({error}): remove it, and everything is collected again"
        raise InputError(message, source=str(place)) from error
