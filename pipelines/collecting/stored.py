"""Files of the recording: each is written under another name and renamed, so that none is ever there in part."""

from __future__ import annotations

import gzip
import os
import shutil
from typing import TYPE_CHECKING, BinaryIO, Self

import zstandard

from pipelines.collecting.ledger import UNFINISHED
from pipelines.recording.reading import GZIP_MAGIC, ZSTD_MAGIC

if TYPE_CHECKING:
    from pathlib import Path

_LEVEL = 3


class Fresh:
    """A file that takes its target's place when it is whole."""

    def __init__(self, target: Path, *, after: int = 0) -> None:
        """`after`: so many bytes that the target has already stay, and the new ones follow them."""
        target.parent.mkdir(parents=True, exist_ok=True)
        self._target = target
        self._place = target.with_name(UNFINISHED + target.name)
        self.file: BinaryIO = self._place.open("wb")
        if after:
            with target.open("rb") as before:
                _copy_first(before, self.file, after)

    def keep(self) -> None:
        """Put it in its place."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        self._place.replace(self._target)

    def drop(self) -> None:
        """Forget it; nothing happens if it is in its place already."""
        self.file.close()
        self._place.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Keep it if all went well."""
        if kind is None:
            self.keep()
        self.drop()


def _copy_first(source: BinaryIO, target: BinaryIO, length: int) -> None:
    while length > 0 and (chunk := source.read(min(1 << 20, length))):
        target.write(chunk)
        length -= len(chunk)


class Packed(Fresh):
    """A file whose content is packed: what is written goes into one frame, behind those that stay."""

    def __init__(self, target: Path, *, after: int = 0) -> None:
        """`after`: so many bytes of the packed target stay."""
        super().__init__(target, after=after)
        self._packer = zstandard.ZstdCompressor(level=_LEVEL).compressobj()

    def take(self, content: bytes) -> None:
        """Write bytes."""
        self.file.write(self._packer.compress(content))

    def keep(self) -> None:
        """Put it in its place."""
        self.file.write(self._packer.flush())
        super().keep()


def write_text(target: Path, text: str, like: bytes = b"") -> None:
    """Write a text, packed as a file is that begins with the bytes `like`."""
    content = text.encode()
    if like.startswith(GZIP_MAGIC):
        content = gzip.compress(content, mtime=0)
    elif like.startswith(ZSTD_MAGIC):
        content = zstandard.ZstdCompressor(level=_LEVEL).compress(content)
    with Fresh(target) as fresh:
        fresh.file.write(content)


def copy(source: Path, target: Path) -> None:
    """Copy a small file as it is."""
    with source.open("rb") as begun, Fresh(target) as fresh:
        shutil.copyfileobj(begun, fresh.file)
