"""What is gathered from log directories: dumps of the metadata log and of segments, checkpoints, meta.properties."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from pipelines.collecting.dump_tool import command_for, dump
from pipelines.collecting.kept_records import without_secrets
from pipelines.collecting.ledger import signature
from pipelines.collecting.places import why
from pipelines.collecting.stored import write_text
from pipelines.recording.prints import digest_of
from replay.evidence.rows import METADATA_LOG

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from pipelines.collecting.ledger import TakenFiles
    from pipelines.collecting.outcome import Gathered
    from pipelines.collecting.redaction import Redactor

EPOCHS: Final = "leader-epoch-checkpoint"
_OF_DIRECTORY: Final = ("replication-offset-checkpoint", "meta.properties")
_PARTITION: Final = re.compile(r"(.+)-(\d{1,10})")
_BASE: Final = re.compile(r"(\d{20})\.log")
_HIDDEN: Final = ".cut-off-"
_SHOWN: Final = 5
_LIVE_S: Final = 10  # a node writes to the metadata log twice a second,
_BEHIND: Final = 1 << 16  # and one that follows lacks at most so many bytes


class PartitionLog(NamedTuple):
    """A partition's folder in a log directory."""

    broker: int
    topic: str
    partition: int
    folder: Path


class Wanted(NamedTuple):
    """Which segments to dump."""

    topics: Sequence[re.Pattern[str]]
    max_bytes: int
    cuts: Mapping[tuple[int, str], set[int]]  # broker, partition -> offsets that its log was cut to


class DumpTaker:
    """Takes what lies in log directories into a recording."""

    def __init__(
        self,
        root: Path,
        ledger: TakenFiles,
        gathered: Gathered,
        redactor: Redactor | None,
        tool: Sequence[str] | None,
    ) -> None:
        """`tool`: Kafka's dump tool; None: say what to run."""
        self._root = root
        self._ledger = ledger
        self._gathered = gathered
        self._redactor = redactor
        self._tool = tool

    def take_metadata(self, directories: Iterable[tuple[int, Path]]) -> None:
        """Dump the metadata log and its snapshots, of each node; a file that only repeats another's is left out.

        Which node's is the longest changes from one moment to the next. The dump that there is goes on, as one of
        another node would say everything again.
        """
        files = [
            (path, f"metadata/node-{broker}/{path.name}.dump.txt.zst")
            for broker, folder in directories
            for path in self._listed(folder / f"{METADATA_LOG}-0")
            if path.suffix in {".log", ".checkpoint"} and path.stat().st_size
        ]
        known = {path for path, target in files if target in self._ledger.copies}
        longest = set(without_copies([path for path, _ in files], known))
        self._dump({path: target for path, target in files if path in longest}, metadata=True)

    def take_segments(self, directories: Iterable[tuple[int, Path]], wanted: Wanted) -> None:
        """Dump the segments that matter, the most telling first, until they are too many bytes."""
        ranked: list[tuple[int, int, Path, str]] = []
        for log in (log for broker, folder in directories for log in self._logs(broker, folder)):
            segments = [path for path in self._listed(log.folder) if _BASE.fullmatch(path.name)]
            target = f"{self._place(log)}/{{}}.dump.txt.zst"
            self._hide_cut_off(target, segments)
            is_named = any(one.fullmatch(log.topic) for one in wanted.topics)
            if is_named:
                ranked += [(0, -number, path, target.format(path.name)) for number, path in enumerate(segments)]
            elif not log.topic.startswith("__"):
                cuts = wanted.cuts.get((log.broker, f"{log.topic}-{log.partition}"), set())
                telling = telling_segments([base_of(path) for path in segments], self._epochs(log.folder), cuts)
                ranked += [(1, rank, segments[k], target.format(segments[k].name)) for k, rank in telling.items()]
        left, chosen, out = wanted.max_bytes, {}, []
        for _, _, path, name in sorted(ranked, key=lambda one: (one[0], one[1], str(one[2]))):
            size = path.stat().st_size
            due = 0 if self._ledger.holds(name, path, self._root) else size
            if due <= left:
                left -= due
                chosen[path] = name
            else:
                out.append((path, size))
        if out:
            named = ", ".join(f"{path.parent.name}/{path.name}" for path, _ in out[:_SHOWN])
            more = f" and {len(out) - _SHOWN:,} more" if len(out) > _SHOWN else ""
            self._gathered.left_out.append(
                f"{len(out):,} segments of {sum(size for _, size in out):,} bytes exceed --max-bytes: {named}{more}"
            )
        self._dump(chosen, metadata=False)

    def take_checkpoints(self, directories: Iterable[tuple[int, Path]]) -> None:
        """Copy the checkpoints, and what says whose a log directory is."""
        for broker, folder in directories:
            within = f"segments/node-{broker}/disk.{self._tag(folder)}"
            for name in _OF_DIRECTORY:
                self._copy(folder / name, f"{within}/{name}")
            for log in self._logs(broker, folder):
                self._copy(log.folder / EPOCHS, f"{self._place(log)}/{EPOCHS}")

    def _tag(self, folder: Path) -> str:
        text = str(folder)
        return digest_of(text.encode())[:6] if self._redactor is None else self._redactor.names.word("", text)[:6]

    def _place(self, log: PartitionLog) -> str:
        topic = log.topic if self._redactor is None else self._redactor.names.topic(log.topic)
        return f"segments/node-{log.broker}/{topic}-{log.partition}"

    def _logs(self, broker: int, directory: Path) -> list[PartitionLog]:
        """Return the partitions of a log directory; those that are about to be deleted have other names."""
        found = []
        for path in self._listed(directory):
            named = _PARTITION.fullmatch(path.name)
            if named is not None and named[1] != METADATA_LOG and path.is_dir():
                found.append(PartitionLog(broker, named[1], int(named[2]), path))
        return found

    def _listed(self, folder: Path) -> list[Path]:
        try:
            return sorted(folder.iterdir()) if folder.is_dir() else []
        except OSError as error:
            self._gathered.unread.append(f"{folder}: {why(error)}")
            return []

    def _epochs(self, folder: Path) -> list[int]:
        """Return the start offsets of the leader epochs in a log's checkpoint, in order."""
        try:
            lines = (folder / EPOCHS).read_text().split("\n")[2:]
            return [int(line.split()[1]) for line in lines if line.strip()]
        except (OSError, ValueError, IndexError):
            return []

    def _copy(self, source: Path, target: str) -> None:
        try:
            if not source.exists():
                return
            if self._ledger.holds(target, source, self._root):
                self._gathered.unchanged += 1
                return
            now = signature(source)
            text = source.read_text(encoding="utf-8", errors="replace")
            write_text(self._root / target, text if self._redactor is None else self._redactor.small_file(target, text))
        except OSError as error:
            self._gathered.unread.append(f"{source}: {why(error)}")
            return
        self._note(target, now)

    def _dump(self, files: Mapping[Path, str], *, metadata: bool) -> None:
        """Dump files that are new or have changed, or say how to do it."""
        due = {path: name for path, name in files.items() if not self._ledger.holds(name, path, self._root)}
        self._gathered.unchanged += len(files) - len(due)
        if self._tool is None:
            made: dict[str, list[Path]] = {}
            for path, name in due.items():
                made.setdefault(name.rpartition("/")[0], []).append(path)
            for folder, paths in sorted(made.items()):
                target = self._root / folder / f"{paths[0].name}.dump.txt.gz"
                self._gathered.commands.append(command_for(paths, target, metadata=metadata))
            return
        before = {path: signature(path) for path in due}
        clean: Callable[[str], str] = without_secrets if metadata else str
        if self._redactor is not None:
            clean = self._redactor.metadata_line if metadata else self._redactor.segment_line
        failed = dump(self._tool, {path: self._root / name for path, name in due.items()}, clean, metadata=metadata)
        for path, name in due.items():
            if path in failed:
                self._gathered.unread.append(f"{path}: {failed[path]}")
            else:
                self._note(name, before[path])

    def _note(self, target: str, source: list[int]) -> None:
        (self._gathered.grown if target in self._ledger.copies else self._gathered.new).append(target)
        self._ledger.copies[target] = source

    def _hide_cut_off(self, target: str, segments: Sequence[Path]) -> None:
        """Hide dumps of segments above the log's last one: the log was cut below them, and they say what was."""
        if not segments:
            return
        prefix, _, suffix = target.partition("{}")
        last = base_of(segments[-1])
        for name in [one for one in self._ledger.copies if one.startswith(prefix) and one.endswith(suffix)]:
            base = _BASE.fullmatch(name.removeprefix(prefix).removesuffix(suffix))
            if base is not None and int(base[1]) > last:
                place = self._root / name
                if place.exists():
                    place.rename(place.with_name(_HIDDEN + place.name))
                del self._ledger.copies[name]
                self._gathered.notes.append(f"{name}: its log has been cut off below it, so it was hidden")


