"""Real brokers, made to lose records in two ways, recorded, and replayed: Tidemark must tell what their clients saw.

Topic `payments` is produced to with acks=all, `clicks` with acks=1. First the leader of both is killed while its
followers stand still for a moment: an in-sync follower takes over, and what one broker alone had acknowledged is gone.
Then the followers stand still until they leave the ISR, and the leader is killed: nobody in sync is left, an unclean
election follows, and acks=all does not help. Producers send all the time; each killed broker comes back and truncates.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from cluster import Cluster, until
from recorder import record
from releases import RELEASES, release_or_skip
from without_spark import events_of, tables_of

from pipelines.collecting.collector import Order, gather
from pipelines.recording.recording import discover
from pipelines.stages.run import execute

if TYPE_CHECKING:
    from pathlib import Path

    from cluster import Client, Producer
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live

REPLAYED = RELEASES[1:]  # of 3.9 there are recordings
SETTINGS = {
    "min.insync.replicas": 1,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 3,
    "group.initial.rebalance.delay.ms": 0,
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 6000,
    "controlled.shutdown.enable": "true",
}
TOPICS = {"payments": "-1", "clicks": "1"}
PER_SECOND = 40
ENOUGH = 30
A_MOMENT_S = 0.75
# At kill -9 an answer may have left without its line in the log, or have its line and never arrive.
ON_ITS_WAY_S = 0.25
ON_ITS_WAY = int(PER_SECOND * ON_ITS_WAY_S)

# By topic: which kill lost acknowledged records, how, and where the report counts them.
LOSSES = {
    "payments": ("acked_all", {1: "unclean_election"}),
    "clicks": ("acked_one", {0: "acks_one_leader_failure", 1: "unclean_election"}),
}

Slot = tuple[str, int, int]  # topic, partition, offset
Tables = dict[str, dict[str, list[dict[str, Any]]]]  # by topic and table


@dataclass(frozen=True)
class Seen:
    """What clients saw, and what is left on disk."""

    acknowledged: dict[str, list[dict[str, Any]]]
    read: dict[Slot, str]  # at the end, what stands where
    leaders: list[int]
    kills: list[float]
    recording: Path
    folders: dict[int, list[str]]  # what the nodes left behind
    dump_tool: str

    def lost(self, topic: str) -> list[dict[str, Any]]:
        """Acknowledged records that do not stand where they were said to stand."""
        return [record for record in self.acknowledged[topic] if self.read.get(slot(record)) != record["value"]]


def slot(event: dict[str, Any]) -> Slot:
    return event["topic"], event["partition"], event["offset"]


@pytest.fixture(scope="module", params=REPLAYED)
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Seen:
    brokers = release_or_skip(request.param)
    logging = repository / "conf" / "kafka-broker-log4j2.yaml"
    try:
        with Cluster(tmp_path_factory.mktemp("live"), brokers, logging, SETTINGS) as cluster:
            return tell_the_story(cluster)
    except (TimeoutError, ChildProcessError):  # the cluster did not get there, a slow machine; nothing was compared yet
        with Cluster(tmp_path_factory.mktemp("again"), brokers, logging, SETTINGS) as cluster:
            return tell_the_story(cluster)


def tell_the_story(cluster: Cluster) -> Seen:
    cluster.start()
    for topic in TOPICS:
        cluster.create_topic(topic, "1:2:3", unclean_leader_election_enable="true")
    producers = {topic: cluster.producer(topic, acks, PER_SECOND) for topic, acks in TOPICS.items()}
    leaders, kills = [cluster.leader("payments")], []
    for awaited in ("clicks", "payments"):
        for producer in producers.values():
            producer.wait_for_more(ENOUGH)
        leader, followers = leaders[-1], [broker for broker in cluster.brokers if broker != leaders[-1]]
        cluster.pause(*followers)
        # clicks are acknowledged all the time; payments, once what was in flight is through, when the leader is alone.
        time.sleep(A_MOMENT_S)
        producers[awaited].wait_for_more(1)
        time.sleep(A_MOMENT_S)
        cluster.kill(leader)
        kills.append(time.time())
        cluster.resume(*followers)
        producers["payments"].wait_for_more(ENOUGH)
        cluster.restart(leader)
        until(cluster.is_fully_replicated, "every replica in sync")
        leaders.append(cluster.leader("payments"))
    for producer in producers.values():
        producer.wait_for_more(ENOUGH)
        producer.process.stop()
    read = read_everything(cluster, producers)
    cluster.stop()
    acknowledged = {topic: producer.acknowledged() for topic, producer in producers.items()}
    folders = {
        node: list(map(str, (cluster.logs(node), cluster.data(node), cluster.config(node)))) for node in cluster.nodes
    }
    recording = record(cluster, cluster.home / "recording")
    return Seen(acknowledged, read, leaders, kills, recording, folders, cluster.dump_tool)


def read_everything(cluster: Cluster, producers: dict[str, Producer]) -> dict[Slot, str]:
    read = {}
    for topic, producer in producers.items():
        last = slot(producer.acknowledged()[-1])
        consumer = cluster.consumer(topic)
        until(partial(has_read, consumer, last), f"a consumer that reached {last}")
        consumer.process.stop()
        read |= {slot(event): event["value"] for event in consumer.events("record_data")}
    return read


def has_read(consumer: Client, record: Slot) -> bool:
    return record in map(slot, consumer.events("record_data"))


@pytest.fixture(scope="module")
def replayed(seen: Seen) -> Tables:
    """Each topic's tables, without Spark."""
    return tables_from(seen.recording)


def tables_from(recording: Path) -> Tables:
    found = {}
    for events in events_of(recording):
        topic = events["topic"][0].as_py()
        if topic in TOPICS:
            found[topic] = {name: table.to_pylist() for name, table in tables_of(events).items()}
    return found


