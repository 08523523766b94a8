"""What a real cluster exported by JMX while replicas left and came back, beside what `cluster_metrics` says it did.

A broker stands still until the leaders take it out of the ISR and comes back; it stands still once more, and meanwhile
another is killed: the ISR is below the minimum, the topic with one replica has no leader, and of the topic that may
elect uncleanly the first broker leads as soon as it is back. One topic's batches are so many, and fetched one by one,
that the broker lags for seconds. In the end a leader stands still until it is deposed, and asks for an ISR that is
refused. Replication has a quota, which is too high to hold anything back. Kafka's own JmxTool writes down each node's
metrics all the time.
"""

from __future__ import annotations

import csv
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from cluster import Cluster, until
from recorder import record
from releases import RELEASES, release_or_skip
from without_spark import events_of, tables_of

from pipelines.intake.collect import collect
from pipelines.overview.coverage import coverage_of
from pipelines.overview.metrics import cluster_metrics, stretches_of
from pipelines.recording.recording import discover
from replay.tables.byte_rates import least_rates
from schemas.meters import COUNTED, MBEANS, OF_CONTROLLER

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.live

EACH_MS = 500
HELD_UP_US = 2_000_000
SETTINGS = {
    "replica.lag.time.max.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 8000,
    "controlled.shutdown.enable": "true",
    "replica.fetch.max.bytes": 1,  # a batch at a time
}
STILL_S = 6.0  # the leaders take who stands still out after 3 to 4.5 s, and the controller fences it after 8 s
DEPOSED_S = 10.0
PER_SECOND = 100
BATCHES_PER_SECOND = 500  # of the topic with which it catches up for seconds, one batch a request
QUOTA = 1_000_000  # bytes per second
APART_US = 1_000_000  # around a change, what was read may be of before or of after it
BYTE_RATES = ("LeaderReplication", "FollowerReplication")  # no node exports them before the quota
GAUGES = [name for name in MBEANS if name not in {*COUNTED, *BYTE_RATES, "MaxLag"}]
SECOND_US, MINUTE_US = 1_000_000, 60_000_000

Samples = dict[tuple[int | None, str], list[tuple[int, float]]]  # broker (None: controller), metric -> time, value
Row = dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """What was exported, and the tables of the recording."""

    samples: Samples
    parts: list[Row]
    minutes: list[Row]


def of_node(node: int) -> list[str]:
    asked = {name: mbean for name, mbean in MBEANS.items() if name not in BYTE_RATES}
    return [mbean for name, mbean in asked.items() if (name in OF_CONTROLLER) == (node == Cluster.controller)]


def attribute_of(metric: str) -> str:
    if metric in BYTE_RATES:
        return "byte-rate"
    return "Count" if metric in COUNTED else "Value"


def read_samples(file: Path, into: Samples, broker: int | None) -> None:
    """What JmxTool wrote: a column for each attribute of each metric, after the time.

    It may still write: a line without its end is not read; nor is what a node was asked before it stood still.
    """
    metrics = {f"{mbean}:{attribute_of(name)}": name for name, mbean in MBEANS.items()}
    whole = file.read_text().rpartition("\n")[0]
    lines = [line for line in whole.splitlines() if line.startswith('"time"') or line[:1].isdigit()]
    before = None
    for row in csv.DictReader(lines):
        us = int(row["time"]) * 1000
        was_held_up = before is not None and us - before > HELD_UP_US
        before = us
        for column, name in metrics.items():
            if row.get(column) and not was_held_up:
                into.setdefault((broker, name), []).append((us, float(row[column])))


def wait_for(file: Path) -> None:
    until(lambda: file.exists() and len(file.read_text().splitlines()) > 2, "metrics to be written")


def has_exported(file: Path, metric: str) -> bool:
    """Whether a node said of it anything but 0."""
    samples: Samples = {}
    read_samples(file, samples, None)
    return any(value for _, value in samples.get((None, metric), []))


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Seen:
    brokers = release_or_skip(RELEASES[1])
    logging = repository / "conf" / "kafka-broker-log4j2.yaml"
    with Cluster(tmp_path_factory.mktemp("metrics"), brokers, logging, SETTINGS, with_jmx=True) as cluster:
        files = tell_the_story(cluster)
        recording = record(cluster, cluster.home / "recording")
    samples: Samples = {}
    for node, file in files:
        read_samples(file, samples, None if node == Cluster.controller else node)
    tables = [tables_of(events)["partition_meters"] for events in events_of(recording)]
    facts = collect(discover(str(recording), recording_id="live")).facts
    parts = pa.concat_tables(tables)
    found = cluster_metrics(parts, stretches_of(coverage_of(facts).table("live")), "live")
    assert isinstance(found, pa.Table)
    return Seen(samples, parts.to_pylist(), found.to_pylist())


