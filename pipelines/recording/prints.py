"""What tells one content from another: its first bytes, its length, and a checksum that goes on where a file grows.

All of it is of the decompressed bytes, so that a rolled file and its compressed copy are the same content.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, NamedTuple

from pipelines.recording.listing import opened
from pipelines.recording.reading import Outcome, is_packed, read_chunks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HEAD = 4096  # the bytes by which a content is looked up before any more is read
BLOCK = 1 << 16  # the bytes before the place where reading ended, which a file that merely grew still has
_START = (0, 1)  # CRC-32 and Adler-32 of nothing
# Lines that Kafka's tools write behind what they dump, if both go to one file: the next dump has more before them.
_REMARKS = (b"log4j:", b"SLF4J")


class Print(NamedTuple):
    """A content: its length, and checksums of the whole, up to its last whole line, and up to the places asked for."""

    length: int
    digest: str
    ended: int  # with the last whole line that is no remark of a tool
    ended_digest: str
    reached: dict[int, str]
    is_cut: bool = False  # its last line has no end
    broken: str | None = None  # why a compressed stream stops early


def digest_of(data: bytes) -> str:
    """Return a digest of a few bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def head_of(path: str) -> bytes:
    """Return the first bytes of the content."""
    found = b""
    for chunk in read_chunks(path, Outcome()):
        found += chunk
        if len(found) >= HEAD:
            break
    return found[:HEAD]


def block_before(path: str, place: int) -> str:
    """Return a digest of the bytes before a place in a plain file; "" for a packed one: it is read from its start."""
    if is_packed(path):
        return ""
    with opened(path) as stream:
        start = max(place - BLOCK, 0)
        stream.seek(start)
        return digest_of(bytes(stream.read(place - start)))


def print_of(path: str, marks: Iterable[int] = (), *, start: int = 0, begun: str = "", end: int | None = None) -> Print:
    """Read a content for its checksums; it may go on at `start`, with those up to there (`begun`).

    `end`: where a plain file ends for us, though it may have grown since it was listed.
    """
    outcome = Outcome()
    sums = _Sums(start, begun)
    ended, ended_digest = start, sums.digest
    reached: dict[int, str] = {start: sums.digest} if start in marks else {}
    waiting = sorted(mark for mark in marks if mark > start)
    last = b""
    for chunk in _up_to(read_chunks(path, outcome, start), None if end is None else end - start):
        rest = chunk
        while waiting and sums.length + len(rest) >= waiting[0]:
            mark = waiting.pop(0)
            taken = mark - sums.length
            line_end = _end_of_lines(rest[:taken])
            if line_end:
                ended, ended_digest = sums.length + line_end, sums.after(rest[:line_end])
            sums.add(rest[:taken])
            reached[mark] = sums.digest
            rest = rest[taken:]
        line_end = _end_of_lines(rest)
        if line_end:
            sums.add(rest[:line_end])
            ended, ended_digest = sums.length, sums.digest
        sums.add(rest[line_end:])
        last = chunk[-1:] or last
    is_cut = last not in {b"", b"\n"}
    return Print(sums.length, sums.digest, ended, ended_digest, reached, is_cut, outcome.broken)


def _end_of_lines(data: bytes) -> int:
    """Return where the last whole line ends that is no remark of a tool; 0 if no line ends there."""
    end = data.rfind(b"\n") + 1
    while end and data.startswith(_REMARKS, begin := data.rfind(b"\n", 0, end - 1) + 1):
        end = begin
    return end


class _Sums:
    """Two checksums that can go on from where they were."""

    def __init__(self, length: int, begun: str) -> None:
        self.length = length
        self._crc, self._adler = (int(begun[:8], 16), int(begun[8:], 16)) if begun else _START

    @property
    def digest(self) -> str:
        """Both as one text."""
        return f"{self._crc:08x}{self._adler:08x}"

    def add(self, data: bytes) -> None:
        """Go on over these bytes."""
        self._crc, self._adler = zlib.crc32(data, self._crc), zlib.adler32(data, self._adler)
        self.length += len(data)

    def after(self, data: bytes) -> str:
        """Return what the digest would be after these bytes."""
        other = _Sums(self.length, self.digest)
        other.add(data)
        return other.digest


def _up_to(chunks: Iterator[bytes], length: int | None) -> Iterator[bytes]:
    """Yield no more than so many bytes."""
    left = length
    for chunk in chunks:
        if left is not None:
            if left <= 0:
                return
            yield chunk[:left]
            left -= len(chunk)
        else:
            yield chunk
