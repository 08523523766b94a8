"""Memory that is no longer needed goes back to the system."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable


def _found_trim() -> Callable[[int], int] | None:
    """The C library's function for it; None: it has none, as only glibc has."""
    try:
        return cast("Callable[[int], int]", ctypes.CDLL(None).malloc_trim)
    except (AttributeError, OSError, TypeError):
        return None


_trim = _found_trim()


def give_back() -> None:
    """Give back what was freed. Between large pieces of work the C library would keep it: a hundred megabytes."""
    if _trim is not None:
        _trim(0)
