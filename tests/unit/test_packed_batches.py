"""Losses of batches that were compressed, because a replica may stay away for long, are told like others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from histories_of_losses import COMMITTED, alone, replicated, tail, taken_over
from test_incident_goldens import GOLDENS, unpacked
from without_spark import events_of, tables_of

from pipelines.spark.saved_states import bytes_of, state_of
from replay.losses import loss_ledger
from replay.losses.append_stretches import AppendStretch, stretch_with
from replay.losses.loss_ledger import Ledger
from replay.losses.slots import Slots

if TYPE_CHECKING:
    from pathlib import Path

OLDER = [Slots(0, COMMITTED - 1, COMMITTED)]  # a record of epoch 0 that broker 2 has, too


@pytest.mark.parametrize("golden", GOLDENS, ids=[path.stem for path in GOLDENS])
def test_losses_of_compressed_batches_are_told_like_others(
    golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = events_of(unpacked(golden.read_text(encoding="utf-8"), tmp_path))
    expected = [tables_of(one) for one in events]
    monkeypatch.setattr(loss_ledger, "BATCHES_PACKED", 1)
    assert [tables_of(one, size=7) for one in events] == expected


def stretches_of(monkeypatch: pytest.MonkeyPatch) -> list[AppendStretch]:
    """What is noted of a history in which broker 2 leads, and answers a retry of a batch of the epoch before."""
    history = replicated()
    alone(history)
    tail(history)
    taken_over(history)
    history.produce(1600, 2, COMMITTED - 1)
    ledgers: list[Ledger] = []

    def noted(ledger: Ledger) -> None:
        ledgers.append(ledger)

    monkeypatch.setattr(Ledger, "pack", noted)
    tables_of(history.events(), size=2)
    monkeypatch.undo()
    return ledgers[-1].stretches


def test_a_retry_that_is_compressed_counts_for_the_batch_that_it_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    stretches = stretches_of(monkeypatch)
    assert [one.retried for one in stretches].count(True) == 1
    loose, tight = Ledger(produced=True), Ledger(produced=True)
    monkeypatch.setattr(loss_ledger, "BATCHES_PACKED", 1)
    for one in stretches:
        loose.stretches.append(one)
        tight.stretches.append(one)
        tight.pack()
    assert not tight.stretches[0].is_loose
    tight = state_of(bytes_of({"ledger": tight}))["ledger"]
    every = [Slots(0, 0, COMMITTED + 3), Slots(1, COMMITTED, COMMITTED + 1)]
    for lost in (OLDER, every[:1], every[1:], every):
        assert tight.account(lost, COMMITTED) == loose.account(lost, COMMITTED)
    assert loose.account(OLDER, COMMITTED)["acked_all"] == 1


def test_retries_are_compressed_together_only_if_the_same_log_answered_them(monkeypatch: pytest.MonkeyPatch) -> None:
    stretches = stretches_of(monkeypatch)
    (retry,) = (one for one in stretches if one.retried)
    plain = next(one for one in stretches if one.appends)
    other = stretch_with(retry.rows, {2: []})
    monkeypatch.setattr(loss_ledger, "BATCHES_PACKED", plain.appends + retry.appends + 1)
    ledger = Ledger(stretches=[plain, retry, plain, other, plain, plain, plain])
    ledger.pack()
    assert [one.is_loose for one in ledger.stretches] == [False, True, True, True, True]
    assert (ledger.stretches[0].held, ledger.stretches[0].retried) == (retry.held, True)
