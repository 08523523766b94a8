"""Rows of `facts`, collected column by column: a shape is the set of columns that one sort of line fills."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.facts import FACTS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

FACT_SCHEMA: pa.Schema = FACTS.arrow_schema
TYPES: dict[str, pa.DataType] = dict(zip(FACT_SCHEMA.names, FACT_SCHEMA.types, strict=True))
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
# The range that both Python and Spark can represent, with days to spare for what is computed from a time.
EARLIEST = -62_135_000_000_000_000  # in the year 1
LATEST = 253_402_000_000_000_000  # in the year 9999
NO_TIME = "a time outside of the years 1 to 9999"
LARGEST = 1 << 62  # limit for numbers: no broker gets there, and results computed from it still fit
TOO_LARGE = "a number too large to be true"
_TOGETHER = 1000  # lines without times in which a repeated fact is noticed
_LINE = 3  # values per line: number, ts and level, then what its rows share
_ROW = 2  # values per row: place of its line, fact_id, then its own values
_MOST_DISCRIMINATORS = 100_000
ID_BYTES = 16


@dataclass(frozen=True, eq=False, slots=True)
class Shape:
    """The columns of one sort of fact: `columns` per row, `constants` for all rows, `shared` for all rows of a line."""

    kind: str
    columns: tuple[str, ...]
    constants: tuple[tuple[str, Any], ...] = ()
    shared: tuple[str, ...] = ()


@dataclass(slots=True)
class FileCounts:
    """What one file held."""

    lines: int = 0
    facts: int = 0
    rejected: int = 0
    repeated: int = 0  # facts that a line of the same millisecond had stated already
    bytes: int = 0
    first_ts: int | None = None
    last_ts: int | None = None
    no_interest: Counter[tuple[str, str]] = field(default_factory=Counter)  # by level and logger
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)  # by kind and level
    silences: list[tuple[int, int]] = field(default_factory=list)  # longer than five seconds: from, to (microseconds)
    content: str = "nothing"  # what sort of file it is
    layout: str | None = None  # how its lines are laid out, for a log
    named: Counter[int] = field(default_factory=Counter)  # broker -> lines that name it as their writer
    directories: set[str] = field(default_factory=set)  # log directories that its lines or dumps name
    fetched: set[tuple[str, int]] = field(default_factory=set)  # by followers: own address of the server, follower
    dump_state: str | None = None  # of a dump of which more lines follow: what its parser goes on from

    def widen(self, ts: int) -> None:
        """Extend the time range."""
        ts = min(max(ts, EARLIEST), LATEST)
        self.first_ts = ts if self.first_ts is None else min(ts, self.first_ts)
        self.last_ts = ts if self.last_ts is None else max(ts, self.last_ts)

    def saw(self, ts: int) -> None:
        """Extend the time range by a line's time, and record a silence of more than five seconds before it."""
        ts = min(max(ts, EARLIEST), LATEST)
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


Identity = hashlib.blake2b  # a hash that can still be extended


def identity(text: str) -> Identity:
    """Start the identity of facts from a text; for a log line that is broker and normalised line."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=ID_BYTES)


def row_id(of: Identity, discriminators: tuple[object, ...] = ()) -> bytes:
    """Return the identity of one row; the discriminators tell it apart from others of the same line."""
    if not discriminators:
        return of.digest()
    row = of.copy()
    row.update(_DISCRIMINATORS[discriminators])
    return row.digest()


class _Discriminators(dict[tuple[object, ...], bytes]):
    """Cache of discriminators as bytes to hash: they are mostly partitions, which occur again and again."""

    def __missing__(self, discriminators: tuple[object, ...]) -> bytes:
        if len(self) > _MOST_DISCRIMINATORS:
            self.clear()
        found = self[discriminators] = repr(discriminators).encode("utf-8", "replace")
        return found


_DISCRIMINATORS = _Discriminators()


def line_head(broker_id: int | None, local: int, level: str, logger: str) -> str:
    """Return what is hashed before a line's text; `logger`: its last part, which every layout prints."""
    return f"{broker_id}|{local}|{level}|{logger}|"


