"""Rows of `facts`, gathered column by column: a shape is the set of columns that one sort of line fills."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipelines.parse.layout import last_part
from schemas.facts import FACTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FACT_SCHEMA: pa.Schema = FACTS.arrow_schema
TEXT_LENGTH = 500
REJECTED_TEXT_LENGTH = 200
REJECTED_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field("recording_id", pa.string(), nullable=False),
        pa.field("source_file", pa.string(), nullable=False),
        pa.field("source_line", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("text", pa.string()),
    ]
)
_DOES_NOT_FIT = (pa.ArrowException, OverflowError, ValueError, TypeError)
_COMMON = ("fact_id", "source_line", "ts")


@dataclass(frozen=True, eq=False, slots=True)
class Shape:
    """What one sort of fact fills: `columns` per row, `constants` for all rows."""

    kind: str
    columns: tuple[str, ...]
    constants: tuple[tuple[str, Any], ...] = ()


@dataclass(slots=True)
class FileCounts:
    """What one file held."""

    lines: int = 0
    facts: int = 0
    rejected: int = 0
    repeated: int = 0  # facts that a line of the same millisecond had said already
    bytes: int = 0
    first_ts: int | None = None
    last_ts: int | None = None
    no_interest: Counter[tuple[str, str]] = field(default_factory=Counter)  # by level and logger
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)  # by kind and level
    silences: list[tuple[int, int]] = field(default_factory=list)  # longer than five seconds: from, to
    content: str = "nothing"  # what sort of file it is
    layout: str | None = None  # how its lines are laid out, for a log

    def widen(self, ts: int) -> None:
        """Widen the time range."""
        self.first_ts = ts if self.first_ts is None else min(ts, self.first_ts)
        self.last_ts = ts if self.last_ts is None else max(ts, self.last_ts)

    def saw(self, ts: int) -> None:
        """Widen the time range, and note a silence of more than five seconds."""
        last = self.last_ts
        if last is None or self.first_ts is None:
            self.first_ts = self.last_ts = ts
        elif ts > last:
            if ts - last > GAP:
                self.silences.append((last, ts))
            self.last_ts = ts
        elif ts < self.first_ts:
            self.first_ts = ts


GAP = 5_000_000


class FactId:
    """The identity of a line's facts: broker and normalised line, and what tells the rows of one line apart."""

    __slots__ = ("_hash",)

    def __init__(self, text: str) -> None:
        """Hash what all rows of the line share."""
        self._hash = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16)

    def row(self, *discriminators: object) -> str:
        """The identity of one row."""
        if not discriminators:
            return self._hash.hexdigest()
        copy = self._hash.copy()
        copy.update(repr(discriminators).encode("utf-8", "replace"))
        return copy.hexdigest()


def line_identity(broker_id: int | None, local: int, level: str, logger: str, text: str) -> FactId:
    """Identity of a stamped log line. Equal lines of one broker within one millisecond are one fact."""
    return FactId(f"{broker_id}|{local}|{level}|{last_part(logger)}|{text}")


class FactSink:
    """Gathers one file's facts and rejected lines, and hands them out as Arrow batches of the tables' schemas."""

    def __init__(self, recording_id: str, source_file: str, broker_id: int | None) -> None:
        """Remember what is the same in all rows of the file."""
        self.counts = FileCounts()
        self.broker_id = broker_id
        self._same = {"recording_id": recording_id, "source_file": source_file, "broker_id": broker_id}
        self._rows: dict[Shape, list[tuple[Any, ...]]] = {}
        self._rejected: list[tuple[int, str, str | None]] = []
        self._moment: int | None = None
        self._seen: set[str] = set()  # facts of this moment: a line said twice in one millisecond is one fact
        self.waiting = 0
        self.ts_errors: dict[int, int] = {}  # by line: how far its time may be off, where a stamp is a whole second

    def add(
        self, shape: Shape, fact_id: str, line: int, ts: int | None, values: Sequence[Any], level: str = ""
    ) -> None:
        """Add one fact; `values` stand in the order of the shape's columns."""
        if ts != self._moment:
            self._moment = ts
            self._seen.clear()
        elif fact_id in self._seen:
            self.counts.repeated += 1
            return
        self._seen.add(fact_id)
        rows = self._rows.get(shape)
        if rows is None:
            rows = self._rows[shape] = []
        rows.append((fact_id, line, ts, *values))
        self.waiting += 1
        self.counts.facts += 1
        self.counts.kinds[shape.kind, level] += 1

    def reject(self, line: int, reason: str, text: str | None) -> None:
        """Say that a line tells nothing for certain, and why."""
        shown = None if text is None else text[:REJECTED_TEXT_LENGTH].replace("\x00", "\ufffd")
        self._rejected.append((line, reason, shown))
        self.counts.rejected += 1

    def take_facts(self) -> pa.RecordBatch | None:
        """The facts gathered since the last call, as one batch; None where there are none."""
        if not self._rows:
            return None
        batches = [self._batch(shape, rows) for shape, rows in self._rows.items()]
        self._rows = {}
        self.ts_errors.clear()
        self.waiting = 0
        return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]

    def _batch(self, shape: Shape, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        try:
            return self._columns(shape, rows)
        except _DOES_NOT_FIT:
            return self._columns(shape, [row for row in rows if self._fits(shape, row)])

    def _columns(self, shape: Shape, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        names = (*_COMMON, *shape.columns)
        columns: dict[str, Iterable[Any]] = dict(
            zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True)
        )
        if self.ts_errors:
            columns["ts_error_us"] = [self.ts_errors.get(row[1]) for row in rows]
        constants = {**self._same, "kind": shape.kind, **dict(shape.constants)}
        count = len(rows)
        arrays = []
        for item in FACT_SCHEMA:
            if item.name in columns:
                arrays.append(pa.array(columns[item.name], item.type))
            else:
                arrays.append(_repeated(constants.get(item.name), item.type, count))
        return pa.RecordBatch.from_arrays(arrays, schema=FACT_SCHEMA)

    def _fits(self, shape: Shape, row: tuple[Any, ...]) -> bool:
        """Whether the row fits its columns' types; a line with a number beyond them is rejected."""
        try:
            self._columns(shape, [row])
        except _DOES_NOT_FIT as error:
            self.counts.facts -= 1
            self.reject(row[1], f"a value does not fit its column: {error}"[:300], None)
            return False
        return True

    def take_rejected(self) -> pa.RecordBatch | None:
        """The rejected lines gathered since the last call; None where there are none."""
        if not self._rejected:
            return None
        lines, reasons, texts = zip(*self._rejected, strict=True)
        count = len(lines)
        self._rejected = []
        arrays = [
            _repeated(self._same["recording_id"], pa.string(), count),
            _repeated(self._same["source_file"], pa.string(), count),
            pa.array(lines, pa.int64()),
            pa.array(reasons, pa.string()),
            pa.array(texts, pa.string()),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=REJECTED_SCHEMA)


def _repeated(value: object, type_: pa.DataType, count: int) -> pa.Array:
    return pa.nulls(count, type_) if value is None else pa.repeat(pa.scalar(value, type_), count)


def cut_text(text: str) -> str:
    """A message as `facts.text` keeps it."""
    return text[:TEXT_LENGTH]
