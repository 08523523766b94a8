"""Lays out a recording as it arrives: logs that are written, rolled, renamed, compressed and copied from run to run."""

from __future__ import annotations

import gzip
import itertools
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random


@dataclass
class ArrivingLog:
    """One broker's log: its lines in parts, one for each run, and where the files of the parts are."""

    folder: Path
    name: str
    parts: list[bytes]
    late: int  # runs by which everything of it comes later
    numbered: bool  # rolled as name.1, name.2, .. (the newest is 1), else by time, under a name that stays


@dataclass
class Arrivals:
    """A recording in `steps` runs; the last of them has every line."""

    root: Path
    logs: list[ArrivingLog]
    dump: list[bytes]
    rest: Path
    steps: int
    chance: Random

    def lay_out(self, step: int) -> None:
        """Make the folder what it is at this run: 1 to `steps`."""
        logs = self.root / "logs"
        shutil.rmtree(logs, ignore_errors=True)
        for log in self.logs:
            reached = step if step == self.steps else max(step - log.late, 0)
            self._write(log, reached, is_over=step == self.steps)
        held = len(self.dump) * step // self.steps
        (self.root / "cluster-metadata.dump.txt.gz").write_bytes(gzip.compress(b"".join(self.dump[:held]), mtime=step))
        if step == self.steps:
            shutil.copytree(self.rest, self.root / "segments")

    def _write(self, log: ArrivingLog, reached: int, *, is_over: bool) -> None:
        folder = self.root / log.folder
        folder.mkdir(parents=True, exist_ok=True)
        rolled = log.parts[:reached] if is_over else log.parts[: max(reached - 1, 0)]
        for k, data in enumerate(rolled):
            name = f"{log.name}.{len(rolled) - k}" if log.numbered else f"{log.name}.2026-11-21-{k:02}"
            packed = gzip.compress(data, mtime=0)
            files = {name: data, f"{name}.gz": packed, f"copy-of-{name}": data}
            # Still plain, compressed, both for a moment, or copied by somebody.
            for chosen in self.chance.choice([(name,), (name,), (f"{name}.gz",), (name, f"{name}.gz"), tuple(files)]):
                (folder / chosen).write_bytes(files[chosen])
        if reached and not is_over:
            written = log.parts[reached - 1]
            (folder / log.name).write_bytes(written[: self.chance.randint(0, len(written))])


def arrivals_of(source: Path, root: Path, chance: Random, lines: int) -> Arrivals:
    """Divide the first lines of each log of a recording at random into parts that arrive one after the other."""
    steps = chance.randint(2, 4)
    logs = []
    late = chance.choice(["node-1", "node-2", "none"])
    for log in sorted((source / "logs").glob("node-*/*.gz")):
        some = gzip.decompress(log.read_bytes()).splitlines(keepends=True)[:lines]
        cuts = [0, *sorted(chance.randint(0, len(some)) for _ in range(steps - 1)), len(some)]
        parts = [b"".join(some[a:b]) for a, b in itertools.pairwise(cuts)]
        logs.append(
            ArrivingLog(
                log.parent.relative_to(source),
                log.name.removesuffix(".gz"),
                parts,
                late=chance.randint(1, steps) if log.parent.name == late else 0,
                numbered=chance.random() < 0.3,
            )
        )
    dump = gzip.decompress((source / "cluster-metadata.dump.txt.gz").read_bytes()).splitlines(keepends=True)
    root.mkdir(parents=True)
    shutil.copy(source / "MANIFEST.json", root)
    return Arrivals(root, logs, dump, source / "segments", steps, chance)
