"""The one switch between compiled and plain: every rule is written once, in the part of Python that numba compiles.

With NUMBA_DISABLE_JIT=1 numba returns each function unchanged, so that a debugger and a coverage run see the same code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, TypeVar

import numba

from replay.arrays.code_cache import keep

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile on first call, and keep the machine code (`code_cache`)."""
    result: Callable[P, R] = numba.njit()(function)
    keep(result)
    return result


def compiled_in_place(function: Callable[P, R]) -> Callable[P, R]:
    """The same, put into its callers: handing a state of three dozen pointers over costs more than most rules.

    For what is called for every event, or nearly.
    """
    result: Callable[P, R] = numba.njit(forceinline=True)(function)
    keep(result)
    return result
