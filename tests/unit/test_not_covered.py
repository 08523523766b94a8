"""What is not covered: a source that cannot be there is not missing, nor is a request never sent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from pipelines.overview.coverage import HOLES, coverage_of, in_words
from replay.evidence.coverage import CLOSED, MISSING, REQUEST_LOG, row
from replay.evidence.summary import SUMMED
from schemas.facts import FACTS

START = datetime(2026, 1, 1, tzinfo=UTC)


def fact(second: float, **fields: Any) -> dict[str, Any]:
    line = {"source_file": "server.log", "source_line": round(second * 1000), "broker_id": 1}
    return {**dict.fromkeys(SUMMED), **line, "ts": START + timedelta(seconds=second), **fields}


def fetches(numbers: list[int], client: str, kind: str = "fetch") -> list[dict[str, Any]]:
    asked = {"kind": kind, "client_id": client, "connection": "a:9092-b:1000-0-0"}
    return [fact(k / 10, **asked, correlation_id=number) for k, number in enumerate(numbers)]


def holes(facts: list[dict[str, Any]]) -> list[tuple[int | None, str]]:
    schema = pa.schema([FACTS.arrow_schema.field(name) for name in SUMMED])
    rows = coverage_of(pa.Table.from_pylist(facts, schema)).rows
    return [(row["broker_id"], row["source"]) for row in rows if row["state"] in HOLES]


@pytest.mark.parametrize(
    ("told", "missing"),
    [
        ({"kind": "leader_and_isr"}, []),
        ({"kind": "broker_lifecycle", "name": "live_brokers"}, []),
        ({"kind": "isr_update", "name": "zookeeper_write"}, []),
        ({"kind": "isr_update", "name": "committed"}, [(None, "metadata")]),
    ],
)
def test_where_zookeeper_keeps_the_state_no_metadata_log_is_missing(
    told: dict[str, Any], missing: list[tuple[int | None, str]]
) -> None:
    lines = [fact(0, kind="role_change"), fact(2, **told), *fetches([1, 2, 3], "shop")]
    assert holes(lines) == missing


def test_a_request_that_the_quorums_client_never_sent_is_no_hole() -> None:
    numbers = [*range(10), 11, 12, 14, 17]
    zookeeper = fact(0, kind="leader_and_isr")
    assert holes([zookeeper, *fetches(numbers, "raft-client-1")]) == []
    assert set(holes([zookeeper, *fetches(numbers, "raft", "produce")])) == {(1, "request_log")}


def test_numbers_of_a_consumer_are_lost_lines_only_if_the_log_has_what_a_filter_drops() -> None:
    zookeeper = fact(0, kind="leader_and_isr")
    reads = fetches([21, 22, 24, 27], "reads")
    assert holes([zookeeper, *reads]) == []
    heartbeat = fact(0, kind="api", api_key=12, client_id="reads", connection="a:9092-b:1001-0-0", correlation_id=1)
    assert set(holes([zookeeper, *reads, heartbeat])) == {(1, "request_log")}


@pytest.mark.parametrize(("last_word", "missing"), [("shutdown", [(1, "request_log")]), ("shut_down", [])])
def test_a_shutdown_that_closed_the_logs_before_the_broker_had_stopped_is_a_hole(
    last_word: str, missing: list[tuple[int | None, str]]
) -> None:
    member = fact(0, kind="leader_and_isr", replicas=[1])
    life = [fact(3, kind="broker_lifecycle", name="terminating"), fact(3.5, kind="broker_lifecycle", name=last_word)]
    assert holes([member, *fetches([1, 2, 3], "shop", "produce"), *life]) == missing


def test_report_says_what_a_shutdown_left_open() -> None:
    since = round((START + timedelta(seconds=3)).timestamp() * 1e6)
    assert in_words({**row(REQUEST_LOG, (since, since + 1_500_000), MISSING, CLOSED), "broker_id": 1}) == (
        "broker 1, request log, 2026-01-01 00:00:03.000 to 2026-01-01 00:00:04.500: its logs end at its shutdown, "
        "before it had stopped: what it answered from there on is in no log (Log4j 2 closes them first, unless its "
        "shutdownHook is disabled)"
    )
