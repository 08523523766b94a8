"""Files of every sort, packed, cut, shuffled, in other zones: the facts stay the same."""

from __future__ import annotations

import gzip
import shutil
from typing import TYPE_CHECKING

import pytest
import zstandard

from pipelines.intake.collect import Collected, collect
from pipelines.lines.clock import ZoneClock
from pipelines.lines.layout import LAYOUTS, StampReader
from pipelines.parse.files.file_parser import Range, parse_file
from pipelines.parse.files.splits import may_split
from pipelines.recording.reading import Outcome, newlines, read_lines
from pipelines.recording.recording import discover, from_paths
from schemas.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

ROLE = (
    "[{}] INFO [Partition a-0 broker=1] a-0 starts at leader epoch 4 from offset {} with high watermark 1. Previous "
    "leader epoch was 0. (kafka.cluster.Partition)\n"
)
Zones = dict[int | None, str] | None


def stamped(times: list[str]) -> str:
    return "".join(ROLE.format(time, number) for number, time in enumerate(times))


def logs(folder: Path, text: str | bytes, name: str = "server.log", *, zones: Zones = None) -> Collected:
    path = folder / "logs" / "node-1" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return collect(discover(folder, time_zones=zones))


def ids(found: Collected) -> list[str]:
    return sorted(found.facts["fact_id"].to_pylist())


@pytest.fixture(scope="module")
def whole(recordings: Path) -> Collected:
    return collect(discover(recordings / "last-replica"))


def test_a_real_recording_has_no_rejected_line(whole: Collected) -> None:
    assert whole.rejected.num_rows == 0
    kinds = set(whole.facts["kind"].to_pylist())
    assert {"produce", "fetch", "partition_change", "role_change", "truncation", "segment_batch", "checkpoint"} <= kinds
    assert whole.facts["fact_id"].null_count == 0


def test_files_in_another_order_under_other_names_twice_over(
    recordings: Path, whole: Collected, tmp_path: Path
) -> None:
    shutil.copytree(recordings / "last-replica", tmp_path / "x")
    folder = tmp_path / "x" / "logs" / "node-1"
    (folder / "server.log.gz").rename(folder / "zzz.7.gz")
    text = gzip.decompress((folder / "kafka-request.log.gz").read_bytes())
    (folder / "deep").mkdir()
    (folder / "deep" / "copy.log.zst").write_bytes(zstandard.compress(text))
    found = collect(discover(tmp_path / "x"))
    assert found.rejected.num_rows == 0
    assert ids(found) == ids(whole)


