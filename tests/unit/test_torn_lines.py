"""Messages of several lines, lines that were cut or torn, and lines so long that only a slow pattern would notice."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from lines_in_layouts import LOGGER, STACK, log, offsets, reasons, rendered, role

from pipelines.intake.collect import collect
from pipelines.recording.recording import discover

if TYPE_CHECKING:
    from pathlib import Path


# -- what belongs to the line before


SETTINGS = [
    "KafkaConfig values: ",
    "\tlisteners = [a]",
    "\tmin.insync.replicas = 2",
    "\tunclean.leader.election.enable = false",
]


@pytest.mark.parametrize("name", ["apache", "strimzi3", "strimzi4", "ecs", "spring", "hadoop", "logback", "operator"])
def test_stack_traces_and_blank_lines_belong_to_the_line_before(tmp_path: Path, name: str) -> None:
    lines = [rendered(role(1), name), *STACK, rendered(role(2, "2026-11-21 03:00:01,000"), name)]
    found = log(tmp_path, lines)
    assert (offsets(found), reasons(found)) == ([1, 2], [])


@pytest.mark.parametrize(
    "first",
    [
        ["[2026-11-21 03:00:00,123] INFO " + SETTINGS[0], *SETTINGS[1:], " (kafka.server.KafkaConfig)"],
        ["2026-11-21 03:00:00,123 INFO " + SETTINGS[0], *SETTINGS[1:], " (kafka.server.KafkaConfig) [main]"],
        ["2026-11-21 03:00:00 INFO  [main] KafkaConfig:370 - " + SETTINGS[0], *SETTINGS[1:]],
        [
            json.dumps(
                {
                    "@timestamp": "2026-11-21T03:00:00.123Z",
                    "log.level": "INFO",
                    "log.logger": "kafka.server.KafkaConfig",
                    "message": "\n".join(SETTINGS) + "\n",
                }
            )
        ],
    ],
)
def test_settings_are_read_from_the_lines_of_one_message(tmp_path: Path, first: list[str]) -> None:
    found = log(tmp_path, [*first, *(role(k, "2026-11-21 03:00:05,000") for k in range(3))])
    named = {row["name"]: row["value"] for row in found.facts.to_pylist() if row["kind"] == "config_change"}
    assert named == {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
    assert reasons(found) == []


def test_start_up_lines_of_bitnami_are_passed_over(tmp_path: Path) -> None:
    start = [
        "kafka 23:28:59.07 INFO  ==> ** Starting Kafka setup **",
        "\x1b[38;5;6mkafka \x1b[38;5;5m23:28:59.08 \x1b[0m\x1b[38;5;2mINFO \x1b[0m ==> Welcome to kafka",
    ]
    found = log(tmp_path, [*start, role(1), start[0], role(2, "2026-11-21 03:00:01,000")])
    assert (offsets(found), reasons(found)) == ([1, 2], [])


# -- lines that were cut


@pytest.mark.parametrize("name", ["apache", "strimzi3", "strimzi4", "ecs", "spring", "hadoop", "logback", "operator"])
def test_a_line_cut_off_at_the_end_of_the_file_says_nothing(tmp_path: Path, name: str) -> None:
    whole = rendered(role(12345), name)
    cut = whole[: whole.index("345")]
    path = tmp_path / "logs" / "node-1" / "stdout.log"
    path.parent.mkdir(parents=True)
    path.write_text(rendered(role(1), name) + "\n" + cut)
    found = collect(discover(tmp_path))
    assert offsets(found) == [1]
    assert [line for line, _ in reasons(found)] == [2]


@pytest.mark.parametrize(
    "name", ["apache", "strimzi3", "strimzi4", "ecs", "logstash", "spring", "hadoop", "logback", "cloudera", "operator"]
)
def test_a_broker_killed_within_a_request_line_goes_on_in_it(tmp_path: Path, name: str) -> None:
    body = 'Completed request:{"requestHeader":{"requestApiKey":1},"x":1}'
    request = f"[2026-11-21 03:00:00,123] DEBUG {body} (kafka.request.logger)"
    torn = rendered(request, name)
    torn = torn[: torn.index("ApiKey")]
    found = log(tmp_path, [rendered(role(1), name), torn + rendered(role(2, "2026-11-21 03:00:05,000"), name)])
    assert offsets(found) == [1, 2]
    assert [line for line, _ in reasons(found)] == [2]


@pytest.mark.parametrize("piece", ['{"@timestamp', "[2026-11-21 03:00:00,123] DEBUG Completed request:"])
def test_a_line_torn_thousands_of_times_is_read_to_its_end(tmp_path: Path, piece: str) -> None:
    found = log(tmp_path, [role(1), piece * 20_000 + role(2, "2026-11-21 03:00:05,000")])
    assert offsets(found) == ([1, 2] if piece.startswith("[") else [1])


LONG = 100_000


@pytest.mark.parametrize(
    "line",
    [
        role(1)[:26] + "INFO " + " " * LONG,
        "2026-11-21 03:00:00,123 INFO " + " " * LONG,
        "2026-11-21 03:00:00,123 INFO x" + " (a) [" * (LONG // 6),
        "2026-11-21 03:00:00,123 INFO x" + " (a" * (LONG // 3),
        "2026-11-21T03:00:00.123Z  INFO 1 --- " + "[a] " * (LONG // 4),
        "2026-11-21 03:00:00,123 [a" * (LONG // 26),
        "26/11/21 03:00:00 INFO " + "a" * LONG,
        f"{role(1)[:26]}INFO [Partition {'partition=' * (LONG // 10)}] x ({LOGGER})",
        f"{role(1)[:26]}INFO [Partition {'1-1' * (LONG // 3)}] x ({LOGGER})",
        "a.log" * (LONG // 5),
        "Nov 21 03:00:00 host " + "a" * LONG,
        "\x1b[1m" * (LONG // 4),
        f"Dumping {'a-1' * (LONG // 3)}",
        f"Dumping {'a-1/' * (LONG // 4)}",
    ],
    ids=lambda line: line[:40],
)
def test_no_line_takes_longer_than_its_length_asks_for(tmp_path: Path, line: str) -> None:
    since = time.process_time()
    log(tmp_path, [role(1), line, role(2, "2026-11-21 03:00:05,000")])
    log(tmp_path, ["Dumping /data/a-0/0.log", line], name="0.dump.txt")
    assert time.process_time() - since < 2, "a pattern whose time grows with the square of the length takes minutes"
