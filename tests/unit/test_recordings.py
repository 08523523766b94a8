"""Real recordings against what really happened: timelines by the brokers' TRACE lines, losses as clients saw them."""

from __future__ import annotations

import gzip
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from without_spark import events_and_tables_of, events_of, tables_of

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("last-replica", "unclean-election")


@pytest.fixture(scope="module", params=NAMES)
def replayed(
    request: pytest.FixtureRequest, recordings: Path
) -> tuple[dict[str, dict[str, list[dict[str, Any]]]], Any]:
    truth = json.loads(gzip.decompress((recordings / f"{request.param}.truth" / "brokers.json.gz").read_bytes()))
    tables = {}
    for events, found in events_and_tables_of(recordings / request.param):
        name = f"{events['topic'][0].as_py()}-{events['partition'][0].as_py()}"
        if name in truth["partitions"]:
            tables[name] = {table: rows.to_pylist() for table, rows in found.items()}
    return tables, truth["partitions"]


def test_leaders_high_watermarks_are_the_brokers(replayed: Any) -> None:
    tables, truth = replayed
    for name, found in tables.items():
        ours = {(r["broker_id"], r["leader_epoch"], r["hw"]) for r in found["hw_timeline"] if r["role"] == "leader"}
        theirs = {(b, epoch, hw) for _, b, epoch, hw in truth[name]["leader_hw"] if epoch >= 0}
        assert len(theirs - ours) <= 2, name  # of thousands: also right after an ISR change that a line dates
        assert len(ours - theirs) <= 2, name


def test_ordered_by_the_leaders_own_lines_the_engine_has_every_hw_that_they_state(replayed: Any) -> None:
    tables, _ = replayed
    checks = [r for found in tables.values() for r in found["conformance"] if r["check"] == "leader_hw_by_lines"]
    assert sum(row["compared"] for row in checks) > 1000
    assert all(row["matched"] == row["compared"] for row in checks)


def test_followers_high_watermarks_are_the_brokers(replayed: Any) -> None:
    tables, truth = replayed
    for name, found in tables.items():
        ours = {
            (r["broker_id"], r["leader_epoch"], r["hw"])
            for r in found["hw_timeline"]
            if r["role"] == "follower" and r["step"] != "role" and r["leader_epoch"] is not None
        }
        theirs = {(b, epoch, hw) for _, b, epoch, hw in truth[name]["follower_hw"] if epoch >= 0}
        assert len(theirs - ours) <= max(0.005 * len(theirs), 2), name


def test_every_truncation_is_found_and_none_made_up(replayed: Any) -> None:
    tables, truth = replayed
    for name, found in tables.items():
        ours = {(r["broker_id"], r["leo_before"], r["leo_after"]) for r in found["log_truncations"]}
        assert ours == {(b, before, after) for _, b, before, after, _ in truth[name]["truncations"]}, name


def test_committed_isr_states_are_the_controllers(replayed: Any) -> None:
    tables, truth = replayed
    for name, found in tables.items():
        ours = {
            (r["leader_epoch"], r["partition_epoch"], tuple(r["isr"]))
            for r in found["isr_timeline"]
            if r["state"] == "committed"
        }
        assert ours == {(s[2], s[3], tuple(sorted(s[4]))) for s in truth[name]["state"]}, name


def test_replicas_do_not_differ_on_disk(replayed: Any) -> None:
    tables, _ = replayed
    assert [row for found in tables.values() for row in found["replica_divergences"]] == []


def test_lost_records_are_the_ones_that_clients_lost(replayed: Any) -> None:
    tables, truth = replayed
    for name, found in tables.items():
        incidents = found.get("data_loss_incidents", [])
        for column, acks in (("acked_all", "all"), ("acked_one", "1")):
            want = sum(span["acks"].get(acks, 0) for span in truth[name]["lost_slot"])
            assert sum(row[column] for row in incidents) == want, name


def test_every_row_says_how_it_is_known_and_keys_are_unique(replayed: Any) -> None:
    tables, _ = replayed
    for found in tables.values():
        for table, rows in found.items():
            if table != "conformance":
                assert all(row["evidence"] for row in rows)
        keys = [(r["seq"], r["broker_id"], r["step"]) for r in found["hw_timeline"]]
        assert len(keys) == len(set(keys))


def test_batches_of_events_may_be_of_any_size(recordings: Path) -> None:
    for events in events_of(recordings / "last-replica"):
        whole = tables_of(events, size=1_000_000)
        for size in (7, 1000):
            assert tables_of(events, size=size) == whole


@pytest.mark.parametrize("check", ["fetch_completion", "commit_before_ack"])
def test_purgatories_agree_with_the_brokers_own_durations(replayed: Any, check: str) -> None:
    tables, _ = replayed
    rows = [row for found in tables.values() for row in found["conformance"] if row["check"] == check]
    compared, matched = (sum(row[name] for row in rows) for name in ("compared", "matched"))
    assert compared > 200
    assert matched >= 0.99 * compared


def test_every_fetch_is_explained(replayed: Any) -> None:
    tables, _ = replayed
    reasons = [row["completed_by"] for found in tables.values() for row in found["fetch_rounds"]]
    assert len(reasons) > 1000
    assert reasons.count("unknown") == 0
    assert reasons.count("throttled") == 0


def test_every_batch_answered_without_error_was_committed_first(replayed: Any) -> None:
    tables, _ = replayed
    good = [row for found in tables.values() for row in found["commit_latency"] if row["error_code"] == 0]
    assert len(good) > 200
    assert all(row["append_ts"] <= row["commit_ts"] <= row["ack_ts"] for row in good)
    assert all(row["last_replica_id"] is not None for row in good if row["committed_by"] == "fetch")


def test_without_metadata_nothing_is_made_up(recordings: Path, tmp_path: Path) -> None:
    root = tmp_path / "last-replica"
    shutil.copytree(recordings / "last-replica", root)
    (root / "cluster-metadata.dump.txt.gz").unlink()
    (root / "MANIFEST.json").unlink()
    rows = [row for events in events_of(root) for row in tables_of(events)["data_loss_incidents"].to_pylist()]
    assert all(row["first_offset"] >= 3355 for row in rows)
