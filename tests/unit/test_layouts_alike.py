"""The same lines of a real broker say the same in each layout, with garbage in between, and in ranges of a file."""

from __future__ import annotations

import gzip
import random
from typing import TYPE_CHECKING, Any

import pytest
from lines_in_layouts import APACHE, STACK, WHOLE_SECONDS, behind, log, reasons, rendered, role

from pipelines.parse.files.file_parser import Range, parse_file
from pipelines.parse.files.splits import may_split
from pipelines.recording.reading import newlines
from pipelines.recording.recording import discover

if TYPE_CHECKING:
    from pathlib import Path

    from pipelines.intake.collect import Collected


# -- the same lines in each layout


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
