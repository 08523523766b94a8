"""ISR changes that a real leader writes to ZooKeeper itself: when it tells of them, and its controller hears it.

Both say so at DEBUG. A follower stands still twice: the first shrink comes within the first minute of the leader, so
that its node waits for 5 s without a change.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from cluster import until
from releases import RELEASES, release_or_skip
from without_spark import events_of, tables_of
from zookeeper_cluster import ZooKeeperCluster

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.live

SETTINGS = {
    "replica.lag.time.max.ms": 2000,
    "offsets.topic.replication.factor": 1,
    "inter.broker.protocol.version": "2.6",  # the last with which leaders write the ISR
}
STATING = """
log4j.logger.kafka.zk.KafkaZkClient=DEBUG
log4j.logger.kafka.controller.KafkaController=DEBUG, controllerAppender
log4j.logger.state.change.logger=TRACE, stateChangeAppender
log4j.additivity.state.change.logger=false
"""
STILL_S, AFTER_S = 5.0, 9.0
PER_SECOND = 50
ROUNDS = 2


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> dict[str, list[dict[str, Any]]]:
    """The events of the partition, and its tables."""
    brokers = release_or_skip(RELEASES[0])
    logging = tmp_path_factory.mktemp("logging") / "stating.properties"
    logging.write_text((repository / "conf" / "kafka-broker-log4j.properties").read_text() + STATING)
    with ZooKeeperCluster(tmp_path_factory.mktemp("notices"), brokers, logging, SETTINGS) as cluster:
        cluster.start()
        cluster.create_topic("orders", "1:2")
        producer = cluster.producer("orders", "1", PER_SECOND)
        for _ in range(ROUNDS):
            producer.wait_for_more(PER_SECOND)
            cluster.pause(2)
            time.sleep(STILL_S)
            cluster.resume(2)
            until(cluster.is_fully_replicated, "every replica in sync")
            time.sleep(AFTER_S)
        producer.process.stop()
        cluster.stop()
        recording = cluster.record(cluster.home / "recording")
    (events,) = (one for one in events_of(recording) if one["topic"][0].as_py() == "orders")
    return {"events": events.to_pylist(), **{name: table.to_pylist() for name, table in tables_of(events).items()}}


def test_a_leader_makes_nodes_of_what_it_wrote_and_the_controller_reads_them(
    found: dict[str, list[dict[str, Any]]],
) -> None:
    told = [row["cause"] for row in found["events"] if (row["cause"] or "").startswith("isr_notice")]
    assert told.count("isr_notice_made") >= ROUNDS
    assert told.count("isr_notice_read") >= ROUNDS


def test_nodes_are_made_and_read_when_the_rule_says(found: dict[str, list[dict[str, Any]]]) -> None:
    (check,) = (row for row in found["conformance"] if row["check"] == "isr_propagation")
    assert check["note"] is None
    assert check["compared"] == check["matched"] >= 3 * ROUNDS