def line_identity(broker_id: int | None, local: int, level: str, logger: str, text: str) -> Identity:
    """Return the identity of a stamped log line; `logger`: its last part, which every layout prints.

    Equal lines of one broker within one millisecond are one fact.
    """
    return identity(line_head(broker_id, local, level, logger) + text)


class Line(msgspec.Struct, gc=False):
    """A line from which facts are made."""

    identity: Identity
    number: int
    ts: int
    level: str


class _Gathered(NamedTuple):
    """The facts of one shape as flat lists of values: an object per row would cost more than its content."""

    lines: list[Any]
    rows: list[Any]


class FactSink:
    """Collects one file's facts and rejected lines and returns them as Arrow batches with the tables' schemas."""

    def __init__(self, recording_id: str, source_file: str, broker_id: int | None) -> None:
        """Keep what is the same in all rows of the file."""
        self.counts = FileCounts()
        self.broker_id = broker_id
        self._same = {"recording_id": recording_id, "source_file": source_file, "broker_id": broker_id}
        self._gathered: defaultdict[Shape, _Gathered] = defaultdict(lambda: _Gathered([], []))
        self._rejected: list[tuple[int, str, str | None]] = []
        self._moment: int | None = None
        self._seen: set[bytes] = set()  # facts of this millisecond: a line repeated within it is one fact
        self._ready: defaultdict[Shape, list[dict[str, pa.Array]]] = defaultdict(list)
        self._ready_rows = 0
        self.ts_errors: dict[int, int] = {}  # line -> how far its time may be off, for stamps in whole seconds

    def of_no_broker(self) -> None:
        """Declare that no single broker wrote the file, whatever its folder: it is a dump of the metadata log."""
        self.broker_id = self._same["broker_id"] = None

    def add(
        self, shape: Shape, fact_id: bytes, line: int, ts: int | None, values: Sequence[Any], level: str = ""
    ) -> None:
        """Add one fact of a shape without shared columns; `values` are in the order of the shape's columns."""
        moment = ts if ts is not None else -(line // _TOGETHER)
        if moment != self._moment:
            self._moment = moment
            self._seen.clear()
        elif fact_id in self._seen:
            self.counts.repeated += 1
            return
        self._seen.add(fact_id)
        lines, rows = self._gathered[shape]
        rows += (len(lines) // _LINE, fact_id)
        rows += values
        lines += (line, ts, level)

    def add_rows(
        self, shape: Shape, line: Line, shared: Sequence[Any], rows: Iterable[tuple[tuple[object, ...], Sequence[Any]]]
    ) -> None:
        """Add the facts of one line; each of `rows` is its discriminators and its own values."""
        of, ts, seen = line.identity, line.ts, self._seen
        if ts != self._moment:
            self._moment = ts
            seen.clear()
        lines, gathered = self._gathered[shape]
        place = len(lines) // (_LINE + len(shape.shared))
        lines += (line.number, ts, line.level)
        lines += shared
        for discriminators, values in rows:
            fact_id = row_id(of, discriminators)
            if fact_id in seen:
                self.counts.repeated += 1
                continue
            seen.add(fact_id)
            gathered += (place, fact_id)
            gathered += values

    def add_columns(self, shape: Shape, columns: dict[str, pa.Array], levels: Mapping[str, int]) -> None:
        """Add facts that are columns already, checked and without those that are repeated.

        `levels`: how many of them are of lines of each level.
        """
        self._ready[shape].append(columns)
        rows = len(columns["fact_id"])
        self._ready_rows += rows
        self.counts.facts += rows
        for level, count in levels.items():
            self.counts.kinds[shape.kind, level] += count

    def repeated(self, ts: int, ids: Iterable[bytes]) -> set[bytes]:
        """Return which facts of this time are known already."""
        return self._seen.intersection(ids) if ts == self._moment else set()

    def note_moment(self, ts: int, ids: Iterable[bytes]) -> None:
        """Note facts of this time, which other facts of the same moment may repeat."""
        if ts != self._moment:
            self._moment = ts
            self._seen.clear()
        self._seen.update(ids)

    @property
    def waiting(self) -> int:
        """The number of facts and rejected lines that have not been taken yet."""
        facts = sum(len(gathered.rows) // (_ROW + len(shape.columns)) for shape, gathered in self._gathered.items())
        return facts + self._ready_rows + len(self._rejected)

    def reject(self, line: int, reason: str, text: str | None) -> None:
        """Record that a line states nothing for certain, and why."""
        shown = None if text is None else text[:REJECTED_TEXT_LENGTH].replace("\x00", "\ufffd")
        self._rejected.append((line, reason, shown))
        self.counts.rejected += 1

    def take_facts(self) -> pa.RecordBatch | None:
        """Return the facts added since the last call as one batch; None if there are none."""
        if not self._gathered and not self._ready:
            return None
        parts = [self._whole_part(shape) for shape in self._shapes()]
        self._gathered.clear()
        self._ready.clear()
        self._ready_rows = 0
        self.ts_errors.clear()
        arrays = [
            _joined([(part.length, part.columns.get(name)) for part in parts], name) for name in FACT_SCHEMA.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=FACT_SCHEMA)

    def _shapes(self) -> list[Shape]:
        """Return the shapes of all facts, in the order of the lines that had them first."""
        first = {shape: gathered.lines[0] for shape, gathered in self._gathered.items()}
        for shape, several in self._ready.items():
            line = several[0]["source_line"][0].as_py()
            first[shape] = min(line, first.get(shape, line))
        return sorted(first, key=first.__getitem__) if self._ready else list(first)

    def _whole_part(self, shape: Shape) -> _Part:
        """Return all facts of a shape, in the order of their lines."""
        parts = [self._part(shape, self._gathered[shape])] if shape in self._gathered else []
        for columns in self._ready.get(shape, ()):
            count = len(columns["fact_id"])
            parts.append(_Part(count, columns | self._constants(shape, columns, count)))
        if len(parts) == 1:
            return parts[0]
        names = {name for part in parts for name in part.columns}
        joined = {name: _joined([(part.length, part.columns.get(name)) for part in parts], name) for name in names}
        if shape in self._gathered:
            order = pa.array(np.argsort(joined["source_line"].to_numpy(), kind="stable"))
            joined = {name: column.take(order) for name, column in joined.items()}
        return _Part(sum(part.length for part in parts), joined)

    def _constants(self, shape: Shape, columns: Collection[str], count: int) -> dict[str, pa.Array]:
        """Return the columns that are the same in all facts of a shape."""
        return {
            name: pa.repeat(pa.scalar(value, TYPES[name]), count)
            for name, value in {**self._same, "kind": shape.kind, **dict(shape.constants)}.items()
            if value is not None and name not in columns
        }

    def _part(self, shape: Shape, gathered: _Gathered) -> _Part:
        lines, rows = gathered
        of_line, of_row = _LINE + len(shape.shared), _ROW + len(shape.columns)
        places = rows[::of_row]
        self.counts.facts += len(places)
        for level, count in Counter(map(lines[2::of_line].__getitem__, places)).items():
            self.counts.kinds[shape.kind, level] += count
        try:
            return self._columns(shape, gathered)
        except _DOES_NOT_FIT:
            each = (
                _Gathered(lines[place * of_line : (place + 1) * of_line], [0, *rows[start + 1 : start + of_row]])
                for start, place in zip(range(0, len(rows), of_row), places, strict=True)
            )
            fitting = [row for row in each if self._fits(shape, row)]
            numbered = (value for k, row in enumerate(fitting) for value in (k, *row.rows[1:]))
            return self._columns(shape, _Gathered([value for row in fitting for value in row.lines], list(numbered)))

    def _columns(self, shape: Shape, gathered: _Gathered) -> _Part:
        """Return the columns that the rows fill; raises one of _DOES_NOT_FIT if a value does not fit."""
        lines, rows = gathered
        of_line, of_row = _LINE + len(shape.shared), _ROW + len(shape.columns)
        places = rows[::of_row]
        is_one_each = places == [*range(len(lines) // of_line)]
        said = dict(zip(("source_line", "ts"), (lines[::of_line], lines[1::of_line]), strict=True))
        said |= {name: lines[k::of_line] for k, name in enumerate(shape.shared, _LINE)}
        if self.ts_errors:
            said["ts_error_us"] = list(map(self.ts_errors.get, lines[::of_line]))
        own = {name: rows[k::of_row] for k, name in enumerate(shape.columns, _ROW)}
        columns = {name: _array(name, values) for name, values in said.items()}
        if not is_one_each:
            at = pa.array(places, pa.int32())
            columns = {name: column.take(at) for name, column in columns.items()}
        times = pc.min_max(columns["ts"].cast(pa.int64()))
        if times["min"].is_valid and not EARLIEST <= times["min"].as_py() <= times["max"].as_py() <= LATEST:
            raise OverflowError(NO_TIME)
        columns |= {name: _array(name, values) for name, values in own.items()}
        columns["fact_id"] = printed_ids(rows[1::of_row])
        return _Part(len(places), columns | self._constants(shape, columns, len(places)))

    def _fits(self, shape: Shape, row: _Gathered) -> bool:
        """Whether the row fits its columns' types; a line with a value that does not fit is rejected."""
        try:
            self._columns(shape, row)
        except _DOES_NOT_FIT as error:
            self.counts.facts -= 1
            self.reject(row.lines[0], f"a value does not fit its column: {error}"[:300], None)
            return False
        return True

    def take_rejected(self) -> pa.RecordBatch | None:
        """Return the lines rejected since the last call; None if there are none."""
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


class _Part(NamedTuple):
    """Rows of one shape: their number, and the columns that they fill."""

    length: int
    columns: dict[str, pa.Array]


def _array(name: str, values: list[Any]) -> pa.Array:
    """Make a column; OverflowError if a number is too large to compute with."""
    column = pa.array(values, TYPES[name])
    if pa.types.is_int64(column.type):
        bounds = pc.min_max(column)
        if bounds["min"].is_valid and not -LARGEST <= bounds["min"].as_py() <= bounds["max"].as_py() <= LARGEST:
            raise OverflowError(TOO_LARGE)
    return column


def _joined(parts: list[tuple[int, pa.Array | None]], name: str) -> pa.Array:
    """Concatenate one column of several parts; null where a part does not fill it."""
    if all(column is None for _, column in parts):
        return _nulls(sum(length for length, _ in parts), name)
    filled = [_nulls(length, name) if column is None else column for length, column in parts]
    return filled[0] if len(filled) == 1 else pa.concat_arrays(filled)


def printed_ids(ids: list[bytes]) -> pa.Array:
    """Return identities as hexadecimal text."""
    digits = 2 * ID_BYTES
    starts = pa.py_buffer(array("i", range(0, digits * (len(ids) + 1), digits)))
    return pa.StringArray.from_buffers(len(ids), starts, pa.py_buffer(b"".join(ids).hex().encode()))


def _nulls(length: int, name: str) -> pa.Array:
    """Return nulls of a column, sliced from one cached array of its type: most columns of most facts are null."""
    of = _TYPE_NAMES[name]  # to hash a type itself takes longer than to slice
    longest = _NULLS.get(of)
    if longest is None or len(longest) < length:
        longest = _NULLS[of] = pa.nulls(length, TYPES[name])
    return longest if len(longest) == length else longest.slice(0, length)


_TYPE_NAMES: dict[str, str] = {name: str(type_) for name, type_ in TYPES.items()}
_NULLS: dict[str, pa.Array] = {}


def _repeated(value: object, type_: pa.DataType, count: int) -> pa.Array:
    return pa.nulls(count, type_) if value is None else pa.repeat(pa.scalar(value, type_), count)


def cut_text(text: str) -> str:
    """Shorten a message to the length that `facts.text` keeps."""
    return text[:TEXT_LENGTH]
