"""What collect takes from log directories: which segments, by which tool, and without what is nobody's business."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from pipelines.collecting.collector import Order, gather
from pipelines.collecting.dumps import telling_segments, without_copies
from pipelines.collecting.kept_records import without_secrets
from pipelines.collecting.manifest import read_settings
from pipelines.collecting.pseudonyms import Pseudonyms
from pipelines.collecting.redaction import Redactor
from pipelines.recording.reading import Outcome, read_chunks
from schemas.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from pipelines.collecting.outcome import Gathered

# Prints what kafka-dump-log prints of a file, here its content; it ends at one that says "damaged", as Kafka's does.
TOOL = """#!/bin/sh
while [ "$1" != --files ]; do shift; done
echo "Picked up JAVA_TOOL_OPTIONS"
for file in $(echo "$2" | tr , ' '); do
  echo "Dumping $file"
  cat "$file"
  if grep -q damaged "$file"; then echo "Exception in thread main: it is damaged" >&2; exit 1; fi
done
"""
CHECKPOINT = "0\n{}\n{}\n"


def segment(directory: Path, partition: str, base: int, text: str = "batches\n") -> Path:
    path = directory / partition / f"{base:020}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def epochs(directory: Path, partition: str, *starts: int) -> None:
    listed = "\n".join(f"{epoch} {start}" for epoch, start in enumerate(starts))
    (directory / partition / "leader-epoch-checkpoint").write_text(CHECKPOINT.format(len(starts), listed))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory: `a-0` has changed its leader at offset 250, `b-0` never, `c-0` is Kafka's own."""
    directory = tmp_path / "data"
    for partition in ("a-0", "b-0", "__own-0"):
        for base in (0, 100, 200, 300):
            segment(directory, partition, base)
    epochs(directory, "a-0", 0, 250)
    epochs(directory, "b-0", 0)
    epochs(directory, "__own-0", 0, 250)
    segment(directory, "a-1.0123456789abcdef0123456789abcdef-delete", 0)
    (directory / "meta.properties").write_text("broker.id=1\ncluster.id=c\n")
    (directory / "replication-offset-checkpoint").write_text(CHECKPOINT.format(1, "a 0 310"))
    return directory


@pytest.fixture
def tool(tmp_path: Path) -> str:
    path = tmp_path / "kafka" / "bin" / "kafka-dump-log.sh"
    path.parent.mkdir(parents=True)
    path.write_text(TOOL)
    path.chmod(0o755)
    return str(tmp_path / "kafka")


def run(data: Path, into: Path, **others: Any) -> Gathered:
    return gather(Order(into, {1: [str(data)]}, **others))


def test_settings_that_are_named_are_no_log_that_was_passed_over(data: Path, tmp_path: Path) -> None:
    """Even if they lie in a folder that is searched."""
    (data.parent / "server.properties").write_text("min.insync.replicas=2\n")
    named = [str(data.parent), str(data.parent / "server.properties")]
    gathered = gather(Order(tmp_path / "elsewhere" / "into", {1: named}))
    assert gathered.passed_over == []
    manifest = json.loads((tmp_path / "elsewhere" / "into" / "MANIFEST.json").read_text())
    assert manifest["broker_config"] == {"min.insync.replicas": "2"}


def dumped(into: Path) -> list[str]:
    return sorted(path.relative_to(into / "segments/node-1").as_posix() for path in into.rglob("0*.dump.txt.zst"))


@pytest.mark.parametrize(
    ("starts", "cuts", "told"),
    [
        ([0], (), {}),
        ([0, 250], (), {2: 0, 3: 0}),
        ([0, 100], (), {1: 0, 0: 0, 3: 0}),  # on both sides of it
        ([0, 50, 250], (), {2: 0, 0: 1, 3: 0}),  # the latest first
        ([0], (150,), {1: 0, 3: 0}),
        ([0, 900], (), {3: 0}),
        ([], (), {}),
    ],
)
def test_segments_tell_of_changes_of_leader_and_of_cuts(
    starts: list[int], cuts: tuple[int], told: dict[int, int]
) -> None:
    assert telling_segments([0, 100, 200, 300], starts, cuts) == told


def test_telling_segments_and_named_topics_are_dumped(data: Path, tool: str, tmp_path: Path) -> None:
    run(data, tmp_path / "into", kafka_home=tool)
    assert dumped(tmp_path / "into") == [f"a-0/{base:020}.log.dump.txt.zst" for base in (200, 300)]
    told = run(data, tmp_path / "into", kafka_home=tool, topics=[re.compile("b|__o.*")])
    assert len(told.new) == 8
    assert len(dumped(tmp_path / "into")) == 10
    path = tmp_path / "into" / "segments/node-1" / dumped(tmp_path / "into")[0]
    assert b"".join(read_chunks(str(path), Outcome())).decode().splitlines()[1:] == ["batches"]
    assert run(data, tmp_path / "into", kafka_home=tool).new == []


