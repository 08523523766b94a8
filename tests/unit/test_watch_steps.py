"""What is logged and kept of a run's steps, without a session of Spark."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any

import pytest

from pipelines.spark.spent import Tasks
from pipelines.stages import watch as watching
from pipelines.stages.watch import LOG, Watch

if TYPE_CHECKING:
    from collections.abc import Iterator


class Kept(logging.Handler):
    """Keeps what is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append({**record.told, "message": record.getMessage()})  # type: ignore[attr-defined]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    used = iter([{"driver": 1.0, "jvm": 5.0}, {"driver": 1.5, "jvm": 7.25}])
    monkeypatch.setattr(watching, "last_stage", lambda _spark: 7)
    monkeypatch.setattr(watching, "cpu_seconds", lambda _spark: next(used))
    monkeypatch.setattr(watching, "tasks_since", lambda _spark, stage: Tasks(stage, 0, 3.5, 0.5))
    monkeypatch.setattr(watching, "tasks_in_hand", lambda _spark: (2, 8))
    monkeypatch.setattr(watching, "LOOK_EVERY_S", 0.01)
    handler, before = Kept(), (LOG.handlers[:], LOG.level)
    LOG.handlers[:] = [handler]
    LOG.setLevel(logging.INFO)
    yield handler
    LOG.handlers[:], LOG.level = before


def watch() -> Watch:
    return Watch(None, "prod", "a-run")  # type: ignore[arg-type]


def test_a_step_is_told_as_it_starts_and_ends_with_what_it_cost(kept: Kept) -> None:
    ours = watch()
    with ours.step("parse") as counts:
        counts["lines"] = 12_000
    first, *_, last = kept.told
    assert (first["event"], first["step"], first["run_id"], first["recording_id"]) == (
        "step_started",
        "parse",
        "a-run",
        "prod",
    )
    assert last["event"] == "step_ended"
    assert last["counts"] == {"lines": 12_000}
    assert last["message"].endswith("s  12,000 lines")
    cost = ours.costs["parse"]
    assert (cost["tasks"], cost["task_seconds"], cost["cpu_seconds"]) == (7, 3.5, {"driver": 0.5, "jvm": 2.25})
    assert json.dumps(cost)


def test_a_step_that_fails_is_told_and_its_cost_kept(kept: Kept) -> None:
    ours = watch()
    with pytest.raises(ValueError, match="odd"), ours.step("parse"):
        raise ValueError("odd")
    assert kept.told[-1]["failed"] is True
    assert "failed after" in kept.told[-1]["message"]
    assert ours.costs["parse"]["seconds"] >= 0
    assert "step" not in ours.about


def test_a_long_step_says_how_far_it_is(kept: Kept) -> None:
    with watch().step("order"):
        time.sleep(0.2)
    looks = [one for one in kept.told if one["event"] == "progress"]
    assert looks
    assert all((one["done"], one["total"], one["unit"]) == (2, 8, "tasks") for one in looks)
    assert all("2 of 8 tasks" in one["message"] for one in looks)
    assert kept.told[-1]["event"] == "step_ended"
