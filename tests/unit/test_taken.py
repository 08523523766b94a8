"""Rows in another order: copied or, where long runs stay together, not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from replay.arrays.columns import LONG_RUN, taken

ROWS = pa.table({"n": pa.array(range(6 * LONG_RUN)), "word": pa.array([str(n) for n in range(6 * LONG_RUN)])})
LONG = np.arange(LONG_RUN)


@pytest.mark.parametrize(
    ("at", "is_copied"),
    [
        (np.arange(len(ROWS)), False),
        (np.concatenate([LONG + 3 * LONG_RUN, LONG, LONG + LONG_RUN]), False),
        (np.concatenate([LONG + LONG_RUN, LONG + LONG_RUN]), False),
        (np.concatenate([LONG, [5, 4, 3]]), True),
        (np.arange(len(ROWS))[::-1], True),
        (np.array([7]), True),
        (np.zeros(0, np.int64), False),
    ],
)
def test_rows_are_taken_in_any_order(at: np.ndarray, *, is_copied: bool) -> None:
    found = taken(ROWS, at)
    assert found.equals(ROWS.take(pa.array(at)))
    assert found.schema == ROWS.schema
    mine = {buffer.address for buffer in buffers_of(ROWS)}
    assert is_copied == (not mine & {buffer.address for buffer in buffers_of(found)} and len(found) > 0)


def buffers_of(rows: pa.Table) -> list[pa.Buffer]:
    return [buffer for chunk in rows["n"].chunks for buffer in chunk.buffers() if buffer is not None]