def test_a_cut_that_a_brokers_log_tells_of_is_dumped(data: Path, tool: str, tmp_path: Path) -> None:
    text = (
        "[2026-03-01 10:00:00,123] INFO [UnifiedLog partition=b-0, dir=/d] Truncating to offset 150 (kafka.log.Log)\n"
    )
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "server.log").write_text(text)
    gather(Order(tmp_path / "into", {1: [str(tmp_path / "logs"), str(data)]}, kafka_home=tool))
    assert f"b-0/{100:020}.log.dump.txt.zst" in dumped(tmp_path / "into")


def test_what_exceeds_the_bytes_is_left_out_and_said(data: Path, tool: str, tmp_path: Path) -> None:
    segment(data, "a-0", 300, "b" * 1000)
    told = run(data, tmp_path / "into", kafka_home=tool, max_bytes=500)
    assert dumped(tmp_path / "into") == [f"a-0/{200:020}.log.dump.txt.zst"]
    assert told.left_out == [f"1 segments of 1,000 bytes exceed --max-bytes: a-0/{300:020}.log"]


def test_a_segment_that_the_tool_cannot_read_is_named_and_the_others_are_dumped(
    data: Path, tool: str, tmp_path: Path
) -> None:
    bad = segment(data, "b-0", 100, "damaged\n")
    told = run(data, tmp_path / "into", kafka_home=tool, topics=[re.compile("b")])
    assert len(told.unread) == 1
    assert told.unread[0].startswith(f"{bad}: ")
    assert "it is damaged" in told.unread[0]
    assert dumped(tmp_path / "into").count(f"b-0/{100:020}.log.dump.txt.zst") == 0
    assert len(dumped(tmp_path / "into")) == 5


def test_without_the_tool_the_commands_are_said_and_work(data: Path, tool: str, tmp_path: Path) -> None:
    told = run(data, tmp_path / "into")
    assert dumped(tmp_path / "into") == []
    (command,) = told.commands
    assert f"{data}/a-0/{200:020}.log,{data}/a-0/{300:020}.log" in command
    assert command.startswith(f"mkdir -p {tmp_path}/into/segments/node-1/a-0 && kafka-dump-log.sh --files ")
    assert not told.is_empty
    path = f"{tool}/bin:{os.environ['PATH']}"
    subprocess.run(["sh", "-c", command], env={**os.environ, "PATH": path}, check=True)
    assert (tmp_path / f"into/segments/node-1/a-0/{200:020}.log.dump.txt.gz").exists()


