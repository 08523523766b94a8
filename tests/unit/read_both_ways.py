"""Lines read together and one by one, and what differs: nothing may."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from pipelines.intake.inputs import told
from pipelines.lines.clock import ZoneClock
from pipelines.lines.layout import LAYOUTS
from pipelines.lines.rows import FactSink
from pipelines.parse.files.log_lines import LogLines
from pipelines.parse.files.request_blocks import RequestBlocks
from pipelines.recording.reading import Outcome, read_blocks, split_lines
from pipelines.recording.recording import Source

if TYPE_CHECKING:
    import pyarrow as pa

TOPIC_ID = "4xlf91AXSBWb4GhCMB4MsQ"
NEW = [b'"', b",", b"{", b"}", b"[", b"]", b":", b"0", b"-", b"9", b".", b"\\", b" ", b"\xff", b"null", b'""', b"\r"]
NEW += [b"1e3", b"\x00", b"99999999999", b'"errorCode":1,', b"\xc3\xa9"]
TIMES = {
    "connection": "127.0.0.1:19093-127.0.0.1:35968-2-0",
    "totalTimeMs": 350.496,
    "requestQueueTimeMs": 1.858,
    "localTimeMs": 20.793,
    "remoteTimeMs": 320.392,
    "throttleTimeMs": 0,
    "responseQueueTimeMs": 2.342,
    "sendTimeMs": 5.1,
    "securityProtocol": "PLAINTEXT",
    "principal": "User:ANONYMOUS",
    "clientInformation": {"softwareName": "unknown", "softwareVersion": "unknown"},
}


def line(key: int, request: object, response: object, millis: int = 507, **other: object) -> str:
    """A request line as Kafka writes it; `other` are fields of the line in place of the usual ones."""
    header = {"requestApiKey": key, "requestApiVersion": 17, "correlationId": 7, "clientId": "broker-2-fetcher-0"}
    body = {"isForwarded": False, "requestHeader": {**header, "requestApiKeyName": "X"}, "request": request}
    text = json.dumps({**body, "response": response, **TIMES, **other}, separators=(",", ":"))
    return f"[2026-11-21 03:53:39,{millis:03}] DEBUG Completed request:{text} (kafka.request.logger)"


def fetch_of(*partitions: int, **other: object) -> dict[str, Any]:
    """A follower's request."""
    asked = {"currentLeaderEpoch": 2, "fetchOffset": 1089, "lastFetchedEpoch": -1, "logStartOffset": 0}
    parts = [{"partition": one, **asked, "partitionMaxBytes": 1048576} for one in partitions]
    state = {"replicaState": {"replicaId": 2, "replicaEpoch": 14}, "maxWaitMs": 300, "minBytes": 1, "maxBytes": 10}
    session = {"isolationLevel": 0, "sessionId": 595810678, "sessionEpoch": 190}
    topics = [{"topicId": TOPIC_ID, "partitions": parts}] if parts else []
    return {**state, **session, "topics": topics, "forgottenTopicsData": [], "rackId": "", **other}


def fetched_of(*partitions: int, **other: object) -> dict[str, Any]:
    """Its answer."""
    told_of = {"errorCode": 0, "highWatermark": 1089, "lastStableOffset": 1089, "logStartOffset": 0}
    rest = {"abortedTransactions": None, "preferredReadReplica": -1, "recordsSizeInBytes": 108}
    parts = [{"partitionIndex": one, **told_of, **rest, **other} for one in partitions]
    responses = [{"topicId": TOPIC_ID, "partitions": parts}] if parts else []
    return {"throttleTimeMs": 0, "errorCode": 0, "sessionId": 595810678, "responses": responses}


def produce_of(*partitions: int, **other: object) -> dict[str, Any]:
    """A producer's request."""
    data = [{"index": one, "recordsSizeInBytes": 108} for one in partitions]
    topics = [{"name": "pair", "partitionData": data}]
    return {"transactionalId": None, "acks": -1, "timeoutMs": 3000, "topicData": topics, **other}


def produced_of(*partitions: int, **other: object) -> dict[str, Any]:
    """Its answer."""
    given = {"errorCode": 0, "baseOffset": 5, "logAppendTimeMs": -1, "logStartOffset": 0, "recordErrors": []}
    parts = [{"index": one, **given, "errorMessage": None, **other} for one in partitions]
    return {"responses": [{"name": "pair", "partitionResponses": parts}], "throttleTimeMs": 0}


