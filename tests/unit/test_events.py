"""Events of many partitions in one batch: read once, and handed to each partition as its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from replay.arrays.columns import Names
from replay.engine.codes import FETCH_UPDATE, KIND
from replay.engine.encode import brokers_of, encode, indices
from replay.engine.events import EventBatch, joined
from replay.protocol.state import NONE, UNSET
from replay.tables.follower_states import FETCHING, FollowerStates
from schemas.events import REPLICATION_EVENTS

if TYPE_CHECKING:
    from replay.arrays.ints import Flags, Ints

FETCH = {"kind": "fetch_update", "broker_id": 1, "replica_id": 2, "leader_epoch": 5, "error_code": 0}
ROWS = [
    {"kind": "append", "broker_id": 1, "client_id": "a", "next_offset": 3},
    FETCH,
    {"kind": "append", "broker_id": 7, "client_id": None, "next_offset": None},
    FETCH | {"broker_id": 7, "replica_id": 1},
    {"kind": "partition_change", "leader_id": 7, "isr": [1, 7], "replicas": [1, 7], "client_id": "b"},
]
BEGINS = [0, 2]  # two rows of one partition, three of another


def batch_of(rows: list[dict[str, object]], begins: list[int]) -> EventBatch:
    numbered = [{"seq": k, **row} for k, row in enumerate(rows)]
    return EventBatch(pa.Table.from_pylist(numbered, schema=REPLICATION_EVENTS.arrow_schema), begins)


def two() -> EventBatch:
    return batch_of(ROWS, BEGINS)


def is_fetch(batch: EventBatch) -> Flags:
    found: Flags = batch.events.kinds == FETCH_UPDATE
    return found


def test_what_is_read_of_a_batch_is_read_once_for_all_its_partitions() -> None:
    calls = []

    def ends(batch: EventBatch) -> Ints:
        calls.append(len(batch.events))
        return batch.events.numbers("next_offset", NONE)

    told = [events.read(ends).tolist() for events in two().partitions()]
    assert told == [[3, NONE], [NONE, NONE, NONE]]
    assert calls == [len(ROWS)]


def test_each_partition_is_handed_its_part_of_a_column() -> None:
    first, second = two().partitions()
    assert (len(first), len(second)) == (2, 3)
    assert first.numbers("broker_id", UNSET).tolist() == [1, 1]
    assert second.numbers("broker_id", UNSET).tolist() == [7, 7, UNSET]
    assert second.known("broker_id").tolist() == [True, True, False]
    assert second.kinds.tolist() == [KIND["append"], FETCH_UPDATE, KIND["partition_change"]]
    places, names = second.texts("client_id")
    assert [names[k] for k in places.tolist()] == ["", "", "b"]
    assert [row["seq"] for row in second.part(1, 3).rows] == [3, 4]
    assert second.part(1, 3).table().column("seq").to_pylist() == [3, 4]


def test_chosen_events_are_shared_out_to_the_partitions_that_they_are_of() -> None:
    found = [events.among(is_fetch, ("seq", "broker_id")) for events in two().partitions()]
    assert [one.table().to_pylist() for one in found] == [[{"seq": 1, "broker_id": 1}], [{"seq": 3, "broker_id": 7}]]
    assert [events.places_of(is_fetch).tolist() for events in two().partitions()] == [[1], [1]]


def test_single_events_of_several_partitions_come_together_in_their_order() -> None:
    first, second = two().partitions()
    both = joined([second.at(np.array([2, 0])), first.at(np.array([False, True]))])
    assert both.numbers("seq").tolist() == both.table(("seq",)).column("seq").to_pylist() == [4, 2, 1]
    assert both.at(both.numbers("seq") < 4).numbers("seq").tolist() == [2, 1]


def test_single_events_of_two_batches_do_not_come_together() -> None:
    with pytest.raises(ValueError, match="unpack"):
        joined([batch.events.at(np.array([0])) for batch in (two(), two())])


def test_a_name_has_one_code_however_often_it_is_met() -> None:
    names: Names[str] = Names(pa.string())
    assert [names.code_of(name) for name in ("b", "a", "b")] == [0, 1, 0]
    assert names.named(np.array([1, NONE, 0, 1])).to_pylist() == ["a", None, "b", "a"]
    assert names.named(np.array([], np.int64)).to_pylist() == []


def test_a_batch_without_rows_has_no_partitions() -> None:
    assert list(batch_of([], []).partitions()) == []
    assert len(batch_of([], []).partition_numbers()) == 0


def test_brokers_have_indices_of_their_own_in_each_partition() -> None:
    first, second = two().partitions()
    assert (brokers_of(first), brokers_of(second)) == ([1, 2], [1, 7])
    assert encode(first, [1, 2])["broker"].tolist() == [0, 0]
    told = encode(second, [1, 7])
    assert told["broker"].tolist() == [1, 1, NONE]
    assert told["isr"].tolist() == [UNSET, UNSET, 0b11]


def test_a_broker_of_a_lower_id_that_comes_later_has_the_next_index() -> None:
    assert indices(np.array([1, 2, 3, 4, NONE]), [1, 3, 2]).tolist() == [0, 2, 1, NONE, NONE]


def test_a_fetch_follows_no_fetch_of_another_partition() -> None:
    batch = batch_of([FETCH, FETCH, FETCH], [0, 2])
    for events, first in zip(batch.partitions(), (0, 2), strict=True):
        states = FollowerStates()
        states.take_all(events, lambda _broker, _seq: True)
        assert [(move["seq"], move["state"]) for move in states.moves] == [(first, FETCHING)]
