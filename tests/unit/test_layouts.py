"""The layouts of wild logs: lines as those systems write them, and the same lines in each say the same."""

from __future__ import annotations

import gzip
import json
import random
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from pipelines.intake.collect import Collected, collect
from pipelines.lines.layout import LAYOUTS, Form, detect, last_part
from pipelines.parse.files.file_parser import Range, parse_file
from pipelines.parse.files.prefix import taken_off
from pipelines.parse.files.splits import may_split
from pipelines.recording.reading import newlines
from pipelines.recording.recording import discover
from schemas.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

TEXT = (
    "[Partition a-0 broker=1] a-0 starts at leader epoch 4 from offset {} with high watermark 1. Previous leader epoch "
    "was 0."
)
LOGGER = "kafka.cluster.Partition"
THREAD = "data-plane-kafka-request-handler-0"
APACHE = re.compile(r"\[(\S+ \S+)\] (\w+) (.*) \((\S+)\)")


def log(folder: Path, lines: Iterable[str], name: str = "stdout.log", **told: Any) -> Collected:
    path = folder / "logs" / "node-1" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return collect(discover(folder, recording_id="x", **told))


def role(offset: int, stamp: str = "2026-11-21 03:00:00,123") -> str:
    return f"[{stamp}] INFO {TEXT.format(offset)} ({LOGGER})"


def offsets(found: Collected) -> list[int]:
    return [row["offset"] for row in found.facts.to_pylist() if row["kind"] == "role_change"]


def reasons(found: Collected) -> list[tuple[int, str]]:
    return [(row["source_line"], row["reason"]) for row in found.rejected.to_pylist()]


# -- one line


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
WHOLE_SECONDS = {"hadoop", "strimzi4"}
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


# -- the same lines in each layout


def rendered(line: str, name: str) -> str:
    """A line of Kafka's own layout in another; what is no whole line stays as it is."""
    match = APACHE.fullmatch(line)
    if match is None or name == "apache":
        return line
    stamp, level, text, logger = match.groups()
    iso = stamp.replace(" ", "T").replace(",", ".") + "Z"
    if name in {"logstash", "ecs"}:
        names = ("level", "logger") if name == "logstash" else ("log.level", "log.logger")
        return json.dumps({"@timestamp": iso, names[0]: level, names[1]: logger, "message": text, "thread": THREAD})
    return {
        "strimzi3": f"{stamp} {level} {text} ({logger}) [{THREAD}]",
        "strimzi4": f"{stamp[:19]} {level:<5} [{THREAD}] {last_part(logger)}:66 - {text}",
        "spring": f"{iso} {level:>5} 2537 --- [{THREAD[-15:]}] {logger:<40} : {text}",
        "hadoop": f"{stamp[2:4]}/{stamp[5:7]}/{stamp[8:19]} {level} {logger}: {text}",
        "logback": f"{stamp} [{THREAD}] {level:<5} {logger} - {text}",
        "cloudera": f"{stamp} {level} {logger}: {text}",
        "operator": f"[{level}] {stamp} [{THREAD}] {logger} {level.lower()} - {text}",
    }[name]


def behind(lines: Iterable[str], prefix: str) -> list[str]:
    """Lines as a container's logs have them; a runtime's file has long lines in parts."""
    if prefix != "cri":
        return [prefix + line for line in lines]
    out = []
    for line in lines:
        parts = [line[k : k + 300] for k in range(0, len(line), 300)] or [""]
        out += [f"2026-11-21T03:00:00.123456789Z stdout P {part}" for part in parts[:-1]]
        out.append(f"2026-11-21T03:00:00.123456789Z stdout F {parts[-1]}")
    return out


@pytest.fixture(scope="module")
def real(recordings: Path) -> list[str]:
    """A broker's real lines, server and request log, as one stream."""
    node = recordings / "last-replica" / "logs" / "node-1"
    stamped: list[list[str]] = []
    for name in ("server", "kafka-request"):
        for line in gzip.decompress((node / f"{name}.log.gz").read_bytes()).decode().splitlines()[:1500]:
            if line.startswith("[2"):
                stamped.append([line])
            else:
                stamped[-1].append(line)
    stamped.sort(key=lambda lines: lines[0][:25])
    return [line for lines in stamped for line in lines]


def said(found: Collected, *without: str) -> list[dict[str, Any]]:
    facts = found.facts.drop_columns(["source_file", "source_line", *without])
    return sorted(facts.to_pylist(), key=str)


@pytest.fixture(scope="module")
def plain(real: list[str], tmp_path_factory: pytest.TempPathFactory) -> Collected:
    found = log(tmp_path_factory.mktemp("plain"), real)
    assert found.rejected.num_rows == 0
    assert {"produce", "fetch", "role_change", "config_change", "remote_leo_update"} <= set(
        found.facts["kind"].to_pylist()
    )
    return found


