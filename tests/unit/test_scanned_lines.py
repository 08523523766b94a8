"""Lines that are read together say what they say one by one, whatever is in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from read_both_ways import (
    TOPIC_ID,
    Said,
    compare_at_length,
    differences,
    fetch_of,
    fetched_of,
    good_lines,
    line,
    produce_of,
    produced_of,
)

HERE = Path(__file__).parent
RECORDINGS = HERE.parent / "recordings"
GOOD = good_lines()
CONSUMER = {name: value for name, value in fetch_of(0).items() if name != "replicaState"}
FETCH, PRODUCE = line(1, fetch_of(0), fetched_of(0)), line(0, produce_of(0), produced_of(0))


def block_of(*lines: str | bytes) -> bytes:
    return b"".join((one if isinstance(one, bytes) else one.encode()) + b"\n" for one in lines)


def without(text: str, *keys: str) -> str:
    """The fetch without what stands under some keys of an object in it."""
    begin, end = text.index("{"), text.rindex(" (")
    body: dict[str, Any] = json.loads(text[begin:end])
    inner = body
    for key in keys[:-1]:
        inner = inner[key] if not isinstance(inner[key], list) else inner[key][0]
    del inner[keys[-1]]
    return text[:begin] + json.dumps(body, separators=(",", ":")) + text[end:]


def test_fetches_and_produces_are_read_together() -> None:
    said = Said([block_of(*GOOD)], "UTC", together=True)
    assert said.together == len(GOOD)
    assert said.rejected is None
    assert [len(facts) for facts in said.facts if facts is not None] == [1 + 5 + 1 + 3 + 1 + 1 + 1 + 2 + 1]
    assert differences([block_of(*GOOD)]) == []


def test_a_text_that_is_null_takes_no_room() -> None:
    block = block_of(*[FETCH.replace(":39,507", f":39,{millis}") for millis in range(100, 300)])
    (facts,) = (one for one in Said([block], "UTC", together=True).facts if one is not None)
    assert facts["rack"].null_count == len(facts) == 200
    assert facts.get_total_buffer_size() < 10 * len(block)


HOSTILE = {
    "a key twice": FETCH.replace('"isolationLevel":0', '"isolationLevel":0,"isolationLevel":1'),
    "a header twice": FETCH.replace(',"request":{', ',"requestHeader":{"requestApiKey":0},"request":{'),
    "an unknown key twice": FETCH.replace('"rackId":""', '"new":1,"new":[{"a":null,"b":[true,false,-1.5,"x"]},[],{}]'),
    "an escape": FETCH.replace("broker-2-fetcher-0", r"broker\u002d2"),
    "an escape in what nobody reads": FETCH.replace("User:ANONYMOUS", r'User:\"A\"'),
    "an escaped key": FETCH.replace('"sessionId"', r'"session\u0049d"'),
    "bytes that are not UTF-8": FETCH.encode().replace(b"broker-2", b"br\xff\xfeker"),
    "a letter beyond ASCII": FETCH.replace("broker-2", "brok\u00e9r"),
    "a null byte": FETCH.encode().replace(b"broker-2", b"br\x00ker"),
    "white space": FETCH.replace('"sessionId":', '"sessionId": '),
    "null for a number": FETCH.replace('"sessionEpoch":190', '"sessionEpoch":null'),
    "null for a number that may be null": FETCH.replace('"maxWaitMs":300', '"maxWaitMs":null'),
    "null for a text": FETCH.replace('"broker-2-fetcher-0"', "null"),
    "null for an object": FETCH.replace('{"replicaId":2,"replicaEpoch":14}', "null"),
    "null for a list": FETCH.replace('"forgottenTopicsData":[]', '"forgottenTopicsData":null'),
    "null for the answer": line(1, fetch_of(0), None),
    "no answer to a fetch": line(1, fetch_of(0), ""),
    "an answer that is a text": line(0, produce_of(0), "lost"),
    "a text for a number": FETCH.replace('"minBytes":1', '"minBytes":"1"'),
    "a number for a text": FETCH.replace('"broker-2-fetcher-0"', "2"),
    "a fraction": FETCH.replace('"minBytes":1', '"minBytes":1.0'),
    "an exponent": FETCH.replace('"minBytes":1', '"minBytes":1e0'),
    "an exponent in a time": FETCH.replace("350.496", "3.50496E2"),
    "many decimals": FETCH.replace("350.496", "350.4965000001"),
    "a negative time": FETCH.replace("350.496", "-350.496"),
    "a zero before a number": FETCH.replace('"minBytes":1', '"minBytes":01'),
    "minus zero": FETCH.replace('"minBytes":1', '"minBytes":-0'),
    "a point without digits": FETCH.replace("350.496", "350."),
    "a number of 18 digits": FETCH.replace('"fetchOffset":1089', '"fetchOffset":999999999999999999'),
    "a number of 19 digits": FETCH.replace('"fetchOffset":1089', '"fetchOffset":9223372036854775807'),
    "a number of 30 digits": FETCH.replace('"fetchOffset":1089', f'"fetchOffset":{10**30}'),
    "a number too large for its column": FETCH.replace('"partition":0', '"partition":2147483648'),
    "a time of 400 digits": FETCH.replace("350.496", "9" * 400),
    "a time of 14 digits": FETCH.replace("350.496", "99999999999999.9"),
    "another field order": line(1, dict(reversed(fetch_of(0).items())), fetched_of(0)),
    "a partition asked for twice": line(1, fetch_of(0, 0), fetched_of(0)),
    "a partition answered twice": line(1, fetch_of(0), fetched_of(0, 0)),
    "a produce answered twice": line(0, produce_of(0), produced_of(0, 0)),
    "a produce answered in part": line(0, produce_of(0, 1), produced_of(1)),
    "a produce without partitions": line(0, produce_of(), produced_of()),
    "other names for an answer": line(
        1, fetch_of(0),
        {"responses": [{"topicId": TOPIC_ID, "partitionResponses": [
            {"partition": 0, "errorCode": 0, "highWatermark": 4, "recordSetSizeInBytes": 3}]}]},
    ),
    "an answer without a partition": line(
        1, fetch_of(), {"responses": [{"topicId": TOPIC_ID, "partitions": [{"errorCode": 0, "highWatermark": 4}]}]}
    ),
    "a topic's name that needs quotes": line(0, produce_of(0), produced_of(0)).replace("pair", "pa'ir"),
    "a topic without a name": line(0, produce_of(0), produced_of(0)).replace('"name":"pair",', ""),
    "a topic of no letters": line(0, produce_of(0), produced_of(0)).replace("pair", ""),
    "an id of no topic": FETCH.replace(TOPIC_ID, "A" * 22),
    "topics by name and by id": FETCH.replace('"topicId":', '"topic":"a","topicId":', 1),
    "a consumer": line(1, CONSUMER, fetched_of(0)),
    "a follower of old": line(1, {"replicaId": 3, **CONSUMER}, fetched_of(0)),
    "another level": FETCH.replace("DEBUG", "TRACE"),
    "a level unheard of": FETCH.replace("DEBUG", "LOUD"),
    "a forwarded request": FETCH.replace('"isForwarded":false', '"isForwarded":true'),
    "another request's key first": FETCH.replace("{", '{"requestApiKey":0,', 1),
    "another kind of request": line(12, {}, {}),
    "metadata": line(3, {}, {"clusterId": "c", "topics": [{"name": "pair", "topicId": TOPIC_ID}]}),
    "another stamp": FETCH.replace(",507]", ".507]"),
    "a stamp with a zone": FETCH.replace(",507]", ",507+0200]"),
    "a stamp in whole seconds": FETCH.replace(",507]", "]"),
    "a day that cannot be": FETCH.replace("2026-11-21", "2026-02-30"),
    "a year that cannot be": FETCH.replace("2026-11-21", "0000-11-21"),
    "the first year": FETCH.replace("2026-11-21 03", "0001-01-01 00"),
    "an earlier time": FETCH.replace("03:53:39", "03:53:38"),
    "a later time": FETCH.replace("03:53:39", "04:53:39"),
    "another logger": FETCH.replace("kafka.request.logger", "request.logger"),
    "text behind the logger": FETCH + " ",
    "a line end of Windows": FETCH + "\r",
    "a line that is cut": FETCH[:-40],
    "a line that is cut within its JSON": FETCH[:500],
    "lines without an end between them": FETCH[:300] + PRODUCE,
    "two objects": FETCH.replace("} (", "}{} ("),
    "an object that is not closed": FETCH.replace("}} (", "} ("),
    "a text that is not closed": FETCH.replace('unknown"}}', "unknown"),
    "brackets that do not match": FETCH.replace('"rackId":""', '"rackId":[{]}'),
    "brackets without end": FETCH.replace('"rackId":""', '"rackId":' + "[" * 100 + "]" * 100),
    "a word that is none": FETCH.replace('"rackId":""', '"rackId":nil'),
    "a mark of byte order": b"\xef\xbb\xbf" + FETCH.encode(),
    "a server's line": "[2026-11-21 03:53:39,507] INFO [Partition pair-0 broker=1] ISR is 1 (kafka.cluster.Partition)",
    "a list of settings": "[2026-11-21 03:53:39,507] INFO KafkaConfig values: \n\tmin.insync.replicas = 2",
    "a head without its logger": "[2026-11-21 03:53:39,507] INFO Opening socket connection",
    "a stack trace": "\tat kafka.server.ReplicaManager.fetch(ReplicaManager.scala:1)",
    "no line": "",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_line_that_is_not_as_usual_says_the_same_between_others(name: str) -> None:
    text = HOSTILE[name]
    assert differences([block_of(GOOD[0], text, *GOOD[1:], text)]) == []
    assert differences([block_of(text), block_of(*GOOD[:5]), block_of(GOOD[0], text)]) == []


@pytest.mark.parametrize("field", ["sessionId", "topics", "minBytes", "replicaState", "forgottenTopicsData"])
def test_a_field_that_is_missing_has_its_usual_value(field: str) -> None:
    assert differences([block_of(GOOD[1], without(FETCH, "request", field), GOOD[2])]) == []


def test_a_fact_that_is_repeated_within_its_millisecond_counts_once() -> None:
    assert differences([block_of(*GOOD, *GOOD)]) == []
    assert differences([block_of(*GOOD), block_of(GOOD[-1], GOOD[0])]) == []
    assert differences([block_of(GOOD[0]), block_of(GOOD[0]), block_of(GOOD[0], GOOD[1])]) == []
    assert differences([block_of(GOOD[0].replace(b",507]", b".507]"), GOOD[0], GOOD[1], GOOD[0] + b" ")]) == []


@pytest.mark.parametrize("step", [1, 4, 6, -1, -7])
def test_a_silence_is_seen_and_a_long_time_without_one_is_none(step: int) -> None:
    times = [f"03:53:{30 + step * place:02}".encode() for place in range(5)]
    block = block_of(*(line.replace(b"03:53:39", time) for time, line in zip(times, GOOD, strict=False)))
    assert differences([block, block_of(GOOD[6], HOSTILE["a server's line"], GOOD[7])]) == []
    assert differences([block_of(GOOD[6]), block]) == []


@pytest.mark.parametrize("hour", ["02:59:59", "03:00:00", "02:10:00"])
def test_a_clock_that_is_set_back_is_followed(hour: str) -> None:
    day = [one.replace(b"2026-11-21 03:53:39", f"2026-10-25 {hour}".encode()) for one in GOOD]
    assert differences([block_of(*day), block_of(*GOOD)], "Europe/Berlin") == []
    assert differences([block_of(*day, *reversed(day))], "Europe/Berlin") == []


def test_damaged_lines_say_the_same() -> None:
    compare_at_length([], 150)


def test_whole_recordings_and_many_damaged_lines_say_the_same_when_compiled() -> None:
    path = os.pathsep.join([str(HERE.parent.parent), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    given = [str(RECORDINGS / name) for name in ("unclean-election", "last-replica")]
    done = subprocess.run(
        [sys.executable, str(HERE / "read_both_ways.py"), "3000", *given],
        env={**os.environ, "NUMBA_DISABLE_JIT": "0", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert sum(json.loads(done.stdout)) > 5_000
