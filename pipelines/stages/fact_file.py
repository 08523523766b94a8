"""A file in which facts wait that are too many for memory."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from pipelines.spark.packed import rows_of_buffer, stream_of
from pipelines.stages.spilled_events import scratch


class FactFile:
    """A file that facts are written to; it is gone when this object is."""

    def __init__(self) -> None:
        """Nothing is written yet."""
        self.folder = TemporaryDirectory(prefix="tidemark-facts-", dir=scratch(), ignore_cleanup_errors=True)
        self.file = (Path(self.folder.name) / "facts").open("w+b", buffering=0)
        self.end = 0

    def append(self, rows: pa.Table) -> tuple[int, int]:
        """Write rows; return where they stand, and in how many bytes."""
        return self.append_stream(stream_of(rows))

    def append_stream(self, given: bytes | pa.Buffer) -> tuple[int, int]:
        """Write the rows of a stream; return the same."""
        stream = memoryview(given)
        at, size = self.end, len(stream)
        while stream:
            stream = stream[self.file.write(stream) :]
        self.end += size
        return at, size

    def read(self, at: int, size: int, wanted: tuple[str, ...] | None = None) -> pa.Table:
        """Return the rows that stand there, with all their columns or only the wanted ones."""
        return rows_of_buffer(self.buffer(at, size), wanted)

    def buffer(self, at: int, size: int) -> pa.Buffer:
        """Return the bytes of the stream that stands there."""
        return pa.py_buffer(os.pread(self.file.fileno(), size, at))
