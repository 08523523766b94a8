"""Types of the arrays that everything is computed on, and the number that stands for no end."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NEVER = 1 << 62  # beyond every offset, time and seq; so far from the largest int64 that it can be added to
