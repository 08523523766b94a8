"""The layouts of wild logs: lines as those systems write them, each found out by itself or named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from lines_in_layouts import LOGGER, TEXT, WHOLE_SECONDS, log, offsets, role

from pipelines.lines.layout import LAYOUTS, Form, detect
from schemas.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

AS_WRITTEN = {
    "apache": ["[2026-11-21 03:00:00,123] INFO {} (kafka.cluster.Partition)"],
    "strimzi3": [
        "2026-11-21 03:00:00,123 INFO {} (kafka.cluster.Partition) [ReplicaFetcherThread-0-2]",
        "2026-11-21 03:00:00.123 INFO {} (kafka.cluster.Partition) [data-plane-kafka-network-thread-1-Listener(A)-0]",
        "2026-11-21 03:00:00,123 INFO {} (kafka.cluster.Partition)",
    ],
    "strimzi4": ["2026-11-21 03:00:00 INFO  [data-plane-kafka-request-handler-0] Partition:66 - {}"],
    "spring": [
        ("2026-11-21T03:00:00.123Z  INFO 2537 --- [r-event-handler] kafka.cluster.Partition                  : {}"),
        "2026-11-21 03:00:00.123  INFO 2537 --- [           main] k.cluster.Partition                      : {}",
        "2026-11-21T03:00:00.123Z  INFO 2537 --- [shop] [r-event-handler] kafka.cluster.Partition          : {}",
    ],
    "hadoop": [
        "26/11/21 03:00:00 INFO cluster.Partition: {}",
        "26/11/21 03:00:00 INFO Partition: {}",
    ],
    "logback": [
        "2026-11-21 03:00:00.123 [data-plane-kafka-request-handler-0] INFO  kafka.cluster.Partition - {}",
        "2026-11-21 03:00:00,123 INFO  [data-plane-kafka-request-handler-0] kafka.cluster.Partition - {}",
        "2026-11-21 03:00:00,123 INFO  k.cluster.Partition - {}",
        "2026-11-21 03:00:00,123 INFO kafka.cluster.Partition: {}",
    ],
    "operator": [
        "[INFO] 2026-11-21 03:00:00,123 [data-plane-kafka-request-handler-0] kafka.cluster.Partition info - {}",
        "[INFO] 2026-11-21 03:00:00,123 [Fetcher RUNNING] kafka.cluster.Partition <init> - {}",
    ],
    "json": [
        (
            '{"@timestamp":"2026-11-21T03:00:00.123Z","level":"INFO","logger":"kafka.cluster.Partition","message":"{}",'
            '"thread":"main"}'
        ),
        (
            '{"@timestamp":"2026-11-21T03:00:00.123Z","ecs.version":"1.2.0","log.level":"INFO","message":"{}",'
            '"process.thread.name":"main","log.logger":"kafka.cluster.Partition"}'
        ),
        (
            '{"@timestamp":"2026-11-21T03:00:00.123Z","ecs":{"version":"8.0"},"log":{"level":"INFO","logger":'
            '"kafka.cluster.Partition"},"message":"{}","process":{"thread":{"name":"main"}}}'
        ),
        (
            '{"@timestamp":"2026-11-21T03:00:00.123Z","@version":1,"source_host":"h","thread_name":"main","message":"{}",'
            '"level":"INFO","logger_name":"kafka.cluster.Partition"}'
        ),
    ],
}
WRITTEN = [(name, line) for name, lines in AS_WRITTEN.items() for line in lines]
PREFIXES = [
    "broker   | ",
    "kafka-1  | 2026-11-21T03:00:00.123456789Z ",
    "2026-11-21T03:00:00.123456789Z ",
    "[pod/my-cluster-kafka-0/kafka] ",
    "[pod/my-cluster-kafka-0/kafka] 2026-11-21T03:00:00.123456789Z ",
    "2026-11-21T03:00:00.123456789Z stdout F ",
    "2026-11-21T03:00:00.123456789+00:00 stdout F ",
    "2026-11-21T03:00:00.1234567Z kafka-1  | ",
    "\x1b[36mkafka-1  |\x1b[0m ",
    "Nov 21 03:00:00 host-1 kafka-server-start.sh[15550]: ",
    "ноя 21 03:00:00 host-1 kafka[15550]: ",
    "2026-11-21T03:00:00+0000 host-1 kafka-server-start.sh[15550]: ",
    "server.log.2026-11-21-03:",
    "logs/server.log:17:",
]


@pytest.mark.parametrize(("name", "line"), WRITTEN)
@pytest.mark.parametrize("prefix", ["", *PREFIXES])
def test_a_line_is_found_out_by_itself_behind_any_prefix(tmp_path: Path, name: str, line: str, prefix: str) -> None:
    found = log(tmp_path, [prefix + line.replace("{}", TEXT.format(7))])
    (row,) = found.facts.to_pylist()
    assert (row["kind"], row["topic"], row["offset"], row["leader_epoch"]) == ("role_change", "a", 7, 4)
    (counts,) = found.counts.values()
    assert counts.layout == (f"{name}, prefixed" if prefix else name)
    assert [level for _, level in counts.kinds] == ["INFO"]
    if name not in WHOLE_SECONDS:
        assert f"{row['ts']:%H:%M:%S.%f}" == "03:00:00.123000"
        assert row["ts_error_us"] is None


@pytest.mark.parametrize(("name", "line"), WRITTEN)
def test_a_line_has_one_layout(name: str, line: str) -> None:
    assert [layout.name for layout in LAYOUTS.values() if layout.whole(line)] == [name]
    assert detect([line]) == (1, LAYOUTS[name])
    assert all(Form(layout).split(line) == LAYOUTS[name].split(line) for layout in LAYOUTS.values())


@pytest.mark.parametrize(
    "line", ["", " ", "{}", "[1] x", "2026", '{"message":"x"}', '{"message":1,"@timestamp":2}', "{" * 99999]
)
def test_what_is_no_log_line_has_no_layout(line: str) -> None:
    assert all(layout.split(line) is None for layout in LAYOUTS.values())


@pytest.mark.parametrize("fraction", ["", ".1", ",12", ".123", ".123456", ".123456789"])
def test_fractions_of_up_to_nine_digits(tmp_path: Path, fraction: str) -> None:
    found = log(tmp_path, [role(1, "2026-11-21 03:00:00" + fraction)])
    (row,) = found.facts.to_pylist()
    digits = fraction[1:7].ljust(6, "0") if fraction else "499999"
    assert (f"{row['ts']:%S.%f}", row["ts_error_us"]) == (f"00.{digits}", None if fraction else 500_000)


@pytest.mark.parametrize(
    ("stamp", "utc"),
    [
        ("T03:00:00.123Z", "03:00"),
        ("T03:00:00.123+01:00", "02:00"),
        ("T03:00:00.123-0530", "08:30"),
        ("T03:00:00.123", "02:00"),
    ],
)
def test_a_zone_in_the_line_wins_over_the_zone_that_is_told(tmp_path: Path, stamp: str, utc: str) -> None:
    line = json.dumps(
        {"@timestamp": f"2026-11-21{stamp}", "level": "info", "logger": LOGGER, "message": TEXT.format(1)}
    )
    found = log(tmp_path, [line], time_zones={1: "Europe/Berlin"})
    assert f"{found.facts['ts'][0].as_py():%H:%M}" == utc


@pytest.mark.parametrize("name", ["apache", "strimzi4", "json", "ecs", "cri", "spring", "cloudera", "journal", "cfk"])
def test_a_named_layout_is_what_lines_are_taken_for_first(tmp_path: Path, name: str) -> None:
    assert offsets(log(tmp_path, [role(5)], log_layout=name)) == [5]


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"apache.*compose.*hadoop.*json.*logback.*spring.*strimzi3.*strimzi4"):
        log(tmp_path, [role(5)], log_layout="log4j")
