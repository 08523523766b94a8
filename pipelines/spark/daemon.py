"""Spark's daemon of Python workers, changed so that a worker whose reader has gone ends without a message.

Spark closes a worker's socket when it needs no more of its rows: the other side of a join was empty, a limit is
reached, a task was finished elsewhere. The worker then gets a `BrokenPipeError`, which Spark's own daemon prints with a
stack trace, though nothing is wrong. Spark starts this module (`spark.python.daemon.module`) instead of its own.

The daemon also loads the large packages that all workers use: those are forked from it, and each would load them anew.
And it has Arrow take its memory from the system: Arrow's own allocator keeps what was freed, several hundred megabytes
of it, while a long partition is ordered piece by piece. What a task has freed goes back to the system at its end.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

from pyspark import daemon

from replay.arrays.memory import give_back

LOADED = ("numpy", "pyarrow.compute", "pyarrow.parquet", "pandas", "numba", "msgspec")
GONE = (BrokenPipeError, ConnectionResetError)


def quiet(worker: Any) -> Any:  # noqa: ANN401 - Spark's own function, which has no types
    """Wrap Spark's worker: it ends normally when its reader has gone, and keeps no memory that its task has freed."""

    def run(*args: object) -> object:
        try:
            return worker(*args)
        except GONE:
            return 1
        finally:
            give_back()  # the next task may be of another stage, whose memory would come on top

    return run


def without_gone(hook: Any) -> Any:  # noqa: ANN401 - as above
    """Wrap Python's hook for unraisable errors (as of a file closed with data left to write) to ignore gone readers."""

    def told(unraisable: Any) -> None:  # noqa: ANN401 - as above
        if not isinstance(unraisable.exc_value, GONE):
            hook(unraisable)

    return told


def main() -> None:
    """Start the daemon."""
    os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "true"  # raise what would be printed otherwise
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # read when Arrow is loaded
    for name in LOADED:
        with suppress(ImportError):  # whoever needs it will say so
            import_module(name)
    gc.freeze()  # or each worker would search all of it for reference cycles, and so copy its pages
    sys.unraisablehook = without_gone(sys.unraisablehook)
    daemon.worker = quiet(daemon.worker)
    daemon.manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
