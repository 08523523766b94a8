"""Hands a log's lines to its parser, block by block; fetches and produces as Kafka writes them are read all at once.

What comes out is what the parser makes of the same lines one by one, to the last byte (`test_scanned_lines.py`): a line
that does not look as Kafka writes it, and every block in which something does not fit, goes to the parser.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.lines.rows import EARLIEST, GAP, LATEST, TYPES, printed_ids
from pipelines.parse.requests import scanned_rows
from pipelines.parse.requests.scanned_facts import DoesNotFitError, RequestScanner, Scan, apis, heads
from pipelines.recording.reading import split_lines

if TYPE_CHECKING:
    from pipelines.lines.rows import FactSink
    from pipelines.parse.files.log_lines import LogLines
    from replay.arrays.ints import Ints
    from replay.arrays.peeks import Bytes

_SPARSE: Final = 0.5  # share of lines below which single lines are not cut out of the block


class _Read(NamedTuple):
    """What was read of a block at once; lists have a value for each line, and one more where they say so."""

    scans: list[Scan]
    rows: list[list[int]]  # of each scan: the first row of each line, and the end
    taken: Ints  # numbers of the lines that were read, ascending
    local: list[int]
    ts: list[int]
    is_smooth: bool  # no line is much later than all before it


class RequestBlocks:
    """The blocks of one file."""

    def __init__(self, log: LogLines, sink: FactSink) -> None:
        """`log` parses lines one by one, into this sink."""
        self._log, self._sink = log, sink
        self._scanner = RequestScanner()
        self.lines = 0  # that were read together so far

    def parse(self, data: bytes, number: int) -> int:
        """Add what the lines of a block say; `number`: that of the first. Return how many lines there are."""
        ends = _line_ends(data)
        if not len(ends):
            return 0
        read = None if self._log.has_whole_seconds else self._read(data, ends)
        if read is None:
            for line, text in enumerate(split_lines(data), number):
                self._log.parse(text, line)
        else:
            self.lines += len(read.taken)
            self._add(read, data, ends, number)
        return len(ends)

    def _read(self, data: bytes, ends: Ints) -> _Read | None:
        """Return what can be read at once; None: nothing, or not without looking at each line."""
        block = np.frombuffer(data, np.uint8)
        found = self._scanner.find(block, np.concatenate(([0], ends[:-1] + 1)), ends)
        found, local, ts = self._timed(data, found)
        if not len(found) or not EARLIEST <= ts.min() <= ts.max() <= LATEST:
            return None
        try:
            scans = _without_repeated(self._scans(data, block, found, local))
        except DoesNotFitError:
            return None
        if not scans:
            return None
        taken = np.sort(np.concatenate([scan.taken for scan in scans]))
        of_lines = np.zeros((2, len(ends)), np.int64)
        of_lines[:, found[:, scanned_rows.LINE]] = local, ts
        numbers = np.arange(len(ends) + 1)
        rows = [np.searchsorted(scan.lines, numbers).tolist() for scan in scans]
        is_smooth = bool((np.diff(np.maximum.accumulate(of_lines[1, taken])) <= GAP).all())
        return _Read(scans, rows, taken, of_lines[0].tolist(), of_lines[1].tolist(), is_smooth)

    def _scans(self, data: bytes, block: Bytes, found: Ints, local: Ints) -> list[Scan]:
        """Return what is read of each kind of request."""
        kinds = np.array([head.api for head in heads()[0]])[found[:, scanned_rows.HEAD]]
        scans = []
        for kind in apis():
            (places,) = np.nonzero(kinds == kind)
            scan = self._scanner.read(kind, data, block, found[places], local[places], self._sink.broker_id)
            if scan is not None:
                scans.append(scan)
        return scans

    def _timed(self, data: bytes, found: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the lines whose times are certain, with their printed times and those in UTC."""
        (firsts,) = np.nonzero(found[:, scanned_rows.IS_NEXT])
        seconds, offsets, are_certain = [], [], []
        for begin, head in found[firsts][:, [scanned_rows.BEGIN, scanned_rows.HEAD]].tolist():
            stamp_end = begin - int(heads()[1].json[head])
            second = self._log.second_at(data[stamp_end - 24 : stamp_end - 5].decode())
            are_certain.append(second is not None)
            seconds.append(second[0] if second is not None else 0)
            offsets.append(second[1] if second is not None else 0)
        counts = np.diff(np.append(firsts, len(found)))
        local = np.repeat(np.array(seconds, np.int64), counts) + found[:, scanned_rows.MILLIS] * 1000
        ts = local - np.repeat(np.array(offsets, np.int64), counts)
        certain = np.repeat(np.array(are_certain, bool), counts)
        return found[certain], local[certain], ts[certain]

    def _add(self, read: _Read, data: bytes, ends: Ints, number: int) -> None:
        """Add what was read, and what the parser makes of all other lines, as if line came after line."""
        is_other = np.ones(len(ends), bool)
        is_other[read.taken] = False
        others = np.flatnonzero(is_other).tolist()
        is_cut_out = data.isascii() and len(others) < _SPARSE * len(ends)
        texts = [] if is_cut_out else split_lines(data)
        repeated: set[bytes] = set()
        end = len(ends)
        at = 0
        for line in (*others, len(ends)):
            if line > at:
                repeated |= self._pass(read, at, line)
            at = line + 1
            if line == len(ends):
                break
            self._log.parse(_cut_out(data, ends, line) if is_cut_out else texts[line], number + line)
            if self._log.has_whole_seconds:
                end = at
                break
        for scan, rows in zip(read.scans, read.rows, strict=True):
            self._add_rows(scan, rows[end], repeated, read.ts, number)
        for line in range(end, len(ends)):
            self._log.parse(_cut_out(data, ends, line) if is_cut_out else texts[line], number + line)

    def _pass(self, read: _Read, begin: int, end: int) -> set[bytes]:
        """Pass over lines that were read, which follow each other; return which of their facts are repeated."""
        self._log.pass_over(read.local[end - 1])
        sink, ts = self._sink, read.ts
        for line in range(begin, begin + 1 if read.is_smooth else end):
            sink.counts.saw(ts[line])
        for time in (min(ts[begin:end]), max(ts[begin:end])):  # without a silence on the way
            sink.counts.widen(time)
        first_end = next((line for line in range(begin, end) if ts[line] != ts[begin]), end)
        ids = _ids(read, begin, first_end)
        repeated = sink.repeated(ts[begin], ids)
        sink.note_moment(ts[begin], ids)
        if first_end < end:
            last = next(line for line in range(end - 1, begin, -1) if ts[line - 1] != ts[end - 1])
            sink.note_moment(ts[first_end], ())
            sink.note_moment(ts[end - 1], _ids(read, last, end))
        sink.counts.repeated += len(repeated)
        return repeated

    def _add_rows(self, scan: Scan, end: int, repeated: set[bytes], ts: list[int], number: int) -> None:
        """Add the first rows of a scan, without those that repeat earlier ones."""
        self._sink.counts.fetched |= scan.fetched
        columns = dict(scan.columns)
        columns["fact_id"] = printed_ids(scan.ids)
        columns["source_line"] = pa.array(scan.lines + number)
        columns["ts"] = pa.array(np.array(ts, np.int64)[scan.lines]).cast(TYPES["ts"])
        heads_of = scan.heads
        if repeated or end < len(scan.ids):
            kept = [place for place, one in enumerate(scan.ids[:end]) if one not in repeated]
            columns = {name: column.take(pa.array(kept, pa.int64())) for name, column in columns.items()}
            heads_of = heads_of[kept]
        if len(heads_of):
            levels = Counter[str]()
            for head, count in zip(heads()[0], np.bincount(heads_of).tolist(), strict=False):
                levels[head.level] += count
            self._sink.add_columns(scan.facts, columns, levels)


