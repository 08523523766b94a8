"""Events of a partition that wait in files until all of them are ordered."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pipelines.spark.packed import COMPRESSED
from replay.arrays.columns import numbers
from replay.arrays.ints import NEVER
from replay.order.operation_blocks import EVENT_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from replay.arrays.ints import Ints
    from replay.order.marks import Mark


def scratch() -> str | None:
    """Return the folder where Spark lets its workers write; None: the system's."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None


class SpilledEvents:
    """Events of one incarnation in replay order, as `OrderedEvents`, which wait in files."""

    def __init__(self) -> None:
        """There are none yet."""
        self.folder = TemporaryDirectory(prefix="tidemark-order-", dir=scratch(), ignore_cleanup_errors=True)
        self.key: dict[str, Any] = {}
        self.begins: list[int] = []  # seq of the first event that is taken from each file
        self.marks: Sequence[Mark] = ()

    def path(self, number: int) -> str:
        """Return where the events of a stretch wait."""
        return str(Path(self.folder.name) / f"{number}.arrow")

    @property
    def hashes(self) -> None:
        """Hashes of the events, if they are known; these are not."""

    def pieces(self, begin: int = 0) -> Iterator[pa.Table]:
        """Yield the events from seq `begin` on."""
        for number, (first, stop) in enumerate(zip(self.begins, [*self.begins[1:], NEVER], strict=True)):
            if stop <= begin:
                continue
            seq = first
            with pa.OSFile(self.path(number)) as file, pa.ipc.open_stream(file) as batches:
                for batch in batches:
                    piece = pa.Table.from_batches([batch.slice(max(begin - seq, 0), max(stop - seq, 0))])
                    piece = piece.slice(0, max(stop - max(begin, seq), 0))
                    seq += len(batch)
                    if len(piece):
                        yield piece

    def add(self, pieces: Iterable[pa.Table], begin: int) -> Ints:
        """Write the events of a stretch, which take the place of all from seq `begin` on; return their times."""
        times: list[Ints] = []
        path = self.path(len(self.begins))
        self.begins.append(begin)
        with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, EVENT_SCHEMA, options=COMPRESSED) as out:
            for piece in pieces:
                times.append(numbers(piece["ts"]))
                out.write_table(piece.combine_chunks())
        return np.concatenate(times)
