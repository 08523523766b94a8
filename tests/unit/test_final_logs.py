"""Logs at the end: replicas that differ, and what the dumps say survived."""

from __future__ import annotations

import gzip
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from facts_builder import History, at, of_kind
from histories_of_losses import COMMITTED, acks_one_failure, alone, losses, replicated, tail, taken_over_from
from without_spark import events_of, tables_of

if TYPE_CHECKING:
    from pathlib import Path


def dumped(history: History, broker: int, *batches: tuple[int, int, int], **fields: Any) -> None:
    """Batches (leader epoch, first, last offset) on the broker's disk; crc by epoch and offset."""
    for epoch, first, last in batches:
        held = {"leader_epoch": epoch, "base_offset": first, "last_offset": last, "count": last - first + 1}
        place = {"broker_id": broker, "source_file": f"segments/node-{broker}/orders-0/0.dump.txt"}
        history.add("segment_batch", 50, **{"crc": 1000 * epoch + first, **held, **place, **fields})


def checkpointed(history: History, broker: int, hw: int) -> None:
    history.add("checkpoint", 60, broker_id=broker, name="replication-offset-checkpoint", offset=hw, hw=hw)


def divergences(history: History) -> list[dict[str, Any]]:
    return tables_of(history.events())["replica_divergences"].to_pylist()


def differing(history: History) -> list[tuple[int, int, int, int]]:
    """(broker_a, broker_b, first, last) of each row."""
    return [(r["broker_a"], r["broker_b"], r["first_offset"], r["last_offset"]) for r in divergences(history)]


def test_other_crc_at_the_same_offset_is_a_divergence() -> None:
    history = replicated()
    dumped(history, 1, (0, 0, 0), (0, 1, 1))
    dumped(history, 2, (0, 0, 0))
    dumped(history, 2, (0, 1, 1), crc=77)
    (row,) = divergences(history)
    assert (row["broker_a"], row["broker_b"], row["first_offset"], row["last_offset"], row["records"]) == (
        1,
        2,
        1,
        1,
        1,
    )
    assert (row["differs"], row["epoch_a"], row["epoch_b"], row["crc_a"], row["crc_b"]) == ("batch", 0, 0, 1, 77)
    assert (row["hw_a"], row["hw_b"], row["since_ts"], row["evidence"]) == (2, 2, None, "observed")


def test_other_extent_at_the_same_offset_is_a_divergence() -> None:
    history = replicated()
    dumped(history, 1, (0, 0, 0), (0, 1, 1))
    dumped(history, 2, (0, 0, 1))
    assert differing(history) == [(1, 2, 0, 1)]


def test_other_epoch_at_the_same_offset_is_a_divergence_since_the_newer_one() -> None:
    history = acks_one_failure()
    dumped(history, 1, (0, 0, 0), (0, 1, 1), (0, 2, 2))
    dumped(history, 2, (0, 0, 0), (0, 1, 1), (1, 2, 2))
    (row,) = divergences(history)
    assert (row["first_offset"], row["last_offset"], row["differs"]) == (2, 2, "epoch")
    assert (row["epoch_a"], row["epoch_b"], row["since_ts"]) == (0, 1, at(1000))


def test_what_lies_beyond_a_high_watermark_is_no_divergence() -> None:
    history = replicated()
    dumped(history, 1, (0, 0, 0), (0, 1, 1), (0, 2, 4))
    dumped(history, 2, (0, 0, 0), (0, 1, 1), (0, 2, 2), crc=5)
    checkpointed(history, 1, 5)
    found = differing(history)
    assert found == [(1, 2, 0, 1)]  # broker 2's high watermark is 2


def test_checkpoint_tells_the_high_watermark_that_the_logs_do_not() -> None:
    history = History()
    dumped(history, 1, (0, 0, 0), (0, 1, 1))
    dumped(history, 2, (0, 0, 0), (0, 1, 1), crc=9)
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    assert differing(history) == []
    checkpointed(history, 1, 2)
    checkpointed(history, 2, 1)
    assert differing(history) == [(1, 2, 0, 0)]


