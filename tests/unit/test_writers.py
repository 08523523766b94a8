"""Who wrote a line: its words count, the folder's number is only what somebody called it."""

from __future__ import annotations

import gzip
import re
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest

from pipelines.intake import collect as collecting
from pipelines.intake.attribution import by_their_writers, sentences
from pipelines.intake.collect import Collected, collect
from pipelines.intake.inputs import inputs_of
from pipelines.lines.writers import Ties, named_in, settings_in
from pipelines.parse.files.file_parser import NOBODYS
from pipelines.recording.recording import discover
from schemas.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = """[2025-03-01 10:00:00,{b}00] INFO KafkaConfig values:
\tadvertised.listeners = null
\tbroker.id = {b}
\tlisteners = PLAINTEXT://:909{b}
\tlog.dirs = /kafka/logs-{b}
\tnode.id = {b}
 (kafka.server.KafkaConfig)
"""
LEADS = (
    "[2025-03-01 10:00:0{b},000] INFO [Partition a-0 broker={b}] a-0 starts at leader epoch {b} from offset {b} with "
    "high watermark 1. Previous leader epoch was 0. (kafka.cluster.Partition)\n"
)
CUT = "[2025-03-01 10:00:0{b},500] INFO [Log partition=a-0, dir={d}] Truncating to offset {b} (kafka.log.Log)\n"
FETCH = (
    '[2025-03-01 10:00:0{b},700] DEBUG Completed request:{{"isForwarded":false,"requestHeader":{{"requestApiKey":1,'
    '"requestApiVersion":13,"correlationId":1,"clientId":"broker-{by}-fetcher-0"}},"request":{{"replicaId":{by},'
    '"maxWaitMs":500,"minBytes":1,"maxBytes":10,"isolationLevel":0,"sessionId":0,"sessionEpoch":0,"topics":[],'
    '"forgottenTopicsData":[]}},"response":{{"throttleTimeMs":0,"errorCode":0,"sessionId":1,"responses":[]}},'
    '"connection":"127.0.0.1:909{b}-127.0.0.1:5000-1","totalTimeMs":1.0,"requestQueueTimeMs":0.1,"localTimeMs":0.1,'
    '"remoteTimeMs":0.1,"throttleTimeMs":0,"responseQueueTimeMs":0.1,"sendTimeMs":0.1}} (kafka.request.logger)\n'
)
BATCH = (
    "baseOffset: 0 lastOffset: {n} count: 1 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
    "partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: 0 "
    "CreateTime: 1740823200000 size: 78 magic: 2 compresscodec: none crc: 1 isvalid: true\n"
)


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def brokers(found: Collected, *kinds: str) -> list[tuple[int | None, str]]:
    rows = found.facts.select(["broker_id", "kind"]).to_pylist()
    return sorted(((row["broker_id"], row["kind"]) for row in rows if row["kind"] in kinds), key=str)


def ids(found: Collected) -> list[str]:
    return sorted(found.facts["fact_id"].to_pylist())


@pytest.mark.parametrize(
    ("text", "broker"),
    [
        ("[Partition a-0 broker=2] ISR updated to 1,2", 2),
        ("[Broker id=2] Transitioning 3 partition(s) to local leaders.", 2),
        ("[ReplicaFetcher replicaId=2, leaderId=1, fetcherId=0] Follower has replica log end offset 3", 2),
        ("[SocketServer listenerType=BROKER, nodeId=2] Enabling request processing.", 2),
        ("[KafkaServer id=2] started", 2),
        ("[Controller id=2 epoch=7] Changed partition a-0 state from OfflinePartition to OnlinePartition", 2),
        ("[Controller id=2, targetBrokerId=1] Node 1 disconnected.", 2),
        ("[RequestSendThread controllerId=2] Controller 2 connected to host:9092 (id: 1 rack: null)", 2),
        ("[ReplicaFetcherManager on broker 2] Removed fetcher for partitions Set(a-0)", 2),
        ("[GroupCoordinator 2]: Elected as the group coordinator for partition 0", 2),
        ("[broker-2-to-controller-heartbeat-channel-manager]: Starting", 2),
        ("[ExpirationReaper-2-Produce]: Starting", 2),
        ("[RemoteLogManager=2 partition=abc:a-0] Copied 00.log", 2),
        ("[Kafka Server 2], started", 2),
        ("Partition [a,0] on broker 2: Shrinking ISR", 2),
        ("Registered broker 2 at path /brokers/ids/2 with addresses: PLAINTEXT://h:9092", 2),
        ("[ReplicaFetcherThread-0-1]: Starting", None),
        ("[Log partition=broker-2-0, dir=/data/broker=2] Truncating to 3", None),
        ("[Cache Shard 2] Evicted", None),
        ("[Consumer clientId=broker-2, groupId=x] Resetting", None),
        ("Created log for partition a-0 in /data/a-0", None),
    ],
)
def test_a_line_names_its_writer_never_whom_it_speaks_of(text: str, broker: int | None) -> None:
    assert named_in(text) == broker


