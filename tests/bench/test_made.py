"""The made histories are what they say: replayed, they give their truth, and every check of the replay agrees."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hourly_case import arrive
from log_peers import by_duckdb, by_polars
from made_history import History
from made_lines import DUMP, START_MS, stamp
from made_quiet import FLAPS, QuietCluster
from made_recording import MadeCluster
from made_shape import Shape
from without_spark import events_of, tables_of

if TYPE_CHECKING:
    from pathlib import Path

SMALL = Shape(events=4_000, partitions=2, elections=2, flaps=1, seed=7)


def unmatched(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """Checks that did not agree everywhere."""
    return [(row["check"], row["compared"], row["matched"]) for row in rows if row["compared"] != row["matched"]]


def lost(rows: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    """Slots of incidents: epoch, first offset, end."""
    spans = [one for row in rows for one in row["ranges"]]
    return sorted((one["leader_epoch"], one["first_offset"], one["last_offset"] + 1) for one in spans)


@pytest.mark.parametrize("partition", [0, 1])
def test_made_events_replay_to_their_truth(partition: int) -> None:
    history = History(SMALL, partition)
    events = pa.concat_tables(history.tables())
    assert len(events) == history.truth.events
    tables = tables_of(events)
    assert unmatched(tables["conformance"].to_pylist()) == []
    assert lost(tables["data_loss_incidents"].to_pylist()) == history.truth.lost
    assert {row["mechanism"] for row in tables["data_loss_incidents"].to_pylist()} == {"acks_one_leader_failure"}
    cuts = [(row["broker_id"], row["leo_before"], row["leo_after"]) for row in tables["log_truncations"].to_pylist()]
    assert cuts == history.truth.cuts
    moves = defaultdict(list)
    for row in tables["hw_timeline"].to_pylist():
        if row["role"] == "leader" and row["hw"] != row["hw_before"]:
            moves[row["leader_epoch"]].append(row["hw"])
    for epoch, values in history.truth.leader_hw.items():
        told = [value for k, value in enumerate(values) if value != (values[k - 1] if k else None)]
        assert moves[epoch] in (told, told[1:])  # the first is what the new leader had as a follower


def test_made_recording_is_read_and_replayed_to_its_truth(tmp_path: Path) -> None:
    truth = MadeCluster(SMALL.named(partitions=4), tmp_path / "made").write()
    found, cuts = [], []
    checks: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for events in events_of(tmp_path / "made"):
        tables = tables_of(events)
        number = events["partition"][0].as_py()
        found += [(number, *slots) for slots in lost(tables["data_loss_incidents"].to_pylist())]
        cuts += [
            (number, row["broker_id"], row["leo_before"], row["leo_after"])
            for row in tables["log_truncations"].to_pylist()
        ]
        for row in tables["conformance"].to_pylist():
            checks[row["check"]][0] += row["compared"]
            checks[row["check"]][1] += row["matched"]
    assert truth.lost
    assert found == sorted(truth.lost)
    assert sorted(cuts) == sorted(truth.cuts)
    completed = checks.pop("fetch_completion")
    assert completed[1] > 0.99 * completed[0]
    assert {name: pair for name, pair in checks.items() if pair[0] != pair[1]} == {}


def test_same_shape_gives_the_same_bytes(tmp_path: Path) -> None:
    def told(folder: Path) -> list[str]:
        MadeCluster(SMALL, folder).write()
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]

    assert told(tmp_path / "a") == told(tmp_path / "b")
    assert pa.concat_tables(History(SMALL, 1).tables()).equals(pa.concat_tables(History(SMALL, 1).tables()))
    assert not pa.concat_tables(History(SMALL, 1).tables()).equals(
        pa.concat_tables(History(SMALL.named(seed=8), 1).tables())
    )


def test_skew_gives_one_partition_its_share() -> None:
    even, skewed = SMALL.named(partitions=10), SMALL.named(partitions=10, skew=0.9)
    assert even.batches_of(0) == even.batches_of(9)
    assert skewed.batches_of(0) > 50 * skewed.batches_of(9)
    total = sum(skewed.batches_of(k) for k in range(10))
    assert abs(total - sum(even.batches_of(k) for k in range(10))) <= 10


def test_logs_arrive_up_to_a_time_and_grow_to_their_end(tmp_path: Path) -> None:
    whole, arrived = tmp_path / "whole", tmp_path / "arrived"
    MadeCluster(SMALL.named(tick_ms=100, wait_ms=100), whole).write()
    logs = [path.relative_to(whole) for path in sorted(whole.rglob("*")) if path.is_file()]
    arrive(whole, arrived, START_MS + 2_000)
    stamps = [
        line[1:24] for path in logs for line in (arrived / path).read_text().splitlines() if path.suffix == ".log"
    ]
    assert stamps
    assert max(stamps) < stamp(START_MS + 2_000)
    said = [int(at) for at in re.findall(r"CreateTime: (\d+)", (arrived / DUMP).read_text())]
    assert START_MS + 1_000 < max(said) < START_MS + 2_000
    arrive(whole, arrived, None)
    assert all((arrived / path).read_bytes() == (whole / path).read_bytes() for path in logs)


def test_a_query_by_hand_reads_the_same_lines(tmp_path: Path) -> None:
    """What DuckDB is told to do of log files is work that Tidemark does as well: each HW it finds is one of ours."""
    MadeCluster(SMALL, tmp_path / "made").write()
    by_duckdb(tmp_path / "made", tmp_path / "peer")
    found = {name: pq.read_table(tmp_path / "peer" / f"{name}.parquet").to_pylist() for name in ("hw", "leo")}
    events = events_of(tmp_path / "made")
    for partition in range(SMALL.partitions):
        stated = {
            hw
            for table in events
            for hw, number in zip(table["response_hw"].to_pylist(), table["partition"].to_pylist(), strict=True)
            if number == partition and hw is not None
        }
        highest = {row["hw"] for row in found["hw"] if row["partition"] == partition} - {-1}
        assert len(highest) > 100
        assert highest <= stated
        assert max(row["leo"] for row in found["leo"] if row["partition"] == partition) >= max(highest) - 1


def test_peers_find_the_same(tmp_path: Path) -> None:
    """DuckDB and Polars are told to do the same work."""
    MadeCluster(SMALL, tmp_path / "made").write()
    by_duckdb(tmp_path / "made", tmp_path / "duckdb")
    by_polars(tmp_path / "made", tmp_path / "polars")
    for name in ("hw", "leo"):
        columns = ["topic", "partition", "broker_id", "ts", name]
        found = [
            sorted(
                (row["topic"], row["partition"], row["broker_id"], row["ts"], -1 if row[name] is None else row[name])
                for row in pq.read_table(tmp_path / peer / f"{name}.parquet", columns=columns).to_pylist()
            )
            for peer in ("duckdb", "polars")
        ]
        assert len(found[0]) > 1_000
        assert found[0] == found[1]


def test_a_made_quiet_cluster_says_a_line_a_minute_and_each_is_understood(tmp_path: Path) -> None:
    """Each flap is an ISR that shrinks and one that expands, of which no check of the replay disagrees."""
    cluster = QuietCluster(2 * FLAPS, tmp_path / "made")
    sizes = []
    for _ in range(3):
        cluster.grow()
        logs = [path.read_text().splitlines() for path in (tmp_path / "made").rglob("*.log")]
        dump = (tmp_path / "made" / DUMP).read_text().splitlines()
        sizes.append(sum(map(len, logs)) + sum(line.startswith("| ") for line in dump))
    assert [later - before for before, later in pairwise(sizes)] == [60, 60]
    changes, checks = 0, []
    for events in events_of(tmp_path / "made"):
        tables = tables_of(events)
        rows = tables["isr_timeline"].to_pylist()
        changes += sum(row["state"] == "committed" and row["change"] in {"expand", "shrink"} for row in rows)
        checks += unmatched(tables["conformance"].to_pylist())
        assert not len(tables["data_loss_incidents"])
    assert (changes, checks) == (6 * FLAPS, [])