@pytest.mark.parametrize(
    "other",
    [
        [(0, 0, 0), (0, 1, 1)],  # the same
        [(0, 1, 1)],  # retention deleted the first
        [(0, 0, 0)],  # dumped earlier, or behind
        [],
    ],
)
def test_only_offsets_that_both_hold_are_compared(other: list[tuple[int, int, int]]) -> None:
    history = replicated()
    dumped(history, 1, (0, 0, 0), (0, 1, 1))
    dumped(history, 2, *other)
    assert differing(history) == []


def test_what_the_cleaner_rewrote_is_no_divergence() -> None:
    history = replicated()
    dumped(history, 1, (0, 0, 0), (0, 1, 1))
    dumped(history, 2, (0, 0, 0), (0, 1, 1), crc=77)
    assert differing(history) == [(1, 2, 0, 1)]
    history.add("config_change", 0, name="cleanup.policy", value="compact", metadata_offset=5, partition=None)
    assert differing(history) == []


def test_holes_tell_of_the_cleaner_where_no_setting_does() -> None:
    history = replicated()
    dumped(history, 1, (0, 0, 1))
    dumped(history, 2, (0, 0, 1), crc=77, count=1)
    assert differing(history) == []


def test_epochs_of_a_compacted_log_are_compared() -> None:
    history = acks_one_failure()
    dumped(history, 1, (0, 0, 1), (0, 2, 2), count=1)
    dumped(history, 2, (0, 0, 0), (0, 1, 1), (1, 2, 2))
    assert differing(history) == [(1, 2, 2, 2)]


@pytest.mark.parametrize("folder", ["orders-0.0123456789abcdef0123456789abcdef-delete", "orders-0-future"])
def test_logs_that_are_moved_or_deleted_are_not_compared(folder: str) -> None:
    history = replicated()
    dumped(history, 1, (0, 0, 0), (0, 1, 1))
    dumped(history, 2, (0, 0, 0), (0, 1, 1), crc=77, source_file=f"segments/node-2/{folder}/0.dump.txt")
    assert differing(history) == []


def test_a_dump_of_two_logs_is_not_compared() -> None:
    history = replicated()
    dumped(history, 1, (0, 0, 0), (0, 1, 1))
    dumped(history, 2, (0, 0, 1), (0, 1, 1), crc=77)
    assert differing(history) == []


def test_a_broker_outside_the_assignment_is_no_replica() -> None:
    history = replicated()
    dumped(history, 1, (0, 0, 0), (0, 1, 1))
    dumped(history, 3, (0, 0, 0), (0, 1, 1), crc=77)
    checkpointed(history, 3, 2)
    assert differing(history) == []


def left_behind() -> History:
    """Broker 1 alone commits three records, dies, and broker 2 is elected without them (unclean)."""
    history = replicated()
    alone(history)
    tail(history, acks=-1)
    history.fence(899, 1)
    history.decide(900, -1, [1])
    history.fence(950, 2, fenced=False)
    taken_over_from(history, epoch=2)
    history.produce(1030, 2, COMMITTED + 1, acks=-1)
    history.produce(1040, 2, COMMITTED + 2, acks=-1)
    return history


def test_log_of_a_broker_that_died_differs_from_its_successors() -> None:
    (row,) = divergences(left_behind())
    assert (row["broker_a"], row["broker_b"], row["epoch_a"], row["epoch_b"]) == (1, 2, 0, 2)
    assert (row["first_offset"], row["evidence"], row["crc_a"]) == (COMMITTED, "derived", None)
    assert row["last_offset"] < min(row["hw_a"], row["hw_b"])


def test_a_broker_that_was_back_may_have_been_cut_by_a_fetch_that_no_line_tells_of() -> None:
    history = left_behind()
    history.fence(2000, 1, fenced=False)
    history.fence(3000, 1)
    assert differing(history) == []


def test_dumps_win_over_the_replayed_logs() -> None:
    history = left_behind()
    same = [(0, 0, 0), (0, 1, 1)]
    dumped(history, 1, *same)
    dumped(history, 2, *same, (2, 2, 2), (2, 3, 3), (2, 4, 4))
    assert differing(history) == []