def test_a_tool_that_is_not_there_is_one_sentence(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--kafka-home .*: there is no bin/kafka-dump-log.sh in it"):
        run(data, tmp_path / "into", kafka_home=str(tmp_path))
    with pytest.raises(InputError, match="no such program"):
        run(data, tmp_path / "into", dump_tool="no-such-tool --now")


def test_a_tool_that_does_not_start_is_not_started_again_for_each_file(data: Path, tmp_path: Path) -> None:
    tool = tmp_path / "broken"
    tool.write_text(f"#!/bin/sh\necho x >> {tmp_path}/starts\necho 'no Java' >&2\nexit 1\n")
    tool.chmod(0o755)
    told = run(data, tmp_path / "into", dump_tool=str(tool))
    assert (tmp_path / "starts").read_text() == "x\n"
    assert len(told.unread) == 2
    assert "no Java" in told.unread[0]


def test_a_dump_of_what_was_cut_off_is_hidden(data: Path, tool: str, tmp_path: Path) -> None:
    run(data, tmp_path / "into", kafka_home=tool)
    (data / "a-0" / f"{300:020}.log").unlink()
    told = run(data, tmp_path / "into", kafka_home=tool)
    assert dumped(tmp_path / "into") == [f"a-0/{200:020}.log.dump.txt.zst"]
    assert "it was hidden" in told.notes[0]


def test_checkpoints_are_copied_when_they_change(data: Path, tmp_path: Path) -> None:
    into = tmp_path / "into"
    run(data, into)
    names = sorted(path.relative_to(into / "segments/node-1").as_posix() for path in (into / "segments").rglob("*-*t"))
    assert [re.sub(r"disk\.\w+", "disk", name) for name in names if "checkpoint" in name] == [
        "__own-0/leader-epoch-checkpoint", "a-0/leader-epoch-checkpoint", "b-0/leader-epoch-checkpoint",
        "disk/replication-offset-checkpoint",
    ]  # fmt: skip
    epochs(data, "b-0", 0, 310)
    told = run(data, into)
    assert told.grown == ["segments/node-1/b-0/leader-epoch-checkpoint"]
    assert (into / told.grown[0]).read_text() == (data / "b-0" / "leader-epoch-checkpoint").read_text()


def test_a_copy_of_the_metadata_log_that_says_nothing_new_is_not_dumped(tmp_path: Path) -> None:
    long, short, other = (segment(tmp_path / name, "__cluster_metadata-0", 0, text) for name, text in (
        ("1", "one two three"), ("2", "one two"), ("3", "one and a half"),
    ))  # fmt: skip
    assert sorted(without_copies([short, long, other])) == sorted([long, other])


@pytest.mark.parametrize("ended", [(), ("long",), ("short", "long")])
def test_a_dump_of_the_metadata_log_goes_on_though_another_node_is_a_moment_ahead(
    tmp_path: Path, ended: tuple[str, ...]
) -> None:
    """But what ended longer is taken: the one that is dumped would never have what it lacks."""
    data = tmp_path / "data"
    for node, text in (("short", "one two"), ("long", "one two three")):
        path = segment(data / node, "__cluster_metadata-0", 0, text)
        if node in ended:
            os.utime(path, (1000, 1000))
    short, long = (data / node / "__cluster_metadata-0" / f"{0:020}.log" for node in ("short", "long"))
    assert without_copies([long, short], {short}) == [long if ended else short]
    assert without_copies([long, short], {short, long}) == [long]
    long.write_text("one two three".ljust(100_000))
    assert without_copies([long, short], {short}) == [long]


def test_the_metadata_log_is_dumped_without_secrets(tool: str, tmp_path: Path) -> None:
    head = "| offset: 13 CreateTime: 1795343582275 keySize: -1 valueSize: 2 sequence: -1 headerKeys: [] payload: "
    records = [
        ("CONFIG_RECORD", {"resourceType": 4, "resourceName": "", "name": "ssl.keystore.password", "value": "s3cret"}),
        ("CONFIG_RECORD", {"resourceType": 4, "resourceName": "", "name": "min.insync.replicas", "value": "2"}),
        ("USER_SCRAM_CREDENTIAL_RECORD", {"name": "alice", "storedKey": "s3cret"}),
    ]
    text = "".join(f"{head}{json.dumps({'type': kind, 'version': 0, 'data': data})}\n" for kind, data in records)
    data = tmp_path / "data"
    segment(data, "__cluster_metadata-0", 0, text)
    (data / "meta.properties").write_text("node.id=1\n")
    told = run(data, tmp_path / "into", kafka_home=tool)
    (name,) = [name for name in told.new if name.startswith("metadata/")]
    dump = b"".join(read_chunks(str(tmp_path / "into" / name), Outcome())).decode()
    assert "s3cret" not in dump
    assert "alice" not in dump
    kept = [json.loads(line.partition("payload: ")[2]) for line in dump.splitlines()[1:]]
    assert [record["type"] for record in kept] == [kind for kind, _ in records]
    assert kept[1]["data"] == records[1][1]


def test_a_record_that_cannot_be_read_loses_its_content() -> None:
    assert without_secrets("| offset: 1 payload: {broken s3cret") == "| offset: 1 payload: {}"


def test_settings_on_which_brokers_differ_are_left_out() -> None:
    stated = {1: {"min.insync.replicas": "2", "ssl.keystore.password": "x"}, 2: {"min.insync.replicas": "2"}}
    assert read_settings(stated) == ({"min.insync.replicas": "2"}, [])
    settings, notes = read_settings({**stated, 3: {"min.insync.replicas": "1"}})
    assert settings == {}
    assert "broker 3: 1" in notes[0]


def test_what_somebody_wrote_into_the_manifest_stays(data: Path, tmp_path: Path) -> None:
    into = tmp_path / "into"
    (tmp_path / "server.properties").write_text("min.insync.replicas=2\nsasl.jaas.config=s3cret\n")
    paths = {1: [str(data), str(tmp_path / "server.properties")]}
    gather(Order(into, paths, time_zones={None: "Europe/Berlin"}, kafka_version="3.9.0"))
    manifest = json.loads((into / "MANIFEST.json").read_text())
    assert manifest == {
        "brokers": [1], "kafka": "3.9.0", "time_zone": "Europe/Berlin", "broker_config": {"min.insync.replicas": "2"},
    }  # fmt: skip
    manifest["broker_config"]["min.insync.replicas"] = "1"
    manifest["topics"] = {"a": 1}
    (into / "MANIFEST.json").write_text(json.dumps(manifest))
    told = gather(Order(into, {2: paths[1]}, time_zones={2: "UTC"}))
    after = json.loads((into / "MANIFEST.json").read_text())
    assert after == {**manifest, "brokers": [1, 2], "time_zone": {"1": "Europe/Berlin", "2": "UTC"}}
    assert "min.insync.replicas=1" in told.notes[0]


def test_topics_in_names_of_folders_are_replaced_if_wanted(data: Path, tmp_path: Path) -> None:
    names = Pseudonyms(bytes(32), redacts_topics=True)
    shutil.rmtree(data / "__own-0")
    run(data, tmp_path / "into", redactor=Redactor(names))
    folders = {path.parent.name for path in (tmp_path / "into").rglob("leader-epoch-checkpoint")}
    assert folders == {f"{names.topic('a')}-0", f"{names.topic('b')}-0"}
