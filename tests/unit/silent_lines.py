"""A broker's lines with silences between them, some about as long as a standstill."""

from __future__ import annotations

import numpy as np

from replay.evidence.broker_pauses import STANDSTILL_US

Line = tuple[int, int, bool]  # microseconds, how far it may be off, whether it is a request's


def lines_of(seed: int) -> list[Line]:
    """One broker's lines: steps of about the length of a standstill, and ties; often no request for long."""
    random = np.random.default_rng(seed)
    steps = [0, 1, STANDSTILL_US - 1, STANDSTILL_US, STANDSTILL_US + 1, 3 * STANDSTILL_US, 700_000, 300_000, 300_000]
    at = random.integers(STANDSTILL_US) + np.cumsum(random.choice(steps, 150))
    errors, asked = random.choice([0, 0, 999_999], 150), random.random(150) < 0.7
    return list(zip(at.tolist(), errors.tolist(), asked.tolist(), strict=True))
