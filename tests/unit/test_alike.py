"""Keys of several numbers are told apart as `np.unique` tells them."""

from __future__ import annotations

import numpy as np
import pytest

from replay.arrays.alike import alike


@pytest.mark.parametrize("count", [0, 1, 2, 7, 500])
@pytest.mark.parametrize("length", [1, 2, 4])
def test_keys_are_numbered_as_numpy_numbers_them(count: int, length: int) -> None:
    keys = np.random.default_rng(count).integers(-2, 3, (length, count))
    found, which = alike(keys)
    each, place = np.unique(keys, axis=1, return_inverse=True)
    assert which.tolist() == place.ravel().tolist()
    assert found.tolist() == each.tolist()
