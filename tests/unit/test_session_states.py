"""Fetch sessions in two parts: the rows are those of all lines at once."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from facts_builder import at
from hypothesis import given, settings
from hypothesis import strategies as st
from test_session_turns import SCHEMA, Leader
from test_sessions import LINES, SILENT, Session

from replay.evidence.session_lines import SESSION_SCHEMA, EntangledError
from replay.evidence.session_states import rebuilt_from, rebuilt_until
from replay.evidence.sessions import sessions_rebuilt


def lines_of(tables: list[pa.Table]) -> list[str]:
    """The rows as text, sorted."""
    return sorted(repr(row) for table in tables for row in table.to_pylist())


def in_parts(facts: pa.Table, cuts: list[int]) -> list[pa.Table]:
    """The rows, made in parts that end at these times, in milliseconds."""
    facts = facts.sort_by("fact_id").combine_chunks()
    out: list[pa.Table] = []
    states: pa.Table | None = None
    since = at(-1_000_000)
    for ms in sorted(cuts):
        mine = pc.and_(pc.greater_equal(facts["ts"], since), pc.less(facts["ts"], at(ms)))
        some, states = rebuilt_until(facts.filter(mine).combine_chunks(), states)
        out += some
        since = at(ms)
    rest = facts.filter(pc.greater_equal(facts["ts"], since)).combine_chunks()
    assert states is not None
    return [*out, *rebuilt_from(rest, states)]


TIMES = st.fixed_dictionaries(
    {
        "total_us": st.integers(0, 900),
        "remote_us": st.integers(0, 900),
        "local_us": st.integers(0, 900),
        "bytes": st.sampled_from([0, 0, 500]),
        "hw": st.integers(0, 50),
        "fetch_offset": st.integers(0, 50),
        "replica_epoch": st.integers(-1, 3),
    }
)


@settings(max_examples=150, deadline=None)
@given(
    lines=st.lists(st.tuples(LINES, TIMES), max_size=25), cuts=st.lists(st.integers(-50, 3_000), min_size=1, max_size=3)
)
def test_rows_of_parts_are_those_of_all_lines(lines: list[Any], cuts: list[int]) -> None:
    epochs = {0: -1, 1: -1, 2: -1}
    rows = []
    for number, ((session, step, every), told) in enumerate(lines):
        epochs[session] += step
        epoch = epochs[session] if session else 0
        said = {"session_epoch": epoch, "session_id": session if epoch else 0, "response_session_id": session}
        said |= {"connection": f"c{number % 2}", "correlation_id": number, "ts": at(100 * number), "topic": "t"}
        once = {listed["partition"]: listed for listed in every}.values()  # as a line has each
        rows += [{**listed, **told, **said, "kind": "fetch", "max_wait_ms": 0} for listed in once]
    names = [*rows[0], "fact_id"] if rows else ["fact_id", "ts", "partition", "hw"]
    schema = pa.schema([SESSION_SCHEMA.field(name) for name in names])
    facts = pa.Table.from_pylist([{**row, "fact_id": f"{k:05}"} for k, row in enumerate(rows)], schema)
    assert lines_of(in_parts(facts, cuts)) == lines_of([*sessions_rebuilt(facts.combine_chunks())])


@pytest.mark.parametrize("ms", [50, 150, 250, 350, 450, 550, 650])
def test_a_run_that_goes_on_keeps_its_first_line(ms: int) -> None:
    session = Session().opened()
    for epoch in range(1, 5):
        session.send(100 * epoch, epoch)
    session.send(500, 5, {"fetch_offset": 12, "hw": 9})
    session.send(600, 6, {**SILENT, "replica_epoch": 9})
    facts = session.table()
    assert lines_of(in_parts(facts, [ms])) == lines_of([*sessions_rebuilt(facts.sort_by("fact_id").combine_chunks())])


def test_a_line_with_a_number_from_before_the_state_is_told() -> None:
    session = Session().opened()
    for epoch, ms in ((1, 100), (3, 200), (2, 300), (4, 400)):
        session.send(ms, epoch)
    with pytest.raises(EntangledError):
        in_parts(session.table(), [250])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("first", [3, 60])
def test_the_order_of_a_session_is_the_same_behind_a_long_history(first: int, seed: int) -> None:
    """Places in the order are compared with those of the later lines, of which there may be few."""
    random, leader = Random(seed), Leader()  # noqa: S311 - nothing secret
    leader.answer({}, asks=(0, 1, 2, 3))
    for _ in range(first + 3):
        leader.answer({one: random.choice([0, 100, 200]) for one in random.sample(range(4), 3)})
    facts = pa.Table.from_pylist([{**row, "fact_id": f"{k:05}"} for k, row in enumerate(leader.facts)], SCHEMA)
    found = in_parts(facts, [100 * (first + 1) - 50])
    assert lines_of(found) == lines_of([*sessions_rebuilt(facts.combine_chunks())])


def test_what_a_state_ranks_stands_before_what_came_to_the_end_since_however_many_lines_were_before_it() -> None:
    """Partition 0 is answered with records and asked for again: by then it is read behind partition 2."""
    session = Session()
    every = [{"partition": k, "fetch_offset": 10, "hw": 8, "api_version": 17} for k in range(3)]
    session.send(0, 0, *every, asked=0)
    for epoch in range(1, 60):
        session.send(100 * epoch, epoch, {**every[1 + epoch % 2], "bytes": 100})
    session.send(6_000, 60, {**every[0], "bytes": 900})
    session.send(6_100, 61, {**every[0], "in_response": False}, {**every[2], "in_request": False, "bytes": 70})
    facts = session.table().sort_by("fact_id").combine_chunks()
    whole = [*sessions_rebuilt(facts)]
    asked = [row for rows in whole for row in rows.to_pylist() if row["ts"] == at(6_100) and row["partition"] == 0]
    assert [row["bytes_before"] for row in asked] == [70]
    assert lines_of(in_parts(facts, [5_950])) == lines_of(whole)
