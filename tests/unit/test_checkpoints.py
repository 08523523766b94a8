"""Which states of the replay are kept from run to run."""

from __future__ import annotations

from itertools import accumulate
from random import Random
from typing import Any

import pytest

from pipelines.spark.saved_states import state_of
from pipelines.stages.checkpoints import STATE, Checkpoints
from replay.losses.loss_ledger import Ledger
from replay.order.windows import is_kept
from replay.tables.partitions import KEY

NAME = {"recording_id": "r", "topic": "t", "incarnation": 0, "partition": 0}
BETWEEN = 100


def states_after(counts: list[int], known: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The states that are kept after a replay of windows with so many events, from the newest known state on."""
    keeper = Checkpoints(BETWEEN)
    name = tuple(NAME[column] for column in KEY)
    begun = max(known, default=0)
    if known:
        keeper.given[name] = begun, 0, known[begun][STATE]
    keeper.state_of(name)
    for place, before in enumerate(accumulate(counts[:-1]), 1):
        if place > begun:
            keeper.keep(NAME, place, 0, {"last_seq": before - 1, "ledger": Ledger(internal=False)})
    keeper.end()
    kept = known | {row["place"]: row for row in keeper.made}
    return {place: row for place, row in kept.items() if is_kept(place, len(counts) - 1)}


@pytest.mark.parametrize("seed", range(20))
def test_hourly_runs_keep_the_states_of_one_run_and_always_a_near_one(seed: int) -> None:
    chosen = Random(seed)  # noqa: S311 - nothing secret
    counts = [chosen.choice([1, 10, 30, 60, 200]) for _ in range(200)]
    known: dict[int, dict[str, Any]] = {}
    end = 0
    while end < len(counts):
        end = min(end + chosen.randrange(1, 6), len(counts))
        known = states_after(counts[:end], known)
        assert known.keys() == states_after(counts[:end], {}).keys()
        newest = max(known, default=0)
        saved = sum(counts[newest:end])
        assert saved < 3 * BETWEEN + 3 * max(counts), "nearly all events before are those of a state"
    assert len(known) > 3


def test_of_a_partition_with_few_events_in_each_window_states_stay() -> None:
    known: dict[int, dict[str, Any]] = {}
    for hours in range(1, 200):
        known = states_after([BETWEEN // 3] * hours, known)
        assert hours - max(known, default=0) <= 4
        assert all(state_of(row[STATE])["last_seq"] + 1 == place * (BETWEEN // 3) for place, row in known.items())
