"""The replay stage between Spark's batches and the engine: partitions that share batches, rows that travel packed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from histories_of_losses import acks_one_failure
from without_spark import tables_of

from pipelines.spark.packed import packed, unpacked
from pipelines.stages.replay import UNREAD, replay_partitions
from schemas.tables import REPLAY_TABLES, TABLES

if TYPE_CHECKING:
    from facts_builder import History

PARTITIONS = 5


def numbered(history: History, partition: int) -> pa.Table:
    """The events of a history, as of a partition of that number."""
    events = history.events()
    place = events.column_names.index("partition")
    numbers = pa.array([partition] * len(events), events.schema.field(place).type)
    named = events.set_column(place, events.schema.field(place), numbers)
    return named.add_column(0, "recording_id", pa.array(["r"] * len(events), pa.string()))


def alone(events: pa.Table) -> dict[str, list[object]]:
    """One partition's rows by table, replayed by itself."""
    return {name: rows.to_pylist() for name, rows in tables_of(events).items()}


def rows_of(batches: list[pa.RecordBatch], name: str) -> list[object]:
    """One table's rows out of the stream of all."""
    mine = [batch for batch in batches if batch.column("output")[0].as_py() == name]
    return [row for batch in unpacked(mine, TABLES[name].arrow_schema) for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def events() -> list[pa.Table]:
    return [numbered(acks_one_failure(), number) for number in range(PARTITIONS)]


@pytest.mark.parametrize("size", [7, 10_000])
def test_partitions_that_share_batches_tell_what_each_tells_alone(events: list[pa.Table], size: int) -> None:
    batches = pa.concat_tables(events).combine_chunks().to_batches(max_chunksize=size)
    told = list(replay_partitions(iter(batches)))
    apart = [alone(one) for one in events]
    for table in REPLAY_TABLES:
        assert rows_of(told, table.name) == [row for one in apart for row in one.get(table.name, [])], table.name
    assert len(rows_of(told, "data_loss_incidents")) == PARTITIONS


def test_small_partitions_share_the_streams_that_go_back(events: list[pa.Table]) -> None:
    told = list(replay_partitions(pa.concat_tables(events).combine_chunks().to_batches()))
    outputs = [name for batch in told for name in batch.column("output").to_pylist()]
    assert outputs == sorted(set(outputs))


def test_events_out_of_order_are_refused(events: list[pa.Table]) -> None:
    turned = events[0].take(list(range(len(events[0])))[::-1])
    with pytest.raises(RuntimeError, match="seq order"):
        list(replay_partitions(turned.combine_chunks().to_batches()))


def test_a_partition_that_comes_in_two_parts_is_refused(events: list[pa.Table]) -> None:
    parts = [events[0].slice(0, 5), events[1], events[0].slice(5)]
    with pytest.raises(RuntimeError, match="seq order"):
        list(replay_partitions(pa.concat_tables(parts).combine_chunks().to_batches()))


def test_what_the_engine_is_not_given_it_does_not_ask_for(events: list[pa.Table]) -> None:
    whole = pa.concat_tables(events).combine_chunks()
    told = [list(replay_partitions(one.to_batches())) for one in (whole, whole.drop_columns(list(UNREAD)))]
    assert told[0] == told[1]


def test_streams_are_unpacked_as_far_as_asked_and_filled_up() -> None:
    narrow = pa.table({"a": [1, 2], "b": ["x", "y"]})
    other = pa.table({"b": ["z"], "c": [3.0]})
    sent = [batch for rows in (narrow, other) for batch in packed({"some": [rows]})]
    schema = pa.schema([pa.field("b", pa.string()), pa.field("a", pa.int64()), pa.field("d", pa.bool_())])
    found = pa.Table.from_batches(unpacked(sent, schema))
    assert found.schema == schema
    assert found.to_pylist() == [
        {"b": "x", "a": 1, "d": None},
        {"b": "y", "a": 2, "d": None},
        {"b": "z", "a": None, "d": None},
    ]
