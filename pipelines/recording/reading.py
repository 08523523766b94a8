"""Reads files as streams of lines: plain, gzip or zstd by their first bytes; of a broken stream, what is readable."""

from __future__ import annotations

import zlib
from codecs import BOM_UTF8
from dataclasses import dataclass
from os import SEEK_END
from typing import TYPE_CHECKING, Any, BinaryIO

import zstandard

from pipelines.recording.listing import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

CHUNK = 1 << 20
PIECE = (
    1 << 9
)  # of a packed file, which may grow two hundred thousandfold (zstd's runs of one byte); logs do twelvefold
MOST_GROWTH = 2000  # more than gzip can reach: a large file that grows more is no log
LARGE = 1 << 28
GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_MAGIC = 4  # bytes
LONGEST_LINE = 32 << 20  # no line of a log is longer; a longer one is cut


@dataclass(slots=True)
class Outcome:
    """How the reading ended: `broken` says why a stream stopped early, `unended` that the last line has no end."""

    broken: str | None = None
    unended: bool = False
    bytes: int = 0
    crc: int = 0  # of the bytes as stored


def _chunks(stream: BinaryIO | pa.NativeFile) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK):
        yield bytes(chunk)


def _inflated(chunks: Iterator[bytes], kind: str, make: Callable[[], Any], outcome: Outcome) -> Iterator[bytes]:
    """Decompress all members or frames chunk by chunk; stop at the first byte that cannot be read."""
    inflate, begun = make(), False
    taken = given = 0
    waiting: list[bytes] = []
    size = 0
    for piece in (chunk[start : start + PIECE] for chunk in chunks for start in range(0, len(chunk), PIECE)):
        rest = piece
        taken += len(piece)
        while rest:
            try:
                out = inflate.decompress(rest)
            except (zlib.error, zstandard.ZstdError) as error:
                outcome.broken = f"the {kind} stream is damaged from here on: {error}"
                yield b"".join(waiting)
                return
            begun = True
            if out:
                waiting.append(out)
                size += len(out)
            if not inflate.eof:
                break
            rest = inflate.unused_data.lstrip(b"\0")
            inflate, begun = make(), False
        if size >= CHUNK:
            yield b"".join(waiting)
            given, size, waiting = given + size, 0, []
        if given > LARGE and given > MOST_GROWTH * taken:
            outcome.broken = f"the {kind} stream grows more than {MOST_GROWTH} times, which no log does: not read on"
            return
    yield b"".join(waiting)
    if begun:
        outcome.broken = f"the {kind} stream is cut off here"


def read_chunks(path: str, outcome: Outcome, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """Yield the file's bytes, decompressed, from `start` on; `end`: where the range that is read ends, if it is one.

    Of a range of a plain file, `outcome` does not tell how many bytes were read.
    """
    with opened(path) as stream:
        if start or end is not None:
            is_plain = not _is_magic(bytes(stream.read(_MAGIC)))
            stream.seek(start if is_plain else 0)
            if is_plain:
                yield from _chunks(stream)
                return
        chunks = _chunks(stream)
        first = next(chunks, b"")
        outcome.bytes, outcome.crc = len(first), zlib.crc32(first)

        def counted() -> Iterator[bytes]:
            yield first
            for chunk in chunks:
                outcome.bytes += len(chunk)
                outcome.crc = zlib.crc32(chunk, outcome.crc)
                yield chunk

        if first.startswith(GZIP_MAGIC):
            data = _inflated(counted(), "gzip", lambda: zlib.decompressobj(wbits=31), outcome)
        elif first.startswith(ZSTD_MAGIC):
            data = _inflated(counted(), "zstd", zstandard.ZstdDecompressor().decompressobj, outcome)
        else:
            data = counted()
        yield from _behind(data, start)


def _behind(chunks: Iterator[bytes], start: int) -> Iterator[bytes]:
    """Leave out so many bytes."""
    left = start
    for chunk in chunks:
        if left < len(chunk):
            yield chunk[left:]
        left = max(left - len(chunk), 0)


def read_lines(path: str, outcome: Outcome, start: int = 0, end: int | None = None) -> Iterator[list[str]]:
    """Yield the file's lines (`read_blocks`), many per list."""
    yield from map(split_lines, read_blocks(path, outcome, start, end))


def read_blocks(path: str, outcome: Outcome, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """Yield the file's lines, many per block; each ends with a line end.

    Of a range, yield the lines that begin in it: a line across its start belongs to the previous range.
    """
    carry: list[bytes] = []
    skip = start > 0
    place = start - 1 if skip else 0
    for chunk in read_chunks(path, outcome, place, end):
        data = chunk
        if skip:
            cut = data.find(b"\n") + 1
            place += cut or len(data)
            if not cut:
                continue
            skip, data = False, data[cut:]
        cut = data.rfind(b"\n") + 1
        if not cut:
            carry.append(data)
            if end is None and sum(map(len, carry)) > LONGEST_LINE:
                yield b"".join((*carry, b"\n"))
                carry = []
            continue
        block = b"".join((*carry, data[:cut]))
        carry = [data[cut:]]
        if end is None:
            yield block
            continue
        if place + len(block) >= end:
            last = block.find(b"\n", max(end - place - 1, 0)) + 1 if end > place else 0
            if last:
                yield block[:last]
            return
        place += len(block)
        yield block
    rest = b"".join(carry)
    if rest and not skip and (end is None or place < end):
        outcome.unended = True
        yield rest + b"\n"


def split_lines(block: bytes) -> list[str]:
    """Split bytes of whole lines; line ends, and a byte order mark at the beginning, are removed.

    Bytes that are not UTF-8 become U+FFFD.
    """
    lines = block.removeprefix(BOM_UTF8).decode("utf-8", "replace").split("\n")
    lines.pop()
    return [line.removesuffix("\r") for line in lines] if b"\r" in block else lines


def is_packed(path: str) -> bool:
    """Whether the file is compressed, by its first bytes."""
    with opened(path) as stream:
        return _is_magic(bytes(stream.read(_MAGIC)))


def _is_magic(first: bytes) -> bool:
    return first.startswith((GZIP_MAGIC, ZSTD_MAGIC))


def newlines(path: str, start: int, end: int) -> int:
    """Return how many lines end within a byte range of a plain file."""
    with opened(path) as file:
        file.seek(start)
        left, found = end - start, 0
        while left > 0 and (chunk := bytes(file.read(min(CHUNK, left)))):
            found += chunk.count(b"\n")
            left -= len(chunk)
        return found


def tail(path: str, length: int = 1 << 16) -> list[str]:
    """Return the last lines of a plain file; the first of them may be cut."""
    with opened(path) as file:
        file.seek(max(file.seek(0, SEEK_END) - length, 0))
        return split_lines(bytes(file.read()) + b"\n")