def test_settings_name_the_broker_its_directories_and_its_listeners() -> None:
    said = settings_in(SETTINGS.format(b=2))
    assert said == (2, ("/kafka/logs-2",), (("", 9092),))
    assert settings_in("\tbroker.id = 1\n\tnode.id = 2\n").broker is None, "who names two names none"


def test_without_contradiction_nothing_more_is_read(recordings: Path) -> None:
    recording = discover(recordings / "last-replica")
    _, entries = collecting._said(recording)

    def never(sources: object) -> list[Ties]:
        pytest.fail(f"looked into {sources}")

    assert by_their_writers(recording, entries, never) is recording


def test_folders_with_swapped_names_say_the_same_facts(recordings: Path, tmp_path: Path) -> None:
    shutil.copytree(recordings / "last-replica", tmp_path / "x")
    logs = tmp_path / "x" / "logs"
    (logs / "node-1").rename(logs / "aside")
    (logs / "node-2").rename(logs / "node-1")
    (logs / "aside").rename(logs / "node-2")
    found = collect(discover(tmp_path / "x"))
    assert ids(found) == ids(collect(discover(recordings / "last-replica")))
    assert found.rejected.num_rows == 0


def test_lines_of_several_brokers_in_one_file_count_for_their_writers(recordings: Path, tmp_path: Path) -> None:
    shutil.copytree(recordings / "last-replica", tmp_path / "x")
    logs = tmp_path / "x" / "logs"
    for name in ("server.log.gz", "kafka-request.log.gz"):
        texts = [gzip.decompress(path.read_bytes()) for path in sorted(logs.glob(f"node-*/{name}"))]
        for path in logs.glob(f"node-*/{name}"):
            path.unlink()
        (logs / "node-1" / name).write_bytes(gzip.compress(b"".join(texts)))
    found, apart = collect(discover(tmp_path / "x")), collect(discover(recordings / "last-replica"))
    assert (
        not set(ids(found))
        - set(ids(apart))
        - {  # the cluster's id is nobody's
            row["fact_id"] for row in found.facts.to_pylist() if row["name"] == "cluster_id"
        }
    )
    missing = set(ids(apart)) - set(ids(found))
    kinds = {row["kind"] for row in apart.facts.to_pylist() if row["fact_id"] in missing}
    assert kinds <= {"broker_lifecycle"}, "only what names nobody is set aside"
    assert set(found.rejected["reason"].to_pylist()) <= {NOBODYS}


def test_a_directory_is_its_brokers_whose_settings_name_it(tmp_path: Path) -> None:
    texts = [SETTINGS.format(b=b) + LEADS.format(b=b) + CUT.format(b=b, d=f"/kafka/logs-{b}") for b in (1, 2)]
    lost = CUT.format(b=3, d="/kafka/elsewhere")
    found = collect(discover(written(tmp_path, {"logs/node-1/server.log": "".join(texts) + lost})))
    assert brokers(found, "truncation", "role_change") == [
        (1, "role_change"),
        (1, "truncation"),
        (2, "role_change"),
        (2, "truncation"),
    ]
    assert found.rejected["reason"].to_pylist() == [NOBODYS]
    assert found.rejected["source_line"].to_pylist() == [len("".join(texts).splitlines()) + 1]


def test_a_request_is_of_the_broker_whose_listener_took_it(tmp_path: Path) -> None:
    server = "".join(SETTINGS.format(b=b) + LEADS.format(b=b) for b in (1, 2))
    requests = FETCH.format(b=1, by=2) + FETCH.format(b=2, by=1)
    files = {"logs/node-1/server.log": server, "logs/node-1/kafka-request.log": requests}
    found = collect(discover(written(tmp_path, files)))
    told = found.facts.filter(pc.is_valid(found.facts["client_id"]))
    assert sorted(zip(told["broker_id"].to_pylist(), told["replica_id"].to_pylist(), strict=True)) == [(1, 2), (2, 1)]


