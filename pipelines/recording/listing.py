"""Lists files below a folder, on this machine or elsewhere: paths, sizes, and the names that tables use for them."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple
from urllib.parse import quote

from pyarrow import fs

from schemas.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow import NativeFile


class File(NamedTuple):
    """A file. `path` opens it; `name` is its path below the folder, or the whole path if it was given by itself."""

    path: str
    name: str
    size: int


def is_local(path: str) -> bool:
    """Whether it is a path on this machine, not a URI."""
    return "://" not in path


def filesystem(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path within it."""
    if not is_local(path):
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(path)
        return found
    return fs.LocalFileSystem(), str(Path(path).absolute())


@contextmanager
def opened(path: str) -> Iterator[BinaryIO | NativeFile]:
    """Open a file for reading bytes; local files by Python itself, because names need not be UTF-8."""
    if is_local(path):
        with Path(path).open("rb") as file:
            yield file
        return
    system, place = filesystem(path)
    with system.open_input_file(place) as stream:
        yield stream


def is_folder(path: str) -> bool | None:
    """Return True for a folder, False for a file, None if there is neither; InputError if that cannot be found out."""
    try:
        if is_local(path):
            mode = Path(path).stat().st_mode
            return stat.S_ISDIR(mode) if stat.S_ISDIR(mode) or stat.S_ISREG(mode) else None
        system, base = filesystem(path)
        kind = system.get_file_info(base).type
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:  # includes Arrow's own errors
        raise InputError(_words(error), source=_shown(path)) from error
    return None if kind == fs.FileType.NotFound else bool(kind == fs.FileType.Directory)


def files_below(folder: str) -> Iterator[File]:
    """Yield every file below a folder, by name; InputError for what cannot be listed."""
    if is_local(folder):
        root = Path(folder).absolute()
        yield from sorted(_local(root, root, frozenset()))
        return
    try:
        system, base = filesystem(folder)
        found = system.get_file_info(fs.FileSelector(base, recursive=True))
    except (OSError, ValueError) as error:
        raise InputError(_words(error), source=folder) from error
    prefix, query = _around(folder, base)
    for info in sorted(found, key=lambda info: info.path):
        if info.type == fs.FileType.File:
            yield File(f"{prefix}{quote(info.path)}{query}", info.path[len(base) :].lstrip("/"), info.size)


def file_at(path: str) -> File:
    """Return the file at that path or URI; the path is its name."""
    if is_local(path):
        place = Path(path).absolute()
        return File(str(place), _shown(str(place)), place.stat().st_size)
    system, base = filesystem(path)
    return File(path, path, system.get_file_info(base).size)


def _local(root: Path, folder: Path, above: frozenset[tuple[int, int]]) -> Iterator[File]:
    """Yield the files of a folder and of those below it; a link that leads back up is not followed."""
    try:
        own = folder.stat()
        entries = list(os.scandir(folder))
    except OSError as error:
        raise InputError(_words(error), source=_shown(str(folder))) from error
    here = (own.st_dev, own.st_ino)
    if here in above:
        return
    for entry in entries:
        try:
            found = entry.stat()
        except OSError:  # a broken link
            continue
        path = Path(entry.path)
        if stat.S_ISDIR(found.st_mode):
            yield from _local(root, path, above | {here})
        elif stat.S_ISREG(found.st_mode):
            yield File(str(path), _shown(path.relative_to(root).as_posix()), found.st_size)


def _around(folder: str, base: str) -> tuple[str, str]:
    """Return what stands before and after the path in a URI: `s3://`, and `?region=...`."""
    head, mark, query = folder.partition("?")
    head = head.rstrip("/")
    for written in (base.rstrip("/"), quote(base.rstrip("/"))):
        if written and head.endswith(written):
            return head.removesuffix(written), mark + query
    scheme, _, place = head.partition("://")
    host = place.partition("/")[0]
    return (f"{scheme}://{host}" if base.startswith("/") else f"{scheme}://"), mark + query


def _shown(path: str) -> str:
    """Return a name that tables can hold: bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(path).decode("utf-8", "replace")


def _words(error: Exception) -> str:
    return f"cannot be read: {getattr(error, 'strerror', None) or error}"
