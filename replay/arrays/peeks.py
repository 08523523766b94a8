"""A byte, or eight of them, of an array of bytes at a place: a number each, read as fast as the processor can.

An index of numba's may count from the end, and its bytes are numbers of eight bits: both cost more than the reading.
Nothing is checked here: whoever asks knows that the place lies within the array, with seven bytes behind it for a word.
Written against numba's extension interface (numba.extending), which is pinned with it.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

Bytes = npt.NDArray[np.uint8]

IS_COMPILED: bool = not numba.config.DISABLE_JIT  # else nothing here is fast

if not IS_COMPILED:

    def byte_at(array: Bytes, place: int) -> int:
        """The byte at a place."""
        return int(array[place])

    def word_at(array: Bytes, place: int) -> int:
        """The eight bytes from a place on, the first of them the lowest; the highest bit is a sign."""
        return int.from_bytes(array[place : place + 8].tobytes(), "little", signed=True)

else:

    def _address(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401 - numba's own
        held = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.gep(held.data, [context.cast(builder, arguments[1], signature.args[1], types.intp)])

    @intrinsic
    def byte_at(context: Any, array: Any, place: Any) -> Any:  # noqa: ANN401, ARG001 - numba's own
        """The byte at a place."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
            return builder.zext(builder.load(_address(context, builder, signature, arguments)), ir.IntType(64))

        return types.int64(array, place), generate

    @intrinsic
    def word_at(context: Any, array: Any, place: Any) -> Any:  # noqa: ANN401, ARG001 - numba's own
        """The eight bytes from a place on, the first of them the lowest; the highest bit is a sign."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
            word = builder.bitcast(_address(context, builder, signature, arguments), ir.IntType(64).as_pointer())
            return builder.load(word, align=1)

        return types.int64(array, place), generate
