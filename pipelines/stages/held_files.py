"""Files of few bytes are read by the driver itself; of very many of them, by other processes beside it."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pipelines.intake.pieces import said_of
from pipelines.parse.files.file_parser import PACKED_RATIO
from pipelines.spark.beside import PROCESSES, Beside
from pipelines.spark.counted import tally_of
from pipelines.spark.held import MOST_BYTES, Held
from pipelines.spark.packed import rows_of_buffer, stream_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pipelines.intake.pieces import Work
    from pipelines.recording.recording import Recording
    from pipelines.spark.counted import Tally

FILE_BYTES: Final = 200_000  # that are parsed in the time that a file takes, however little it says
ALONE_BYTES: Final = 300_000_000  # up to so much the driver is done before other processes have loaded the parsers
SHARE_BYTES: Final = 50_000_000  # that another process is asked for at once


def weight_of(work: Work) -> int:
    """Return about how many bytes there are to parse, decompressed, in a file that is read to its end."""
    packed = work.source.name.endswith((".gz", ".zst"))
    every = work.source.size * (PACKED_RATIO if packed else 1)
    rest = every - (work.begun.place if work.begun is not None else 0)
    return max(rest, work.source.size) if packed else rest


def held(recording: Recording, works: Sequence[Work], few: int) -> Held | None:
    """Return everything that the files say, in the order of the works; None: a packed file says far too much.

    `few`: up to about how many facts there is room for in this process.
    """
    read = tally_of(sum(map(weight_of, works)), "bytes")
    whole = replace(recording, sources=())
    room = few * MOST_BYTES
    if PROCESSES == 1 or sum(map(_cost, works)) <= ALONE_BYTES:
        return _within(room, (_counted(whole, work, read) for work in works))
    with Beside(PROCESSES) as others:
        asked = deque((share, others(said_by, whole, share, room)) for share in shares_of(works))
        parts: list[tuple[str, pa.Table]] = []
        while asked:
            share, told = asked.popleft()
            said = told.result()
            if said is None:
                return None
            parts += ((output, rows_of_buffer(pa.py_buffer(stream))) for output, stream in said)
            read.add(sum(map(weight_of, share)))
            if sum(rows.nbytes for _, rows in parts) > room:
                return None
    return Held.of(parts)


def _within(room: int, several: Iterable[Iterable[tuple[str, pa.Table]]]) -> Held | None:
    """Collect rows; None: there is no room for them."""

    def rows_that_fit() -> Iterator[tuple[str, pa.Table]]:
        nonlocal room
        for output, rows in chain.from_iterable(several):
            room -= rows.nbytes
            if room < 0:
                return
            yield output, rows

    found = Held.of(rows_that_fit())
    return None if room < 0 else found


def _counted(recording: Recording, work: Work, read: Tally) -> Iterator[tuple[str, pa.Table]]:
    yield from said_of(recording, work)
    read.add(weight_of(work))


def _cost(work: Work) -> int:
    return weight_of(work) + FILE_BYTES


def shares_of(works: Sequence[Work]) -> list[list[Work]]:
    """Divide the works into shares of about as much to do, in their order."""
    shares: list[list[Work]] = []
    room = 0
    for work in works:
        if room <= 0:
            shares.append([])
            room = SHARE_BYTES
        shares[-1].append(work)
        room -= _cost(work)
    return shares


def said_by(recording: Recording, works: Sequence[Work], room: int) -> list[tuple[str, bytes]] | None:
    """Return what the works say, all of one kind as one stream, or None: what another process is asked for."""
    found = _within(room, (said_of(recording, work) for work in works))
    if found is None:
        return None
    return [(output, stream_of(pa.concat_tables(rows))) for output, rows in found.tables.items()]
