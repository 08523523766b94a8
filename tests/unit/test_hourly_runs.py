"""Runs over a growing recording write what one run over all of it writes, and only what is new."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hourly_runs import HourlyRuns, lines
from test_recordings import NAMES

from pipelines.intake.collect import collect
from pipelines.recording.recording import discover

if TYPE_CHECKING:
    from pathlib import Path

NEVER_EQUAL = ("replay_checkpoints",)  # a state is kept where a run had it
STEPS = 3


def facts_of(root: Path) -> tuple[pa.Table, dict[str, Any]]:
    recording = discover(str(root), recording_id=root.name)
    stated = {"kafka_version": recording.manifest.kafka, "broker_config": recording.manifest.broker_config}
    return collect(recording).facts, stated


def arrivals(facts: pa.Table, chosen: Random, steps: int) -> list[pa.Table]:
    """The facts that have come by each step: mostly by time, one broker late, some lines later still."""
    times = [None if ts is None else ts.timestamp() for ts in facts["ts"].to_pylist()]
    known = sorted(ts for ts in times if ts is not None)
    late = chosen.choice(sorted({b for b in facts["broker_id"].to_pylist() if b is not None}))
    step = []
    for ts, broker in zip(times, facts["broker_id"].to_pylist(), strict=True):
        k = steps if ts is None else 1 + int((ts - known[0]) / (known[-1] - known[0] + 0.001) * steps)
        k += (broker == late) + (chosen.random() < 0.001) * chosen.randrange(steps)
        step.append(min(k, steps))
    return [facts.filter(pa.array([one <= k for one in step])) for k in range(1, steps + 1)]


@pytest.mark.parametrize("name", NAMES[:1])
@pytest.mark.parametrize("seed", [1])
def test_runs_step_by_step_write_the_tables_of_one_run(recordings: Path, name: str, seed: int) -> None:
    facts, stated = facts_of(recordings / name)
    once, stepwise = HourlyRuns(), HourlyRuns()
    once.run(facts, stated)
    chosen = Random(seed)  # noqa: S311 - nothing secret
    for some in arrivals(facts, chosen, STEPS):
        stepwise.run(some, stated)
    for table in once.tables.keys() - NEVER_EQUAL:
        assert lines(stepwise.tables[table]) == lines(once.tables[table]), table
    assert sum(stepwise.replayed) < STEPS * sum(once.replayed)


def test_a_run_without_news_writes_and_replays_nothing(recordings: Path) -> None:
    facts, stated = facts_of(recordings / NAMES[0])
    runs = HourlyRuns()
    runs.run(facts, stated)
    before = dict(runs.tables)
    runs.run(facts.take(pa.array(range(len(facts) - 1, -1, -1))), stated)
    assert runs.written[1] == runs.replayed[1] == 0
    assert all(lines(runs.tables[name]) == lines(rows) for name, rows in before.items())
