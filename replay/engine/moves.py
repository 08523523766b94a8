"""What one event did: each offset that moved, and the protocol step that moved it.

`apply` notes moves as its steps report them; the fold turns them into rows, without having to compare states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from replay.arrays.bundle import bundle
from replay.arrays.jit import compiled_in_place
from replay.arrays.records import blank
from replay.protocol.state import NONE, State

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
def note(moves: Moves, what: int, replica: int, before: int, after: int, step: int, detail: int = NONE) -> None:  # noqa: PLR0913, PLR0917 - a record's fields
    """Note that a step changed an offset from `before` to `after`; nothing if they are equal."""
    if before != after:
        put_move(moves, what, replica, before, after, step, detail)


@compiled_in_place
def offsets_of(s: State, b: int) -> tuple[int, int, int]:
    """The LEO, HW and log start of a replica, to note later which of them moved."""
    return s.leo[b], s.hw[b], s.log_start[b]


@compiled_in_place
def note_offsets(
    moves: Moves, s: State, b: int, before: tuple[int, int, int], steps: tuple[int, int], known: int = NONE
) -> None:
    """Note which of a replica's offsets moved since `before`. `steps`: what moved its LEO and log start, and its HW.

    `known`: how its LEO was known before (see `Move.detail`).
    """
    note(moves, LEO, b, before[0], s.leo[b], steps[0], known)
    note(moves, HW, b, before[1], s.hw[b], steps[1])
    note(moves, LOG_START, b, before[2], s.log_start[b], steps[0])


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
