"""Consumers that a real cluster sends to the replica of their rack, and records that it is asked to delete.

Each broker is in a rack of its own, and leaders choose by racks. There is a consumer in each rack, which two leaders of
three send elsewhere; then records are deleted up to an offset, up to the high watermark, and beyond it, which is
refused. At last two brokers stand still until they are out of the ISR: produces time out as long as their leader waits
for them, and are refused once it is alone. So is what it would write, as the coordinator of a new transactional id.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from cluster import Cluster, until
from recorder import record
from releases import RELEASES, release_or_skip
from without_spark import events_of, tables_of

from pipelines.expectations.invariants import CONFORMANCE_MIN_PERCENT
from replay.protocol.deletion import OFFSET_OUT_OF_RANGE
from replay.protocol.produce import NOT_ENOUGH_REPLICAS, REQUEST_TIMED_OUT

if TYPE_CHECKING:
    from pathlib import Path

    from cluster import Client

pytestmark = pytest.mark.live

PARTS = 6


class RackedCluster(Cluster):
    """One in which each broker is in a rack of its own."""

    def properties(self, node: int) -> dict[str, object]:
        return super().properties(node) | {"broker.rack": rack(node)}


def rack(broker: int) -> str:
    return f"rack-{broker}"


SETTINGS = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "replica.lag.time.max.ms": 4000,
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 30_000,  # who stands still is not fenced: its leaders take it out
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "controlled.shutdown.enable": "true",
}
TIMEOUT_MS = 1_000
MANY, BEYOND = 20, 1_000_000_000
TRANSACTIONS = "__transaction_state"
ALONE = re.compile(  # by the answer, or by the metadata if that comes before
    rf"Partition {TRANSACTIONS}-0 broker=1\] ISR updated to 1 |Skipped .* for {TRANSACTIONS}-0 .*\bisr=\[1\]"
)
REFUSED_STATE = re.compile(f"Error processing append operation on partition (.*:)?{TRANSACTIONS}-0")

Row = dict[str, Any]
Seen = tuple[list[Row], Counter[str], list[Row]]  # events, comparisons of each check, and rows in which one differs


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Seen:
    brokers = release_or_skip(RELEASES[1])
    logging = repository / "conf" / "kafka-broker-log4j2.yaml"
    with RackedCluster(tmp_path_factory.mktemp("racks"), brokers, logging, SETTINGS) as cluster:
        tell_the_story(cluster)
        recording = record(cluster, cluster.home / "recording")
    found = [(events, tables_of(events)["conformance"].to_pylist()) for events in events_of(recording)]
    rows = [row for _, of_partition in found for row in of_partition]
    compared = Counter[str]()
    for row in rows:
        compared[row["check"]] += row["compared"]
    differing = [row for row in rows if row["matched"] < row["compared"]]
    return pa.concat_tables([events for events, _ in found]).to_pylist(), compared, differing


def tell_the_story(cluster: Cluster) -> None:
    cluster.start()
    cluster.create_topic(TRANSACTIONS, "1:2:3", min_insync_replicas=2, cleanup_policy="compact")
    cluster.create_topic("orders", "1:2:3,2:3:1,3:1:2,1:3:2,2:1:3,3:2:1")
    producer = cluster.producer("orders", "-1", 200, batch_size=0)  # else it stays with a partition for 16 KB
    producer.wait_for_more(PARTS * MANY)
    readers = [cluster.consumer("orders", rack(b), client_rack=rack(b)) for b in cluster.brokers]
    for reader in readers:
        reader.process.until(lambda reader=reader: parts_read(reader) == PARTS, "records of all partitions")  # type: ignore[misc]
    parts = [("orders", part) for part in range(PARTS)]
    for offset in (MANY // 4, MANY // 2, -1, BEYOND):
        cluster.delete_records(dict.fromkeys(parts, offset))
    for reader in readers:
        reader.process.stop()
    producer.process.stop()
    cluster.create_topic("alone", "1:2:3", min_insync_replicas=2)
    waiting = cluster.producer("alone", "-1", 5, request_timeout_ms=TIMEOUT_MS, delivery_timeout_ms=2 * TIMEOUT_MS)
    waiting.wait_for_more(5)
    cluster.pause(2, 3)
    first = cluster.transaction("alone", "first", through=1)  # nobody leaves the ISR before there is something to fetch
    log = cluster.logs(1) / "server.log"
    failed = len(waiting.events("producer_send_error"))
    until(lambda: len(waiting.events("producer_send_error")) > failed + 5, "produces that time out")
    until(lambda: refused_by(waiting), "produces that are refused")
    until(lambda: bool(ALONE.search(log.read_text())), "a coordinator that is alone")
    second = cluster.transaction("alone", "second", through=1)
    until(lambda: bool(REFUSED_STATE.search(log.read_text())), "a transactional id that cannot be written")
    cluster.resume(2, 3)
    until(cluster.is_fully_replicated, "every replica in sync")
    for client in (first, second):
        client.wait()
    waiting.process.stop()
    time.sleep(1)  # the followers' last fetches wait half a second, and have a line only after that
    cluster.stop()


def parts_read(reader: Client) -> int:
    return len({event["partition"] for event in reader.events("record_data")})


def refused_by(producer: Client) -> bool:
    return any("NotEnoughReplicas" in event["exception"] for event in producer.events("producer_send_error"))


def told_by(seen: Seen, kind: str, error: int | None = None) -> list[Row]:
    return [row for row in seen[0] if row["kind"] == kind and error in {None, row["error_code"]}]


@pytest.mark.parametrize(
    ("check", "least"),
    [
        ("preferred_replica", 200),
        ("follower_read", 200),
        ("delete_records", 20),
        ("low_watermark", 15),
        ("produce_timeout", 100),
        ("delayed_produce", 100),
        ("produce_refusal", 3),
    ],
)
def test_nearly_every_comparison_of_a_check_agrees_with_what_brokers_said(seen: Seen, check: str, least: int) -> None:
    """But for as many as a run of Tidemark takes without a warning: a busy machine stamps some lines too late.

    They come together: where a log thread is late once, each partition that its broker served then has one.
    """
    _, compared, differing = seen
    found = [row for row in differing if row["check"] == check]
    assert compared[check] >= least
    differ = sum(row["compared"] - row["matched"] for row in found)
    assert differ * 100 <= compared[check] * (100 - CONFORMANCE_MIN_PERCENT), found


def test_each_leader_sent_consumers_to_the_replica_in_their_rack(seen: Seen) -> None:
    sent = [row for row in told_by(seen, "consumer_read") if (row["preferred_read_replica"] or -1) >= 0]
    assert len({(row["partition"], row["preferred_read_replica"]) for row in sent}) == 2 * PARTS
    assert all(row["replicas"] == [row["preferred_read_replica"]] for row in sent)


def test_deletions_were_answered_and_refused(seen: Seen) -> None:
    asked = told_by(seen, "delete_records")
    refused = [row for row in asked if row["error_code"] == OFFSET_OUT_OF_RANGE]
    assert {row["requested_offset"] for row in refused} == {BEYOND}
    assert len(refused) == PARTS
    assert len(asked) == 4 * PARTS


def test_produces_timed_out_and_were_refused(seen: Seen) -> None:
    late = told_by(seen, "ack", REQUEST_TIMED_OUT)
    assert len(late) > 3
    assert all(row["max_wait_ms"] == TIMEOUT_MS for row in late)
    refused = told_by(seen, "produce_refused", NOT_ENOUGH_REPLICAS)
    assert {row["topic"] for row in refused} == {"alone", TRANSACTIONS}


def test_what_a_coordinator_could_not_write_is_told_though_it_has_no_request_line(seen: Seen) -> None:
    """`produce_refusal` compares it with what the leader was."""
    refused = [row for row in told_by(seen, "produce_refused") if row["topic"] == TRANSACTIONS]
    assert {(row["broker_id"], row["error_code"], row["acks"]) for row in refused} == {(1, NOT_ENOUGH_REPLICAS, -1)}
