"""Clocks that were set back while a broker ran: its lines keep the order of their file, whatever their stamps say.

The stamps in a log rise, except for a line whose thread was delayed between taking the stamp and writing the line. If a
clock was set back, by NTP or by hand, the stamps start again lower and climb as before. Everything stamped before the
step is then moved back by the same amount, so that the lines follow each other again. Two things look similar but are
no steps: a delayed thread, even by seconds, leaves a few older lines among later ones; files joined in the wrong order
jump by more than a clock is ever set back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import numbers, texts

if TYPE_CHECKING:
    from replay.arrays.ints import Flags, Ints

SET_BACK = "set_back_us"  # column: by how much a fact's stamp was moved
LEAST_US, MOST_US = 500_000, 60_000_000
STEP_COLUMNS = ("ts", "broker_id", "source_file", "source_line")  # those that show a step


class RisingLines:
    """Whether the stamps of each file's lines rise, but for what no step is as small as; given are lines by stamp.

    If they do, no clock was set back. Otherwise `steadied` has to look at all lines.
    """

    def __init__(self) -> None:
        """No lines were given."""
        self.rise = True
        self.recent: dict[tuple[int, str], tuple[Ints, Ints]] = {}  # stamps and lines of what came last
        self.highest: dict[tuple[int, str], int] = {}  # the highest number of a line before that

    def add(self, facts: pa.Table) -> None:
        """Take the lines that come next: sorted by their stamps, which are not before those of any given so far."""
        if not {*STEP_COLUMNS} <= set(facts.column_names):
            return
        facts = facts.filter(pc.and_(pc.is_valid(facts["ts"]), pc.is_valid(facts["broker_id"])))
        stamp, broker, line = (numbers(facts[name]) for name in ("ts", "broker_id", "source_line"))
        place, files = texts(facts["source_file"])
        number = broker * len(files) + place
        for one in np.unique(number).tolist() if len(facts) else ():
            mine = number == one
            self.follow((one // len(files), files[one % len(files)]), stamp[mine], line[mine])

    def follow(self, file: tuple[int, str], stamp: Ints, line: Ints) -> None:
        """Take the next lines of one file."""
        before, lines = self.recent.get(file, (stamp[:0], line[:0]))
        stamps, lines = np.append(before, stamp), np.append(lines, line)
        reached = np.maximum.accumulate(np.append(self.highest.get(file, -1), lines))
        # Of each line, how many have a stamp that is so much older; none of them may be further down in the file.
        older = np.searchsorted(stamps, stamp - LEAST_US, side="left")
        self.rise &= not bool((line < reached[older]).any())
        left = int(np.searchsorted(stamps, stamps[-1] - LEAST_US, side="left"))
        self.recent[file], self.highest[file] = (stamps[left:], lines[left:]), int(reached[left])


def steadied(facts: pa.Table) -> pa.Table:
    """A partition's facts with every clock made to rise only; a new column says how far each stamp was moved."""
    if not {*STEP_COLUMNS} <= set(facts.column_names):
        return facts
    told = np.flatnonzero(pc.and_(pc.is_valid(facts["ts"]), pc.is_valid(facts["broker_id"])).to_numpy())
    stamp, broker, line = (numbers(facts[name])[told] for name in ("ts", "broker_id", "source_line"))
    files = facts["source_file"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)[told]
    moved = np.zeros(len(facts), np.int64)
    for one in np.unique(broker):
        mine = np.flatnonzero(broker == one)
        mine = mine[np.lexsort((line[mine], files[mine]))]
        for file, until, last, back in steps_of(stamp[mine], files[mine]):
            moved[told[mine[before_step(stamp[mine], files[mine], (file, until, last))]]] += back
    if not moved.any():
        return facts
    place = facts.schema.get_field_index("ts")
    kind = facts.schema.field("ts").type
    steady = pc.subtract(facts["ts"].cast(pa.timestamp("us", kind.tz)).cast(pa.int64()), pa.array(moved))
    steady = steady.cast(pa.timestamp("us", kind.tz)).cast(kind)
    return facts.set_column(place, facts.schema.field("ts"), steady).append_column(SET_BACK, pa.array(moved))


def before_step(stamp: Ints, files: Ints, step: tuple[int, int, int]) -> Flags:
    """Which of a broker's lines, file by file in their order, were stamped before a step (file, place, last stamp).

    Lines of other files count if their stamp is not after the last one before the step, unless an earlier line of the
    same file shows that they were written later.
    """
    file, until, last = step
    found: Flags = stamp <= last
    for one in np.unique(files):
        own = np.flatnonzero(files == one)
        if one == file:
            found[own] = own < until
        else:
            found[own] &= stamp[own] >= np.maximum.accumulate(stamp[own]) - LEAST_US
    return found


def steps_of(stamp: Ints, files: Ints) -> list[tuple[int, int, int, int]]:
    """Where a clock was set back: file and place of the first line after it, the last stamp before, by how much.

    Input: the lines of one broker, file by file in their order. If several files show a step, the one with most lines
    counts.
    """
    found: list[tuple[int, int, int, int, int]] = []
    begins = np.flatnonzero(np.diff(files, prepend=files[:1] - 1))
    for first, end in zip(begins.tolist(), [*begins[1:].tolist(), len(files)], strict=True):
        here = stamp[first:end]
        highest = np.maximum.accumulate(here)
        low = here[1:] < highest[:-1] - LEAST_US
        begun = low.copy()
        begun[1:] &= ~low[:-1]
        for k in (np.flatnonzero(begun) + 1).tolist():
            last = int(highest[k - 1])
            back = last - int(here[k])
            over = np.flatnonzero(here[k:] >= last)
            if back > MOST_US or not len(over):
                continue
            climb = np.append(np.maximum.accumulate(here[k : k + int(over[0])]), last)
            if int(np.diff(climb).max()) < back // 2:
                found.append((end - first, int(files[first]), first + k, last, back))
    out: list[tuple[int, int, int, int]] = []
    for _, file, k, last, back in sorted(found, reverse=True):
        if all(abs(last - other) > back for _, _, other, _ in out):
            out.append((file, k, last, back))
    return out
