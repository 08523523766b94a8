"""Which node was the active controller, and when, by the nodes' own lines.

A node says that it becomes active (KRaft) or was elected (ZooKeeper), and that it resigns. One that is active no more
answers NOT_CONTROLLER, but may hear of it late, and one that was just elected first reads the cluster's state.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from replay.evidence.request_times import DECISION_LATE_US
from replay.evidence.tenures import micros

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.evidence.rows import Row

NOBODY: Final = -1
BEGINS: Final = ("active_controller", "controller_elected")
ENDS: Final = ("controller_resigned", "start")  # a node that starts is not active


class ActiveControllers:
    """The node that was active from each line on, until the next."""

    def __init__(self, cluster: Iterable[Row]) -> None:
        """`cluster`: the facts about the whole cluster."""
        told = [
            (micros(row["ts"]), row["name"] in BEGINS, row["broker_id"])
            for row in cluster
            if row["kind"] == "broker_lifecycle"
            and row["name"] in (*BEGINS, *ENDS)
            and row["broker_id"] is not None
            and row["ts"] is not None
        ]
        self.turns: list[tuple[int, int]] = []
        for us, begins, node in sorted(told):
            now = self.turns[-1][1] if self.turns else None
            if begins or node == now:
                self.turns.append((us, node if begins else NOBODY))

    def at(self, us: int) -> int | None:
        """The active node; None: unknown, or it changes about then."""
        place = bisect_right(self.turns, us, key=lambda turn: turn[0])
        if place == 0 or us - self.turns[place - 1][0] <= DECISION_LATE_US:
            return None
        if place < len(self.turns) and self.turns[place][0] - us <= DECISION_LATE_US:
            return None
        return self.turns[place - 1][1]
