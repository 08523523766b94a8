"""A made quiet cluster at INFO: server logs and a dump of the metadata log that grow in place by a line a minute.

No request is logged. Every six minutes a partition takes a record that one of its followers does not fetch for a while:
its leader shrinks the ISR and expands it again. That is a line of the leader, a record of the controller, and the
leader's line that it heard of it, twice. So each hour some partitions have news, and all the others none.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING

from made_lines import DUMP, START_MS, TOPIC, Pens
from made_state import created

if TYPE_CHECKING:
    from pathlib import Path

MINUTE_MS = 60_000
FLAP_LINES = 6
FLAPS = 60 // FLAP_LINES  # in an hour
SLOW_MS = 90_000  # for so long the follower is out of the ISR


class QuietCluster(Pens):
    """Three brokers, and partitions that hardly anybody writes to."""

    def __init__(self, partitions: int, folder: Path) -> None:
        """Nothing has happened; the recording will stand in `folder`."""
        super().__init__([1, 2, 3])
        self.folder, self.hours, self.flaps = folder, 0, 0
        self.partitions = [created(number, self.brokers) for number in range(partitions)]

    def grow(self, flaps: int = FLAPS) -> None:
        """Let an hour pass, with so many flaps; in the first one the cluster starts."""
        with ExitStack() as stack:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.pens["metadata"] = stack.enter_context((self.folder / DUMP).open("a"))
            for broker in self.brokers:
                log = self.folder / "logs" / f"node-{broker}" / "server.log"
                log.parent.mkdir(parents=True, exist_ok=True)
                self.pens[f"server-{broker}"] = stack.enter_context(log.open("a"))
            if not self.hours:
                self.begin()
            since = START_MS + self.hours * 60 * MINUTE_MS
            for number in range(flaps):
                self.flap(since + MINUTE_MS + number * 58 * MINUTE_MS / flaps)
        self.hours += 1

    def begin(self) -> None:
        """Brokers come up, the topic is made, roles are taken up."""
        config = {"replica.lag.time.max.ms": 30_000, "min.insync.replicas": 1}
        manifest = {"kafka": "4.1.0", "brokers": len(self.brokers), "time_zone": "UTC", "broker_config": config}
        (self.folder / "MANIFEST.json").write_text(json.dumps(manifest))
        self.create(self.partitions)

    def flap(self, at: float) -> None:
        """A follower of the next partition is slow for a while."""
        p = self.partitions[self.flaps * 7 % len(self.partitions)]
        self.flaps += 1
        slow = p.replicas[-1]
        left = [b for b in p.isr if b != slow]
        had = p.logs[p.leader].leo
        p.logs[p.leader].leo += 1
        shrinking = (
            f"Shrinking ISR from {told(p.isr)} to {told(left)}. Leader: (highWatermark: {had}, endOffset: {had + 1}). "
            f"Out of sync replicas: (brokerId: {slow}, endOffset: {had}, lastCaughtUpTimeMs: {int(at) - 31_000})."
        )
        expanding = f"Expanding ISR from {told(left)} to {told(p.replicas)}"
        for now, isr, text in ((at, left, shrinking), (at + SLOW_MS, p.replicas, expanding)):
            self.now = now
            head = f"[Partition {TOPIC}-{p.number} broker={p.leader}]"
            self.line(p.leader, self.now, f"{head} {text} (kafka.cluster.Partition)")
            self.now += 4
            self.change(p, isr=isr)
            p.isr, p.partition_epoch = list(isr), p.partition_epoch + 1
            self.now += 6
            self.line(p.leader, self.now, (
                f"{head} ISR updated to {told(isr)}  and version updated to {p.partition_epoch} "
                "(kafka.cluster.Partition)"
            ))  # fmt: skip


def told(brokers: list[int]) -> str:
    """Brokers as these lines name them."""
    return ",".join(map(str, brokers))
