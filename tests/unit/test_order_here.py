"""What the driver orders itself: by other processes, where there is much of it, as by its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipelines.intake.collect import collect
from pipelines.recording.recording import discover
from pipelines.spark import buckets
from pipelines.stages import order

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = {"window_minutes": 1}


def test_several_processes_order_as_one(recordings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "BUCKET_ROWS", 6_000)
    facts = collect(discover(str(recordings / "last-replica"), recording_id="r")).facts
    alone = [*order.order_here(facts, SETTINGS)]
    monkeypatch.setattr(order, "FEW_FACTS", 0)
    monkeypatch.setattr(order, "PROCESSES", 2)
    together = [*order.order_here(facts, SETTINGS)]
    assert {name for name, _ in alone} >= {"replication_events", "event_windows"}
    assert [name for name, _ in together] == [name for name, _ in alone]
    assert all(one.equals(other) for (_, one), (_, other) in zip(together, alone, strict=True))


def test_a_fault_in_another_process_is_this_ones(recordings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = collect(discover(str(recordings / "last-replica"), recording_id="r")).facts
    monkeypatch.setattr(order, "FEW_FACTS", 0)
    monkeypatch.setattr(order, "PROCESSES", 2)
    monkeypatch.setattr(order, "ordered", int)
    with pytest.raises(TypeError):
        [*order.order_here(facts, SETTINGS)]
