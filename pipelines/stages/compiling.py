"""Compiles what is compiled in processes of their own, at the first start after installing.

numba compiles one rule after the other and holds Python's lock meanwhile, so that a thread would not help. A first
start compiles for a minute, and two thirds of it are the rules of the order and of the replay, one after the other.
Here the replay's are compiled while Spark starts, files are parsed and the order's are compiled; the driver then finds
them where compiled rules are kept (`replay.arrays.code_cache`). Should that fail, it compiles them itself.

The driver compiles what reads requests, and the order's, itself if it reads and orders. If workers on its machine do,
it is done before they begin: each of them would compile all, which takes twice the memory that it needs otherwise.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from pipelines.parse.requests.scanned_facts import RequestScanner
from pipelines.parse.requests.scanned_rows import FOUND, rows_of
from pipelines.parse.requests.scanner import scan
from pipelines.spark.beside import started
from replay.arrays.code_cache import is_missing
from replay.engine.kernel import fold
from replay.order.merge import merge

if TYPE_CHECKING:
    from collections.abc import Callable

PARSE, ORDER, REPLAY = "parse", "order", "replay"


def begin() -> Callable[[], object]:
    """Begin to compile the replay's, unless it was done before. Returns what waits for the end of it."""
    return begun(REPLAY) if is_missing(fold) else lambda: None


def compile_parse(master: str | None) -> None:
    """Compile what reads requests for Spark's workers, if they are on this machine and it was not done before."""
    if (master or "").startswith("local") and (is_missing(scan) or is_missing(rows_of)):
        begun(PARSE)()


def compile_order(master: str | None) -> None:
    """Compile the order's in the same way."""
    if (master or "").startswith("local") and is_missing(merge):
        begun(ORDER)()


def begun(what: str) -> Callable[[], object]:
    """Begin to compile one of them; return what waits for the end of it."""
    return started(__name__, subprocess.DEVNULL, subprocess.DEVNULL, what).wait


def parse_one() -> None:
    """Read a block of lines in which there is no request."""
    import numpy as np  # noqa: PLC0415 - only this process needs it at once

    nothing = np.zeros(1, np.int64)
    data = bytes(64)
    block, scanner = np.frombuffer(data, np.uint8), RequestScanner()
    scanner.find(block, nothing, nothing)
    for number in (0, 1):
        scanner.read(number, data, block, np.zeros((1, FOUND), np.int64), nothing, None)


def order_one() -> None:
    """Order one event, and the listings of no session."""
    import numpy as np  # noqa: PLC0415 - only this process needs them at once

    from replay.arrays.records import blank  # noqa: PLC0415
    from replay.engine.event_record import EventRecord  # noqa: PLC0415
    from replay.evidence.session_turns import take_turns  # noqa: PLC0415
    from replay.order.front import OP_NOTED, OperationRecord  # noqa: PLC0415
    from replay.order.order import TenureSpan, arrange  # noqa: PLC0415
    from replay.protocol.profile import profile_named  # noqa: PLC0415
    from replay.protocol.state import new_state  # noqa: PLC0415

    nothing = np.zeros(0, np.int64)
    take_turns(np.zeros(1, np.int64), nothing, nothing, np.zeros(0, np.bool_), nothing, nothing, nothing)
    operation = blank(1, OperationRecord)
    operation["type"], operation["count"] = OP_NOTED, 1
    spans = [TenureSpan(0, [operation], profile_named(None, None))]
    arrange(new_state(1, min_isr=1, lag_us=1), blank(1, EventRecord), spans)


def replay_one() -> None:
    """Replay one event."""
    import pyarrow as pa  # noqa: PLC0415 - only this process needs them at once

    from pipelines.stages.replay import replay_here  # noqa: PLC0415
    from schemas.tables import TABLES  # noqa: PLC0415

    event = {"recording_id": "", "topic": "", "partition": 0, "seq": 0, "kind": "append"}
    list(replay_here(pa.Table.from_pylist([event], TABLES["replication_events"].arrow_schema)))


def main(what: str) -> None:
    """Compile one of them."""
    {PARSE: parse_one, ORDER: order_one, REPLAY: replay_one}[what]()


if __name__ == "__main__":
    main(sys.argv[1])
