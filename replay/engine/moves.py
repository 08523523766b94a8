"""What one event did: each offset that moved, and the protocol step that moved it.

`apply` notes moves as its steps report them; the fold turns them into rows, without having to compare states.
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
ROOM = 16  # more than one event can move: three offsets of two replicas, what the leader records of one, its ISR


class Move:
    """One move of one replica's offset; for ISR, offsets are masks and the replica is the one that joins."""

    what: int  # LEO ... ISR
    replica: int  # a broker's index
    before: int
    after: int
    step: int  # codes.STEPS
    detail: int  # LEO: evidence of the previous one, UNSET if a lower one is no truncation; ISR: what had kept it out


class Moves(NamedTuple):
    """What the last event moved."""

    noted: Records[Move]
    filled: Ints  # [0]: how many


bundle(Moves, {"noted": Move, "filled": 1})


def new_moves() -> Moves:
    """Start with no moves."""
    return Moves(blank(ROOM, Move), np.zeros(1, np.int64))


@compiled_in_place
def note(moves: Moves, what: int, replica: int, before: int, after: int, step: int) -> None:
    """Note that a step changed an offset from `before` to `after`; nothing if they are equal."""
    if before != after:
        put_move(moves, what, replica, before, after, step, NONE)


@compiled_in_place
def put_move(moves: Moves, what: int, replica: int, before: int, after: int, step: int, detail: int) -> None:  # noqa: PLR0913, PLR0917 - a record's fields
    """Note a move as it is, with the detail of its kind."""
    move = moves.noted[moves.filled[0]]
    move.what, move.replica, move.before, move.after, move.step, move.detail = (
        what, replica, before, after, step, detail,
    )  # fmt: skip
    moves.filled[0] += 1


@compiled_in_place
def before_of(moves: Moves, what: int, replica: int, now: int) -> int:
    """A replica's offset before the event; `now`: its current value, which holds if it did not move."""
    for k in range(moves.filled[0]):
        if moves.noted[k].what == what and moves.noted[k].replica == replica:
            return moves.noted[k].before
    return now
