"""What the log of a broker misses that is stopped by SIGTERM while clients produce: with our settings, and without.

    .venv/bin/python tests/live/log_end.py --kafka 4.4.0 [--settings ours,hook,option] [--times 3] [--into DIR]

For each setting a cluster of its own is started: one controller and three brokers on this machine. Three producers
send all the time: to `payments` with acks=all, to `clicks` with acks=1, and with acks=1 to `alone`, which only the
broker has that is stopped. Then each offset that a producer was told is looked up in all request logs.

`ours` is the recommended file as it is, `hook` the same without `shutdownHook: disable`: Log4j 2 then closes the logs
by a hook of the JVM, which runs beside Kafka's own. `option` is `hook` with a JVM option that does the same. `--into`
keeps what was recorded, a folder for each trial.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster import SHORT_LIVED, Cluster
from recorder import record
from releases import RELEASES, release

if TYPE_CHECKING:
    from collections.abc import Iterator

CONF = Path(__file__).parents[2] / "conf" / "kafka-broker-log4j2.yaml"
OPTION = "-Dlog4j.shutdownHookEnabled=false"
HOOK = r"(?m)^  shutdownHook: disable\n"
KAFKA_4 = tuple(one for one in RELEASES if one >= "4")
SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 3,
    "group.initial.rebalance.delay.ms": 0,
    "min.insync.replicas": 1,
}
STOPPED = 1
TOPICS = {"payments": ("-1", "1:2:3"), "clicks": ("1", "1:2:3"), "alone": ("1", "1")}
ENOUGH = 500
STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\]")

Slot = tuple[str, int]  # of partition 0


@dataclass(frozen=True)
class End:
    """What is left of the end of a broker, in seconds after its SIGTERM."""

    acknowledged: int  # records, by all brokers
    not_logged: dict[str, int]  # of these, by topic, those that no request log has
    last_request: float  # the last line of the stopped broker's request log
    last_word: float  # the last line of its server log
    last_answer: float  # when the producer of `alone` was told of a record for the last time
    ended: float  # when its process was gone


def settings_file(setting: str, folder: Path) -> Path:
    """The recommended file, changed for `setting`.

    Raises:
        ValueError: it has no such line any more.
    """
    text = CONF.read_text()
    if setting != "ours":
        text, found = re.subn(HOOK, "", text)
        if not found:
            raise ValueError(f"{CONF} has no line to take away for {setting!r}")
    changed = folder / "logging.yaml"
    changed.write_text(text)
    return changed


def logged(cluster: Cluster) -> set[Slot]:
    """Where brokers logged that they had written a record; which batch it is in is told by what lies on the disks."""
    found: set[Slot] = set()
    batches = batches_of(cluster)
    names = {topic_id(cluster.data(STOPPED) / f"{topic}-0"): topic for topic in TOPICS}
    for broker in cluster.brokers:
        for line in (cluster.logs(broker) / "kafka-request.log").read_text().splitlines():
            told = re.search(r'Completed request:(\{.*"requestApiKey":0,.*\})', line)
            if told:
                bases = appended(json.loads(told[1])["response"], names)
                found |= {(topic, offset) for topic, base in bases for offset in range(base, batches[topic, base] + 1)}
    return found


def batches_of(cluster: Cluster) -> dict[Slot, int]:
    """The last offset of each batch, by its first: a producer that has to wait puts two records into one."""
    topic, found = "", {}
    segments = [
        one for broker in cluster.brokers for name in TOPICS for one in cluster.data(broker).glob(f"{name}-0/*.log")
    ]
    for line in cluster.dump(segments).splitlines():
        if line.startswith("Dumping "):
            topic = Path(line.removeprefix("Dumping ")).parent.name.removesuffix("-0")
        elif batch := re.match(r"baseOffset: (\d+) lastOffset: (\d+) ", line):
            found[topic, int(batch[1])] = int(batch[2])
    return found


def appended(response: dict[str, Any], names: dict[str, str]) -> Iterator[Slot]:
    for topic in response["responses"]:
        for partition in topic["partitionResponses"]:
            if partition["errorCode"] == 0:
                yield topic.get("name") or names[topic["topicId"]], partition["baseOffset"]


def topic_id(folder: Path) -> str:
    """What produce lines call a topic by from version 13 of the request on."""
    return (folder / "partition.metadata").read_text().partition("topic_id: ")[2].strip()


def last_stamp(log: Path) -> float:
    """When the last line of a log was written: brokers' JVMs have this machine's time zone."""
    stamp = STAMP.findall(log.read_text())[-1]
    return datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp()


def stop_while_producing(cluster: Cluster, per_second: int, into: Path | None) -> End:
    cluster.start()
    for topic, (_, assignment) in TOPICS.items():
        cluster.create_topic(topic, assignment)
    producers = {
        topic: cluster.producer(topic, acks, per_second, batch_size=0, linger_ms=0, delivery_timeout_ms=60000)
        for topic, (acks, _) in TOPICS.items()
    }
    for producer in producers.values():
        producer.wait_for_more(ENOUGH)
    told = time.time()
    cluster.stop_one(STOPPED)
    ended = time.time()
    for topic in ("payments", "clicks"):
        producers[topic].wait_for_more(ENOUGH)
    for producer in producers.values():
        producer.process.kill()
    acknowledged = {topic: producer.acknowledged() for topic, producer in producers.items()}
    cluster.stop()
    if into is not None:
        record(cluster, into)
        into.with_name(f"{into.name}.acknowledged.json").write_text(json.dumps(acknowledged))
    there = logged(cluster)
    logs = cluster.logs(STOPPED)
    return End(
        sum(map(len, acknowledged.values())),
        {topic: sum((topic, event["offset"]) not in there for event in acknowledged[topic]) for topic in TOPICS},
        last_stamp(logs / "kafka-request.log") - told,
        last_stamp(logs / "server.log") - told,
        max(event["timestamp"] for event in acknowledged["alone"]) / 1000 - told,
        ended - told,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kafka", choices=KAFKA_4, default=KAFKA_4[-1], help="release of the brokers")
    parser.add_argument("--settings", default="ours,hook", help="which of ours, hook, option, in this order")
    parser.add_argument("--times", type=int, default=1, help="how often each of them")
    parser.add_argument("--per-second", type=int, default=100, help="records that each producer is to send in a second")
    parser.add_argument("--into", type=Path, help="folder for the recordings")
    asked = parser.parse_args()
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, Kafka {asked.kafka}, {platform.platform()}", flush=True)
    for setting in asked.settings.split(","):
        for trial in range(asked.times):
            into = asked.into and asked.into / f"{setting}-{trial}"
            with tempfile.TemporaryDirectory(prefix="log-end-") as home:
                logging = settings_file(setting, Path(home))
                jvm = (*SHORT_LIVED, *([OPTION] if setting == "option" else []))
                with Cluster(Path(home), release(asked.kafka), logging, SETTINGS, jvm) as cluster:
                    end = stop_while_producing(cluster, asked.per_second, into)
            missing = ", ".join(f"{topic} {count}" for topic, count in end.not_logged.items())
            print(
                f"{setting}: {end.acknowledged:,} acknowledged, not in any log: {missing}; seconds after SIGTERM: last "
                f"request logged {end.last_request:.2f}, last line of the server log {end.last_word:.2f}, last "
                f"acknowledgement for `alone` {end.last_answer:.2f}, process gone {end.ended:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
