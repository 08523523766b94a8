"""What became of segments: rolled, deleted and why, cleaned, copied to the remote tier; and what the log was then."""

from __future__ import annotations

from typing import Any

import pytest
from facts_builder import History, at, of_kind
from histories_of_losses import COMMITTED, replicated
from small_partition import A, led
from small_partition import at as placed
from without_spark import same_however_batched, tables_of

from pipelines.lookup.event_words import event_words
from replay.evidence.segments import REASONS, reason_of
from replay.protocol.high_watermark import may_rise_in_position
from replay.protocol.log import epoch_assign
from replay.tables.segment_rows import epochs_of
from schemas.offsets import DELETION_REASONS

REMOTE = "QSkWIceKQsSWpi6w6kP4eQ"


def told(history: History, ms: float, name: str, broker: int = 1, **fields: Any) -> None:
    """A line about a segment."""
    kind = "log_change" if name in ("segment_deleted", "compaction") else "segment_change"
    history.add(kind, ms, name=name, broker_id=broker, source_file=f"server-{broker}.log", **fields)


def segments(history: History, *names: str) -> list[tuple[Any, ...]]:
    rows = sorted(
        same_however_batched(history.events())["segment_timeline"].to_pylist(), key=lambda row: int(row["seq"])
    )
    return [tuple(row[name] for name in names) for row in rows]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("retention time 6000ms", "retention_time"),
        ("retention time 6000ms breach", "retention_time"),  # 2.4 to 2.6
        ("retention size 1000", "retention_size"),
        ("retention size in bytes 1000 breach", "retention_size"),  # 2.4 to 2.6
        ("log start offset", "log_start"),
        ("local log start offset", "local_log_start"),
        ("local log retention time 4000ms", "local_retention_time"),
        ("local log retention size 1000", "local_retention_size"),
        ("log-start-offset 900", "log_start"),
        ("leader-epoch-cache truncation", "leader_epochs"),
        ("something else", None),
        (None, None),
    ],
)
def test_why_a_segment_went_is_told_apart_in_every_versions_words(value: str | None, reason: str | None) -> None:
    assert reason_of(value) == reason
    assert {name for _, name in REASONS} == set(DELETION_REASONS)


def test_retention_by_time_and_by_size_are_told_apart_and_each_segment_has_its_end() -> None:
    history = replicated()
    told(history, 305, "segment_rolled", base_offset=1)
    told(history, 306, "segment_rolled", base_offset=2)
    told(history, 400, "segment_deleted", base_offset=0, value="retention time 6000ms")
    told(history, 401, "segment_deleted", base_offset=1, value="retention size 100")
    assert segments(history, "what", "base_offset", "next_offset", "reason", "ts")[2:] == [
        ("deleted", 0, 1, "retention_time", at(400)),
        ("deleted", 1, 2, "retention_size", at(401)),
    ]


def test_what_the_cleaner_went_over_is_told_and_no_loss() -> None:
    history = replicated()
    told(history, 400, "compaction", base_offset=0, offset=2)
    history.decide(1000, 2, [2])
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED)
    history.produce(1020, 2, COMMITTED, acks=1)
    assert segments(history, "what", "base_offset", "next_offset", "leader_epoch") == [("cleaned", 0, 2, 0)]
    assert tables_of(history.events())["data_loss_incidents"].to_pylist() == []


def test_the_hw_may_move_to_a_new_segment_without_its_offset_where_all_is_committed_as_it_is_rolled() -> None:
    s = placed(led(), leo=7, hw=7)
    assert may_rise_in_position(s, A, 7)
    s.hw[A] = 6
    assert not may_rise_in_position(s, A, 7)
    history = replicated()
    told(history, 320, "segment_rolled", base_offset=COMMITTED)
    told(history, 321, "segment_rolled", broker=2, base_offset=COMMITTED)
    assert segments(history, "broker_id", "what", "hw_position_may_rise") == [(1, "rolled", True), (2, "rolled", None)]


def test_lines_about_segments_change_the_order_of_nothing_else() -> None:
    plain, history = replicated(), replicated()
    for ms, broker in ((101, 1), (102, 2), (-5000, 2), (9000, 2)):
        told(history, ms, "segment_rolled", broker=broker, base_offset=1)
    kinds = [row["kind"] for row in history.events().to_pylist()]
    assert [kind for kind in kinds if kind != "segment_change"] == [r["kind"] for r in plain.events().to_pylist()]
    assert kinds.count("segment_change") == 4


def test_where_the_own_log_of_a_broker_starts_is_told_and_is_no_log_start_of_the_partition() -> None:
    history = replicated()
    told(history, 400, "local_log_start", offset=1)
    assert segments(history, "what", "broker_id", "local_log_start_offset") == [("local_log_start", 1, 1)]
    assert tables_of(history.events())["log_start_timeline"].num_rows == 0


def test_the_tier_has_what_was_copied_until_it_is_deleted_there() -> None:
    history = replicated()
    told(history, 305, "segment_rolled", base_offset=1)
    told(history, 400, "segment_copied", base_offset=0, text=REMOTE)
    told(history, 500, "remote_segment_deleted", broker=2, value="retention time 9ms", text=REMOTE)
    told(history, 501, "remote_segment_deleted", broker=2, value="retention time 9ms", text="another")
    names = ("what", "base_offset", "next_offset", "reason", "leader_epochs", "epoch_checkpoint")
    assert segments(history, *names)[1:] == [
        ("copied", 0, 1, None, [0], "0:0"),
        ("remote_deleted", 0, 1, "retention_time", None, None),
        ("remote_deleted", None, None, "retention_time", None, None),
    ]


def test_a_copied_segment_goes_with_the_epochs_of_the_log_up_to_its_end() -> None:
    s = placed(led(), leo=60)
    s.cache_len[A] = 0
    for epoch, start in ((2, 0), (3, 20), (5, 50)):
        epoch_assign(s, A, epoch, start)
    assert epochs_of(s, A, 0, 20) == {"leader_epochs": [2], "epoch_checkpoint": "2:0"}
    assert epochs_of(s, A, 10, 30) == {"leader_epochs": [2, 3], "epoch_checkpoint": "2:0 3:20"}
    assert epochs_of(s, A, 50, 60) == {"leader_epochs": [5], "epoch_checkpoint": "2:0 3:20 5:50"}
    s.cache_start[A, 0] = 5
    assert epochs_of(s, A, 0, 20) == {}  # whose records those before are is not known


def test_segments_of_a_future_log_are_not_the_partitions() -> None:
    history = replicated()
    told(history, 320, "segment_rolled", base_offset=1, log_dir="/data2/orders-0.0123-future")
    history.add("log_change", 310, name="future_created", broker_id=1, log_dir="/data2", source_file="server-1.log")
    assert segments(history, "what") == []


def test_what_became_of_a_segment_is_told_in_words() -> None:
    history = replicated()
    told(history, 305, "segment_rolled", base_offset=1)
    told(history, 310, "local_log_start", offset=1)
    told(history, 320, "segment_copied", base_offset=0, text=REMOTE)
    told(history, 330, "segment_deleted", base_offset=0, value="local log retention time 4000ms")
    assert [event_words(row) for row in of_kind(history.events(), "segment_change")] == [  # type: ignore[arg-type]
        "broker 1 begins a segment at 1",
        "broker 1's own log starts at 1; what lies before it is in the remote tier alone",
        "broker 1 copies the segment with offset 0 to the remote tier",
        "broker 1 deletes the segment with offset 0 (local retention time)",
    ]
