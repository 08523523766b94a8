"""Keys of several numbers are told apart as `np.unique` tells them."""

from __future__ import annotations

import numpy as np
import pytest

from replay.arrays.alike import alike


@pytest.mark.parametrize("count", [0, 1, 2, 7, 500])
@pytest.mark.parametrize("length", [1, 2, 4])
def test_keys_are_numbered_as_numpy_numbers_them(count: int, length: int) -> None:
    keys = np.random.default_rng(count).integers(-2, 3, (length, count))
    firsts, which = alike(keys)
    each, first, place = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    assert firsts.tolist() == first.tolist()
    assert which.tolist() == place.ravel().tolist()
    assert keys[:, firsts].tolist() == each.tolist()