def tell_the_story(cluster: Cluster) -> list[tuple[int, Path]]:
    cluster.start()
    files = [(node, cluster.watch(node, of_node(node), EACH_MS)) for node in cluster.nodes]
    throttled = dict.fromkeys((f"{side}_replication_throttled_replicas" for side in ("leader", "follower")), "*")
    cluster.create_topic("orders", "1:2:3,2:3:1,3:1:2,1:3:2", min_insync_replicas=2, **throttled)
    cluster.create_topic("alone", "3")
    cluster.create_topic("risky", "3:2", unclean_leader_election_enable="true")
    cluster.create_topic("deep", "1:2")
    # Without a batch size, the producer chooses a partition for each record: broker 2 has its share while it leads one.
    producer = cluster.producer("orders", "1", PER_SECOND, batch_size=0)
    cluster.limit_replication(QUOTA)
    producer.wait_for_more(PER_SECOND)
    files += [(node, cluster.watch(node, [MBEANS[name] for name in BYTE_RATES], EACH_MS)) for node in (1, 2)]
    for _, file in files:
        wait_for(file)
    controller, first = dict(files)[Cluster.controller], files[1][1]
    batches = cluster.producer("deep", "1", BATCHES_PER_SECOND, batch_size=0)
    batches.wait_for_more(BATCHES_PER_SECOND)
    cluster.pause(2)
    time.sleep(STILL_S)
    batches.process.stop()
    cluster.resume(2)
    until(cluster.is_fully_replicated, "every replica in sync")
    cluster.pause(2)
    time.sleep(STILL_S)
    cluster.kill(3)
    until(lambda: has_exported(first, "UnderMinIsrPartitionCount"), "an ISR below the minimum")  # late if it is busy
    until(lambda: has_exported(controller, "OfflinePartitionsCount"), "a partition without a leader")
    cluster.resume(2)
    until(lambda: has_exported(controller, "UncleanLeaderElectionsPerSec"), "an unclean election")
    cluster.restart(3)
    files.append((3, cluster.watch(3, of_node(3), EACH_MS)))
    until(cluster.is_fully_replicated, "every replica in sync")
    wait_for(files[-1][1])
    cluster.pause(1)
    time.sleep(DEPOSED_S)
    cluster.resume(1)
    until(cluster.is_fully_replicated, "every replica in sync")
    time.sleep(1)  # it is asked once more
    producer.process.stop()
    cluster.stop()
    return files


def steps_of(seen: Seen, broker: int | None, metric: str) -> list[tuple[int, int]]:
    """When a gauge changed, and by how much."""
    before: dict[tuple[str, int], int] = {}
    out = []
    mine = [row for row in seen.parts if row["broker_id"] == broker and row["metric"] == metric]
    for row in sorted(mine, key=lambda row: (row["topic"], row["partition"], row["seq"])):
        place = (row["topic"], row["partition"])
        out.append((round(row["ts"].timestamp() * 1e6), (row["value"] or 0) - before.get(place, 0)))
        before[place] = row["value"] or 0
    return sorted(out)


@pytest.mark.parametrize("metric", GAUGES)
def test_gauges_are_what_brokers_exported(seen: Seen, metric: str) -> None:
    """At every moment at which a node was asked, but for those next to a change."""
    compared = 0
    for (broker, name), samples in seen.samples.items():
        if name != metric:
            continue
        steps = steps_of(seen, broker, metric)
        for us, value in samples:
            if any(abs(us - when) < APART_US for when, _ in steps):
                continue
            assert sum(step for when, step in steps if when <= us) == value, (broker, metric, us)
            compared += 1
    assert compared > 20
    assert any(value for (_, name), samples in seen.samples.items() if name == metric for _, value in samples)


@pytest.mark.parametrize("metric", GAUGES)
def test_each_minute_spans_what_was_exported_in_it(seen: Seen, metric: str) -> None:
    for row in seen.minutes:
        if row["metric"] != metric or row["evidence"] == "unknown":
            continue
        assert all(row["lowest"] <= value <= row["highest"] for value in exported_in(seen, row)), row


