"""Rules are compiled in processes of their own, if no process has done so before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import pytest
from made_recording import MadeCluster
from made_shape import Shape
from without_spark import events_of, tables_of

from pipelines.parse.files import file_parser
from pipelines.parse.requests import scanned_facts, scanned_rows
from pipelines.stages import compiling
from replay.arrays import peeks
from replay.evidence import session_turns
from replay.order import merge, order
from replay.tables import partition_replay as replayer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_nothing_is_compiled_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "is_missing", lambda _rule: False)
    monkeypatch.setattr(compiling, "begun", lambda _what: pytest.fail("no process is needed"))
    assert compiling.begin()() is None
    compiling.compile_order("local[*]")
    compiling.compile_parse("local[*]")


def test_workers_elsewhere_compile_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "is_missing", lambda _rule: True)
    monkeypatch.setattr(compiling, "begun", lambda _what: pytest.fail("they would not find it"))
    compiling.compile_order("yarn")
    compiling.compile_parse("yarn")


@pytest.mark.parametrize("what", [compiling.PARSE, compiling.ORDER, compiling.REPLAY])
def test_a_process_of_its_own_does_what_takes_the_rules(what: str) -> None:
    assert compiling.begun(what)() == 0, "exit code"


RULES = (
    (scanned_rows, "find"), (scanned_facts, "scan"), (scanned_rows, "rows_of"), (merge, "merge"), (order, "follow"),
    (session_turns, "take_turns"), (replayer, "fold"),
)  # fmt: skip


def kinds_given(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, met: dict[str, set[Any]]) -> None:
    """Note the kinds of what a rule is given, as numba sees them."""
    rule: Callable[..., object] = getattr(place, name)

    def told(*given: object) -> object:
        met.setdefault(name, set()).add(tuple(map(numba.typeof, given)))
        return rule(*given)

    monkeypatch.setattr(place, name, told)


def kinds_met(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> dict[str, set[Any]]:
    """Return what each rule that Python calls is given in some work."""
    met: dict[str, set[Any]] = {}
    with monkeypatch.context() as here:
        for place, name in RULES:
            kinds_given(here, place, name, met)
        work()
    return met


def test_rules_are_compiled_for_what_they_are_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    MadeCluster(Shape(events=600, partitions=3), tmp_path / "made").write()
    monkeypatch.setattr(peeks, "IS_COMPILED", True)
    for least in ("SOME_BYTES", "MANY_BYTES"):
        monkeypatch.setattr(file_parser, least, 0)

    def work() -> None:
        for events in events_of(tmp_path / "made"):
            tables_of(events)

    def compiled() -> None:
        compiling.main(compiling.PARSE)
        compiling.main(compiling.ORDER)
        compiling.main(compiling.REPLAY)

    found = kinds_met(monkeypatch, work)
    assert found.keys() == {name for _, name in RULES}
    assert kinds_met(monkeypatch, compiled) == found
