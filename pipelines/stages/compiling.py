"""Compiles the rules of the replay in a process of its own, at the first start after an installation.

numba compiles one rule after the other and holds Python's lock meanwhile, so that a thread would not help. A first
start compiles for a minute, and two thirds of it are the rules of the order and of the replay, one after the other.
Here the replay's are compiled while Spark starts, files are parsed and the order's are compiled; the driver then finds
them where compiled rules are kept (`replay.arrays.code_cache`). Should that fail, it compiles them itself.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from pipelines.spark.beside import started
from replay.arrays.code_cache import is_missing
from replay.engine.kernel import fold

if TYPE_CHECKING:
    from collections.abc import Callable


def begin() -> Callable[[], object]:
    """Begin to compile, unless it was done before. Returns what waits for the end of it."""
    if not is_missing(fold):
        return lambda: None
    return started(__name__, subprocess.DEVNULL, subprocess.DEVNULL).wait


def main() -> None:
    """Replay one event."""
    import pyarrow as pa  # noqa: PLC0415 - only this process needs them at once

    from pipelines.stages.replay import replay_here  # noqa: PLC0415
    from schemas.tables import TABLES  # noqa: PLC0415

    event = {"recording_id": "", "topic": "", "partition": 0, "seq": 0, "kind": "append"}
    list(replay_here(pa.Table.from_pylist([event], TABLES["replication_events"].arrow_schema)))


if __name__ == "__main__":
    main()
