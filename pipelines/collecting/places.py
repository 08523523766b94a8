"""What lies in the folders that are named for a broker: its logs, its log directories (data), its properties."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

# What a broker keeps at the top of each of its log directories.
_MARKS: Final = {"meta.properties", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"}
# Files of a log folder that name people or machines, or are large, and say nothing of replication.
_OF_NO_USE: Final = re.compile(r"kafka-authorizer|log-cleaner|[\w-]*gc\.log|.*\.(?:hprof|pid|lck|jar|jsa|so|sh|bat)$")


class Unread(Exception):  # noqa: N818 - not an error: it is reported, and the rest goes on
    """A file or folder that cannot be read, and why."""


@dataclass(slots=True)
class Places:
    """Files and folders of one broker."""

    broker: int
    logs: list[Path] = field(default_factory=list)  # candidates: their content decides
    data: list[Path] = field(default_factory=list)
    properties: list[Path] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def why(error: OSError) -> str:
    """Return what the system says is wrong, in its words."""
    return (error.strerror or str(error)).lower()


def look(broker: int, named: Iterable[str], into: Path) -> Places:
    """Find out what each named file or folder is. `into` is left out, wherever it lies."""
    places = Places(broker)
    for name in named:
        path = Path(name).absolute()
        try:
            if path.is_dir():
                _look_into(path, places, into, frozenset())
            elif path.suffix == ".properties":
                path.stat()
                places.properties.append(path)
            else:
                path.stat()
                places.logs.append(path)
        except OSError as error:
            places.unread.append(f"{path}: {why(error)}")
    places.logs = [
        path for path in places.logs if path not in places.properties
    ]  # those may lie in a folder named, too
    if not places.data:
        places.data = [found for path in places.properties for found in _log_directories(path) if found.is_dir()]
    return places


def _look_into(folder: Path, places: Places, into: Path, above: frozenset[tuple[int, int]]) -> None:
    """Sort the entries of a folder; a link that leads back up is not followed."""
    own = folder.stat()
    here = (own.st_dev, own.st_ino)
    if here in above or folder == into:
        return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        places.unread.append(f"{folder}: {why(error)}")
        return
    if _MARKS & {entry.name for entry in entries}:
        places.data.append(folder)
        return
    for entry in entries:
        if entry.name.startswith(".") or _OF_NO_USE.match(entry.name):
            continue
        try:
            mode = entry.stat().st_mode
            if stat.S_ISDIR(mode):
                _look_into(Path(entry.path), places, into, above | {here})
            elif stat.S_ISREG(mode):
                places.logs.append(Path(entry.path))
        except OSError as error:
            places.unread.append(f"{entry.path}: {why(error)}")


def settings_in(path: Path) -> dict[str, str]:
    """Return the settings of a properties file as Java reads it: comments, `=`, `:` or a space, continued lines."""
    found: dict[str, str] = {}
    waiting = ""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        text = waiting + line.strip()
        if not waiting and text.startswith(("#", "!")):
            continue
        if text.endswith("\\") and not text.endswith("\\\\"):
            waiting = text[:-1]
            continue
        waiting = ""
        name, _, value = re.sub(r"\s*[=:\s]\s*", "=", text, count=1).partition("=")
        if name:
            found[name] = value
    return found


def _log_directories(properties: Path) -> list[Path]:
    """Return the log directories that a broker's settings name."""
    settings = settings_in(properties)
    listed = settings.get("log.dirs") or settings.get("log.dir") or ""
    every = [*listed.split(","), settings.get("metadata.log.dir", "")]
    return [Path(name.strip()) for name in dict.fromkeys(every) if name.strip()]
