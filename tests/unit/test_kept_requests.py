"""A request log may be filtered: the filters keep what is read, and what they drop does not look lost."""

from __future__ import annotations

import gzip
import re
import shutil
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from facts_builder import gaps_in
from test_coverage import requests, us
from without_spark import events_of, tables_of

from pipelines.parse.requests import request_text
from pipelines.parse.requests.request_log import RequestLog
from replay.evidence.coverage import LOGGED, MISSING, REQUEST_LOG, with_windows
from replay.evidence.kept_requests import KEPT, READ

if TYPE_CHECKING:
    from pathlib import Path

    from replay.evidence.missing_lines import MissingLines

HEARTBEAT = 12
CONSUMER = {"kind": "fetch", "replica_id": -1, "api_key": 1, "client_id": "reads"}
KEY = re.compile(r'"requestApiKey":(\d+),')


def log4j_2_filter(repository: Path) -> re.Pattern[str]:
    return re.compile(re.findall(r"regex: '(.*)'", (repository / "conf" / "kafka-broker-log4j2.yaml").read_text())[0])


def log4j_1_filter(repository: Path) -> list[str]:
    """The texts of which one must stand in a line."""
    return re.findall(r"\.StringToMatch=(.*)", (repository / "conf" / "kafka-broker-log4j.properties").read_text())


def test_requests_that_are_read_are_those_that_the_parser_has_a_shape_for() -> None:
    assert RequestLog().keys_read == READ.keys()


def test_filter_of_log4j_2_keeps_what_is_kept(repository: Path) -> None:
    filtered = log4j_2_filter(repository)
    line = 'Completed request:{{"isForwarded":false,"requestHeader":{{"requestApiKey":{},"requestApiVersion":7}}}}'
    assert {key for key in range(200) if filtered.fullmatch(line.format(key))} == KEPT.keys()
    assert filtered.fullmatch(line.replace("false", "true").format(1))


def test_filter_of_log4j_1_keeps_what_is_kept_by_number_and_by_name(repository: Path) -> None:
    texts = log4j_1_filter(repository)
    numbers = {key for key in range(200) if any(text in f'{{"requestApiKey":{key},' for text in texts)}
    assert numbers == KEPT.keys()
    line = "Completed request:RequestHeader(apiKey={}, apiVersion=7, clientId=c, correlationId=1) -- {{}}"
    names = {name for name in request_text.KEYS if any(text in line.format(name) for text in texts)}
    assert names == {KEPT[key] for key in KEPT if key in request_text.KEYS.values()}


def test_names_of_the_text_form_are_those_of_their_numbers() -> None:
    assert {name: key for key, name in KEPT.items() if name in request_text.KEYS}.items() <= request_text.KEYS.items()
    assert KEPT.keys() - request_text.KEYS.values() == {71, 72}


def test_numbers_of_a_consumer_whose_other_requests_are_nowhere_show_no_lost_lines() -> None:
    missing = gaps_in(requests([21, 22, 24, 27], **CONSUMER))
    assert missing.holes == {}
    assert not missing.lossy
    assert not missing.cuts


def test_a_consumer_s_fetch_may_be_missing_where_the_log_lost_other_lines() -> None:
    """What each of its fetches brought is not certain there."""
    reads = [*requests([21, 22, 24], **CONSUMER), *requests([26, 28, 29], **CONSUMER, first_ms=300_000)]
    appends = requests([101, 102, 104], client_id="writes", kind="produce", api_key=0, port=2000)

    def uncertain(missing: MissingLines) -> list[bool]:
        return [missing.any_between(*pair) for pair in pairwise(reads)]

    assert uncertain(gaps_in([*reads, *appends[:2]])) == [False] * 5
    assert uncertain(gaps_in([*reads, *appends])) == [False, True, True, False, False]
    followed = [one.but(replica_id=2) for one in reads]  # a follower's numbers prove what they tell
    assert not any(gaps_in([*reads, *appends]).any_between(*pair) for pair in pairwise(followed))
    silent = {"broker_id": 1, "source": REQUEST_LOG, "state": MISSING, "start_ts": us(100_000), "end_ts": us(200_000)}
    logged = {**silent, "state": LOGGED, "start_ts": us(200_000), "end_ts": us(400_000)}
    assert uncertain(with_windows(gaps_in(reads), [silent, logged])) == [False, False, True, False, False]
    # Nothing is known of how long a silence lasts with which the recording ends.
    assert uncertain(with_windows(gaps_in(reads), [silent])) == [False, False, True, True, False]


def test_numbers_of_a_consumer_whose_other_requests_are_there_show_lost_lines() -> None:
    heartbeats = requests([1], kind="api", api_key=HEARTBEAT, client_id="reads", port=2000)
    assert [hole.lines for hole in gaps_in([*requests([21, 22, 24, 27], **CONSUMER), *heartbeats]).holes[1]] == [1, 2]


def test_numbers_of_a_client_that_asks_only_for_metadata_show_no_lost_lines() -> None:
    missing = gaps_in(requests([1, 7, 20], kind="api", api_key=3, client_id="adminclient-1"))
    assert missing.holes == {}
    assert not missing.gaps


@pytest.mark.parametrize(
    "fields", [{"kind": "produce", "api_key": 0}, {"kind": "fetch", "api_key": 1, "replica_id": 2}]
)
def test_numbers_of_producers_and_followers_show_lost_lines_in_a_filtered_log_too(fields: dict[str, Any]) -> None:
    assert [hole.lines for hole in gaps_in(requests([1, 2, 5], **fields)).holes[1]] == [2]


@pytest.mark.parametrize("recording", ["unclean-election", "last-replica"])
def test_filtered_log_tells_the_same_losses(recording: str, recordings: Path, tmp_path: Path) -> None:
    filtered = shutil.copytree(recordings / recording, tmp_path / recording)
    dropped = 0
    for log in filtered.glob("logs/node-*/kafka-request.log*"):
        lines = gzip.decompress(log.read_bytes()).splitlines(keepends=True)
        kept = [line for line in lines if (key := KEY.search(line.decode())) and int(key[1]) in KEPT]
        log.write_bytes(gzip.compress(b"".join(kept), 1))
        dropped += len(lines) - len(kept)
    assert dropped
    assert losses(filtered) == losses(recordings / recording)


def losses(recording: Path) -> list[dict[str, Any]]:
    found = [row for events in events_of(recording) for row in tables_of(events)["data_loss_incidents"].to_pylist()]
    return [{name: value for name, value in row.items() if name not in {"chain", "chain_sources"}} for row in found]
