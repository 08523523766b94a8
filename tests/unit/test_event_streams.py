"""Events that the order has staged spare the replay the table where they are all that it needs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.stages.event_streams import EventStreams, states_in, write_states
from pipelines.warehouse.changes import ALL_US
from replay.evidence.tenures import micros
from replay.tables.resumption import Resumption
from schemas.windows import REPLAY_CHECKPOINTS

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
FILES = (Path("events.parquet"),)


def state(partition: int, place: int, data: bytes = b"") -> dict[str, Any]:
    key = {"recording_id": "r", "topic": "t", "incarnation": 0, "partition": partition}
    return {**key, "place": place, "window": START + place * HOUR, "digest": "", "engine": "", "state": data}


def plan(*rows: dict[str, Any] | None) -> Resumption:
    """What to replay of partitions 0, 1, ...: each from its state, or from the start."""
    since = {("t", 0, partition): row for partition, row in enumerate(rows)}
    return Resumption(since, [], set(), is_everything=not any(rows))


def test_streams_of_all_events_serve_a_replay_of_all() -> None:
    streams = EventStreams(FILES)
    assert streams.are_all(None)
    assert streams.are_all(plan(None, None))
    assert not streams.are_all(plan(None, state(1, 2)))
    assert not EventStreams().are_all(None)
    assert not EventStreams(FILES, {}).are_all(plan(None))


def test_streams_serve_who_is_replayed_from_where_they_begin() -> None:
    begins = [micros(START + hours * HOUR) for hours in (2, 3, 4)]
    since = {("t", 0, 0): begins[0], ("t", 0, 1): begins[1], ("t", 0, 2): ALL_US, ("t", 0, 3): begins[2]}
    asked = plan(state(0, 2), state(1, 2), None, None, state(4, 4))
    # Partition 1 is replayed from an earlier window than its events begin with, 3 from the start; 4 has no news.
    assert EventStreams(FILES, since).suffice_for(asked) == {("t", 0, 0): begins[0], ("t", 0, 2): ALL_US}
    assert EventStreams(FILES).suffice_for(asked) == {("t", 0, 2): ALL_US, ("t", 0, 3): ALL_US}
    assert EventStreams((), since).suffice_for(asked) == {}


def test_states_to_go_on_from_reach_workers_by_way_of_a_file(tmp_path: Path) -> None:
    rows = [state(partition, place, bytes([partition, place]) * 50_000) for partition in range(12) for place in (2, 4)]
    tables = [tmp_path / "one.parquet", tmp_path / "two.parquet"]
    for table, some in zip(tables, (rows[:7], rows[7:]), strict=True):
        pq.write_table(pa.Table.from_pylist(some, REPLAY_CHECKPOINTS.arrow_schema).drop_columns("recording_id"), table)
    begun = {("t", 0, partition): 2 + partition % 2 * 2 for partition in range(1, 11)}
    write_states(tables, "r", begun, tmp_path / "staging" / "states.arrow")
    told = [*states_in(tmp_path / "staging" / "states.arrow")]
    assert [(row["recording_id"], row["partition"], row["place"]) for row in told] == [
        ("r", place[2], at) for place, at in begun.items()
    ]
    for row in told:
        assert row["window"] == START + row["place"] * HOUR
        assert bytes(row["state"]) == bytes([row["partition"], row["place"]]) * 50_000


def test_a_state_that_is_not_there_is_missed(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([state(0, 2)], REPLAY_CHECKPOINTS.arrow_schema).drop_columns("recording_id")
    pq.write_table(table, tmp_path / "one.parquet")
    with pytest.raises(RuntimeError, match="1 of 2 states"):
        write_states([tmp_path / "one.parquet"], "r", {("t", 0, 0): 2, ("t", 0, 1): 2}, tmp_path / "states.arrow")


def test_a_file_of_no_states_tells_none(tmp_path: Path) -> None:
    write_states([], "r", {}, tmp_path / "states.arrow")
    assert [*states_in(tmp_path / "states.arrow")] == []
