"""Every wording of the table on a line that a broker wrote (Kafka 2.4, 2.8, 3.9, 4.1) or that its source prints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pipelines.parse.clock import ZoneClock
from pipelines.parse.files import LogLines
from pipelines.parse.layout import LAYOUTS, last_part
from pipelines.parse.rows import FactSink
from pipelines.parse.server_log import integers
from pipelines.parse.server_rules import RULES, Rule

LINES = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "broker-lines.jsonl").read_text(encoding="utf-8").splitlines()
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
        body = re.sub(r"^\[[^\]]*\] ", "", parts.text)
        if last_part(parts.logger) in rule.loggers and pattern.fullmatch(body):
            return
    pytest.fail(f"no line of the test data is worded as {rule.pattern}")


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
        "\treplica.lag.time.max.ms = 3000",
        " (kafka.server.KafkaConfig)",
    )
    assert [(f["kind"], f["resource_type"], f["name"], f["value"]) for f in found] == [
        ("config_change", 4, "replica.lag.time.max.ms", "3000")
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