@pytest.mark.parametrize("prefix", ["", "broker   | ", "[pod/kafka-0/kafka] ", "cri"])
@pytest.mark.parametrize("name", ["apache", "strimzi3", "logstash", "ecs", "spring", "logback", "cloudera", "operator"])
def test_the_same_lines_say_the_same_in_every_layout(
    tmp_path: Path, real: list[str], plain: Collected, name: str, prefix: str
) -> None:
    found = log(tmp_path, behind([rendered(line, name) for line in real], prefix))
    assert reasons(found) == []
    assert said(found) == said(plain)


@pytest.mark.parametrize("name", sorted(WHOLE_SECONDS))
def test_whole_seconds_say_the_same_but_for_the_times(
    tmp_path: Path, real: list[str], plain: Collected, name: str
) -> None:
    found = log(tmp_path, [rendered(line, name) for line in real])
    assert reasons(found) == []
    times = ("fact_id", "ts", "ts_error_us")
    once = {str(row): row for row in said(plain, *times)}  # a line said again in one second counts once
    assert {str(row) for row in said(found, *times)} == set(once)


def test_whole_seconds_are_bounded_by_order_and_by_the_requests_durations(
    tmp_path: Path, real: list[str], plain: Collected
) -> None:
    found = log(tmp_path, [rendered(line, "strimzi4") for line in real])
    true = {(row["source_line"], row["topic"], row["kind"]): row["ts"] for row in plain.facts.to_pylist()}
    rows = [(row, true[row["source_line"], row["topic"], row["kind"]]) for row in found.facts.to_pylist()]
    errors = [abs((row["ts"] - at).total_seconds()) * 1e6 for row, at in rows]
    assert all(error <= (row["ts_error_us"] or 0) + 1000 for error, (row, _) in zip(errors, rows, strict=True))
    requests = sorted(error for error, (row, _) in zip(errors, rows, strict=True) if row["kind"] == "fetch")
    assert requests[len(requests) // 2] < 50_000
    ordered = sorted((row["source_line"], row["ts"]) for row, _ in rows)
    assert [ts for _, ts in ordered] == sorted(ts for _, ts in ordered)


GARBAGE = (
    "\x00\x00\x00",
    '[2026-13-45 99:99:99,000] DEBUG Completed request:{"requestHeader":',
    "{}",
    "\ufffd" * 500,
    '{"@timestamp":"2026-11-21T04:00:00.000Z","message":',
    "2026-99-99 99:99:99 INFO  [x] Partition:66 - nonsense",
    "kafka-9 | | |",
)


@pytest.mark.parametrize("prefix", ["", "broker   | "])
@pytest.mark.parametrize("name", ["apache", "strimzi3", "logstash", "ecs", "spring"])
def test_garbage_between_lines_takes_nothing_away(
    tmp_path: Path, real: list[str], plain: Collected, name: str, prefix: str
) -> None:
    chance, lines = random.Random(1), []  # noqa: S311 - a test's choice, not a secret
    for line in real:
        lines.append(rendered(line, name))
        if APACHE.fullmatch(line) and chance.random() < 0.05:
            lines.append(chance.choice(GARBAGE))
    found = log(tmp_path, [prefix + line for line in lines])
    assert found.rejected.num_rows > 50
    assert said(found) == said(plain)


def test_each_line_of_a_mixed_file_is_taken_for_itself(tmp_path: Path, real: list[str], plain: Collected) -> None:
    names = ["strimzi3", "apache", "ecs", "strimzi3", "logstash"]
    found = log(tmp_path, [rendered(line, names[k % 5]) for k, line in enumerate(real)])
    assert reasons(found) == []
    assert said(found) == said(plain)


@pytest.mark.parametrize("name", ["apache", "strimzi4", "json", "ecs", "cri", "spring", "cloudera", "journal", "cfk"])
def test_a_named_layout_is_what_lines_are_taken_for_first(tmp_path: Path, name: str) -> None:
    assert offsets(log(tmp_path, [role(5)], log_layout=name)) == [5]


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"apache.*compose.*hadoop.*json.*logback.*spring.*strimzi3.*strimzi4"):
        log(tmp_path, [role(5)], log_layout="log4j")


# -- what belongs to the line before


STACK = [
    "java.lang.IllegalStateException: x",
    "\tat kafka.server.A.b(A.scala:1)",
    "Caused by: java.io.IOException",
    "",
    "\t... 3 more",
]
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


# -- what else lies in a log folder


@pytest.mark.parametrize(
    "first",
    [
        "[2026-03-01T10:00:00.123+0000][gc,init] CardTable entry size: 512",
        "[0.004s][info][gc] Using G1",
        "OpenJDK 64-Bit Server VM (25.292-b10) for linux-amd64 JRE (1.8.0_292-b10)",
        "Java HotSpot(TM) 64-Bit Server VM (25.202-b08) for windows-amd64 JRE (1.8.0_202-b08)",
    ],
)
def test_the_jvms_own_log_is_passed_over(tmp_path: Path, first: str) -> None:
    found = log(tmp_path, [first, "[2026-03-01T10:00:01.123+0000][gc] GC(0) Pause Young 23M->7M(1024M) 3.1ms"])
    (counts,) = found.counts.values()
    assert (counts.content, reasons(found), counts.no_interest) == ("JVM log", [], {("", "JVM log"): 2})


