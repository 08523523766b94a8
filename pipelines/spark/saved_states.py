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
AT_ONCE: Final = 4 << 20  # bytes of a state that wait to be compressed together; of a longer one none of them wait
APART: Final = 64 << 10  # from so many bytes on, `pickle` hands them on as they are, and has no copy
OURS: Final = ("replay.",)
OTHERS: Final = {
    ("builtins", "set"), ("builtins", "frozenset"), ("builtins", "list"), ("collections", "defaultdict"),
    ("datetime", "datetime"), ("zoneinfo", "ZoneInfo"),
}  # fmt: skip


def bytes_of(state: dict[str, Any]) -> bytes:
    """Return a state as bytes."""
    out = Compressed()
    StateWriter(out, protocol=5).dump(state)
    return out.end()


def state_of(data: bytes) -> dict[str, Any]:
    """Return the state of which `bytes_of` made these bytes. `pickle.UnpicklingError`: they name anything else."""
    with io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(data)) as read:
        found: dict[str, Any] = StateReader(read).load()
    return found


class Compressed:
    """Takes what `pickle` writes and compresses it: a short state as a whole, a longer one as it comes.

    A long one would otherwise be in memory several times: what it is made of, as it is written, and that as a whole.
    """

    def __init__(self) -> None:
        """Nothing was written yet."""
        self.out, self.waiting = io.BytesIO(), io.BytesIO()
        self.stream: Any = None

    def write(self, data: bytes | pickle.PickleBuffer) -> None:
        """Take the next bytes; those that lie apart are released, for `pickle` keeps a hold on all that it has met."""
        (self.waiting if self.stream is None else self.stream).write(data)
        if isinstance(data, pickle.PickleBuffer):
            data.release()
        if self.stream is None and self.waiting.tell() > AT_ONCE:
            self.stream = zstandard.ZstdCompressor(LEVEL).stream_writer(self.out, closefd=False)
            self.stream.write(self.waiting.getbuffer())
            self.waiting = io.BytesIO()

    def end(self) -> bytes:
        """Return all of it, compressed."""
        if self.stream is None:
            return zstandard.ZstdCompressor(LEVEL).compress(self.waiting.getbuffer())
        self.stream.close()
        return self.out.getvalue()


class StateWriter(pickle.Pickler):
    """Writes arrays and tables as their values alone: not the memory that they are a view of."""

    def reducer_override(self, obj: object) -> Any:  # noqa: ANN401 - as in its base
        """Return how to make an object again, for those that pickle does not write as they should be."""
        if isinstance(obj, State):
            return laid_out, (obj.broker, obj.remote, obj.cache, obj.partition)
        if isinstance(obj, np.ndarray) and obj.dtype.names is not None:
            return records_again, (obj.dtype.names, apart(obj.tobytes()))
        if isinstance(obj, np.ndarray | np.generic):
            return array_again, (str(obj.dtype), obj.shape, apart(obj.tobytes()))
        if isinstance(obj, pa.Table):
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, obj.schema) as stream:
                stream.write_table(obj)
            return table_again, (apart(out.getvalue()),)
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


def apart(data: bytes | pa.Buffer) -> bytes | pickle.PickleBuffer:
    """Return bytes for `pickle` to write as bytes; many so that they can be released once they are written."""
    if len(memoryview(data)) < APART:
        return bytes(data)
    return pickle.PickleBuffer(memoryview(data).toreadonly())


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
