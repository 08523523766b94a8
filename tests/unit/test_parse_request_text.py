"""Request log lines in the text form: as Kafka 2.4.1 wrote them, and as kafka-clients 2.7.2 prints the bodies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.lines.clock import ZoneClock
from pipelines.lines.layout import LAYOUTS
from pipelines.lines.rows import FactSink
from pipelines.parse.files.log_lines import LogLines

LINES = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "request-lines-text.jsonl").read_text(encoding="utf-8").splitlines()
]
NOT_OF_THE_LINE = {"recording_id", "fact_id", "source_file", "source_line", "broker_id", "ts"}


def line(
    request: str, response: str, *, api: str = "FETCH", version: int = 11, client: str = "c", principal: str = "User:p"
) -> str:
    return (
        f"[2026-11-21 04:37:56,533] DEBUG Completed request:RequestHeader(apiKey={api}, apiVersion={version}, "
        f"clientId={client}, correlationId=3) -- {request},response:{response} from connection "
        "127.0.0.1:19091-127.0.0.1:54120-2;totalTime:87.012,requestQueueTime:1.083,localTime:0.0,remoteTime:1.0E7,"
        f"throttleTime:0.907,responseQueueTime:0.455,sendTime:0.074,securityProtocol:PLAINTEXT,principal:{principal},"
        "listener:PLAINTEXT (kafka.request.logger)"
    )


def parsed(text: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    sink = FactSink("r", "kafka-request.log", 1)
    parser = LogLines(sink, LAYOUTS["apache"], ZoneClock("UTC"))
    parser.parse(text, 1)
    parser.finish()
    facts, rejected = sink.take_facts(), sink.take_rejected()
    return (facts.to_pylist() if facts else []), (rejected.to_pylist() if rejected else [])


def fetch(
    *, topics: str = "[]", forgotten: str = "[]", rack: str = "", responses: str = "[]", **header: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    request = (
        "{replica_id=-1,max_wait_time=500,min_bytes=1,max_bytes=10,isolation_level=0,session_id=0,session_epoch=-1,"
        f"topics={topics},forgotten_topics_data={forgotten},rack_id={rack}}}"
    )
    response = f"{{throttle_time_ms=0,error_code=0,session_id=0,responses={responses}}}"
    return parsed(line(request, response, **header))  # type: ignore[arg-type]


@pytest.mark.parametrize("case", LINES, ids=lambda case: f"{case['kafka']} {case['line'][51:110]}")
def test_line_makes_the_facts_of_the_json_form(case: dict[str, Any]) -> None:
    found, rejected = parsed(case["line"])
    assert rejected == []
    assert [{k: v for k, v in fact.items() if v is not None and k not in NOT_OF_THE_LINE} for fact in found] == case[
        "facts"
    ]


def test_times_are_microseconds_also_in_scientific_notation() -> None:
    (fact,), _ = fetch()
    assert (fact["total_us"], fact["queue_us"], fact["local_us"], fact["remote_us"]) == (
        87_012,
        1_083,
        0,
        10_000_000_000,
    )
    assert (fact["response_queue_us"], fact["send_us"]) == (455, 74)


@pytest.mark.parametrize(
    ("response", "us"),
    [
        ("{throttle_time_ms=0,error_code=0,session_id=0,responses=[]}", 0),
        ("{throttle_time_ms=120,error_code=0,session_id=0,responses=[]}", 120_000),
    ],
)
def test_throttle_time_is_what_the_answer_tells_and_not_how_long_it_took_to_send(response: str, us: int) -> None:
    request = (
        "{replica_id=-1,max_wait_time=500,min_bytes=1,max_bytes=10,isolation_level=0,session_id=0,session_epoch=-1,"
        "topics=[],forgotten_topics_data=[],rack_id=}"
    )
    facts, _ = parsed(line(request, response))
    assert [fact["throttle_us"] for fact in facts] == [us]


@pytest.mark.parametrize("client", ["a=b", "a,b=c", "a) -- {b", "{a}", ""])
def test_client_id_may_hold_any_text_that_is_no_header(client: str) -> None:
    (fact,), _ = fetch(client=client)
    assert fact["client_id"] == client


def test_rack_of_a_consumer_is_not_taken_for_fields() -> None:
    (fact,), rejected = fetch(rack="a,replica_id=2,session_epoch=7")
    assert rejected == []
    assert (fact["replica_id"], fact["session_epoch"]) == (-1, -1)


def test_message_of_a_refused_record_is_not_taken_for_fields() -> None:
    answer = (
        "{responses=[{topic=a,partition_responses=[{partition=0,error_code=87,base_offset=-1,log_append_time=-1,"
        "log_start_offset=-1,record_errors=[{batch_index=0,batch_index_error_message=x=1,{y}}],error_message=base_offset=7,z},"
        "{partition=1,error_code=0,base_offset=5,log_append_time=-1,log_start_offset=0,record_errors=[],"
        "error_message=null}]}],throttle_time_ms=0}"
    )
    request = "{acks=-1,timeout=3000,partitionSizes=[a-0=10,a-1=20]}"
    facts, rejected = parsed(line(request, answer, api="PRODUCE", version=8))
    assert rejected == []
    assert [(f["partition"], f["error_code"], f["base_offset"], f["bytes"]) for f in facts] == [
        (0, 87, -1, 10),
        (1, 0, 5, 20),
    ]


def test_topic_named_like_a_number_or_null_stays_a_name() -> None:
    one = "{partition=0,current_leader_epoch=0,fetch_offset=1,log_start_offset=0,partition_max_bytes=9}"
    facts, _ = fetch(topics=f"[{{topic=null,partitions=[{one}]}},{{topic=12,partitions=[{one}]}}]")
    assert [f["topic"] for f in facts] == ["null", "12"]


def test_produce_without_acknowledgement_has_no_answer() -> None:
    (fact,), _ = parsed(line("{acks=0,timeout=3000,partitionSizes=[a-1-0=10]}", "", api="PRODUCE", version=8))
    assert (fact["kind"], fact["topic"], fact["partition"], fact["acks"]) == ("produce", "a-1", 0, 0)
    assert (fact["error_code"], fact["base_offset"], fact["transactional_id"]) == (None, None, None)


def test_produce_whose_partitions_nothing_names_only_proves_that_no_line_is_missing() -> None:
    (fact,), _ = parsed(line("{acks=0,timeout=3000,numPartitions=2}", "", api="PRODUCE", version=8))
    assert (fact["kind"], fact["partition"]) == ("api", None)


def test_records_of_a_down_converted_answer_have_their_size() -> None:
    header = (
        "partition_header={partition=0,error_code=0,high_watermark=8,last_stable_offset=8,log_start_offset=0,"
        "aborted_transactions=[{producer_id=4,first_offset=2}],preferred_read_replica=-1}"
    )
    records = (
        "LazyDownConversionRecords(size=66, underlying=FileRecords(size=60, file=/d (1)/a-0/0.log, start=0, end=60), "
        "toMagic=1, firstOffset=3)"
    )
    (fact,), rejected = fetch(
        responses=f"[{{topic=a,partition_responses=[{{{header},record_set={records}}}]}}]", version="3"
    )
    assert rejected == []
    assert (fact["bytes"], fact["hw"]) == (66, 8)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (line("{}", "{}", client="a, correlationId=4) -- {b"), "client id that looks like one"),
        (line("{}", "{}", api="FETCH_SNAPSHOT"), "no Kafka up to 2.7"),
        (line("{rack_id=,response:{}", "{}"), "looks like one"),
        (line("{}", "{}", principal="User:a;totalTime:1"), "looks like them"),
        (line("{}", "{responses=[]}").replace(",sendTime:0.074", ""), "no times"),
        (line("{}", "{responses=[]}"), "not the text"),
        (line("{replica_id=-1,topics=[{topic=a b,partitions=[]}]}", "{responses=[]}"), "not the text"),
        (line("{replica_id=-1,topics=[[[[[[", "{responses=[]}"), "not the text"),
        (line("{replica_id=x,topics=[]}", "{responses=[]}"), "not the text"),
        (line("{acks=-1}", "{}", api="PRODUCE"), "not a produce request"),
        (line("{acks=-1,timeout=1,partitionSizes=[a b-0=1]}", "{}", api="PRODUCE"), "not a produce request"),
        (line("{}", "{}", api="HEARTBEAT").replace("87.012", "8.7.0"), "no times"),
        (line("{}", "{}", api="HEARTBEAT").replace("87.012", "1.0E999"), "times that cannot be"),
    ],
)
def test_what_is_ambiguous_or_malformed_is_rejected(text: str, reason: str) -> None:
    facts, rejected = parsed(text)
    assert facts == []
    (row,) = rejected
    assert reason in row["reason"]


def test_whole_milliseconds_are_printed_without_a_fraction_from_2_6_on() -> None:
    text = line("{replica_id=-1}", "{throttle_time_ms=0}", api="HEARTBEAT", version=3)
    facts, rejected = parsed(text.replace("throttleTime:0.907", "throttleTime:0"))
    assert rejected == []
    assert [fact["throttle_us"] for fact in facts] == [0]


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (  # 2.4 to 2.5
            (
                "{transaction_markers=[{producer_id=7,producer_epoch=1,transaction_result=true,"
                "topics=[{topic=a,partitions=[0]}],coordinator_epoch=0}]}"
            ),
            "{transaction_markers=[{producer_id=7,topics=[{topic=a,partitions=[{partition=0,error_code=0}]}]}]}",
        ),
        (  # 2.6, 2.7
            (
                "{markers=[{producer_id=7,producer_epoch=1,transaction_result=true,"
                "topics=[{name=a,partition_indexes=[0]}],coordinator_epoch=0}]}"
            ),
            "{markers=[{producer_id=7,topics=[{name=a,partitions=[{partition_index=0,error_code=0}]}]}]}",
        ),
    ],
)
def test_markers_are_read_in_both_of_their_forms(request_: str, response: str) -> None:
    (fact,), rejected = parsed(line(request_, response, api="WRITE_TXN_MARKERS", version=0))
    assert rejected == []
    told = ("kind", "name", "topic", "partition", "producer_id", "error_code")
    assert tuple(fact[name] for name in told) == ("transaction", "marker_commit", "a", 0, 7, 0)


def test_requests_of_transactions_that_name_free_texts_prove_only_that_no_line_is_missing() -> None:
    request = "{transactional_id=tx,producer_id=7,producer_epoch=1,committed=true}"
    (fact,), rejected = parsed(line(request, "{throttle_time_ms=0,error_code=0}", api="END_TXN", version=1))
    assert (fact["kind"], rejected) == ("api", [])