@pytest.mark.parametrize("metric", COUNTED)
def test_meters_count_what_brokers_marked(seen: Seen, metric: str) -> None:
    """A deposed leader is refused a change of its ISR only if it asks before it hears of the new leader."""
    happened, possible = 0.0, 0
    for broker in (None,) if metric in OF_CONTROLLER else (1, 2):  # 3 was killed, and counted from 0 on
        samples = seen.samples[broker, metric]
        since, until_us = samples[0][0], samples[-1][0]
        marked = [
            row
            for row in seen.parts
            if (row["broker_id"], row["metric"]) == (broker, metric) and since < row["ts"].timestamp() * 1e6 <= until_us
        ]
        least, bounds = sum(row["value"] for row in marked), [row["highest"] for row in marked]
        counted = samples[-1][1] - samples[0][1]
        assert least <= counted, (broker, metric)
        if None not in bounds:
            assert counted <= sum(bounds), (broker, metric)
        happened += counted
        possible += len(bounds)
    if metric == "FailedIsrUpdatesPerSec" and not happened:
        pytest.skip("the deposed leader heard of the new one before it asked for an ISR")
    assert happened > 0
    assert possible > 0


def exported_in(seen: Seen, row: Row) -> list[float]:
    """What the node exported of the row's metric in its minute, but for its edges."""
    start = round(row["minute"].timestamp() * 1e6)
    samples = seen.samples.get((row["broker_id"], row["metric"]), [])
    return [value for us, value in samples if start + APART_US <= us < start + MINUTE_US - APART_US]


def test_no_lag_was_larger_than_the_largest_of_its_minute(seen: Seen) -> None:
    compared = []
    for row in seen.minutes:
        if row["metric"] == "MaxLag" and row["evidence"] != "unknown":
            inside = exported_in(seen, row)
            assert all(value <= row["highest"] for value in inside), row
            compared += inside
    assert len(compared) > 20
    assert max(compared) > 0


def told_by_second(seen: Seen, broker: int, metric: str) -> dict[int, int]:
    """At the end of each second in which something was sent, or that such a second still counts in: the least rate."""
    mine = [row for row in seen.parts if (row["broker_id"], row["metric"]) == (broker, metric)]
    windows = np.array([row["quota_window"] for row in mine if row["quota_window"]])
    seconds = np.array([int(row["ts"].timestamp()) for row in mine])
    first, count = int(seconds.min()), int(np.ptp(seconds)) + 1 + int(windows.max())
    sent = np.bincount(seconds - first, [row["value"] for row in mine], count).astype(np.int64)
    return dict(enumerate(least_rates(sent, windows).tolist(), start=first + 1))


@pytest.mark.parametrize("metric", BYTE_RATES)
def test_a_byte_rate_is_at_least_what_is_told_at_each_moment_at_which_it_was_asked_for(seen: Seen, metric: str) -> None:
    """All requests were recorded; how far below it may be depends on how many seconds the machine left them.

    A node was asked between two samples, and when it counted an answer is known to half a second. So what it said is
    held against the least of what is told at the end of any second that may be the one before.
    """
    compared = []
    for broker in (1, 2):
        told = told_by_second(seen, broker, metric)
        for (before, _), (us, exported) in pairwise(seen.samples[broker, metric]):
            ends = range(before // SECOND_US - 1, us // SECOND_US + 1)
            least = min(told.get(end, 0) for end in ends)
            assert least <= exported + 1, (broker, metric, us)
            compared.append(least)
    assert max(compared) > 0


@pytest.mark.parametrize("metric", BYTE_RATES)
def test_a_minute_tells_the_largest_byte_rate_of_its_seconds(seen: Seen, metric: str) -> None:
    told = {broker: told_by_second(seen, broker, metric) for broker in (1, 2)}
    highest = 0
    for row in seen.minutes:
        if row["metric"] == metric and row["broker_id"] in told and row["evidence"] != "unknown":
            start = round(row["minute"].timestamp())
            ends = range(start + 1, start + 1 + MINUTE_US // SECOND_US)
            assert row["highest"] == max(told[row["broker_id"]].get(end, 0) for end in ends)
            assert (row["quota_limit"], row["over_quota_seconds"]) == (QUOTA, 0)
            highest = max(highest, row["highest"])
    assert highest > 0
