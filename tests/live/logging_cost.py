"""What the request log costs a broker: CPU and bytes, with the log off, filtered and full, side by side.

    .venv/bin/python tests/live/logging_cost.py --kafka 4.4.0 [--settings off,filtered,full] [--seconds 30]

For each setting a cluster of its own is started: one controller and three brokers on this machine, their JVMs compiling
as they do by default. A producer (acks=all, each record a request of its own) and a consumer of a group that commits
what it reads are the load; it is the same each time. After a time to warm up, the CPU seconds of the three brokers
(`/proc/PID/stat`) and what they add to their request logs are taken over the same number of seconds.

`off` is the recommended file with the request logger at WARN, `filtered` that file as it is, `full` without its filter.
"""

from __future__ import annotations

import argparse
import platform
import re
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cluster import Cluster
from releases import RELEASES, release

CONF = Path(__file__).parents[2] / "conf"
SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 3,
    "group.initial.rebalance.delay.ms": 0,
    "min.insync.replicas": 2,
}
WARM_UP_S = 30  # until what is called often has been compiled
LEVEL = {
    ".yaml": (r"(name: kafka\.request\.logger\n\s+level: )DEBUG", r"\1WARN"),
    ".properties": (r"(kafka\.request\.logger=)DEBUG", r"\1WARN"),
}
FILTER = {
    ".yaml": r"(?m)^ +RegexFilter:\n(?: +(?:regex|onMatch|onMismatch): .*\n){3}",
    ".properties": r"(?m)^log4j\.appender\.requestAppender\.filter\..*\n",
}


@dataclass(frozen=True)
class Cost:
    """What the three brokers used and wrote in the time that was measured."""

    cpu_seconds: float
    lines: int
    bytes: int
    records: int
    seconds: float


def recommended(kafka: str) -> Path:
    """The file that we recommend for that release."""
    return CONF / ("kafka-broker-log4j2.yaml" if kafka >= "4" else "kafka-broker-log4j.properties")


def logging_file(kafka: str, setting: str, folder: Path) -> Path:
    """The recommended file, changed for `setting`.

    Raises:
        ValueError: the file has no such place any more.
    """
    own = recommended(kafka)
    text = own.read_text()
    changes = {"off": LEVEL[own.suffix], "full": (FILTER[own.suffix], ""), "filtered": None}[setting]
    if changes is not None:
        text, found = re.subn(*changes, text)
        if not found:
            raise ValueError(f"{own} has nothing to change for {setting!r}")
    changed = folder / f"logging{own.suffix}"
    changed.write_text(text)
    return changed


def request_logs(cluster: Cluster) -> tuple[int, int]:
    """Lines and bytes of the brokers' request logs; none of them is full yet."""
    logs = [cluster.logs(broker) / "kafka-request.log" for broker in cluster.brokers]
    texts = [log.read_bytes() for log in logs if log.exists()]
    return sum(text.count(b"\n") for text in texts), sum(map(len, texts))


def measure(kafka: str, setting: str, seconds: int, per_second: int) -> Cost:
    with tempfile.TemporaryDirectory(prefix="logging-cost-") as home:
        logging = logging_file(kafka, setting, Path(home))
        with Cluster(Path(home), release(kafka), logging, SETTINGS, jvm=()) as cluster:
            cluster.start()
            cluster.create_topic("load", "1:2:3,2:3:1,3:1:2")
            producer = cluster.producer("load", "-1", per_second, batch_size=0, linger_ms=0)
            cluster.consumer("load")
            producer.wait_for_more(1)
            time.sleep(WARM_UP_S)
            before = taken(cluster, len(producer.acknowledged()))
            time.sleep(seconds)
            after = taken(cluster, len(producer.acknowledged()))
            return Cost(*(round(b - a, 2) for a, b in zip(before, after, strict=True)))


def taken(cluster: Cluster, records: int) -> tuple[float, int, int, int, float]:
    cpu = sum(cluster.cpu_seconds(broker) for broker in cluster.brokers)
    return cpu, *request_logs(cluster), records, time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kafka", choices=RELEASES, default=RELEASES[-1], help="release of the brokers")
    parser.add_argument("--settings", default="off,filtered,full", help="which, in this order, a name may come twice")
    parser.add_argument("--seconds", type=int, default=30, help="how long is measured")
    parser.add_argument("--per-second", type=int, default=150, help="records to be sent in a second")
    told = parser.parse_args()
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, Kafka {told.kafka}, {platform.platform()}", flush=True)
    for setting in told.settings.split(","):
        cost = measure(told.kafka, setting, told.seconds, told.per_second)
        per_line = f"{cost.bytes / cost.lines:,.0f} bytes a line" if cost.lines else "no lines"
        print(
            f"{setting:9} {cost.records:,} records in {cost.seconds:.0f} s: CPU {cost.cpu_seconds:.2f} s, "
            f"{cost.lines:,} lines, {cost.bytes:,} bytes, {per_line}",
            flush=True,
        )


if __name__ == "__main__":
    main()