def test_a_broker_fetches_from_others_only(tmp_path: Path) -> None:
    one = FETCH.format(b=2, by=1) + FETCH.format(b=2, by=3)
    other = FETCH.format(b=3, by=1) + FETCH.format(b=3, by=2)
    files = {"logs/node-1/kafka-request.log": one, "logs/node-3/kafka-request.log": other}
    found = collect(discover(written(tmp_path, files)))
    told = {row["source_file"]: row["broker_id"] for row in found.facts.to_pylist() if row["kind"] == "fetch"}
    assert told == {"logs/node-1/kafka-request.log": 2, "logs/node-3/kafka-request.log": 3}


def test_ports_that_brokers_share_tell_nothing() -> None:
    ties = Ties(endpoints={("kafka-1", 9092, 1), ("kafka-2", 9092, 2), ("10.0.0.3", 9093, 3)}, brokers={1, 2, 3})
    assert ties.addresses().get(":9092") is None
    assert ties.addresses()["10.0.0.3:9093"] == 3
    unknown = Ties(endpoints={("kafka-1", 9092, 1)}, brokers={1, 2})
    assert ":9092" not in unknown.addresses(), "the other's may be the same"


def test_an_address_is_known_by_the_brokers_that_an_answer_lists(tmp_path: Path) -> None:
    listed = FETCH.format(b=1, by=2).replace('"requestApiKey":1,', '"requestApiKey":3,')
    brokers_of = ",".join(f'{{"nodeId":{b},"host":"localhost","port":909{b},"rack":null}}' for b in (1, 2))
    asked = re.sub(
        r'"request":.*,"connection"',
        f'"request":{{}},"response":{{"brokers":[{brokers_of}],"topics":[]}},"connection"',
        listed,
    )
    assert asked != listed
    server = LEADS.format(b=1) + LEADS.format(b=2)
    requests = FETCH.format(b=1, by=2) + FETCH.format(b=2, by=1)
    files = {"logs/node-1/server.log": server, "logs/node-3/empty.log": ""}  # there may be a third broker
    unknown = collect(discover(written(tmp_path / "x", {**files, "logs/node-1/kafka-request.log": requests})))
    assert brokers(unknown, "fetch") == []
    known = collect(discover(written(tmp_path / "y", {**files, "logs/node-1/kafka-request.log": asked + requests})))
    assert brokers(known, "fetch") == [(1, "fetch"), (2, "fetch")]


def test_a_file_without_a_brokers_folder_is_of_whom_it_names(tmp_path: Path) -> None:
    found = collect(discover(written(tmp_path, {"logs/server.log": LEADS.format(b=2)})))
    assert brokers(found, "role_change") == [(2, "role_change")]


def test_dumps_of_a_swapped_folder_count_where_their_directory_says_whose_they_are(tmp_path: Path) -> None:
    lines = {b: SETTINGS.format(b=b) + LEADS.format(b=b) + CUT.format(b=b, d=f"/kafka/logs-{b}") for b in (1, 2)}
    files = {
        "logs/node-1/server.log": lines[2],
        "logs/node-2/server.log": lines[1],
        "segments/node-1/a-0/0.log": "Dumping /kafka/logs-1/a-0/0.log\n" + BATCH.format(n=1),
        "segments/node-2/a-0/0.log": "Dumping /kafka/logs-1/a-0/0.log\n" + BATCH.format(n=2),
        "segments/node-2/replication-offset-checkpoint": "0\n1\na 0 7\n",
    }
    found = collect(discover(written(tmp_path, files)))
    assert brokers(found, "segment_batch", "checkpoint") == [
        (1, "checkpoint"),
        (1, "segment_batch"),
        (1, "segment_batch"),
    ]


