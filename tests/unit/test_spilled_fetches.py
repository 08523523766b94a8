"""Sessions whose fetches wait in a file are rebuilt part by part: the rows are those of all fetches at once."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from facts_builder import at
from hypothesis import given, settings
from hypothesis import strategies as st
from test_session_states import TIMES, lines_of
from test_sessions import LINES

from pipelines.spark.buckets import divided
from pipelines.spark.packed import stream_of
from pipelines.stages import spilled_fetches
from pipelines.stages.spilled_fetches import Lines, SpilledFetches, epochs_in
from replay.arrays.columns import numbers
from replay.evidence.session_lines import SESSION_SCHEMA
from replay.evidence.sessions import rebuild_sessions

if TYPE_CHECKING:
    from collections.abc import Iterator

BROKERS = 2


@pytest.fixture(autouse=True)
def small_parts() -> Iterator[None]:
    with patch.multiple(spilled_fetches, HELD_BYTES=0, PART_ROWS=3, NOTED=1, STATES=0, WIDE=2):
        yield


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    """Fetches by their names."""
    names = [*rows[0], "fact_id"] if rows else ["fact_id", "broker_id", "ts", "partition", "hw"]
    schema = pa.schema([SESSION_SCHEMA.field(name) for name in names])
    return pa.Table.from_pylist([{**row, "fact_id": f"{k:05}"} for k, row in enumerate(rows)], schema)


def fetches_of(lines: list[Any], late: dict[int, int]) -> pa.Table:
    """Fetches that two brokers tell of, in sessions of the same numbers; `late`: lines with other stamps."""
    epochs = {(broker, session): -1 for broker in range(BROKERS) for session in range(3)}
    rows = []
    for number, ((session, step, every), told) in enumerate(lines):
        broker = number // 3 % BROKERS
        epochs[broker, session] += step
        epoch = epochs[broker, session] if session else 0
        said = {"session_epoch": epoch, "session_id": session if epoch else 0, "response_session_id": session}
        said |= {"connection": f"c{number % 2}", "correlation_id": number, "topic": "t", "broker_id": broker}
        stamp = None if number == late.get(-1) else at(100 * number + late.get(number, 0))
        once = {listed["partition"]: listed for listed in every}.values()  # as a line has each
        rows += [{**listed, **told, **said, "ts": stamp, "kind": "fetch", "max_wait_ms": 0} for listed in once]
    return table_of(rows)


def whole(facts: pa.Table) -> list[str]:
    """The rows of all fetches at once."""
    brokers = divided(numbers(facts["broker_id"]), facts)
    return lines_of([rows for _, mine in brokers for rows in rebuild_sessions(mine)])


def spilled(facts: pa.Table, seed: int, streams: int) -> list[str]:
    """The rows of fetches that came in some streams, in no order."""
    random = Random(seed)  # noqa: S311 - a test's choice
    of = np.array([random.randrange(streams) for _ in range(len(facts))], np.int64)
    fetches = SpilledFetches()
    for _, mine in sorted(divided(of, facts), key=lambda _: random.random()):
        fetches.add(pa.scalar(stream_of(mine)))
    return lines_of([*fetches.rebuilt()])


@settings(max_examples=100, deadline=None)
@given(
    lines=st.lists(st.tuples(LINES, TIMES), max_size=30),
    late=st.dictionaries(st.integers(-1, 30), st.integers(-1_000, 1_000), max_size=3),
    seed=st.integers(0, 2**32),
    streams=st.integers(1, 6),
)
def test_rows_are_those_of_all_fetches(lines: list[Any], late: dict[int, int], seed: int, streams: int) -> None:
    facts = fetches_of(lines, late)
    assert spilled(facts, seed, streams) == whole(facts)


def long_session(count: int, late: dict[int, int] | None = None) -> pa.Table:
    """One session of so many fetches; `late`: epochs with a later stamp, in milliseconds."""
    line = {"broker_id": 1, "kind": "fetch", "topic": "t", "partition": 0, "in_request": True, "connection": "c"}
    rows = [
        {**line, "ts": at(100 * epoch + (late or {}).get(epoch, 0)), "session_epoch": epoch,
         "session_id": 7 if epoch else 0, "response_session_id": 7, "correlation_id": epoch, "fetch_offset": epoch}
        for epoch in range(count)
    ]  # fmt: skip
    return table_of(rows)


@pytest.mark.parametrize(("late", "most"), [({}, 5), ({30: 2_000}, 30)])
def test_no_more_is_rebuilt_at_once_than_has_to_be(
    late: dict[int, int], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a line with a late stamp those before it are waited for, and no others."""
    sizes = []
    until = spilled_fetches.rebuilt_until

    def noted(facts: pa.Table, states: pa.Table | None) -> Any:
        sizes.append(len(facts))
        return until(facts, states)

    monkeypatch.setattr(spilled_fetches, "rebuilt_until", noted)
    facts = long_session(100, late)
    assert spilled(facts, 1, 4) == whole(facts)
    assert len(sizes) > 15
    assert max(sizes) <= most


@pytest.mark.parametrize("count", [1, 3, 10, 11])
def test_fetches_of_one_moment_are_one_part(count: int) -> None:
    facts = long_session(count, {epoch: -100 * epoch for epoch in range(count)})
    assert spilled(facts, 5, 3) == whole(facts)
    timeless = facts.set_column(
        facts.schema.get_field_index("ts"), "ts", pa.nulls(count, SESSION_SCHEMA.field("ts").type)
    )
    assert spilled(timeless, 5, 3) == whole(timeless)


def test_states_of_sessions_that_are_over_are_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    states = []
    until = spilled_fetches.rebuilt_until

    def noted(facts: pa.Table, before: pa.Table | None) -> Any:
        states.append(0 if before is None else len(before))
        return until(facts, before)

    monkeypatch.setattr(spilled_fetches, "rebuilt_until", noted)
    one, rows = long_session(4).to_pylist(), []
    for number in range(30):
        named = {"response_session_id": number + 1}
        told = [{**row, **named, "session_id": number + 1 if row["session_epoch"] else 0} for row in one]
        rows += [{**row, "ts": at(1_000 * number + 100 * row["session_epoch"])} for row in told]
    for row in rows:
        del row["fact_id"]
    facts = table_of(rows)
    assert spilled(facts, 2, 3) == whole(facts)
    assert max(states) <= 4  # of two sessions: what each has cached, and how far it has come


def test_where_sessions_may_be_cut() -> None:
    def entangled(*rows: tuple[int, int, int]) -> list[bool]:
        session, part, epoch = (np.array(column, np.int64) for column in zip(*rows, strict=True))
        return Lines(epochs_in(session, epoch, part), 4).entangled.tolist()[:4]

    assert entangled((7, 0, 1), (7, 1, 2), (7, 4, 3), (8, 0, 9), (8, 3, 10)) == [False] * 4
    assert entangled((7, 0, 1), (7, 1, 5), (7, 3, 4), (7, 4, 6)) == [False, True, True, False]
    assert entangled((7, 1, 5), (7, 2, 5)) == [False, True, False, False]  # which of them is first is not known
    assert entangled((7, 0, 9), (7, 1, 20), (7, 2, 21), (7, 4, 8)) == [True] * 4
    assert entangled((0, 0, 5), (0, 2, 1)) == [False] * 4  # without a session
