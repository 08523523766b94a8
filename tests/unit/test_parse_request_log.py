"""Request log lines as Kafka 2.8 and 4.1 wrote them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipelines.lines.clock import ZoneClock
from pipelines.lines.layout import LAYOUTS
from pipelines.lines.rows import FactSink
from pipelines.parse.files.log_lines import LogLines

TIMES = {
    "connection": "127.0.0.1:19091-127.0.0.1:39930-2-0",
    "totalTimeMs": 325.025,
    "requestQueueTimeMs": 0.134,
    "localTimeMs": 2.657,
    "remoteTimeMs": 315.445,
    "throttleTimeMs": 0,
    "responseQueueTimeMs": 6.513,
    "sendTimeMs": 0.274,
    "securityProtocol": "PLAINTEXT",
    "principal": "User:ANONYMOUS",
}


def line(key: int, version: int, request: object, response: object, **other: object) -> str:
    header = {
        "requestApiKey": key,
        "requestApiVersion": version,
        "correlationId": 7,
        "clientId": "c",
        "requestApiKeyName": "X",
    }
    body = {"isForwarded": False, "requestHeader": header, "request": request, "response": response, **TIMES, **other}
    text = json.dumps(body, separators=(",", ":"))
    return f"[2026-11-21 03:53:38,817] DEBUG Completed request:{text} (kafka.request.logger)"


def parsed(*lines: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    sink = FactSink("r", "kafka-request.log", 1)
    parser = LogLines(sink, LAYOUTS["apache"], ZoneClock("UTC"))
    for number, text in enumerate(lines, 1):
        parser.parse(text, number)
    parser.finish()
    facts, rejected = sink.take_facts(), sink.take_rejected()
    return (facts.to_pylist() if facts else []), (rejected.to_pylist() if rejected else [])


def fetch(topics: list[Any], forgotten: list[Any] | None = None) -> dict[str, Any]:
    return {
        "replicaState": {"replicaId": 2, "replicaEpoch": 14},
        "maxWaitMs": 300,
        "minBytes": 1,
        "isolationLevel": 0,
        "sessionId": 5,
        "sessionEpoch": 3,
        "topics": topics,
        "forgottenTopicsData": forgotten or [],
    }


def test_produce_has_a_row_for_each_partition() -> None:
    request = {"transactionalId": None, "acks": -1, "timeoutMs": 1, "topicData": [{"name": "a", "partitionData": [
        {"index": 0, "recordsSizeInBytes": 203}, {"index": 1, "recordsSizeInBytes": 99}]}]}  # fmt: skip
    response = {"responses": [{"name": "a", "partitionResponses": [
        {"index": 0, "errorCode": 0, "baseOffset": 55, "logStartOffset": 3},
        {"index": 1, "errorCode": 19, "baseOffset": -1, "logStartOffset": -1}]}], "throttleTimeMs": 0}  # fmt: skip
    facts, rejected = parsed(line(0, 10, request, response))
    assert rejected == []
    assert [(f["kind"], f["topic"], f["partition"], f["bytes"], f["error_code"], f["base_offset"]) for f in facts] == [
        ("produce", "a", 0, 203, 0, 55),
        ("produce", "a", 1, 99, 19, -1),
    ]
    first = facts[0]
    assert (first["total_us"], first["queue_us"], first["local_us"], first["remote_us"]) == (325025, 134, 2657, 315445)
    assert (first["acks"], first["correlation_id"], first["api_version"]) == (-1, 7, 10)
    assert first["fact_id"] != facts[1]["fact_id"]


def test_markers_have_a_row_for_each_producer_and_partition() -> None:
    request = {"markers": [{"producerId": 7, "producerEpoch": 1, "transactionResult": False, "coordinatorEpoch": 0,
        "topics": [{"name": "a", "partitionIndexes": [0, 2]}]}]}  # fmt: skip
    response = {"markers": [{"producerId": 7, "topics": [{"name": "a", "partitions": [
        {"partitionIndex": 0, "errorCode": 0}, {"partitionIndex": 2, "errorCode": 6}]}]}]}  # fmt: skip
    facts, rejected = parsed(line(27, 1, request, response))
    assert rejected == []
    told = ("kind", "name", "topic", "partition", "producer_id", "producer_epoch", "error_code")
    assert [tuple(fact[name] for name in told) for fact in facts] == [
        ("transaction", "marker_abort", "a", 0, 7, 1, 0),
        ("transaction", "marker_abort", "a", 2, 7, 1, 6),
    ]
    assert facts[0]["correlation_id"] == 7


@pytest.mark.parametrize("form", ["2.8", "3.5", "brokers"])
def test_partitions_that_a_transaction_takes_in_name_its_producer(form: str) -> None:
    topics = [{"name": "a", "partitions": [3]}]
    whose = {"transactionalId": "tx", "producerId": 7, "producerEpoch": 1}
    errors = {"results": [{"name": "a", "resultsByPartition": [{"partitionIndex": 3, "partitionErrorCode": 51}]}]}
    if form == "2.8":
        request: dict[str, Any] = {**whose, "topics": topics}
        response: dict[str, Any] = {"results": [{"name": "a", "results": [{"partitionIndex": 3, "errorCode": 51}]}]}
    elif form == "3.5":
        request = {
            f"v3AndBelow{name[0].upper()}{name[1:]}": value for name, value in {**whose, "topics": topics}.items()
        }
        response = {"resultsByTopicV3AndBelow": errors["results"]}
    else:
        request = {"transactions": [{**whose, "verifyOnly": False, "topics": topics}]}
        response = {
            "errorCode": 0,
            "resultsByTransaction": [{"transactionalId": "tx", "topicResults": errors["results"]}],
        }
    (fact,), rejected = parsed(line(24, 4, request, response))
    assert rejected == []
    told = ("kind", "name", "topic", "partition", "transactional_id", "producer_id", "error_code")
    assert tuple(fact[name] for name in told) == ("transaction", "added", "a", 3, "tx", 7, 51)


def test_end_of_a_transaction_is_of_no_partition() -> None:
    request = {"transactionalId": "tx", "producerId": 7, "producerEpoch": 1, "committed": True}
    (fact,), _ = parsed(line(26, 3, request, {"throttleTimeMs": 0, "errorCode": 0}))
    assert (fact["kind"], fact["name"], fact["transactional_id"], fact["partition"]) == (
        "transaction",
        "end_commit",
        "tx",
        None,
    )


def test_produce_without_acknowledgement_has_no_answer() -> None:
    request = {"acks": 0, "topicData": [{"topicId": "5VxosZ-STL-5Q0eqMpDsUQ", "partitionData": [{"index": 0}]}]}
    (fact,), _ = parsed(line(0, 13, request, ""))
    assert (fact["acks"], fact["error_code"], fact["base_offset"]) == (0, None, None)
    assert (fact["topic"], fact["topic_id"]) == (None, "5VxosZ-STL-5Q0eqMpDsUQ")


def test_fetch_joins_request_and_response_by_partition() -> None:
    asked = {"partition": 0, "currentLeaderEpoch": 4, "fetchOffset": 9, "lastFetchedEpoch": 3, "logStartOffset": 1,
             "partitionMaxBytes": 1048576}  # fmt: skip
    answered = {"partitionIndex": 0, "errorCode": 0, "highWatermark": 8, "lastStableOffset": 7, "logStartOffset": 0,
                "preferredReadReplica": -1, "recordsSizeInBytes": 66,
                "divergingEpoch": {"epoch": 3, "endOffset": 6}}  # fmt: skip
    other = {**answered, "partitionIndex": 1, "highWatermark": 20}
    request = fetch([{"topicId": "T", "partitions": [asked]}], [{"topicId": "T", "partitions": [5]}])
    response = {"errorCode": 0, "sessionId": 5, "responses": [{"topicId": "T", "partitions": [answered, other]}]}
    facts, rejected = parsed(line(1, 18, request, response))
    assert rejected == []
    rows = {f["partition"]: f for f in facts}
    assert {p: (f["in_request"], f["in_response"], f["forgotten"]) for p, f in rows.items()} == {
        0: (True, True, False),
        1: (False, True, False),
        5: (False, False, True),
    }
    both = rows[0]
    assert (both["replica_id"], both["replica_epoch"], both["session_id"], both["session_epoch"]) == (2, 14, 5, 3)
    assert (both["fetch_offset"], both["last_fetched_epoch"], both["follower_log_start_offset"]) == (9, 3, 1)
    assert (both["hw"], both["bytes"], both["diverging_epoch"], both["diverging_end_offset"]) == (8, 66, 3, 6)
    assert (rows[1]["fetch_offset"], rows[1]["hw"], rows[5]["hw"]) == (None, 20, None)
    assert len({f["fact_id"] for f in facts}) == 3


@pytest.mark.parametrize(("limit", "told"), [({"maxBytes": 10485760}, 10485760), ({}, None)], ids=["3", "2"])
def test_a_fetch_says_how_much_it_takes(limit: dict[str, int], told: int | None) -> None:
    asked = {"partition": 0, "fetchOffset": 9, "partitionMaxBytes": 1048576}
    request = {**fetch([{"topic": "a", "partitions": [asked]}]), **limit}
    (fact,), rejected = parsed(line(1, 3, request, {"errorCode": 0, "sessionId": 5, "responses": []}))
    assert rejected == []
    assert (fact["partition_max_bytes"], fact["max_bytes"]) == (1048576, told)


@pytest.mark.parametrize("size", ["recordsSizeInBytes", "recordSetSizeInBytes"])
def test_an_answer_says_what_it_lists_before_a_partition(size: str) -> None:
    request = fetch([{"topic": "a", "partitions": [{"partition": 0, "fetchOffset": 9}]}])
    sizes = ((3, 10), (0, 20), (2, None))
    parts = [{"partitionIndex": one, "errorCode": 0, "highWatermark": 9, size: held} for one, held in sizes]
    answers = [{"topic": "a", "partitions": parts}, {"topic": "b", "partitions": [parts[0]]}]
    facts, rejected = parsed(line(1, 12, request, {"errorCode": 0, "sessionId": 5, "responses": answers}))
    assert rejected == []
    told = {(fact["topic"], fact["partition"]): fact["bytes_listed_before"] for fact in facts}
    assert told == {("a", 3): 0, ("a", 0): 10, ("a", 2): 30, ("b", 3): 30}


def test_what_an_answer_does_not_list_has_no_place_in_it() -> None:
    request = fetch([{"topic": "a", "partitions": [{"partition": 0, "fetchOffset": 9}]}])
    (fact,), _ = parsed(line(1, 12, request, {"errorCode": 0, "sessionId": 5, "responses": []}))
    assert (fact["in_response"], fact["bytes_listed_before"]) == (False, None)


def test_fetch_that_lists_nothing_is_one_row_without_partition() -> None:
    (fact,), _ = parsed(line(1, 18, fetch([]), {"errorCode": 0, "sessionId": 5, "responses": []}))
    assert (fact["partition"], fact["in_request"], fact["error_code"], fact["response_session_id"]) == (
        None,
        False,
        0,
        5,
    )


def test_consumer_fetch_has_no_replica() -> None:
    request = fetch([])
    del request["replicaState"]
    (fact,), _ = parsed(line(1, 18, request, {"errorCode": 0, "sessionId": 0, "responses": []}))
    assert (fact["replica_id"], fact["rack"]) == (-1, None)
    (fact,), _ = parsed(line(1, 18, request | {"rackId": "b"}, {"errorCode": 0, "sessionId": 0, "responses": []}))
    assert fact["rack"] == "b"


def test_fetch_in_the_words_of_2_8() -> None:
    request = {"replicaId": 2, "maxWaitMs": 300, "minBytes": 1, "topics": [{"topic": "steady", "partitions": [
        {"partition": 0, "fetchOffset": 4, "partitionMaxBytes": 1048576}]}]}  # fmt: skip
    response = {"responses": [{"topic": "steady", "partitionResponses": [
        {"partition": 0, "errorCode": 0, "highWatermark": 3, "recordSetSizeInBytes": 12}]}]}  # fmt: skip
    (fact,), _ = parsed(line(1, 3, request, response))
    assert (fact["topic"], fact["fetch_offset"], fact["hw"], fact["bytes"]) == ("steady", 4, 3, 12)
    assert (fact["in_request"], fact["in_response"], fact["replica_id"]) == (True, True, 2)
    assert (fact["session_epoch"], fact["current_leader_epoch"]) == (-1, -1)


def test_offset_for_leader_epoch() -> None:
    request = {"topics": [{"topic": "a", "partitions": [{"partition": 1, "currentLeaderEpoch": 5, "leaderEpoch": 2}]}]}
    response = {
        "topics": [{"topic": "a", "partitions": [{"errorCode": 0, "partition": 1, "leaderEpoch": 2, "endOffset": 607}]}]
    }
    (fact,), _ = parsed(line(23, 2, request, response))
    assert fact["kind"] == "epoch_end_offset"
    assert (fact["current_leader_epoch"], fact["last_fetched_epoch"], fact["leader_epoch"], fact["offset"]) == (
        5,
        2,
        2,
        607,
    )


def test_isr_requests_of_both_names() -> None:
    old = {"brokerId": 1, "brokerEpoch": 101, "topics": [{"name": "a", "partitions": [
        {"partitionIndex": 0, "leaderEpoch": 7, "newIsr": [1, 2], "currentIsrVersion": 9}]}]}  # fmt: skip
    new = {"brokerId": 1, "brokerEpoch": 101, "topics": [{"topicId": "T", "partitions": [
        {"partitionIndex": 0, "leaderEpoch": 7, "newIsrWithEpochs": [{"brokerId": 1, "brokerEpoch": 101}],
         "leaderRecoveryState": 0, "partitionEpoch": 9}]}]}  # fmt: skip
    answer = {"errorCode": 0, "topics": [{"name": "a", "partitions": [{"partitionIndex": 0, "errorCode": 3}]}]}
    facts, _ = parsed(line(56, 0, old, answer), line(56, 3, new, {"errorCode": 0, "topics": []}))
    assert [(f["isr"], f["partition_epoch"], f["error_code"]) for f in facts] == [([1, 2], 9, 3), ([1], 9, 0)]
    assert {f["replica_id"] for f in facts} == {1}
    assert [f["isr_broker_epochs"] for f in facts] == [None, [101]]


def test_leader_and_isr() -> None:
    state = {
        "topicName": "a",
        "partitionIndex": 0,
        "leader": 1,
        "leaderEpoch": 2,
        "isr": [1],
        "zkVersion": 3,
        "replicas": [1, 2],
    }
    grouped = {"controllerId": 1, "topicStates": [{"topicName": "a", "topicId": "T", "partitionStates": [state]}]}
    flat = {"controllerId": 1, "ungroupedPartitionStates": [state]}
    facts, _ = parsed(line(4, 5, grouped, {"errorCode": 0}), line(4, 0, flat, {"errorCode": 0}))
    assert [(f["leader_id"], f["leader_epoch"], f["partition_epoch"], f["topic_id"]) for f in facts] == [
        (1, 2, 3, "T"),
        (1, 2, 3, None),
    ]


def test_other_requests_only_prove_that_no_line_is_missing() -> None:
    (fact,), _ = parsed(line(18, 3, {}, {"errorCode": 0, "apiKeys": []}))
    assert (fact["kind"], fact["api_key"], fact["correlation_id"]) == ("api", 18, 7)


def test_metadata_names_each_topic_once_in_a_file() -> None:
    response = {
        "clusterId": "C",
        "topics": [{"errorCode": 0, "name": "a", "topicId": "T"}, {"errorCode": 3, "name": "b"}],
    }
    facts, _ = parsed(line(3, 13, {}, response), line(3, 13, {}, response, correlationId=8))
    assert [f["kind"] for f in facts].count("topic_change") == 1
    assert next((f["topic"], f["topic_id"], f["name"]) for f in facts if f["kind"] == "topic_change") == (
        "a",
        "T",
        "metadata_response",
    )


HEAD = "[2026-11-21 04:00:00,000] DEBUG Completed request:"
TAIL = " (kafka.request.logger)"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (HEAD + '{"requestHeader":{"requestApiKey":1},"request":[],"response":null}' + TAIL, "not the JSON"),
        (HEAD + '{"requestHeader":{"requestApiKey":1,' + TAIL, "not the JSON"),
        (HEAD + '{"requestHeader":', "cut off"),
        (HEAD + "RequestHeader(apiKey=FETCH, apiVersion=11) -- {}" + TAIL, "no header"),
        (HEAD + "nothing" + TAIL, "without a JSON object"),
        (line(1, 18, [], {}), "not the JSON"),
        (line(1, 18, fetch([]), None), "not the JSON"),
        (
            line(1, 18, fetch([{"topicId": "T", "partitions": [{"partition": None, "fetchOffset": 1}]}]), ""),
            "not the JSON",
        ),
        (
            line(1, 18, fetch([{"topicId": "T", "partitions": [{"partition": 0, "fetchOffset": 1.5}]}]), ""),
            "not the JSON",
        ),
        (line(18, 3, {}, {})[: -len(TAIL) - 9] + TAIL, "not the JSON"),
        (line(18, 3, {}, {}, totalTimeMs=float("nan")), "not the JSON"),
        (line(18, 3, {}, {}, clientId="c").replace('"clientId":"c"', r'"clientId":"\ud800"', 1), "not the JSON"),
        (line(18, 3, {}, {}, totalTimeMs=1e400), "not the JSON"),
        (line(18, 3, {}, {}, connection="c" * 10, totalTimeMs=1e300), "does not fit"),
    ],
)
def test_what_is_no_request_line_is_rejected(text: str, reason: str) -> None:
    facts, rejected = parsed(text)
    assert facts == []
    assert [row["source_line"] for row in rejected] == [1]
    assert reason in rejected[0]["reason"]


def test_a_line_glued_to_a_cut_one_still_counts() -> None:
    whole = line(18, 3, {}, {"errorCode": 0})
    facts, rejected = parsed(HEAD + '{"isForwarded":false,"requestHe' + whole)
    assert [f["kind"] for f in facts] == ["api"]
    assert len(rejected) == 1


def asked(index: int, offset: int = 9) -> dict[str, Any]:
    return {"partition": index, "fetchOffset": offset}


def test_fields_that_no_fact_needs_are_passed_over() -> None:
    known = line(1, 18, fetch([{"topicId": "T", "partitions": [asked(0)]}]), "")
    deep = {"a": [{"b": [1, 2.5e300, None, '"}]']}], "partition": "x"}
    more = line(
        1, 18, {**fetch([{"topicId": "T", "partitions": [{**asked(0), "new": deep}]}]), "new": deep}, "", new=deep
    )
    (one,), (other,) = parsed(known)[0], parsed(more)[0]
    assert {**one, "fact_id": None} == {**other, "fact_id": None}


def test_numbers_and_texts_may_be_written_in_any_way_that_json_allows() -> None:
    text = line(1, 18, fetch([{"topic": "a", "partitions": [asked(0)]}]), "", totalTimeMs=1234.5)
    text = text.replace("1234.5", "1.2345E3").replace('"clientId":"c"', r'"clientId":"\u00e9\"\ud83d\ude00"')
    text = text.replace('"fetchOffset":9', '"fetchOffset" : 9')
    (fact,), rejected = parsed(text)
    assert rejected == []
    assert (fact["total_us"], fact["client_id"], fact["fetch_offset"]) == (1_234_500, '\u00e9"\U0001f600', 9)


def test_what_a_line_says_twice_is_one_fact() -> None:
    text = line(1, 18, fetch([{"topicId": "T", "partitions": [asked(0, 5), asked(0, 6), asked(1)]}]), "")
    facts, _ = parsed(text, text)
    assert [(f["partition"], f["fetch_offset"], f["source_line"]) for f in facts] == [(0, 5, 1), (1, 9, 1)]


def test_each_row_goes_with_its_own_line() -> None:
    one = line(1, 18, fetch([{"topicId": "T", "partitions": [asked(0), asked(1)]}]), "", connection="d")
    none = line(1, 18, {**fetch([]), "sessionId": 6}, "")
    other = line(1, 18, {**fetch([{"topicId": "T", "partitions": [asked(2)]}]), "sessionId": 7}, "")
    facts, _ = parsed(one, one, none, other)
    told = [(f["source_line"], f["session_id"], f["partition"]) for f in facts]
    assert told == [(1, 5, 0), (1, 5, 1), (3, 6, None), (4, 7, 2)]


def test_a_number_beyond_its_column_rejects_its_row_alone() -> None:
    beyond = line(1, 18, fetch([{"topicId": "T", "partitions": [asked(0), asked(2**31), asked(1)]}]), "")
    facts, rejected = parsed(line(18, 3, {}, {}), beyond, line(18, 3, {}, {}, connection="d"))
    assert [(f["kind"], f["source_line"], f["partition"]) for f in facts] == [
        ("api", 1, None),
        ("api", 3, None),
        ("fetch", 2, 0),
        ("fetch", 2, 1),
    ]
    assert [(row["source_line"], "does not fit" in row["reason"]) for row in rejected] == [(2, True)]