def test_what_the_last_leader_has_on_disk_is_not_lost() -> None:
    history = acks_one_failure()
    (row,) = losses(history)
    assert row["records"] == 3
    dumped(history, 2, (0, 0, 0), (0, 1, 1), (0, 2, 3), (1, 4, 4))
    (row,) = losses(history)
    assert (row["records"], row["first_offset"], row["acked_one"]) == (1, 4, 1)


def test_a_dump_older_than_the_end_gives_nothing_back() -> None:
    history = acks_one_failure()
    history.produce(1030, 2, COMMITTED + 1, acks=1)
    history.produce(1040, 2, COMMITTED + 4, acks=1)
    dumped(history, 2, (0, 0, 0), (0, 1, 1), (0, 2, 4))
    (row,) = losses(history)
    assert row["records"] == 3


def test_a_dump_older_than_the_end_shows_no_divergence_of_epochs() -> None:
    history = acks_one_failure()
    history.produce(1030, 2, COMMITTED + 1, acks=1)
    history.produce(1040, 2, COMMITTED + 4, acks=1)
    dumped(history, 1, (0, 0, 0), (0, 1, 1), (0, 2, 2))
    dumped(history, 2, (0, 0, 0), (0, 1, 1), (1, 2, 2))
    assert differing(history) == []


def test_an_acknowledged_record_whose_place_another_has_on_disk_is_lost() -> None:
    history = replicated()
    assert losses(history) == []
    dumped(history, 1, (0, 0, 0), (3, 1, 1))
    (row,) = losses(history)
    assert (row["mechanism"], row["acked_all"], row["records"]) == ("other", 1, 1)
    assert (row["old_leader_id"], row["new_leader_id"], row["new_leader_epoch"], row["lost_ts"]) == (1, None, 3, None)
    assert "dumped at the end" in row["explanation"]


@pytest.mark.parametrize(
    "batches",
    [
        [(0, 0, 0)],  # dumped earlier
        [(0, 1, 1)],  # deleted by retention
        [(0, 0, 0), (-1, 1, 1)],  # of an older epoch: dumped before it was appended
        [(0, 0, 0), (3, 2, 2)],  # a line of the dump is missing, or compaction removed it
    ],
)
def test_a_record_that_is_only_missing_on_disk_is_not_lost(batches: list[tuple[int, int, int]]) -> None:
    history = replicated()
    dumped(history, 1, *batches)
    assert losses(history) == []


def test_a_dump_is_told_in_runs_of_one_epoch() -> None:
    history = replicated()
    dumped(history, 1, *((0, k, k) for k in range(50)), (2, 50, 59), (2, 61, 61))
    found = [
        (r["leader_epoch"], r["base_offset"], r["next_offset"], r["evidence"])
        for r in of_kind(history.events(), "log_dump")
    ]
    assert found == [(0, 0, 50, "observed"), (2, 50, 62, "bounded")]


def test_a_batch_planted_in_a_recorded_dump_is_found(recordings: Path, tmp_path: Path) -> None:
    root = tmp_path / "last-replica"
    shutil.copytree(recordings / "last-replica", root)
    (dump,) = (root / "segments" / "node-2" / "ledger-0").glob("*.dump.txt*")
    planted(dump)
    rows = [row for events in events_of(root) for row in tables_of(events)["replica_divergences"].to_pylist()]
    assert {(r["broker_a"], r["broker_b"], r["first_offset"], r["crc_a"] == 1, r["crc_b"] == 1) for r in rows} == {
        (1, 2, 100, False, True),
        (2, 3, 100, True, False),
    }


def planted(dump: Path) -> None:
    """Give the batch at offset 100 another crc."""
    packed = dump.suffix == ".gz"
    text = gzip.decompress(dump.read_bytes()).decode() if packed else dump.read_text()
    changed, count = re.subn(r"(baseOffset: 100 .*? crc: )\d+", r"\g<1>1", text)
    assert count == 1
    dump.write_bytes(gzip.compress(changed.encode()) if packed else changed.encode())