def test_dumps_of_a_swapped_folder_that_nothing_ties_to_a_broker_are_set_aside(tmp_path: Path) -> None:
    lines = {b: LEADS.format(b=b) + CUT.format(b=b, d="/data") for b in (1, 2)}
    files = {
        "logs/node-1/server.log": lines[2],
        "logs/node-2/server.log": lines[1],
        "segments/node-1/a-0/0.log": "Dumping /data/a-0/0.log\n" + BATCH.format(n=1),
        "segments/node-3/a-0/0.log": "Dumping /data/a-0/0.log\n" + BATCH.format(n=1),
    }
    found = collect(discover(written(tmp_path, files)))
    assert brokers(found, "segment_batch") == [(3, "segment_batch")]
    assert found.rejected["source_file"].to_pylist() == ["segments/node-1/a-0/0.log"]


def test_a_directorys_own_properties_say_whose_its_dumps_are(tmp_path: Path) -> None:
    files = {
        "segments/node-1/meta.properties": "#Sat Mar 01\nbroker.id=2\ncluster.id=abc\nversion=0\n",
        "segments/node-1/a-0/0.log": "Dumping /data/a-0/0.log\n" + BATCH.format(n=1),
        "segments/node-1/replication-offset-checkpoint": "0\n1\na 0 7\n",
        "segments/node-3/meta.properties": "node.id=3\ncluster.id=abc\n",
        "segments/node-3/a-0/0.log": "Dumping /data/a-0/0.log\n" + BATCH.format(n=1),
    }
    found = collect(discover(written(tmp_path, files)))
    told = [(2, "checkpoint"), (2, "segment_batch"), (3, "segment_batch")]
    assert brokers(found, "segment_batch", "checkpoint") == told
    assert found.rejected.num_rows == 0


CLUSTER = "[2025-03-0{day} 10:00:00,000] INFO Cluster ID = {name} (kafka.server.KafkaServer)\n"


def test_logs_of_two_clusters_are_refused_with_their_ids_and_times(tmp_path: Path) -> None:
    files = {
        "logs/node-1/server.log": CLUSTER.format(day=1, name="first") + CLUSTER.format(day=2, name="first"),
        "logs/node-1/server.log.1": CLUSTER.format(day=5, name="second"),
    }
    with pytest.raises(InputError) as refused:
        collect(discover(written(tmp_path, files)))
    message = str(refused.value)
    assert "first (2025-03-01 10:00:00 to 2025-03-02 10:00:00 UTC, as in logs/node-1/server.log)" in message
    assert "second (2025-03-05 10:00:00 UTC, as in logs/node-1/server.log.1)" in message
    assert "\n" not in message


def test_one_cluster_named_by_several_brokers_is_one(tmp_path: Path) -> None:
    files = {f"logs/node-{n}/server.log": CLUSTER.format(day=n, name="same") for n in (1, 2)}
    assert collect(discover(written(tmp_path, files))).facts.num_rows == 2


def test_what_is_read_otherwise_than_its_folder_says_is_told() -> None:
    def entry(path: str, broker: int | None, labelled: int, **other: object) -> dict[str, Any]:
        return {
            "path": path, "broker_id": broker, "labelled": labelled, "content": "log", "facts": 3, "rejected": 0,
            **other,
        }  # fmt: skip

    told = sentences(
        [
            entry("logs/node-1/server.log", 2, 1),
            entry("logs/node-3/server.log", 3, 3),
            entry("logs/node-4/server.log", 4, 4, is_shared=True),
            entry("logs/node-4/server.log", 5, 4, is_shared=True),
            entry("logs/node-4/server.log", None, 4, is_shared=True, rejected=7),
            entry("logs/node-4/kafka-request.log", 4, 4, is_shared=True),
            entry("logs/node-4/kafka-request.log", 5, 4, is_shared=True, facts=0),
            entry("segments/node-1/a-0/0.log", 1, 1, set_aside="unsure"),
        ]
    )
    assert len(told) == 3
    assert "logs/node-1/server.log" in told[0]
    assert "broker 2" in told[0]
    assert "brokers 4, 5" in told[1]
    assert "7 lines" in told[1]
    assert "1 dumps" in told[2]


def test_sources_of_one_file_are_inputs_of_their_own() -> None:
    part = {
        "path": "x", "content": "log", "first_line": 1, "bytes": 0, "lines": 1, "facts": 1, "rejected": 0,
        "repeated": 0, "first_ts": 0, "last_ts": 1, "silences": [], "no_interest": {}, "kinds": {}, "notes": [],
    }  # fmt: skip
    assert [entry["broker_id"] for entry in inputs_of([{**part, "broker_id": b} for b in (2, None, 1)])] == [None, 1, 2]
