"""The replay's rules are compiled in a process of its own, if no process has done so before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.stages import compiling
from replay.tables import partition_replay

if TYPE_CHECKING:
    import pytest


def test_nothing_is_compiled_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "is_missing", lambda _rule: False)
    assert compiling.begin()() is None


def test_a_process_of_its_own_replays_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "is_missing", lambda _rule: True)
    assert compiling.begin()() == 0, "exit code"


def test_what_it_replays_takes_every_rule_that_a_fold_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    folded = []
    fold = partition_replay.fold
    monkeypatch.setattr(partition_replay, "fold", lambda *given: folded.append(fold(*given)) or folded[-1])
    compiling.main()
    assert len(folded) == 1