def compare(seen: Seen, topic: str, incidents: list[dict[str, Any]]) -> None:
    """The losses that are reported are those that the clients had, kill by kill."""
    column, mechanisms = LOSSES[topic]
    accused = sorted((i for i in incidents if i["acked_all"] + i["acked_one"]), key=lambda i: i["new_leader_epoch"])
    assert [incident["mechanism"] for incident in accused] == list(mechanisms.values())
    since, lost = 0.0, seen.lost(topic)
    for incident, kill in zip(accused, (seen.kills[k] for k in mechanisms), strict=True):
        mine = [r for r in lost if since <= r["timestamp"] / 1000 < kill + ON_ITS_WAY_S]
        offsets = {r["offset"] for r in mine if r["timestamp"] / 1000 < kill - ON_ITS_WAY_S}
        reported = {o for span in incident["ranges"] for o in range(span["first_offset"], span["last_offset"] + 1)}
        assert len(offsets) >= ON_ITS_WAY, "the story lost too little to compare"
        assert offsets <= reported
        assert min(offsets) == min(reported)
        assert len(offsets) <= incident[column] <= len(mine) + ON_ITS_WAY
        assert len(reported) <= len(mine) + ON_ITS_WAY
        lost = [r for r in lost if r not in mine]
        since = kill
    assert not lost, "lost, and not reported"


@pytest.mark.parametrize("topic", TOPICS)
def test_what_is_reported_lost_is_what_clients_lost(topic: str, seen: Seen, replayed: Tables) -> None:
    compare(seen, topic, replayed[topic]["data_loss_incidents"])


def tenures(seen: Seen, tables: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Those of the story: while the cluster stops, brokers may hand over once more."""
    return [row for row in tables["leadership_timeline"] if row["leader_id"] is not None][: len(seen.leaders)]


@pytest.mark.parametrize("topic", TOPICS)
def test_leaders_are_those_that_clients_were_told_of(topic: str, seen: Seen, replayed: Tables) -> None:
    rows = tenures(seen, replayed[topic])
    assert [row["leader_id"] for row in rows] == seen.leaders
    assert [row["election"] for row in rows] == ["initial", "clean", "unclean"]


@pytest.mark.parametrize("topic", TOPICS)
def test_leader_epochs_begin_where_every_disk_says(topic: str, seen: Seen, replayed: Tables) -> None:
    ours = [[row["leader_epoch"], row["start_offset"]] for row in tenures(seen, replayed[topic])]
    checkpoints = list((seen.recording / "segments").glob(f"node-*/{topic}-0/leader-epoch-checkpoint"))
    assert len(checkpoints) == len(Cluster.brokers)
    for checkpoint in checkpoints:
        _version, _count, *lines = checkpoint.read_text().splitlines()
        assert ours == [[int(word) for word in line.split()] for line in lines][: len(ours)]


@pytest.mark.parametrize("topic", TOPICS)
def test_each_log_was_cut_where_its_broker_said(topic: str, seen: Seen, replayed: Tables) -> None:
    said = {
        (broker, int(offset))
        for broker in Cluster.brokers
        for offset in re.findall(
            rf"\[UnifiedLog partition={topic}-0, .*\] Truncating to offset (\d+) ",
            (seen.recording / "logs" / f"node-{broker}" / "server.log").read_text(),
        )
    }
    cuts = [(row["broker_id"], row["leo_after"]) for row in replayed[topic]["log_truncations"]]
    assert sorted(cuts) == sorted(said)
    starts = [row["start_offset"] for row in tenures(seen, replayed[topic])]
    assert {(seen.leaders[kill], starts[kill + 1]) for kill in LOSSES[topic][1]} <= said


@pytest.mark.parametrize("seen", REPLAYED[-1:], indirect=True)
def test_what_collect_takes_from_dead_brokers_folders_says_the_same(
    seen: Seen, replayed: Tables, tmp_path: Path
) -> None:
    """With dumps that it made by the release's own tool, and once more when there is nothing new."""
    order = Order(tmp_path / seen.recording.name, seen.folders, dump_tool=seen.dump_tool)
    gathered = gather(order)
    assert gathered.unread == []
    assert not gathered.commands
    for name in ("kafka-request.log", "server.log", "00000000000000000000.log.dump"):
        assert len(list(order.into.glob(f"**/{name}*.zst"))) >= len(Cluster.brokers)
    tables = tables_from(order.into)
    for topic in TOPICS:
        compare(seen, topic, tables[topic]["data_loss_incidents"])
        for name, rows in replayed[topic].items():
            assert [told(row) for row in tables[topic][name]] == [told(row) for row in rows], name
    again = gather(order)
    assert (again.new, again.grown) == ([], [])


def told(row: dict[str, Any]) -> dict[str, Any]:
    """What a row says, without where in the recording it is told."""
    return {name: value for name, value in row.items() if name not in {"source_file", "source_line", "chain_sources"}}


@pytest.mark.spark
@pytest.mark.parametrize("seen", REPLAYED[-1:], indirect=True)
def test_the_tables_that_spark_writes_say_the_same(seen: Seen, spark: SparkSession, tmp_path: Path) -> None:
    recording = discover(str(seen.recording), recording_id="live")
    settings = {"shuffle_partitions": 2}
    done = execute(spark, str(tmp_path), "live", recording, ("ingest", "replay"), settings, lambda *_: None)
    incidents = [row.asDict(recursive=True) for row in done.warehouse.read("data_loss_incidents", "live").collect()]
    for topic in TOPICS:
        compare(seen, topic, [incident for incident in incidents if incident["topic"] == topic])