def base_of(segment: Path) -> int:
    """Return the first offset that a segment can hold."""
    return int(segment.name.partition(".")[0])


def telling_segments(bases: Sequence[int], epochs: Sequence[int], cuts: Iterable[int]) -> dict[int, int]:
    """Return which segments show a change of leader or a cut, by index, each with its rank: 0 is the most recent.

    These are the segments on both sides of where a leader epoch begins or the log was cut, and the last one. A log that
    has had one leader only, and was never cut, has nothing to tell.
    """
    places = sorted({*epochs[1:], *cuts}, reverse=True)
    found: dict[int, int] = {}
    for rank, place in enumerate(places):
        for offset in (place, place - 1):
            holding = [k for k, base in enumerate(bases) if base <= offset]
            if holding:
                found.setdefault(holding[-1], rank)
    if places and bases:
        found.setdefault(len(bases) - 1, 0)
    return found


def without_copies(files: Sequence[Path], known: Collection[Path] = ()) -> list[Path]:
    """Return the files without those that another of the same name has the whole content of.

    One of `known` is returned in place of one that is a moment ahead of it.
    """
    kept: list[Path] = []
    by_name: dict[str, list[Path]] = {}
    for path in files:
        by_name.setdefault(path.name, []).append(path)
    for alike in by_name.values():
        longest: list[Path] = []
        for path in sorted(alike, key=lambda one: (-one.stat().st_size, one not in known)):
            place = next((k for k, other in enumerate(longest) if _begins_with(other, path)), None)
            if place is None:
                longest.append(path)
            elif path in known and longest[place] not in known and _is_a_moment_behind(path, longest[place]):
                longest[place] = path
        kept += longest
    return kept


def _is_a_moment_behind(path: Path, other: Path) -> bool:
    """Whether both are being written to, so that the one will soon have what the other has."""
    try:
        mine, theirs = path.stat(), other.stat()
    except OSError:
        return False
    are_live = time.time() - min(mine.st_mtime, theirs.st_mtime) < _LIVE_S
    return are_live and theirs.st_size - mine.st_size <= _BEHIND


def _begins_with(path: Path, other: Path) -> bool:
    """Whether a file begins with the whole content of another."""
    try:
        with path.open("rb") as mine, other.open("rb") as theirs:
            while chunk := theirs.read(1 << 20):
                if mine.read(len(chunk)) != chunk:
                    return False
    except OSError:
        return False
    return True
