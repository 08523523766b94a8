"""Every wording of the table on a line that a broker wrote (Kafka 2.4, 2.8, 3.9, 4.1) or that its source prints."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest

from pipelines.lines.clock import ZoneClock
from pipelines.lines.layout import LAYOUTS, last_part
from pipelines.lines.rows import FactSink
from pipelines.parse.files.log_lines import LogLines
from pipelines.parse.wordings.rule import CLASSES, Rule
from pipelines.parse.wordings.server_log import integers, prefix_length
from pipelines.parse.wordings.server_rules import RULES

LINES = [
    json.loads(line)
    for name in ("broker-lines.jsonl", "state-lines.jsonl", "older-lines.jsonl")
    for line in (Path(__file__).parent / "data" / name).read_text(encoding="utf-8").splitlines()
]
NOT_OF_THE_LINE = {"recording_id", "fact_id", "source_file", "source_line", "broker_id", "ts"}


def facts_of(*lines: str) -> tuple[list[dict[str, Any]], FactSink]:
    sink = FactSink("r", "server.log", 9)
    parser = LogLines(sink, LAYOUTS["apache"], ZoneClock("UTC"))
    for number, line in enumerate(lines, 1):
        parser.parse(line, number)
    parser.finish()
    batch = sink.take_facts()
    return (batch.to_pylist() if batch is not None else []), sink


@pytest.mark.parametrize("case", LINES, ids=lambda case: f"{case['kafka']} {case['line'][26:80]}")
def test_line_makes_its_facts(case: dict[str, Any]) -> None:
    found, _ = facts_of(case["line"])
    said = [{k: v for k, v in fact.items() if v is not None and k not in NOT_OF_THE_LINE} for fact in found]
    assert said == case["facts"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.place} {rule.fact}")
def test_every_wording_has_a_line(rule: Rule) -> None:
    pattern = re.compile(rule.pattern, re.DOTALL)
    for case in LINES:
        parts = LAYOUTS["apache"].split(case["line"])
        assert parts is not None
        assert parts.logger is not None
        body = parts.text[prefix_length(parts.text) :]
        if last_part(parts.logger) in rule.loggers and pattern.fullmatch(body):
            return
    pytest.fail(f"no line of the test data is worded as {rule.pattern}")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.place} {rule.fact}")
def test_every_wording_has_its_versions_and_the_file_that_prints_it(rule: Rule) -> None:
    assert re.fullmatch(r"\d+\.\d+(-(\d+\.\d+)?)?", rule.versions)
    assert re.search(r"\w/\w+\.(scala|java)", rule.source)


def test_every_class_of_the_table_prints_something() -> None:
    assert {logger for rule in RULES for logger in rule.loggers} >= set(CLASSES)


@pytest.mark.parametrize("token", ["1", "-0, ", "] ", "a", " ", "leader: 1 -> 3, ", None], ids=repr)
def test_no_wording_makes_a_long_line_slow(token: str | None) -> None:
    chance, longest = random.Random(1), 0.0  # noqa: S311 - a test's choice, not a secret
    facts_of("")  # compiles the table
    for case in LINES:
        line = case["line"]
        cut = chance.randrange(27, line.rindex(" ("))
        again = line[cut - chance.randrange(1, 14) : cut] if token is None else token
        since = time.process_time()
        facts_of(line[:cut] + again * (20_000 // len(again)) + line[cut:])
        longest = max(longest, time.process_time() - since)
    assert longest < 0.5, "a pattern whose time grows with the square of the length"


def test_a_number_of_thousands_of_digits_ends_nothing() -> None:
    line = (
        "[2026-11-21 03:53:38,437] TRACE [Partition a-0 broker=1] Recorded replica 3 log end offset (LEO) position {}"
    )
    found, sink = facts_of(*(line.format(f"{digits}. (kafka.cluster.Partition)") for digits in ("9" * 5000, "7")))
    assert [fact["offset"] for fact in found] == [7]
    assert sink.counts.rejected == 1


def test_a_line_that_lists_partitions_is_a_fact_of_each() -> None:
    found, _ = facts_of(
        "[2026-11-21 03:53:38,437] INFO [ReplicaFetcherManager on broker 2] Removed fetcher for partitions "
        "HashSet(a-1-0, b-12) (kafka.server.ReplicaFetcherManager)"
    )
    assert [(f["kind"], f["name"], f["topic"], f["partition"]) for f in found] == [
        ("fetcher", "removed", "a-1", 0),
        ("fetcher", "removed", "b", 12),
    ]
    assert len({f["fact_id"] for f in found}) == 2


def test_a_failed_request_that_lists_no_partition_is_one_fact_without_partition() -> None:
    (fact,), _ = facts_of(
        "[2026-11-21 03:53:38,437] WARN [ReplicaFetcher replicaId=2, leaderId=1, fetcherId=0] Error in response for "
        "fetch request (type=FetchRequest, replicaId=2, maxWait=300, minBytes=1, maxBytes=1, fetchData={}, "
        "metadata=(sessionId=5, epoch=7)) (kafka.server.ReplicaFetcherThread)"
    )
    assert (fact["name"], fact["partition"], fact["leader_id"]) == ("request_failed", None, 1)


def test_a_metadata_change_says_only_what_changed() -> None:
    head = "[2026-11-21 03:53:38,437] DEBUG [QuorumController id=0] partition change for a-0 with topic ID T: "
    tail = " (org.apache.kafka.controller.ReplicationControlManager)"
    (whole,), _ = facts_of(
        head + "replicas: [1, 2] -> [2, 3], isr: [1, 2] -> [2], leader: 1 -> 2, leaderEpoch: 3 -> 4, "
        "elr: [] -> [1], lastKnownElr: [] -> [9], partitionEpoch: 7 -> 8" + tail
    )
    (part,), _ = facts_of(head + "elr: [] -> [1], partitionEpoch: 7 -> 8" + tail)
    columns = ("isr", "leader_id", "leader_epoch", "partition_epoch")
    assert [whole[c] for c in columns] == [[2], 2, 4, 8]
    assert [part[c] for c in columns] == [None, None, None, 8]


def test_previous_leader_is_never_taken() -> None:
    line = (
        "[2026-11-21 03:53:38,263] INFO [Broker id=2] Follower safe-0 starts at leader epoch 7 from offset 5 with "
        "partition epoch 9 and high watermark 4. Current leader is 1. Previous leader Some(3) and previous leader "
        "epoch was 6. (state.change.logger)"
    )
    (fact,), _ = facts_of(line)
    assert (fact["leader_id"], fact["leader_epoch"], fact["partition_epoch"]) == (1, 7, 9)


def test_lines_of_no_interest_are_counted_by_level_and_logger() -> None:
    found, sink = facts_of("[2026-11-21 03:53:38,263] INFO <script>alert(1)</script> (kafka.cluster.Partition)")
    assert found == []
    assert sink.counts.no_interest == {("INFO", "kafka.cluster.Partition"): 1}
    assert sink.counts.rejected == 0


def test_metadata_log_is_no_partition_of_interest() -> None:
    found, _ = facts_of(
        "[2026-11-21 03:53:35,562] TRACE [UnifiedLog partition=__cluster_metadata-0, dir=/d] Setting high watermark "
        "(offset=11, segment=[0:774]) (org.apache.kafka.storage.internals.log.UnifiedLog)"
    )
    assert found == []


def test_a_line_said_twice_in_one_millisecond_is_one_fact() -> None:
    line = (
        "[2026-11-21 03:53:38,437] DEBUG [Partition safe-0 broker=1] Recorded replica 3 log end offset (LEO) position "
        "0 and log start offset 0. (kafka.cluster.Partition)"
    )
    found, sink = facts_of(line, line, line.replace(",437", ",438"))
    assert len(found) == 2
    assert sink.counts.repeated == 1


def test_settings_of_the_broker_are_read_from_the_list_it_prints() -> None:
    found, sink = facts_of(
        "[2026-11-21 03:53:35,982] INFO KafkaConfig values: ",
        "\tadvertised.listeners = PLAINTEXT://127.0.0.1:19091",
        "\tbroker.rack = b",
        "\tgroup.coordinator.new.enable = false",
        "\tgroup.coordinator.rebalance.protocols = [classic, consumer]",
        "\treplica.lag.time.max.ms = 3000",
        "\treplica.selector.class = null",
        " (kafka.server.KafkaConfig)",
    )
    assert [(f["kind"], f["resource_type"], f["name"], f["value"]) for f in found] == [
        ("config_change", 4, "broker.rack", "b"),
        ("config_change", 4, "group.coordinator.new.enable", "false"),
        ("config_change", 4, "group.coordinator.rebalance.protocols", "[classic, consumer]"),
        ("config_change", 4, "replica.lag.time.max.ms", "3000"),
        ("config_change", 4, "replica.selector.class", "null"),
    ]
    assert sink.counts.rejected == 0


def test_stack_traces_belong_to_the_line_before() -> None:
    _, sink = facts_of(
        "[2026-11-21 03:53:35,982] ERROR [ReplicaManager broker=1] Error processing (kafka.server.ReplicaManager)",
        "org.apache.kafka.common.errors.NotEnoughReplicasException: The size of the current ISR : 1 is insufficient",
        "\tat kafka.server.AbstractFetcherThread.maybeFetch(AbstractFetcherThread.scala:136)",
        "Caused by: java.io.IOException: no",
        "",
    )
    assert sink.counts.rejected == 0


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("\x00\x00\x00", "neither"),
        ("{}", "neither"),
        ("\ufffd" * 5000, "neither"),
        ("[2026-13-45 99:99:99,000] INFO Something (kafka.server.KafkaServer)", "a time that cannot be"),
        ("[2026-11-21 03:53:35,982] INFO [Partition safe-0 bro", "cut off"),
        (
            "[2026-11-21 03:53:38,437] DEBUG [Partition a-0 broker=1] Recorded replica 3 log end offset (LEO) position "
            + "9" * 20
            + " and log start offset 0. (kafka.cluster.Partition)",
            "does not fit",
        ),
    ],
)
def test_garbage_is_rejected(line: str, reason: str) -> None:
    _, sink = facts_of("[2026-11-21 03:53:35,000] INFO Fine (kafka.server.KafkaServer)", line)
    rejected = sink.take_rejected()
    assert rejected is not None
    (row,) = rejected.to_pylist()
    assert row["source_line"] == 2
    assert reason in row["reason"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,2,3", [1, 2, 3]),
        ("[1, 2]", [1, 2]),
        ("Set()", []),
        ("", []),
        ("List(BrokerState(brokerId=3, brokerEpoch=8))", [3]),
    ],
)
def test_lists_of_brokers(text: str, expected: list[int]) -> None:
    assert integers(text) == expected
