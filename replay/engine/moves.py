"""What one event did: each offset that moved, and the step of the protocol that moved it.

`apply` notes moves as its steps report them; the fold turns them into rows. Nobody has to compare states to find out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from replay.arrays.bundle import bundle
from replay.arrays.jit import compiled_in_place
from replay.arrays.records import blank
from replay.protocol.state import NONE

if TYPE_CHECKING:
    from replay.arrays.ints import Ints
    from replay.arrays.records import Records

LEO, HW, LOG_START, REMOTE_LEO, LOW_WATERMARK, ISR = range(6)
ROOM = 16  # more than one event can move: three offsets of two replicas, what the leader notes of one, its ISR


class Move:
    """One move of one replica's offset; of ISR: a mask, and the replica is the one that joins."""

    what: int  # LEO ... ISR
    replica: int  # a broker's index
    before: int
    after: int
    step: int  # codes.STEPS
    detail: int  # LEO: how the one before was known, UNSET where a lower one is no cut; ISR: what had kept it out


class Moves(NamedTuple):
    """What the last event moved."""

    noted: Records[Move]
    filled: Ints  # [0] how many


bundle(Moves, {"noted": Move, "filled": 1})


def new_moves() -> Moves:
    """Nothing has moved."""
    return Moves(blank(ROOM, Move), np.zeros(1, np.int64))


@compiled_in_place
def note(moves: Moves, what: int, replica: int, before: int, after: int, step: int) -> None:
    """A step ran: its offset was `before`, and is `after`. One that stands where it stood did not move."""
    if before != after:
        put_move(moves, what, replica, before, after, step, NONE)


@compiled_in_place
def put_move(moves: Moves, what: int, replica: int, before: int, after: int, step: int, detail: int) -> None:  # noqa: PLR0913, PLR0917 - a record's fields
    """A move as it is, with the detail that its kind has."""
    move = moves.noted[moves.filled[0]]
    move.what, move.replica, move.before, move.after, move.step, move.detail = (
        what, replica, before, after, step, detail,
    )  # fmt: skip
    moves.filled[0] += 1


@compiled_in_place
def before_of(moves: Moves, what: int, replica: int, now: int) -> int:
    """What a replica's offset was before the event; `now`: what it is."""
    for k in range(moves.filled[0]):
        if moves.noted[k].what == what and moves.noted[k].replica == replica:
            return moves.noted[k].before
    return now
