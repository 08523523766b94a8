"""Drafts and blocks as rows of `replication_events`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from replay.evidence.partition_facts import PartitionFacts
from replay.evidence.request_times import Window
from replay.order.event_ids import digest, numbered
from replay.order.event_rows import EventRows, completed
from replay.order.front import OP_CONTROL
from replay.order.operation_blocks import Block, Drafts, operations_of, said
from replay.order.operations import Draft, Operation


def no_facts() -> PartitionFacts:
    return PartitionFacts(topic="t", topic_id=None, incarnation=0, partition=0, rows=[], cluster=[])


def operation(us: int, place: int) -> Operation:
    """One event, inserted."""
    window = Window(us, us, us)
    return Operation(OP_CONTROL, window, [Draft("observation", None, window, {"broker_id": us})], place=place)


def block(times: list[int], places: list[int]) -> Block:
    """The same as columns, one event each."""
    us, numbers = np.array(times), np.arange(len(times))
    window = Window(us, us, us)
    windows = np.stack(window, axis=1)
    drafts = Drafts("observation", None, numbers[:0], windows, said(len(us), broker_id=us), (), numbers)
    return Block(np.array(places), operations_of(window, type=OP_CONTROL, first=numbers, count=1), [drafts])


def test_operations_of_a_chain_stand_by_place_those_of_one_place_as_they_came() -> None:
    rows = EventRows()
    rows.begin(no_facts())
    rows.add([Draft("observation", None, Window(0, 0, 0), {"broker_id": 0})])
    found = rows.add_chain(iter([operation(3, 1), operation(4, 1), block([2, 5], [0, 1]), operation(1, 0)]), 7)
    assert found["est"].tolist() == [1, 2, 3, 4, 5]
    assert set(found["chain"].tolist()) == {7}
    rows.close()
    assert rows.take(found["first"])["broker_id"].to_pylist() == [1, 2, 3, 4, 5]


def test_an_operation_of_a_block_by_itself_is_the_same_operation() -> None:
    alone = block([2, 5], [0, 1]).operations()[1]
    assert (alone.type, alone.window, alone.place) == (OP_CONTROL, Window(5, 5, 5), 1)
    assert [(draft.kind, draft.window, draft.fields) for draft in alone.drafts] == [
        ("observation", Window(5, 5, 5), {"broker_id": 5})
    ]


def test_columns_that_no_event_fills_are_null_and_those_of_the_partition_the_same_in_all() -> None:
    rows = completed(pa.table({"broker_id": pa.array([1, 2], pa.int32())}), topic="t")
    assert rows["topic"].to_pylist() == ["t", "t"]
    assert rows["broker_id"].to_pylist() == [1, 2]
    assert rows["hw"].null_count == 2


def test_events_of_one_name_are_numbered_in_their_order() -> None:
    once, twice = digest("once"), digest("twice")
    names = pa.chunked_array([pa.array([twice, once]), pa.array([twice])])
    assert numbered(names, np.array([2, 1, 0])).to_pylist() == [f"{twice}.1", once, twice]
    assert numbered(names.slice(0, 2), np.array([1, 0])).to_pylist() == [twice, once]
