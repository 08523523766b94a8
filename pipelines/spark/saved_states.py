"""States of the replay as bytes, and back: only what a state is made of is read, whoever wrote the bytes.

`pickle` alone would call whatever the bytes name. Here it may make instances of the engine's own classes, and the few
containers and arrays that they hold. A state is good for the very engine that wrote it.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import zstandard

from replay.arrays.records import dtype_of
from replay.protocol.state import State, laid_out

LEVEL: Final = 3
OURS: Final = ("replay.",)
OTHERS: Final = {
    ("builtins", "set"), ("builtins", "frozenset"), ("builtins", "list"), ("collections", "defaultdict"),
    ("datetime", "datetime"), ("zoneinfo", "ZoneInfo"),
}  # fmt: skip


def bytes_of(state: dict[str, Any]) -> bytes:
    """Return a state as bytes."""
    out = io.BytesIO()
    StateWriter(out, protocol=5).dump(state)
    return zstandard.ZstdCompressor(LEVEL).compress(out.getvalue())


def state_of(data: bytes) -> dict[str, Any]:
    """Return the state of which `bytes_of` made these bytes. `pickle.UnpicklingError`: they name anything else."""
    found: dict[str, Any] = StateReader(io.BytesIO(zstandard.ZstdDecompressor().decompress(data))).load()
    return found


class StateWriter(pickle.Pickler):
    """Writes arrays and tables as their values alone: not the memory that they are a view of."""

    def reducer_override(self, obj: object) -> Any:  # noqa: ANN401 - as in its base
        """Return how to make an object again, for those that pickle does not write as they should be."""
        if isinstance(obj, State):
            return laid_out, (obj.broker, obj.remote, obj.cache, obj.partition)
        if isinstance(obj, np.ndarray) and obj.dtype.names is not None:
            return records_again, (obj.dtype.names, obj.tobytes())
        if isinstance(obj, np.ndarray | np.generic):
            return array_again, (str(obj.dtype), obj.shape, obj.tobytes())
        if isinstance(obj, pa.Table):
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, obj.schema) as stream:
                stream.write_table(obj)
            return table_again, (out.getvalue().to_pybytes(),)
        return (ZoneInfo, (obj.key,)) if isinstance(obj, ZoneInfo) else NotImplemented


class StateReader(pickle.Unpickler):
    """Makes nothing that is not on the list."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as in its base
        """Return a class or function by name. `UnpicklingError`: no state has it.

        Of the engine's modules only what they define themselves: by way of a module that one has imported, as
        `os.system`, or of an attribute of anything, bytes could name whatever they like.
        """
        if (module, name) in OTHERS:
            return super().find_class(module, name)
        if name.isidentifier() and (module.startswith(OURS) or (module == __name__ and name.endswith("_again"))):
            found = super().find_class(module, name)
            if getattr(found, "__module__", None) == module:
                return found
        message = f"no state holds a {module}.{name}"
        raise pickle.UnpicklingError(message)


def array_again(kind: str, shape: tuple[int, ...], data: bytes) -> Any:  # noqa: ANN401 - of any dimensions
    """Return an array of these values; a number if it has no dimensions."""
    return np.frombuffer(data, np.dtype(kind)).reshape(shape).copy()[()]


def records_again(names: tuple[str, ...], data: bytes) -> Any:  # noqa: ANN401 - of any class of records
    """Return records with these fields."""
    return np.frombuffer(data, np.int64).copy().view(dtype_of(names))


def table_again(data: bytes) -> pa.Table:
    """Return a table."""
    with pa.ipc.open_stream(data) as stream:
        return stream.read_all()
