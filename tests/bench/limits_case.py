"""What the machine itself allows: the same request logs decompressed, their JSON decoded, the same rows as Parquet.

No pipeline that reads these bytes and writes these rows can be faster than the sum of the limits that it needs. Rates
are megabytes of log a second of CPU, whatever the contender does with them, so they can be compared with each other.
"""

from __future__ import annotations

import gzip
import hashlib
from itertools import starmap
from typing import TYPE_CHECKING

import msgspec
import polars as pl
import pyarrow.parquet as pq
import zstandard
from log_peers import LINE, polars_type
from made_shape import Shape
from measure import side_by_side
from workbench import ID, Line, folder_mb

import tidemark
from pipelines.recording.recording import discover
from pipelines.stages.run import execute

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from measure import Cost
    from workbench import Bench

BEGIN, END = b"Completed request:", b" (kafka.request"
WRITTEN = {"facts": "facts", "events": "replication_events"}


def case_limits(bench: Bench, events: int) -> list[Line]:
    """Each step that no run over these logs can do without, by the fastest library at hand."""
    folder = bench.recording(Shape(events=events // 2, partitions=60, elections=1))
    paths = sorted(folder.glob("logs/node-*/kafka-request.log"))
    text = b"".join(path.read_bytes() for path in paths)
    size = len(text) / 1e6
    contenders = {**of_bytes(paths, text), **of_json(text), **of_rows(bench, folder)}
    costs = side_by_side(contenders, bench.rounds)

    def line(name: str, cost: Cost) -> Line:
        rate = size / cost.cpu if cost.cpu else None
        return Line("limits, by core", name, None, "", cost, rate, "MB/s of log", note_of(bench, name, size))

    return list(starmap(line, costs.items()))


def note_of(bench: Bench, name: str, size: float) -> str:
    """How much Parquet a megabyte of log becomes, where that is what was written."""
    place = bench.place / f"limits-{name.rsplit(maxsplit=1)[-1]}.parquet"
    return f"{folder_mb(place.parent / place.name) / size:.2f} MB a MB of log" if place.is_dir() else f"{size:.0f} MB"


def of_bytes(paths: list[Path], text: bytes) -> dict[str, Callable[[], object]]:
    """Bytes alone: what is read, hashed, decompressed."""
    zipped, packed = gzip.compress(text, 6), zstandard.compress(text, 3)
    return {
        "read files that the system has in memory": lambda: [path.read_bytes() for path in paths],
        "hash every byte (BLAKE2b)": lambda: hashlib.blake2b(text).digest(),
        "decompress gzip": lambda: gzip.decompress(zipped),
        "decompress zstd": lambda: zstandard.decompress(packed),
    }


def of_json(text: bytes) -> dict[str, Callable[[], object]]:
    """The JSON of each line: all of it as objects, and seven fields of it as columns."""
    said = [line[line.index(BEGIN) + len(BEGIN) : line.index(END)] for line in text.splitlines() if BEGIN in line]
    column = pl.Series([one.decode() for one in said])
    decode = msgspec.json.Decoder().decode
    return {
        "decode JSON into objects (msgspec)": lambda: [decode(one) for one in said],
        "decode seven fields into columns (simd-json, by Polars)": lambda: column.str.json_decode(polars_type(LINE)),
    }


def of_rows(bench: Bench, folder: Path) -> dict[str, Callable[[], object]]:
    """The rows that these logs become, written as Parquet again."""
    place = str(bench.fresh("limits-out"))
    execute(bench.spark, place, ID, discover(str(folder), recording_id=ID), ("ingest",), {}, lambda *_: None)
    shown = tidemark.snapshot(place, ID)
    tables = {name: shown.arrow(table) for name, table in WRITTEN.items()}

    def write(name: str) -> None:
        target = bench.fresh(f"limits-{name}.parquet")
        target.mkdir()
        pq.write_table(tables[name], target / "part.parquet", compression="zstd")

    return {
        "write Parquet of the facts": lambda: write("facts"),
        "write Parquet of the events": lambda: write("events"),
    }
