"""Where the kernel puts its rows: a matrix per table, and how many rows of each are filled."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from replay.arrays.bundle import bundle
from replay.arrays.jit import compiled_in_place
from replay.engine.codes import CHECK_ROW, CUT_ROW, E_SEQ, HW_ROW, ISR_ROW, LEO_ROW, MOVE_ROW, START_ROW

if TYPE_CHECKING:
    from replay.arrays.ints import Ints


class Rows(NamedTuple):
    """Where the kernel puts rows: a matrix per table, and how many rows of each are filled (`filled`)."""

    leo: Ints
    hw: Ints
    isr: Ints
    move: Ints
    cut: Ints
    check: Ints
    start: Ints
    filled: Ints


bundle(Rows, {"leo": 2, "hw": 2, "isr": 2, "move": 2, "cut": 2, "check": 2, "start": 2, "filled": 1})

N_LEO, N_HW, N_ISR, N_CUT, N_CHECK, N_MOVE, N_START = range(7)


def new_rows(events: int, decisions: int = 0, brokers: int = 0) -> Rows:
    """Room for what `events` events can give at most, `decisions` of them about the ISR of at most `brokers`."""

    def room(per_event: int, width: int) -> Ints:
        return np.zeros((events * per_event + decisions * brokers + 8, width), np.int64)

    return Rows(
        leo=room(3, len(LEO_ROW)),
        hw=room(2, len(HW_ROW)),
        isr=room(1, len(ISR_ROW)),
        move=room(1, len(MOVE_ROW)),
        cut=room(1, len(CUT_ROW)),
        check=room(4, len(CHECK_ROW)),
        start=room(2, len(START_ROW)),
        filled=np.zeros(7, np.int64),
    )


@compiled_in_place
def put(matrix: Ints, counts: Ints, table: int, values: tuple[int, ...]) -> None:
    """Append one row to a matrix."""
    row = counts[table]
    for k, value in enumerate(values):
        matrix[row, k] = value
    counts[table] = row + 1


@compiled_in_place
def check(rows: Rows, e: Ints, what: int, b: int, computed: int, stated: int) -> None:
    """Note what was computed beside what a source states."""
    put(rows.check, rows.filled, N_CHECK, (e[E_SEQ], what, b, computed, stated))