def _without_repeated(scans: list[Scan]) -> list[Scan]:
    """Return what was read without lines of which a fact occurs twice: only the parser says which of them counts."""
    ids = [one for scan in scans for one in scan.ids]
    if len(set(ids)) == len(ids):
        return scans
    repeated = {one for one, times in Counter(ids).items() if times > 1}
    found = []
    for scan in scans:
        lines = scan.lines[[one in repeated for one in scan.ids]]
        (kept,) = np.nonzero(~np.isin(scan.lines, lines))
        if len(kept):
            columns = {name: column.take(pa.array(kept)) for name, column in scan.columns.items()}
            taken, own = scan.taken[~np.isin(scan.taken, lines)], [scan.ids[place] for place in kept.tolist()]
            found.append(Scan(scan.facts, taken, scan.lines[kept], scan.heads[kept], own, columns, scan.fetched))
    return found


def _line_ends(data: bytes) -> Ints:
    """Return where lines end; to find them one by one is faster than to compare all bytes."""
    ends = []
    end = data.find(b"\n")
    while end >= 0:
        ends.append(end)
        end = data.find(b"\n", end + 1)
    return np.array(ends, np.int64)


def _ids(read: _Read, begin: int, end: int) -> list[bytes]:
    """Return the identities of the facts of these lines."""
    return [one for scan, rows in zip(read.scans, read.rows, strict=True) for one in scan.ids[rows[begin] : rows[end]]]


def _cut_out(data: bytes, ends: Ints, line: int) -> str:
    """Return a line of ASCII."""
    begin = int(ends[line - 1]) + 1 if line else 0
    return data[begin : ends[line]].decode().removesuffix("\r")
