"""Replication quotas of a real ZooKeeper cluster: its brokers' lines alone say which limits hold, and since when not.

A follower stands still until it has left the ISR, and has to catch up under a limit that it exceeds at once, a batch at
a time. Then the limit is taken back.
"""

from __future__ import annotations

import time
from datetime import timedelta
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
    "replica.fetch.max.bytes": 1,  # a batch at a time
}
HELD_BACK_S = 4.0
SHRUNK = "Shrinking ISR from 1,2 to 1"  # as the leader's server log says it
LIMIT = 100  # bytes per second; the records alone are more than that, while the follower is let fetch
# Bytes that exceed the limit over the twelve seconds that a broker's rate goes over, at most.
ENOUGH = 15 * LIMIT
PER_SECOND = 100

Tables = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Tables:
    """The events of the partition, and its tables."""
    brokers = release_or_skip(RELEASES[0])
    logging = repository / "conf" / "kafka-broker-log4j.properties"
    with ZooKeeperCluster(tmp_path_factory.mktemp("zookeeper"), brokers, logging, SETTINGS) as cluster:
        cluster.start()
        cluster.create_topic("orders", "1:2")
        cluster.throttle("orders", "0:1", "0:2")  # lists that a topic is created with have no effect yet
        for broker in cluster.brokers:
            cluster.limit_replication(LIMIT, broker)
        producer = cluster.producer("orders", "1", PER_SECOND)
        # Of records that a slow machine sends in few batches, a second's are too few.
        fetched = cluster.data(2) / "orders-0" / f"{0:020}.log"
        producer.process.until(lambda: fetched.stat().st_size > ENOUGH, "a follower that fetched more than the limit")
        cluster.pause(2)
        log = cluster.logs(1) / "server.log"
        # No longer than that: what the leader sent before it counts against its limit for ten seconds.
        until(lambda: SHRUNK in log.read_text(), "a follower that has left the ISR")
        cluster.resume(2)
        time.sleep(HELD_BACK_S)
        for broker in cluster.brokers:
            cluster.limit_replication(None, broker)
        until(cluster.is_fully_replicated, "every replica in sync")
        producer.process.stop()
        cluster.stop()
        recording = cluster.record(cluster.home / "recording")
    (events,) = (one for one in events_of(recording) if one["topic"][0].as_py() == "orders")
    return {"events": events.to_pylist(), **{name: table.to_pylist() for name, table in tables_of(events).items()}}


def test_limits_begin_and_end_with_the_lines_of_their_brokers(found: Tables) -> None:
    limits = [
        (row["broker_id"], row["leader_quota"], row["follower_quota"], row["evidence"])
        for row in found["events"]
        if row["kind"] == "config_change" and row["broker_id"] is not None
    ]
    begun, ended = ([(1, rate, None, "observed"), (2, None, rate, "observed")] for rate in (LIMIT, -1))
    assert limits == [*begun, *ended]


def test_what_the_limits_held_back_is_told_and_agrees_with_the_rates(found: Tables) -> None:
    held_back = [row for row in found["fetch_rounds"] if row["quota"] is not None]
    assert held_back
    assert {row["quota_limit"] for row in held_back} == {LIMIT}
    (check,) = (row for row in found["conformance"] if row["check"] == "replication_quota")
    assert check["compared"] == check["matched"] > 0


def test_the_shrink_was_made_at_a_run_that_the_broker_s_start_tells(found: Tables) -> None:
    shrinks = [row for row in found["isr_timeline"] if row["earliest_expiry_ts"] is not None]
    assert shrinks
    a_moment = timedelta(milliseconds=250)
    for row in shrinks:
        assert row["earliest_expiry_ts"] - a_moment <= row["ts"] <= row["latest_expiry_ts"] + a_moment
