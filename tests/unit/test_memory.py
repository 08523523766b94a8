"""Memory that was freed goes back to the system."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from replay.arrays import memory

STATUS = Path("/proc/self/statm")
BLOCK = 1_000  # bytes: large enough for the C library, too small for pages of its own
BLOCKS = 100_000
KEPT = 64  # one of so many stays, so that the library cannot give back the end of what it holds by itself


def held() -> int:
    """Bytes that this process holds."""
    return int(STATUS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(memory._trim is None or not STATUS.exists(), reason="the C library has no function for it")
def test_what_was_freed_among_things_that_stay_goes_back() -> None:
    blocks = [bytes(BLOCK) for _ in range(BLOCKS)]
    stay = blocks[::KEPT]
    del blocks
    before = held()
    memory.give_back()
    assert before - held() > BLOCK * BLOCKS // 2
    assert sum(map(sys.getsizeof, stay)) < BLOCK * BLOCKS // KEPT * 2


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_trim", None)
    memory.give_back()
