"""Which of many keys are the same, where a key is some numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from replay.arrays.ints import Ints


def alike(keys: Ints) -> tuple[Ints, Ints]:
    """Return the keys that there are, each once and ascending, and of all keys the number of theirs among those.

    `keys`: one in each column. `np.unique` with an axis takes twenty times as long, because it sorts bytes.
    """
    order = np.lexsort(keys[::-1])
    ascending = keys[:, order]
    is_other = np.ones(len(order), np.bool_)
    is_other[1:] = (np.diff(ascending, axis=1) != 0).any(axis=0)
    which = np.empty(len(order), np.int64)
    which[order] = np.cumsum(is_other) - 1
    return ascending[:, is_other], which