class Said:
    """What a file's lines say, block by block."""

    def __init__(self, blocks: list[bytes], zone: str, *, together: bool) -> None:
        """Read them together, or one by one."""
        sink = FactSink("r", "logs/node-1/kafka-request.log", 1)
        log = LogLines(sink, LAYOUTS["apache"], ZoneClock(zone))
        reader, number = RequestBlocks(log, sink), 1
        self.facts: list[pa.RecordBatch | None] = []
        for block in blocks:
            if together:
                reader.parse(block, number)
            else:
                for place, text in enumerate(split_lines(block), number):
                    log.parse(text, place)
            number += block.count(b"\n")
            if number % 2:  # what is not taken yet is joined with what comes
                self.facts.append(sink.take_facts())
        log.finish()
        self.facts.append(sink.take_facts())
        self.rejected = sink.take_rejected()
        self.together = reader.lines
        self.counts = told(Source("", "logs/node-1/kafka-request.log", 1, 0), None, sink.counts, {}, {})


def differences(blocks: list[bytes], zone: str = "UTC") -> list[str]:
    """What is not the same if lines are read together."""
    one, other = (Said(blocks, zone, together=together) for together in (False, True))
    found = [] if one.counts == other.counts else [f"{one.counts} or {other.counts}"]
    for given, read in zip([*one.facts, one.rejected], [*other.facts, other.rejected], strict=True):
        if given is None or read is None or not given.equals(read):
            rows = [[] if rows is None else rows.to_pylist() for rows in (given, read)]
            if rows[0] != rows[1] or (given is None) != (read is None):
                found += [f"{row} or {like}" for row, like in zip(*rows, strict=False) if row != like][:1] or ["length"]
    return found


def damaged(text: bytes, random: Random) -> bytes:
    """A line with something done to it."""
    at = random.randrange(len(text))
    to = min(at + random.randrange(1, 30), len(text))
    other = random.randrange(len(text))
    new = random.choice(NEW)
    kinds = (
        text[:at] + new + text[at:],
        text[:at] + new + text[at + 1 :],
        text[:at] + text[to:],
        text[:to] + text[at:],
        text[:at],
        text[:at] + text[other:],
    )
    return random.choice(kinds).replace(b"\n", b"")


def good_lines() -> list[bytes]:
    """Lines that are read together."""
    follower = fetch_of(0, 1, 2, forgottenTopicsData=[{"topicId": TOPIC_ID, "partitions": [4, 5]}])
    diverging = fetched_of(0, divergingEpoch={"epoch": 1, "endOffset": 17})
    known = [
        line(1, fetch_of(0), fetched_of(0)),
        line(1, follower, fetched_of(1), 508),
        line(1, fetch_of(), fetched_of(), 508, connection="10.0.0.1:9092-10.0.0.2:40112-3"),
        line(1, fetch_of(2, 0), fetched_of(0, 2, 7), 509),
        line(1, fetch_of(0, replicaState={"replicaId": 3, "replicaEpoch": 5}), diverging, 509),
        line(1, fetch_of(0, maxBytes=1024, rackId="zone-b"), fetched_of(0), 509),
        line(0, produce_of(0), produced_of(0), 510),
        line(0, produce_of(3, 1, transactionalId="t-1"), produced_of(1, 3), 510),
        line(0, produce_of(2, acks=0), "", 511),
    ]
    return [one.encode() for one in known]


def compare_at_length(recordings: list[str], rounds: int) -> list[int]:
    """Compare whole files and many damaged lines, and return the files' lines; AssertionError: something differs."""
    told_of = []
    for name in recordings:
        for path in sorted(Path(name).glob("logs/node-*/kafka-request.log.gz")):
            blocks = list(read_blocks(str(path), Outcome()))
            read = Said(blocks, "UTC", together=True)
            found = differences(blocks)
            assert not found, (path, found)
            lines = sum(block.count(b"\n") for block in blocks)
            assert read.together > 0.9 * lines or lines < 1000, (path, read.together, lines)
            told_of.append(lines)
    random, known = Random(7), good_lines()  # noqa: S311 - nothing is kept secret by it
    for number in range(rounds):
        lines = [random.choice(known) for _ in range(random.randrange(1, 6))]
        lines += [damaged(random.choice(lines), random) for _ in range(random.randrange(1, 3))]
        random.shuffle(lines)
        block = b"".join(one + b"\n" for one in lines)
        found = differences([block])
        assert not found, (number, block, found)
    return told_of


if __name__ == "__main__":
    sys.stdout.write(json.dumps(compare_at_length(sys.argv[2:], int(sys.argv[1]))))
