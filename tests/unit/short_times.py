"""Steady times in which seconds stand for minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    import pytest

TIMES = {
    "SPAN_US": 600_000,
    "MARGIN_US": 1_800_000,
    "RESENT_US": 1_200_000,
    "SERIES_US": 5_000_000,
    "NEAR_US": 1_000_000,
    "CELL_US": 300_000,
}


def shorten(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Let these modules, each of which has names of its own, know the short times until a test is over."""
    for module in modules:
        for name, us in TIMES.items():
            monkeypatch.setattr(module, name, us, raising=False)
