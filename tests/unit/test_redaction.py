"""A redacted recording answers the same: only names differ, alike wherever they stood, and none of them is left."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from lines_in_layouts import STACK, WHOLE_SECONDS, behind, log, rendered
from test_parse_request_text import LINES as TEXT_REQUESTS
from test_parse_request_text import parsed
from test_parse_server_log import LINES, facts_of
from without_spark import events_of, tables_of

from pipelines.collecting.again import redacted_copy
from pipelines.collecting.collector import Order
from pipelines.collecting.pseudonyms import Pseudonyms
from pipelines.collecting.redaction import Redactor
from pipelines.intake.collect import collect
from pipelines.lines.layout import LAYOUTS
from pipelines.parse.files.content import LineFormat
from pipelines.recording.reading import Outcome, read_chunks
from pipelines.recording.recording import discover
from schemas.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

KEY = bytes(range(32))
APACHE = LineFormat(LAYOUTS["apache"], prefixed=False, container=None)
# Columns that may hold a name, or a text with names in it.
NAMED = {"client_id", "connection", "log_dir", "text", "value", "transactional_id"}
ONE_TO_ONE = NAMED - {"text", "value"}


def redactor(*, topics: bool = False) -> Redactor:
    return Redactor(Pseudonyms(KEY, redacts_topics=topics))


def redacted(line: str) -> str:
    return redactor().log(APACHE).line(line)


def in_order(facts: pa.Table) -> list[dict[str, Any]]:
    rows = facts.to_pylist()
    return sorted(rows, key=lambda row: repr([value for name, value in row.items() if name not in {*NAMED, "fact_id"}]))


def compare(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> dict[str, dict[Any, Any]]:
    """Facts are equal but for names, which map one to one; returns what each became."""
    maps: dict[str, dict[Any, Any]] = defaultdict(dict)
    assert len(before) == len(after)
    for one, other in zip(before, after, strict=True):
        for name, value in one.items():
            if name == "fact_id":  # a hash of the line
                continue
            if name not in NAMED or value is None:
                assert other[name] == value, (name, one)
            else:
                assert other[name] is not None
                if name in ONE_TO_ONE:
                    assert maps[name].setdefault(value, other[name]) == other[name]
    for name, found in maps.items():
        assert len(set(found.values())) == len(found), name
    return maps


@pytest.fixture(scope="module")
def copied(recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("redacted") / "last-replica"
    told = redacted_copy(recordings / "last-replica", Order(root, {}, redactor=redactor()))
    assert (told.unread, told.passed_over) == ([], [])
    return root


def test_a_redacted_recording_has_the_same_facts(recordings: Path, copied: Path) -> None:
    before = collect(discover(recordings / "last-replica", recording_id="x"))
    after = collect(discover(copied, recording_id="x"))
    assert before.rejected.num_rows == after.rejected.num_rows == 0
    maps = compare(in_order(before.facts), in_order(after.facts))
    assert maps["client_id"]["ledger-all-0"] == Pseudonyms(KEY).client("ledger-all-0") != "ledger-all-0"
    assert maps["client_id"]["broker-1-fetcher-0"] == "broker-1-fetcher-0"


def test_a_redacted_recording_tells_the_same_incidents(recordings: Path, copied: Path) -> None:
    def incidents(root: Path) -> list[dict[str, Any]]:
        return [row for events in events_of(root) for row in tables_of(events)["data_loss_incidents"].to_pylist()]

    before, after = incidents(recordings / "last-replica"), incidents(copied)
    assert len(before) == len(after) == 1
    names = Pseudonyms(KEY)
    for one, other in zip(before, after, strict=True):
        for column in ("producers", "consumers"):
            assert [names.client(name) for name in one.pop(column)] == other.pop(column)
        told = re.sub(r"ledger-all-0|tail-ledger", lambda name: names.client(name[0]), one.pop("explanation"))
        assert told == other.pop("explanation")
        assert one == other


def test_no_byte_of_a_name_is_left(recordings: Path, copied: Path) -> None:
    before = collect(discover(recordings / "last-replica", recording_id="x")).facts
    hosts = {end.rpartition(":")[0] for one in column(before, "connection") for end in one.split("-")[:2]}
    names = {name for name in column(before, "client_id") if not name.startswith("broker-") and not name.isdecimal()}
    names = {name for name in names if Pseudonyms(KEY).client(name) != name} | hosts | set(column(before, "log_dir"))
    assert names >= {"127.0.0.1", "ledger-all-0", "tail-ledger", "/var/lib/kafka/node-1/data"}
    for path in copied.rglob("*"):
        if path.is_file():
            content = b"".join(read_chunks(str(path), Outcome()))
            assert not [name for name in names if name.encode() in content], path


def column(facts: pa.Table, name: str) -> list[str]:
    return [value for value in set(facts[name].to_pylist()) if value]


@pytest.mark.parametrize("case", LINES, ids=lambda case: f"{case['kafka']} {case['line'][26:80]}")
def test_every_wording_says_the_same(case: dict[str, Any]) -> None:
    before, sink = facts_of(case["line"])
    after, other = facts_of(redacted(case["line"]))
    compare(before, after)
    assert sink.counts.named == other.counts.named


@pytest.mark.parametrize("case", TEXT_REQUESTS, ids=lambda case: f"{case['kafka']} {case['line'][51:110]}")
def test_every_text_request_says_the_same(case: dict[str, Any]) -> None:
    before, rejected = parsed(case["line"])
    after, also = parsed(redacted(case["line"]))
    assert rejected == also == []
    compare(before, after)
    assert not re.search("127.0.0.1|/var/lib", redacted(case["line"]))


@pytest.fixture(scope="module")
def real(recordings: Path) -> list[str]:
    node = recordings / "last-replica" / "logs" / "node-1"
    lines = []
    for name in ("server", "kafka-request"):
        lines += gzip.decompress((node / f"{name}.log.gz").read_bytes()).decode().splitlines()[:600]
    return [*lines[:400], *STACK, *lines[400:]]


@pytest.mark.parametrize("prefix", ["", "broker   | ", "[pod/kafka-0/kafka] ", "cri"])
@pytest.mark.parametrize("name", ["apache", "strimzi3", "strimzi4", "logstash", "ecs", "spring", "logback", "operator"])
def test_every_layout_says_the_same(tmp_path: Path, real: list[str], name: str, prefix: str) -> None:
    lines = behind([rendered(line, name) for line in real], prefix)
    before = log(tmp_path / "before", lines)
    redacted_copy(tmp_path / "before", Order(tmp_path / "after", {}, redactor=redactor()))
    after = collect(discover(tmp_path / "after", recording_id="x"))
    assert before.rejected.num_rows == after.rejected.num_rows
    if not (prefix == "cri" and name in WHOLE_SECONDS):
        compare(in_order(before.facts), in_order(after.facts))
    content = (tmp_path / "after" / "logs" / "node-1" / "stdout.log").read_text()
    assert "127.0.0.1" not in content
    assert "kafka-request-handler" not in content
    assert "kafka-0" not in content


def test_a_line_that_a_killed_broker_left_unfinished_is_redacted_like_the_one_behind_it(real: list[str]) -> None:
    whole = next(line for line in real if '"clientId":"ledger-all-0"' in line)
    for length in (90, len(whole) // 2, len(whole) - 30):
        glued = whole[:length] + whole
        before, sink = facts_of(glued)
        after, other = facts_of(redacted(glued))
        assert len(before) >= 1
        compare(before, after)
        assert sink.counts.rejected == other.counts.rejected
        assert "ledger-all-0" not in redacted(glued)
        assert "ledger-all-0" not in redacted(whole[:length])


def server(text: str, logger: str = "kafka.server.KafkaApis", level: str = "INFO") -> str:
    return f"[2026-11-21 03:00:00,123] {level} {text} ({logger})"


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        (server("[GroupCoordinator 1]: Member alice-7 in group payroll has left"), "payroll"),
        (server("[Producer clientId=salary-run] Cluster ID: x", "org.apache.kafka.clients.Metadata"), "salary-run"),
        (server("Failed authentication with db7.corp.example/10.1.2.3", "o.a.k.common.network.Selector"), "db7"),
        (server("Changing producer quota for alice to 5", "kafka.server.ClientQuotaManager"), "alice"),
        (
            server(
                "[ReplicaFetcher replicaId=2, leaderId=1, fetcherId=0] Error in response for fetch request (type="
                "FetchRequest, replicaId=2): Connection to db7.corp.example:9092 (id: 1 rack: cellar) failed.",
                "kafka.server.ReplicaFetcherThread",
                "WARN",
            ),
            "corp",
        ),
        (server("Stopping serving logs in dir /data/alice/kafka", "kafka.log.LogManager", "ERROR"), "alice"),
        ("\tsasl.jaas.config = password=secret", "secret"),
        ("\tadvertised.listeners = PLAINTEXT://db7.corp.example:9092", "corp"),
        ("\tlog.dirs = /data/alice/kafka", "alice"),
        ("\tbroker.rack = cellar", "cellar"),
        ("\treplica.selector.class = com.corp.Selector", "corp"),
        ("Caused by: java.net.UnknownHostException: db7.corp.example", "corp"),
        ("alice called", "alice"),
    ],
)
def test_what_names_somebody_in_words_is_gone(line: str, secret: str) -> None:
    assert secret in line
    assert secret not in redacted(line)


def test_racks_keep_apart_and_kafkas_own_selector_keeps_its_name() -> None:
    racks = [redacted(f"\tbroker.rack = {rack}") for rack in ("cellar", "attic", "cellar", "null")]
    assert racks[0] == racks[2] != racks[1]
    assert racks[3] == "\tbroker.rack = null"
    selector = "\treplica.selector.class = org.apache.kafka.common.replica.RackAwareReplicaSelector"
    assert redacted(selector) == selector


def test_of_a_request_that_is_not_read_the_bodies_go() -> None:
    line = {
        "isForwarded": False,
        "requestHeader": {"requestApiKey": 11, "requestApiVersion": 9, "correlationId": 4, "clientId": "salary-run"},
        "request": {"groupId": "payroll", "memberId": "alice-1", "protocols": [{"name": "range"}]},
        "response": {"leader": "alice-1", "members": []},
        "connection": "10.1.2.3:9092-10.9.8.7:51234-3",
        "totalTimeMs": 1.5,
        "principal": "User:CN=alice,OU=pay",
        "listener": "PAYROLL",
        "clientInformation": {"softwareName": "payroll-app", "softwareVersion": "1.2"},
    }
    text = redacted(server(f"Completed request:{json.dumps(line)}", "kafka.request.logger", "DEBUG"))
    assert not re.search("alice|payroll|PAYROLL|salary|10\\.|range", text)
    told = json.loads(text.partition("Completed request:")[2].rpartition(" (")[0])
    assert (told["totalTimeMs"], told["requestHeader"]["correlationId"]) == (1.5, 4)
    assert re.fullmatch(r"h\w+:9092-h\w+:51234-3", told["connection"])
    assert re.fullmatch(r"User:p-\w+", told["principal"])


def test_a_registration_hides_its_host_and_a_setting_its_value() -> None:
    head = "| offset: 13 CreateTime: 1795343582275 keySize: -1 valueSize: 245 sequence: -1 headerKeys: [] payload: "
    broker = {
        "brokerId": 2,
        "brokerEpoch": 13,
        "rack": "cellar",
        "endPoints": [{"name": "PAY", "host": "db7", "port": 9}],
    }
    setting = {"resourceType": 4, "resourceName": "2", "name": "ssl.keystore.password", "value": "secret"}
    scram = {"name": "alice", "mechanism": 1, "salt": "c2FsdA==", "storedKey": "a2V5", "iterations": 4096}
    for kind, data in (
        ("REGISTER_BROKER_RECORD", broker),
        ("CONFIG_RECORD", setting),
        ("USER_SCRAM_CREDENTIAL_RECORD", scram),
    ):
        line = redactor().metadata_line(head + json.dumps({"type": kind, "version": 0, "data": data}))
        assert kind in line
        assert not re.search("cellar|PAY|db7|secret|alice|c2FsdA|a2V5", line)


def test_topics_are_replaced_everywhere_if_wanted(recordings: Path, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    redacted_copy(recordings / "last-replica", Order(root, {}, redactor=redactor(topics=True)))
    topic = Pseudonyms(KEY, redacts_topics=True).topic("ledger")
    before = collect(discover(recordings / "last-replica", recording_id="x")).facts
    after = collect(discover(root, recording_id="x")).facts
    assert {topic if name == "ledger" else name for name in column(before, "topic")} == set(column(after, "topic"))
    assert len(before) == len(after)
    for path in root.rglob("*"):
        if path.is_file():
            content = b"".join(read_chunks(str(path), Outcome()))
            assert b"ledger" not in content, path
        assert not path.parent.name.startswith("ledger")


@pytest.mark.parametrize("case", LINES, ids=lambda case: f"{case['kafka']} {case['line'][26:80]}")
def test_every_wording_says_the_same_of_a_topic_by_another_name(case: dict[str, Any]) -> None:
    names = Pseudonyms(KEY, redacts_topics=True)
    before, _ = facts_of(case["line"])
    after, _ = facts_of(Redactor(names).log(APACHE).line(case["line"]))
    for fact in before:
        fact["topic"] = fact["topic"] and names.topic(fact["topic"])
    compare(before, after)


def test_the_topic_of_a_remote_segment_is_replaced_wherever_it_is_named() -> None:
    of = "_97cQsSmQhmmHpA0137wxw:payroll-0"
    line = server(
        f"[RemoteLogManager=1 partition={of}] Copied 00000000000000000410.log to remote storage with segment-id: "
        f"RemoteLogSegmentId{{topicIdPartition={of}, id=QSkWIceKQsSWpi6w6kP4eQ}}",
        "org.apache.kafka.server.log.remote.storage.RemoteLogManager$RLMCopyTask",
    )
    assert "payroll" in redacted(line)
    told = redactor(topics=True).log(APACHE).line(line)
    assert "payroll" not in told
    assert "410.log" in told


def test_the_key_is_made_once_and_nobody_else_can_read_it(tmp_path: Path) -> None:
    place = tmp_path / "keys" / "redact.key"
    first, again = Pseudonyms.of_file(place), Pseudonyms.of_file(place)
    assert first.client("salary-run") == again.client("salary-run")
    assert place.stat().st_mode & 0o777 == 0o600
    assert Pseudonyms.of_file(tmp_path / "other").client("salary-run") != first.client("salary-run")


def test_a_recording_is_redacted_with_one_key_or_not_at_all(recordings: Path, tmp_path: Path) -> None:
    source, into = recordings / "last-replica", tmp_path / "into"
    redacted_copy(source, Order(into, {}, redactor=redactor()))
    other = Redactor(Pseudonyms(bytes(32)))
    with pytest.raises(InputError, match="another key"):
        redacted_copy(source, Order(into, {}, redactor=other))
    with pytest.raises(InputError, match="redact-topics"):
        redacted_copy(source, Order(into, {}, redactor=redactor(topics=True)))
    assert redacted_copy(source, Order(into, {}, redactor=redactor())).new == []
