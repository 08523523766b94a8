"""Brokers' logs: each is taken from where it was left, whatever it is called by now."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from pipelines.collecting.ledger import WINDOW, TakenLog, signature, write
from pipelines.collecting.places import why
from pipelines.collecting.stored import Packed
from pipelines.parse.files.content import Content, LineFormat, content_of, lines_of
from pipelines.recording.prints import digest_of
from pipelines.recording.reading import LONGEST_LINE, Outcome, is_packed, read_chunks
from pipelines.recording.recording import Manifest, Recording, Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pipelines.collecting.ledger import TakenFiles
    from pipelines.collecting.outcome import Gathered
    from pipelines.collecting.redaction import Redactor

_PACKED: Final = re.compile(r"(?:\.(?:gz|zst))+$")
_KAFKAS: Final = re.compile(r"(?:kafka-request|server|state-change|controller|kafka|kafkaServer)\.(?:log|out)[\d.-]*")
_QUIET_S: Final = 60  # nothing was written for so long: a last line without an end gets none
_SAVED_S: Final = 10
_UNKNOWN: Final = Recording("-", "", (), Manifest())
RENAMED: Final = "was renamed while it was read: the next collect takes it"
_CUT: Final = re.compile(rb"\bpartition=([^\s,\]]+-\d+)[,\] ].{0,300}?[Tt]runcating to (?:offset )?(\d+)")


class LogTaker:
    """Takes logs into a recording."""

    def __init__(self, root: Path, ledger: TakenFiles, gathered: Gathered, redactor: Redactor | None) -> None:
        """Index what was taken before."""
        self.cuts: dict[tuple[int, str], set[int]] = defaultdict(set)  # broker, partition -> offsets it was cut to
        self._root = root
        self._ledger = ledger
        self._gathered = gathered
        self._redactor = redactor
        self._by_head: dict[tuple[int, int, str], list[TakenLog]] = defaultdict(list)
        for entry in ledger.logs:
            self._by_head[entry.broker, entry.head_bytes, entry.head].append(entry)
        self._targets = {entry.target for entry in ledger.logs}
        self._saved = time.monotonic()

    def take(self, broker: int, path: Path) -> None:
        """Take what is new of a log; a file that is none is passed over, one that cannot be read is named."""
        try:
            self._take(broker, path)
        except OSError as error:
            self._gathered.unread.append(f"{path}: {why(error)}")
        if time.monotonic() - self._saved > _SAVED_S:
            write(self._root, self._ledger)
            self._saved = time.monotonic()

    def _take(self, broker: int, path: Path) -> None:
        now = signature(path)
        if any(entry.seen == now and entry.broker == broker and self._is_there(entry) for entry in self._ledger.logs):
            self._gathered.unchanged += 1
            return
        begin = _first(path)
        entry = self._known(broker, path, begin)
        if entry is None:
            lines = _format_of(path, begin)
            if lines is None:
                self._gathered.passed_over.append(str(path))
                return
            entry = TakenLog(broker, self._target(broker, path.name, begin), 0)
        self._continue(entry, path, begin, now)

    def _is_there(self, entry: TakenLog) -> bool:
        target = self._root / entry.target
        return target.exists() and target.stat().st_size >= entry.stored

    def _known(self, broker: int, path: Path, begin: bytes) -> TakenLog | None:
        """Return the log that the file is, or the continuation of; the longest if several fit."""
        lengths = {length for other, length, _ in self._by_head if other == broker and length <= len(begin)}
        found = [entry for n in lengths for entry in self._by_head.get((broker, n, digest_of(begin[:n])), ())]
        for entry in sorted(found, key=lambda entry: -entry.taken):
            if self._is_there(entry) and digest_of(_window(path, entry.taken)) == entry.tail:
                return entry
        return None

    def _target(self, broker: int, name: str, begin: bytes) -> str:
        """Return a name that stays when the source is renamed: its name now, and a digest of its first line."""
        plain = _PACKED.sub("", name)
        if self._redactor is not None and not _KAFKAS.fullmatch(plain):
            plain = "log"
        line = begin.partition(b"\n")[0]
        first = f"logs/node-{broker}/{plain}.{digest_of(line)[:8]}"
        target, number = f"{first}.zst", 1
        while target in self._targets:
            number += 1
            target = f"{first}-{number}.zst"
        return target

    def _continue(self, entry: TakenLog, path: Path, begin: bytes, now: list[int]) -> None:
        """Add to a log what stands in the file behind what was taken."""
        lines = _format_of(path, begin)
        redacted = self._redactor.log(lines) if self._redactor is not None and lines is not None else None
        is_quiet = is_packed(str(path)) or time.time() - path.stat().st_mtime > _QUIET_S
        taken, last, is_whole = entry.taken, _window(path, entry.taken), False
        target = self._root / entry.target
        pieces = _whole_lines(_behind(path, entry.taken), rest=is_quiet)
        first = next(pieces, None)
        if first is None:
            entry.seen = now if _length_is(path, entry.taken) else []
            self._gathered.unchanged += 1
            return
        with Packed(target, after=entry.stored) as fresh:
            for piece in _chain(first, pieces):
                fresh.take(piece if redacted is None else redacted.block(piece))
                self._note_cuts(entry.broker, piece)
                taken += len(piece)
                last = (last + piece)[-WINDOW:]
            if signature(path)[:2] != now[:2]:
                raise OSError(RENAMED)
            is_whole = _length_is(path, taken)
        is_new = not entry.taken
        self._gathered.bytes += taken - entry.taken
        entry.taken, entry.tail, entry.seen = taken, digest_of(last), now if is_whole else []
        entry.stored = target.stat().st_size
        if is_new:
            entry.head_bytes = min(WINDOW, taken, len(begin))
            entry.head = digest_of(begin[: entry.head_bytes])
            self._by_head[entry.broker, entry.head_bytes, entry.head].append(entry)
            self._ledger.logs.append(entry)
            self._targets.add(entry.target)
        (self._gathered.new if is_new else self._gathered.grown).append(entry.target)

    def _note_cuts(self, broker: int, piece: bytes) -> None:
        if b"runcating to " in piece:
            for partition, offset in _CUT.findall(piece):
                self.cuts[broker, partition.decode("utf-8", "replace")].add(int(offset))


def _chain(first: bytes, others: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from others


def _first(path: Path) -> bytes:
    """Return the first bytes of a file, unpacked."""
    found = b""
    for chunk in read_chunks(str(path), Outcome()):
        found += chunk
        if len(found) >= 1 << 16:
            break
    return found


def _format_of(path: Path, begin: bytes) -> LineFormat | None:
    """Return how the lines of a log are laid out; None if it is none, or has no whole line yet."""
    lines = begin.decode("utf-8", "replace").split("\n")[:-1]
    if content_of(Source(str(path), path.name, None, 0), lines) is not Content.LOG:
        return None
    found = lines_of(_UNKNOWN, lines)
    return None if isinstance(found, str) else found


def _behind(path: Path, start: int) -> Iterator[bytes]:
    """Yield what stands behind the first `start` bytes of a file, unpacked."""
    if not is_packed(str(path)):
        yield from read_chunks(str(path), Outcome(), start) if start < path.stat().st_size else ()
        return
    for chunk in read_chunks(str(path), Outcome()):
        if start < len(chunk):
            yield chunk[start:]
        start = max(start - len(chunk), 0)


def _window(path: Path, end: int) -> bytes:
    """Return the bytes before a place in a file, unpacked; nothing if the file is shorter."""
    begin = max(end - WINDOW, 0)
    if not is_packed(str(path)):
        with path.open("rb") as file:
            file.seek(begin)
            found = file.read(end - begin)
        return found if len(found) == end - begin else b""
    found, place = b"", 0
    for chunk in read_chunks(str(path), Outcome()):
        found = (found + chunk[: end - place])[-WINDOW:]
        place += len(chunk)
        if place >= end:
            return found
    return b""


def _length_is(path: Path, taken: int) -> bool:
    """Whether nothing of the file is left to take; of a packed one nothing ever is."""
    return is_packed(str(path)) or path.stat().st_size == taken


def _whole_lines(chunks: Iterator[bytes], *, rest: bool) -> Iterator[bytes]:
    """Yield pieces that end with a line; of `rest`, also the last one, which has no end."""
    carry: list[bytes] = []
    for chunk in chunks:
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield b"".join((*carry, chunk[:cut]))
            carry = [chunk[cut:]] if chunk[cut:] else []
        else:
            carry.append(chunk)
        if sum(map(len, carry)) > LONGEST_LINE:
            yield b"".join(carry)
            carry = []
    if rest and carry:
        yield b"".join(carry)
