"""What lies in a container's log beside the broker's lines: prefixes, other containers, the JVM's own lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lines_in_layouts import log, offsets, reasons, rendered, role

from pipelines.parse.files.prefix import taken_off

if TYPE_CHECKING:
    from pathlib import Path


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