def test_a_cut_gzip_file_counts_as_far_as_it_can_be_read(recordings: Path, tmp_path: Path) -> None:
    packed = (recordings / "last-replica" / "logs" / "node-1" / "server.log.gz").read_bytes()
    found = logs(tmp_path, packed[: len(packed) // 2], "server.log.gz")
    assert found.facts.num_rows > 1000
    last = found.rejected.to_pylist()[-1]
    assert "gzip stream is cut off" in last["reason"]
    assert last["source_line"] == found.counts["logs/node-1/server.log.gz"].lines + 1


def test_a_damaged_or_cut_zstd_file_counts_as_far_as_it_can_be_read(tmp_path: Path) -> None:
    packed = zstandard.ZstdCompressor().compress(stamped(["2026-11-21 03:00:00,000"] * 3).encode())
    found = logs(tmp_path, packed[:-5], "server.log.zst")
    assert "zstd stream" in found.rejected.to_pylist()[-1]["reason"]


def test_packed_files_of_several_members(tmp_path: Path) -> None:
    one, two = ROLE.format("2026-11-21 03:00:00,000", 1), ROLE.format("2026-11-21 03:00:01,000", 2)
    found = logs(tmp_path, gzip.compress(one.encode()) + gzip.compress(two.encode()), "server.log.gz")
    assert found.facts["offset"].to_pylist() == [1, 2]
    assert found.rejected.num_rows == 0


def test_bytes_that_are_no_text_are_tolerated(tmp_path: Path) -> None:
    found = logs(tmp_path, ROLE.format("2026-11-21 03:00:00,000", 1).encode() + b"\xff\xfe\x00garbage\n\n")
    assert found.facts.num_rows == 1
    assert found.rejected["source_line"].to_pylist() == [2]


def test_a_file_that_is_nothing_known_is_said_once(tmp_path: Path) -> None:
    found = logs(tmp_path, "hello\nworld\n")
    (row,) = found.rejected.to_pylist()
    assert (row["source_line"], row["text"]) == (0, "hello")


def test_an_empty_file_is_nothing(tmp_path: Path) -> None:
    found = logs(tmp_path, "")
    assert (found.facts.num_rows, found.rejected.num_rows) == (0, 0)


def test_stamps_are_moved_to_utc_by_the_brokers_zone(tmp_path: Path) -> None:
    text = stamped(["2026-07-01 12:00:00,250", "2026-12-01 12:00:00,250"])
    found = logs(tmp_path, text, zones={1: "Europe/Berlin", None: "Asia/Tokyo"})
    assert [str(ts) for ts in found.facts["ts"].to_pylist()] == [
        "2026-07-01 10:00:00.250000+00:00",
        "2026-12-01 11:00:00.250000+00:00",
    ]


TWICE = [
    "2026-10-25 01:59:00",
    "2026-10-25 02:10:00",
    "2026-10-25 02:59:59",
    "2026-10-25 02:00:10",
    "2026-10-25 03:00:10",
]


def hours(found: Collected) -> list[str]:
    return [f"{ts:%H:%M}" for ts in found.facts["ts"].to_pylist()]


def test_the_hour_that_comes_twice_goes_by_the_order_of_lines(tmp_path: Path) -> None:
    found = logs(tmp_path, stamped([f"{time},000" for time in TWICE]), zones={1: "Europe/Berlin"})
    assert hours(found) == ["23:59", "00:10", "00:59", "01:00", "02:00"]


def test_a_file_that_begins_in_the_second_pass(tmp_path: Path) -> None:
    found = logs(
        tmp_path,
        stamped(["2026-10-25 02:40:00,000", *(f"{t},000" for t in TWICE[4:])]),
        zones={1: "Europe/Berlin"},
    )
    assert hours(found) == ["01:40", "02:00"]


def test_a_clock_in_utc_decides_nothing() -> None:
    assert ZoneClock("UTC").utc(7) == 7
    assert not ZoneClock("UTC").is_repeated(7)


@pytest.mark.parametrize("stamp", ["2026-13-45 99:99:99,000", "2026-02-30 00:00:00,000", "2026-11-21 25:00:00,000"])
def test_a_time_that_cannot_be(stamp: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        StampReader().micros(stamp)


@pytest.mark.parametrize("fraction", [",5", ",500", ".500000", ".500000000"])
def test_fractions_of_any_length(fraction: str) -> None:
    assert StampReader().micros("1970-01-01 00:00:01" + fraction) == 1_500_000


@pytest.mark.parametrize("size", [1, 7, 97, 163, 500])
def test_ranges_of_a_file_hold_each_line_once_with_its_number(tmp_path: Path, size: int) -> None:
    text = stamped([f"2026-11-21 03:00:{second:02d},000" for second in range(9)]) + "\tat the.end(X)"
    whole = logs(tmp_path, text)
    recording = discover(tmp_path)
    (source,) = recording.sources
    found: dict[int, int] = {}
    before = 0
    for start in range(0, source.size, size):
        end = min(start + size, source.size)
        part = Range(start, end, 1 if start == 0 else before + 2)
        before += newlines(source.path, max(start - 1, 0), end - 1)
        for batch in parse_file(recording, source, part):
            assert batch.rejected is None
            for row in batch.facts.to_pylist() if batch.facts is not None else ():
                found[row["source_line"]] = row["offset"]
    assert found == dict(zip(whole.facts["source_line"].to_pylist(), whole.facts["offset"].to_pylist(), strict=True))


def test_lines_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.recording.reading.CHUNK", 5)
    path = tmp_path / "f"
    path.write_bytes(b"one\r\ntwo is long\n\nlast")
    assert [line for block in read_lines(str(path), Outcome()) for line in block] == ["one", "two is long", "", "last"]


def test_first_line_of_a_file_that_begins_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"\xef\xbb\xbfone\ntwo\n")
    assert [line for block in read_lines(str(path), Outcome()) for line in block] == ["one", "two"]


@pytest.mark.parametrize(
    ("times", "zone", "expected"),
    [
        (["2026-11-21 03:00:00,000"], "UTC", True),
        (["2026-11-21 03:00:00,000", "2026-11-22 03:00:00,000"], "Europe/Berlin", True),
        (["2026-10-25 01:00:00,000", "2026-10-25 05:00:00,000"], "Europe/Berlin", False),
        ([], "UTC", False),
    ],
)
def test_files_in_which_the_clock_is_put_back_are_read_whole(
    tmp_path: Path,
    times: list[str],
    zone: str,
    expected: bool,  # noqa: FBT001
) -> None:
    logs(tmp_path, stamped(times))
    recording = discover(tmp_path, time_zones={None: zone})
    assert may_split(recording, recording.sources[0]) is expected


def test_checkpoints_say_where_each_partition_stood(whole: Collected) -> None:
    rows = [row for row in whole.facts.to_pylist() if row["kind"] == "checkpoint"]
    names = {row["name"] for row in rows}
    assert names == {"leader-epoch-checkpoint", "replication-offset-checkpoint", "recovery-point-offset-checkpoint"}
    assert all(row["hw"] == row["offset"] for row in rows if row["name"] == "replication-offset-checkpoint")
    assert all(row["leader_epoch"] is not None for row in rows if row["name"] == "leader-epoch-checkpoint")


def test_damaged_checkpoints_and_dumps_are_rejected_lines(tmp_path: Path) -> None:
    segments = tmp_path / "segments" / "node-1"
    (segments / "a-0").mkdir(parents=True)
    (segments / "replication-offset-checkpoint").write_text("0\n2\na 0 5\na zero 5\n")
    (segments / "a-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n1\n")
    (segments / "a-0" / "0.log.dump.txt").write_text(
        "Dumping /d/b-3/0.log\nLog starting offset: 0\nbaseOffset: 0 lastOffset: 2\n"
        "baseOffset: 0 lastOffset: 25 count: 26 baseSequence: 0 lastSequence: 25 producerId: 10 producerEpoch: 0 "
        "partitionLeaderEpoch: 4 isTransactional: false isControl: true deleteHorizonMs: OptionalLong.empty "
        "position: 0 "
        "CreateTime: 1795233222145 size: 1307 magic: 2 compresscodec: none crc: 1035022548 isvalid: true\nwhat\n"
    )
    (tmp_path / "cluster-metadata.dump.txt").write_text(
        "Dumping /d/__cluster_metadata-0/0.log\n"
        '| offset: 5 CreateTime: 7 keySize: -1 payload: {"type":"PARTITION_RECORD","data":{"partitionId":0}}\n'
        '| offset: 6 CreateTime: 7 keySize: -1 payload: {"type":"PARTITION_CHANGE_RECORD","version":0,"data":'
        '{"partitionId":0,"topicId":"T","isr":[2,1],"leader":-2}}\n'
        '| offset: 7 CreateTime: 7 keySize: -1 valueSize: 1 payload: {"type":"PARTITION_CHANGE_REC\n'
    )
    found = collect(discover(tmp_path))
    assert sorted(
        (row["source_file"].rpartition("/")[2], row["source_line"]) for row in found.rejected.to_pylist()
    ) == [
        ("0.log.dump.txt", 3),
        ("0.log.dump.txt", 5),
        ("cluster-metadata.dump.txt", 2),
        ("cluster-metadata.dump.txt", 4),
        ("leader-epoch-checkpoint", 4),
        ("replication-offset-checkpoint", 4),
    ]
    rows = {row["kind"]: row for row in found.facts.to_pylist()}
    assert (rows["segment_batch"]["topic"], rows["segment_batch"]["partition"]) == ("b", 3)
    assert (rows["segment_batch"]["leader_epoch"], rows["segment_batch"]["is_control"]) == (4, True)
    change = rows["partition_change"]
    assert (change["metadata_offset"], change["leader_id"], change["isr"], change["replicas"]) == (
        6,
        None,
        [2, 1],
        None,
    )


def test_layouts_are_told_apart_by_their_lines() -> None:
    line = LAYOUTS["apache"].split("[2023-02-03 16:29:55,747] DEBUG Completed request:{} (kafka.request.logger:275)")
    assert line is not None
    assert (line.logger, line.level, line.text) == ("kafka.request.logger", "DEBUG", "Completed request:{}")


# -- recordings


@pytest.mark.parametrize(
    ("manifest", "place"),
    [
        ('{\n "kafka": 4\n}', "MANIFEST.json:2"),
        ('{\n "kafka": "4.1.0",\n oops\n}', "MANIFEST.json:3"),
        ('{\n "kafka": "4.1.0",\n "time_zone": "Mars/Olympus"}', "MANIFEST.json:3"),
        ('{"time_zone": {"one": "UTC"}}', "MANIFEST.json:1"),
        ("[]", "MANIFEST.json:1"),
    ],
)
def test_a_malformed_manifest_names_file_and_line(tmp_path: Path, manifest: str, place: str) -> None:
    logs(tmp_path, "")
    (tmp_path / "MANIFEST.json").write_text(manifest)
    with pytest.raises(InputError, match=place):
        discover(tmp_path)


def test_manifest_and_what_is_said_instead(tmp_path: Path) -> None:
    logs(tmp_path, "")
    (tmp_path / "MANIFEST.json").write_text(
        '{"kafka": "4.1.0", "brokers": [1, 2], "time_zone": {"1": "Europe/Berlin"}, '
        '"broker_config": {"a": 5, "b": true}}'
    )
    found = discover(tmp_path).manifest
    assert (found.kafka, found.brokers, found.broker_config) == ("4.1.0", 2, {"a": "5", "b": "true"})
    assert (found.time_zone(1), found.time_zone(2)) == ("Europe/Berlin", "UTC")
    assert discover(tmp_path, kafka_version="3.9.1", time_zones={2: "Asia/Tokyo"}).manifest.time_zone(2) == "Asia/Tokyo"


def test_nothing_to_read_teaches_what_a_recording_is(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InputError, match="logs/node-<broker id>"):
            discover(root)


def test_an_unknown_layout_is_refused(tmp_path: Path) -> None:
    logs(tmp_path, "")
    with pytest.raises(InputError, match="known are apache"):
        discover(tmp_path, log_layout="nonsense")


def test_files_named_one_by_one(recordings: Path, whole: Collected) -> None:
    root = recordings / "last-replica"
    found = from_paths(
        "last-replica",
        {broker: [root / "logs" / f"node-{broker}"] for broker in range(4)},
        metadata=[root / "cluster-metadata.dump.txt.gz"],
        segments={broker: [root / "segments" / f"node-{broker}"] for broker in range(1, 4)},
        time_zones={None: "UTC"},
    )
    assert ids(collect(found)) == ids(whole)
    with pytest.raises(InputError, match="no such file"):
        from_paths("x", {1: [root / "nothing.log"]})
