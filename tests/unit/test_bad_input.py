"""Input that nobody meant: it is refused in a sentence, set aside line by line, or read for what it is."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tracemalloc
from datetime import UTC, datetime
from time import process_time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import zstandard
from pyspark.sql.types import TimestampType

from jobs import endings, inspect_recording
from pipelines.intake.collect import Collected, collect
from pipelines.intake.inputs import refuse_unreadable
from pipelines.parse.files.file_parser import BATCH_ROWS, parse_file
from pipelines.parse.files.splits import may_split
from pipelines.recording.listing import files_below
from pipelines.recording.reading import Outcome, read_chunks
from pipelines.recording.recording import Manifest, Recording, Source, discover, from_paths
from pipelines.spark.daemon import quiet, without_gone
from pipelines.stages.report import Report
from pipelines.stages.run import with_recording
from schemas.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CUT = "[2026-01-01 00:00:00,000] INFO [Log partition=orders-0, dir=/d] Truncating to offset 5 (kafka.log.UnifiedLog)\n"
BATCH = (
    "baseOffset: {0} lastOffset: {0} count: 1 baseSequence: 0 lastSequence: 0 producerId: 1 producerEpoch: 0 "
    "partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: 0 "
    "{1}: {2} size: 100 magic: 2 compresscodec: none crc: 1 isvalid: true\n"
)


def recorded(root: Path, name: str, content: bytes | str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def read(root: Path) -> Collected:
    return collect(discover(root, recording_id="x"))


@pytest.mark.parametrize(
    ("kind", "time"),
    [("CreateTime", 1767225600000000), ("CreateTime", 10**18), ("LogAppendTime", 1767225600000), ("CreateTime", -1)],
)
def test_a_batchs_time_is_its_producers_and_no_time_of_the_broker(tmp_path: Path, kind: str, time: int) -> None:
    found = read(recorded(tmp_path, "segments/node-1/orders-0/0.dump.txt", BATCH.format(0, kind, time)))
    (row,) = found.facts.to_pylist()
    assert (row["kind"], row["base_offset"], row["ts"]) == ("segment_batch", 0, None)
    assert not len(found.rejected)


@pytest.mark.parametrize("time", [253402387139999, 10**17, 2**62])
def test_a_time_past_9999_is_a_line_that_is_rejected(tmp_path: Path, time: int) -> None:
    record = '{"type":"BROKER_REGISTRATION_CHANGE_RECORD","version":0,"data":{"brokerId":1,"brokerEpoch":5,"fenced":1}}'
    line = f"| offset: 5 CreateTime: {time} keySize: -1 valueSize: 1 sequence: -1 headerKeys: [] payload: {record}\n"
    dump = "Dumping /d/__cluster_metadata-0/00000000000000000000.log\n"
    good = line.replace(str(time), "1767225600000").replace("offset: 5", "offset: 6")
    found = read(recorded(tmp_path, "cluster-metadata.dump.txt", dump + line + good))
    told = [row for row in found.facts.to_pylist() if row["kind"] == "broker_change"]
    assert [(row["metadata_offset"], row["ts"]) for row in told] == [(6, datetime(2026, 1, 1, tzinfo=UTC))]
    assert len(found.rejected) == 1


def test_a_number_of_thousands_of_digits_is_a_line_that_is_rejected(tmp_path: Path) -> None:
    lines = CUT + CUT.replace("offset 5", "offset " + "9" * 5000) + CUT.replace("orders-0", "orders-" + "9" * 5000)
    found = read(recorded(tmp_path, "logs/node-1/server.log", lines))
    assert len(found.facts) == 1


def test_a_line_of_one_long_word_is_read_in_linear_time(tmp_path: Path) -> None:
    header = (
        "RequestHeader(apiKey=FETCH, apiVersion=11, clientId=c, correlationId=24) -- {replica_id=1,max_wait_time=300"
    )
    times = ",".join(
        f"{name}Time:0.1" for name in ("requestQueue", "local", "remote", "throttle", "responseQueue", "send")
    )
    line = f"[2026-01-01 00:00:00,000] DEBUG Completed request:{header},rack_id={'a' * 100_000}}},response:{{}} from "
    line += f"connection 1:1-2:2-0;totalTime:0.1,{times},securityProtocol:PLAINTEXT (kafka.request.logger)\n"
    begun = process_time()
    read(recorded(tmp_path, "logs/node-1/kafka-request.log", line))
    assert process_time() - begun < 5  # it took minutes


def test_refused_lines_leave_in_batches_as_facts_do(tmp_path: Path) -> None:
    refused = CUT.replace("INFO [Log partition=orders-0, dir=/d] Truncating to offset 5", "DEBUG Completed request:{")
    refused = refused.replace("kafka.log.UnifiedLog", "kafka.request.logger")
    recording = discover(recorded(tmp_path, "logs/node-1/x.log", CUT + refused * (3 * BATCH_ROWS)), recording_id="x")
    batches = [batch.rejected.num_rows for batch in parse_file(recording, recording.sources[0]) if batch.rejected]
    assert sum(batches) == 3 * BATCH_ROWS
    assert max(batches) <= 2 * BATCH_ROWS


@pytest.mark.parametrize("kind", ["zstd", "gzip"])
def test_a_small_file_that_grows_without_end_takes_no_memory(tmp_path: Path, kind: str) -> None:
    zeros = bytes(1 << 20)
    made = zstandard.ZstdCompressor().compressobj()
    packed = b"".join(made.compress(zeros) for _ in range(600)) + made.flush()
    path = tmp_path / "x.log"
    path.write_bytes(packed if kind == "zstd" else gzip.compress(zeros * 100))
    outcome = Outcome()
    tracemalloc.start()
    size = sum(len(chunk) for chunk in read_chunks(str(path), outcome))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20
    if kind == "gzip":
        assert (size, outcome.broken) == (100 << 20, None)
    else:
        assert size < 600 << 20
        assert "which no log does" in (outcome.broken or "")


@pytest.mark.parametrize("name", ["a b.log", "a%20b.log", "Störung #1?.log", "a&b=c.log"])
def test_any_name_of_a_file_is_read_as_path_and_as_uri(tmp_path: Path, name: str) -> None:
    recorded(tmp_path, f"logs/node-1/{name}", CUT)
    for root in (str(tmp_path), tmp_path.as_uri(), f"{tmp_path.as_uri()}/"):
        recording = discover(root, recording_id="x")
        assert [source.name for source in recording.sources] == [f"logs/node-1/{name}"]
        assert len(collect(recording).facts) == 1
    one = from_paths("x", {1: [tmp_path / "logs" / "node-1" / name]})
    assert len(collect(one).facts) == 1


def test_a_name_that_is_not_utf_8_is_read_and_shown_as_far_as_it_can_be(tmp_path: Path) -> None:
    recorded(tmp_path, "logs/node-1/a.log", CUT)
    folder = tmp_path / "logs" / "node-1"
    (folder / "a.log").rename(folder / os.fsdecode(b"\xff.log"))
    found = read(tmp_path)
    assert found.facts["source_file"].to_pylist() == ["logs/node-1/\ufffd.log"]


def test_a_link_that_leads_back_up_is_not_followed_and_others_are(tmp_path: Path) -> None:
    recorded(tmp_path, "logs/node-1/server.log", CUT)
    (tmp_path / "logs" / "node-1" / "again").symlink_to(tmp_path / "logs")
    (tmp_path / "logs" / "node-2").symlink_to(tmp_path / "logs" / "node-1")
    (tmp_path / "logs" / "nowhere").symlink_to(tmp_path / "none")
    os.mkfifo(tmp_path / "logs" / "pipe")
    assert [one.name for one in files_below(str(tmp_path))] == ["logs/node-1/server.log", "logs/node-2/server.log"]


@pytest.mark.parametrize("name", ["node-99999999999999", "node-4294967296"])
def test_a_broker_id_that_none_can_have_is_bad_input(tmp_path: Path, name: str) -> None:
    recorded(tmp_path, f"logs/{name}/server.log", CUT)
    with pytest.raises(InputError, match="is no broker id"):
        discover(tmp_path)


@pytest.mark.parametrize("manifest", ["[" * 100_000, '{"topics":' * 100_000, '{"time_zone": {"99999999999": "UTC"}}'])
def test_a_manifest_that_cannot_be_is_bad_input(tmp_path: Path, manifest: str) -> None:
    recorded(tmp_path, "logs/node-1/server.log", CUT)
    recorded(tmp_path, "MANIFEST.json", manifest)
    with pytest.raises(InputError, match=r"MANIFEST\.json"):
        discover(tmp_path)


def test_a_folder_that_cannot_be_read_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> Iterator[os.DirEntry[str]]:
        raise PermissionError(13, "Permission denied", str(path))

    recorded(tmp_path, "logs/node-1/server.log", CUT)
    monkeypatch.setattr("pipelines.recording.listing.os.scandir", refuse)
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        discover(tmp_path)


def test_files_none_of_which_can_be_read_are_bad_input() -> None:
    closed, empty = {"path": "a.log", "bytes": 0, "rejected": 1}, {"path": "b.log", "bytes": 0, "rejected": 0}
    refuse_unreadable([empty], "r")
    refuse_unreadable([closed, {**closed, "bytes": 7}], "r")
    with pytest.raises(InputError, match=r"r: none of its files can be read, the first is a\.log"):
        refuse_unreadable([closed, empty], "r")


def test_times_are_utc_whatever_the_zone_of_this_machine() -> None:
    program = (
        "from pipelines.spark.session import in_utc; in_utc(); from pyspark.sql.types import TimestampType;"
        "from pipelines.stages.report_text import time_of as said;"
        "print(said(TimestampType().fromInternal(1740823200123000)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TZ": "America/New_York"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "2025-03-01 10:00:00.123 UTC\n"


def test_a_time_for_machines_says_its_zone() -> None:
    told = TimestampType().fromInternal(0)
    assert Report({"at": told}).as_dict()["at"].endswith("+00:00")


def test_a_worker_whose_reader_has_gone_ends_without_a_word() -> None:
    def gone(*_: object) -> int:
        raise BrokenPipeError

    told: list[object] = []
    assert quiet(gone)("socket") == 1
    assert quiet(lambda *_: 0)("socket") == 0
    hook = without_gone(told.append)
    for error in (BrokenPipeError(), ValueError()):
        hook(type("Unraisable", (), {"exc_value": error})())
    assert len(told) == 1


def test_bad_input_is_json_where_json_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["inspect", "--json"])
    assert endings.guarded(inspect_recording.main) == endings.BAD_INPUT
    told = json.loads(capsys.readouterr().out)
    assert (told["exit_code"], told["recordings"]) == (2, [])
    assert "--recording DIR" in told["error"]


def test_a_fact_of_a_file_without_times_is_taken_once(tmp_path: Path) -> None:
    found = read(recorded(tmp_path, "segments/node-1/orders-0/0.dump.txt", BATCH.format(3, "CreateTime", 5) * 2))
    assert pa.compute.count_distinct(found.facts["fact_id"]).as_py() == len(found.facts) == 1


@pytest.mark.parametrize("offset", [2**63 - 1, 2**62 + 1])
def test_an_offset_that_leaves_no_room_to_reckon_is_a_line_that_is_rejected(tmp_path: Path, offset: int) -> None:
    found = read(recorded(tmp_path, "logs/node-1/server.log", CUT + CUT.replace("offset 5", f"offset {offset}")))
    assert found.facts["offset"].to_pylist() == [5]
    assert [row["source_line"] for row in found.rejected.to_pylist()] == [2]


def test_a_blank_line_is_no_line_that_is_rejected(tmp_path: Path) -> None:
    found = read(recorded(tmp_path, "logs/node-1/server.log", f"\n \t\n{CUT}\n\r\n{CUT.replace('00,000', '01,000')}\n"))
    assert found.facts["source_line"].to_pylist() == [3, 6]
    assert found.rejected.num_rows == 0


def test_of_a_manifests_settings_only_what_is_read_is_kept() -> None:
    config = {"ssl.keystore.password": "hunter2", "min.insync.replicas": "2"}
    recording = Recording("x", "", (), Manifest(kafka="3.9.0", broker_config=config))
    kept = with_recording({"lag": 1}, None, "x", recording)  # type: ignore[arg-type]
    assert kept == {"lag": 1, "kafka_version": "3.9.0", "broker_config": {"min.insync.replicas": "2"}}


def test_a_large_file_that_cannot_be_read_is_not_shared_among_tasks(tmp_path: Path) -> None:
    gone = Source(str(tmp_path / "gone.log"), "gone.log", 1, 1 << 40)
    assert not may_split(Recording("x", str(tmp_path), (gone,), Manifest()), gone)
