"""Lists files below a folder, on this machine or elsewhere: paths, sizes, and the names that tables use for them."""

from __future__ import annotations

import os
import re
import stat
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple
from urllib.parse import quote, unquote

from pyarrow import fs

from schemas.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow import NativeFile

_HDFS: Final = ("hdfs", "viewfs")
_ORNAMENT: Final = re.compile(r"\x1b\[\d+m|↳")  # of messages that are made for a terminal


class File(NamedTuple):
    """A file. `path` opens it; `name` is its path below the folder, or the whole path if it was given by itself."""

    path: str
    name: str
    size: int
    modified_us: int | None = None  # when it was last written, microseconds since 1970, if the store tells


def is_local(path: str) -> bool:
    """Whether it is a path on this machine, not a URI."""
    return "://" not in path


def filesystem(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path within it."""
    scheme, apart, rest = path.partition("://")
    if not apart:
        return fs.LocalFileSystem(), str(Path(path).absolute())
    if scheme in _HDFS:
        authority, _, place = rest.partition("/")
        return _hdfs(f"{scheme}://{authority}/"), unquote(place)
    # What Hadoop calls s3a is s3 to Arrow: a bucket has one name for the recording and for the tables.
    found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(f"s3://{rest}" if scheme == "s3a" else path)
    return found


@cache
def _hdfs(root: str) -> fs.FileSystem:
    """Return HDFS by the client that deltalake brings: Arrow's own wants Hadoop's native library and a JVM per worker.

    It asks for a file piece by piece, and reads core-site.xml and hdfs-site.xml in HADOOP_CONF_DIR if they are there.
    """
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - 0.5 s and 90 MB, which other places do not pay for

    return fs.PyFileSystem(DeltaStorageHandler(root))


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
            yield File(
                f"{prefix}{quote(info.path)}{query}", info.path[len(base) :].lstrip("/"), info.size, _micros(info)
            )


def file_at(path: str) -> File:
    """Return the file at that path or URI; the path is its name."""
    if is_local(path):
        place = Path(path).absolute()
        found = place.stat()
        return File(str(place), _shown(str(place)), found.st_size, found.st_mtime_ns // 1000)
    system, base = filesystem(path)
    info = system.get_file_info(base)
    return File(path, path, info.size, _micros(info))


def _micros(info: fs.FileInfo) -> int | None:
    return None if info.mtime_ns is None else info.mtime_ns // 1000


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
            yield File(str(path), _shown(path.relative_to(root).as_posix()), found.st_size, found.st_mtime_ns // 1000)


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
    said = getattr(error, "strerror", None) or _ORNAMENT.sub("", str(error))
    return f"cannot be read: {' '.join(said.split())}"