def test_what_the_jvm_says_before_a_broker_does_not_make_its_log_the_jvms(tmp_path: Path) -> None:
    found = log(tmp_path, ["OpenJDK 64-Bit Server VM warning: option UseConcMarkSweepGC was deprecated", role(1)])
    assert offsets(found) == [1]


# -- prefixes


def test_parts_of_two_streams_are_not_mixed(tmp_path: Path) -> None:
    time, line = "2026-11-21T03:00:00.123456789Z", role(12345)
    found = log(
        tmp_path,
        [
            f"{time} stdout P {line[:60]}",
            f"{time} stderr P OpenJDK warning: ",
            f"{time} stdout P {line[60:110]}",
            f"{time} stderr F something",
            f"{time} stdout F {line[110:]}",
            f"{time} stdout F {role(2, '2026-11-21 03:00:01,000')}",
            f"{time} stdout P {role(3)[:50]}",
        ],
    )
    rows = [row for row in found.facts.to_pylist() if row["kind"] == "role_change"]
    assert [(row["offset"], row["source_line"]) for row in rows] == [(12345, 1), (2, 6)]
    assert reasons(found) == [(2, "not a log line"), (7, "cut off: its last part is missing")]


@pytest.mark.parametrize("prefix", ["broker  |", "broker  | ", "2026-11-21T03:00:00.1Z stdout F", "[pod/a/b] "])
def test_a_prefix_with_nothing_behind_is_a_blank_line(tmp_path: Path, prefix: str) -> None:
    assert taken_off(prefix).text == ""
    full = prefix.rstrip() + " "
    found = log(tmp_path, [full + role(1), prefix, full + role(2, "2026-11-21 03:00:01,000")])
    assert (offsets(found), reasons(found)) == ([1, 2], [])


def test_lines_of_another_container_are_left_out(tmp_path: Path) -> None:
    lines = [
        f"broker-1  | {role(1)}",
        "ui        | Listening on port 80",
        "ui        | ready",
        f"broker-1  | {role(2)}",
    ]
    found = log(tmp_path, lines)
    assert offsets(found) == [1, 2]
    ((line, reason),) = reasons(found)
    assert (line, "another container" in reason) == (2, True)


def test_several_brokers_in_one_stream_are_refused(tmp_path: Path) -> None:
    found = log(tmp_path, [f"broker-{k}  | {role(k)}" for k in (1, 2)])
    assert found.facts.num_rows == 0
    ((line, reason),) = reasons(found)
    assert line == 0
    assert "several containers (broker-1, broker-2)" in reason


@pytest.mark.parametrize(
    ("taken", "time", "error"), [("00.250000000", "00.250000", None), ("01.002000000", "00.499999", 500_000)]
)
def test_a_runtimes_time_is_taken_where_it_lies_in_the_lines_second(
    tmp_path: Path, taken: str, time: str, error: int | None
) -> None:
    line = rendered(role(1), "strimzi4")
    found = log(tmp_path, [f"2026-11-21T03:00:{taken}Z stdout F {line}"])
    (row,) = found.facts.to_pylist()
    assert (f"{row['ts']:%S.%f}", row["ts_error_us"]) == (time, error)


# -- ranges of large files


@pytest.mark.parametrize("prefix", ["", "broker   | "])
@pytest.mark.parametrize("name", ["apache", "strimzi3", "strimzi4", "ecs"])
def test_ranges_of_a_file_say_what_the_whole_says(tmp_path: Path, real: list[str], name: str, prefix: str) -> None:
    some = [line for k in range(0, 3000, 300) for line in (*real[k : k + 40], *STACK)]
    whole = log(tmp_path, behind([rendered(line, name) for line in some], prefix))
    recording = discover(tmp_path, recording_id="x")
    (source,) = recording.sources
    assert may_split(recording, source)
    size, step = source.size, 7919
    found, rejected = [], 0
    for start in range(0, size, step):
        end = min(start + step, size)
        first = newlines(source.path, 0, start - 1) + 2 if start else 1
        for batch in parse_file(recording, source, Range(start, end, first)):
            found += [] if batch.facts is None else batch.facts.select(["fact_id", "source_line", "name"]).to_pylist()
            rejected += 0 if batch.rejected is None else batch.rejected.num_rows
    expected = whole.facts.select(["fact_id", "source_line", "name"]).to_pylist()
    by_range = {row["fact_id"]: row["source_line"] for row in sorted(found, key=lambda row: -row["source_line"])}
    again = {row["fact_id"] for row in found if row["name"] in {"cluster_id", "metadata_response"}}  # once a range
    expected_of = {row["fact_id"]: row["source_line"] for row in expected}
    assert expected_of.keys() <= by_range.keys() <= expected_of.keys() | again
    assert all(by_range[fact] == line for fact, line in expected_of.items())
    assert rejected == whole.rejected.num_rows


def test_a_runtimes_file_is_read_whole_for_its_lines_come_in_parts(tmp_path: Path) -> None:
    log(tmp_path, behind([role(1)], "cri"))
    recording = discover(tmp_path)
    assert not may_split(recording, recording.sources[0])
