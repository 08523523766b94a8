"""Windows of events, their digests, the states kept between them, and from where a replay goes on."""

from __future__ import annotations

import os
import pickle
import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zstandard

from pipelines.spark.saved_states import bytes_of, state_of
from pipelines.warehouse.changes import ALL_US, Changes
from replay.arrays.digests import row_hashes, sum_of, sums_of
from replay.order.operation_blocks import EVENT_SCHEMA
from replay.order.windows import Boundary, Windows, is_kept, starts_of
from replay.protocol.state import new_state
from replay.tables.resumption import WHOLE, resumed
from schemas.incidents import CONFORMANCE
from schemas.offsets import LEO_TIMELINE

MINUTE = 60_000_000


def events(*minutes: float, **more: list[Any]) -> pa.Table:
    told = {"seq": range(len(minutes)), "ts": [int(minute * MINUTE) for minute in minutes], **more}
    columns = {name: pa.array(values, EVENT_SCHEMA.field(name).type) for name, values in told.items()}
    nulls = {field.name: pa.nulls(len(minutes), field.type) for field in EVENT_SCHEMA if field.name not in columns}
    return pa.table({**columns, **nulls}).select(EVENT_SCHEMA.names).cast(EVENT_SCHEMA)


def test_a_window_begins_where_time_first_reaches_its_slot_and_never_falls_back() -> None:
    windows = Windows(MINUTE)
    told = windows.take(events(0.5, 1.5, 0.9, 1.2, 3.0, 2.0))
    assert [w.timestamp() / 60 for w in told["window"].to_pylist()] == [0, 1, 1, 1, 3, 3]
    assert [(one.place, one.window // MINUTE, one.seq) for one in windows.boundaries] == [
        (0, 0, 0),
        (1, 1, 1),
        (2, 3, 4),
    ]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_windows_and_digests_do_not_depend_on_the_pieces_that_events_come_in(size: int) -> None:
    every = events(0.1, 0.2, 1.0, 1.1, 2.5, 2.6, 7.0, cause=[None, "a", "b", "ab", "", "c", "a"])
    whole, pieces = Windows(MINUTE), Windows(MINUTE)
    at_once = whole.take(every)
    parts = [pieces.take(every.slice(first, size)) for first in range(0, len(every), size)]
    assert pa.concat_tables(parts).equals(at_once)
    assert (pieces.boundaries, pieces.total, pieces.count) == (whole.boundaries, whole.total, 7)


@pytest.mark.parametrize("place", [1, 2, 3])
def test_windows_that_go_on_from_a_boundary_are_those_of_the_whole(place: int) -> None:
    every = events(0.1, 0.2, 1.0, 0.9, 2.5, 2.6, 7.0, 6.0, cause=[None, "a", "b", "ab", "", "c", "a", "b"])
    whole = Windows(MINUTE)
    told = whole.take(every)
    at = whole.boundaries[place]
    going = Windows.going_on(MINUTE, [whole.boundaries[0], at])
    assert going.take(every.slice(at.seq)).equals(told.slice(at.seq))
    assert (going.total, going.count, going.boundaries[1:]) == (whole.total, 8, whole.boundaries[place:])
    assert [one.place for one in going.kept] == [one.place for one in whole.kept if one.place in {0, *range(place, 4)}]


def test_an_event_that_differs_changes_the_digests_behind_it_and_none_before() -> None:
    one, other = Windows(MINUTE), Windows(MINUTE)
    one.take(events(0.0, 1.0, 2.0, 3.0, leo=[1, 2, 3, 4]))
    other.take(events(0.0, 1.0, 2.0, 3.0, leo=[1, 2, 9, 4]))
    assert [a == b for a, b in zip(one.boundaries, other.boundaries, strict=True)] == [True, True, True, False]
    assert one.latest_shared(other.boundaries) == one.boundaries[2]
    assert one.total != other.total


def test_the_seq_alone_makes_no_difference() -> None:
    assert (row_hashes(events(1.0, 2.0), ("seq",)) == row_hashes(events(1.0, 2.0, seq=[7, 8]), ("seq",))).all()


def test_kept_boundaries_are_few_and_one_that_is_dropped_never_comes_back() -> None:
    kept = [{k for k in range(last + 1) if is_kept(k, last)} for last in range(2000)]
    assert all(later <= earlier | {last + 1} for last, (earlier, later) in enumerate(pairwise(kept)))
    assert all({0, last, max(last - 1, 0)} <= one for last, one in enumerate(kept))
    assert max(map(len, kept)) <= 2 * np.log2(2000)


def test_windows_go_on_where_a_batch_did_not_begin_one() -> None:
    assert starts_of(np.array([5, 5, 6]), None).tolist() == [0, 2]
    assert starts_of(np.array([5, 5, 6]), 5).tolist() == [2]
    assert starts_of(np.array([], np.int64), None).tolist() == []


def test_hashes_see_values_and_their_columns_but_neither_chunks_nor_empty_columns() -> None:
    rows = pa.table({"a": [1, None, 3], "b": [None, "x", "yy"], "c": [[1], None, [2, 3]], "d": [True, False, None]})
    apart = pa.concat_tables([rows.slice(0, 1), rows.slice(1)]).append_column("e", pa.nulls(3, pa.string()))
    assert (row_hashes(rows) == row_hashes(apart.select(["e", "d", "c", "b", "a"]))).all()
    swapped = pa.table({"b": [1], "a": [2]})
    assert row_hashes(swapped)[0] != row_hashes(pa.table({"a": [1], "b": [2]}))[0]
    assert len(set(row_hashes(pa.table({"t": ["", "\0", "a", "a\0", "ab", None]})).tolist())) == 6
    assert sum_of(row_hashes(rows)) == sum_of(row_hashes(rows.take([2, 0, 1])))
    apart_too = [sum_of(row_hashes(rows.slice(0, 2))), sum_of(row_hashes(rows.slice(2)))]
    assert sums_of(row_hashes(rows), np.array([0, 2])) == apart_too


def test_a_state_comes_back_as_it_was_with_its_fields_in_one_memory() -> None:
    state = new_state(3, min_isr=2, lag_us=5)
    state.leo[1], state.remote_leo[0, 2] = 7, 9
    shared = [1]
    back = state_of(
        bytes_of({"state": state, "rows": pa.table({"a": [1], "b": pa.nulls(1)}), "one": shared, "two": shared})
    )
    assert (back["state"].leo.tolist(), int(back["state"].remote_leo[0, 2])) == ([0, 7, 0], 9)
    back["state"].leo[0] = 4
    assert back["state"].broker[0, 0] == 4  # the block that compiled rules are given
    assert back["state"].partition[0].min_isr == 2
    assert back["one"] is back["two"]
    assert back["rows"].to_pylist() == [{"a": 1, "b": None}]


def long_state() -> dict[str, Any]:
    """A state of many megabytes, in pieces large and small."""
    numbers, words = np.arange(100_000), pa.array([f"word {k % 7}" for k in range(100_000)])
    rows = [pa.table({"n": numbers + k, "w": words.dictionary_encode()}) for k in range(6)]
    return {"rows": rows, "first": rows[0], "cut": rows[0].slice(7, 5), "n": numbers, "none": np.zeros(0), "t": "text"}


def test_a_long_state_comes_back_as_it_was() -> None:
    state = long_state()
    data = bytes_of(state)
    back = state_of(data)
    assert all(one.equals(other) for one, other in zip(back["rows"], state["rows"], strict=True))
    assert back["rows"][0].schema == state["rows"][0].schema  # in short or in full, as it was
    assert back["first"] is back["rows"][0]
    assert back["cut"].to_pylist() == state["cut"].to_pylist()
    assert (back["n"].tolist(), back["none"].tolist(), back["t"]) == (list(range(100_000)), [], "text")
    assert bytes_of(back) == data
    whole = zstandard.ZstdCompressor().compress(zstandard.ZstdDecompressor().decompressobj().decompress(data))
    assert state_of(whole).keys() == state.keys()  # as states were written at first, long ones too


def test_a_long_state_is_in_memory_once_while_it_is_written() -> None:
    state = long_state()
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        data = bytes_of(state)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    written = len(zstandard.ZstdDecompressor().decompressobj().decompress(data))
    assert peak < written
    assert pa.total_allocated_bytes() == before


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("true",)


class Named:
    """Is written as the bytes say that name another module's function."""

    def __init__(self, module: str, name: str) -> None:
        self.name = f"c{module}\n{name}\n."

    def __bytes__(self) -> bytes:
        return self.name.encode()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("replay.arrays.digests", "np.load"),  # by way of a module that is imported there
        ("replay.arrays.digests", "row_hashes.__globals__"),  # by way of an attribute
        ("replay.arrays.digests", "np"),
        ("replay.arrays.records", "cast"),  # defined elsewhere
        ("pipelines.spark.saved_states", "bytes_of"),
    ],
)
def test_bytes_that_name_a_thing_by_way_of_the_engine_are_refused(module: str, name: str) -> None:
    data = zstandard.ZstdCompressor().compress(bytes(Named(module, name)))
    with pytest.raises(pickle.UnpicklingError, match="no state holds"):
        state_of(data)


@pytest.mark.parametrize("value", [Harmful(), os.system, np.load])
def test_bytes_that_name_anything_but_a_state_are_refused(value: object) -> None:
    data = zstandard.ZstdCompressor().compress(pickle.dumps({"state": value}))
    with pytest.raises(pickle.UnpicklingError, match="no state holds"):
        state_of(data)


def windows_of(*digests: str, total: str, partition: int = 0) -> list[dict[str, Any]]:
    same = {"topic": "t", "incarnation": 0, "partition": partition, "total": total}
    return [{**same, "place": place, "window": place, "digest": digest} for place, digest in enumerate(digests)]


def states_of(*digests: str, whole: str | None, engine: str = "e") -> list[dict[str, Any]]:
    rows = [{**row, "engine": engine} for row in windows_of(*digests, total="") if row["place"]]
    mark = {**windows_of("", total="")[0], "place": WHOLE, "window": None, "digest": whole, "engine": engine}
    return rows if whole is None else [*rows, mark]


def test_a_partition_whose_events_are_those_of_its_tables_is_left_alone() -> None:
    assert resumed(windows_of("", "a", total="x"), states_of("", "a", whole="x"), "e").since == {}


@pytest.mark.parametrize(
    ("states", "place"),
    [
        (states_of("", "a", "b", whole="x"), 2),  # the same events lie before the newest window
        (states_of("", "a", "other", whole="x"), 1),
        (states_of("", "other", "other", whole="x"), None),
        (states_of("", "a", "b", whole="x", engine="another"), None),
        (states_of("", "a", "b", whole=None), None),  # a run that was killed while it wrote
    ],
)
def test_a_replay_goes_on_from_the_newest_state_that_is_still_good(
    states: list[dict[str, Any]], place: int | None
) -> None:
    plan = resumed(windows_of("", "a", "b", total="y"), states, "e")
    (row,) = plan.since.values()
    assert (row and row["place"]) == place
    assert plan.is_everything is (place is None)


def test_a_replay_goes_on_from_where_events_begin_to_differ_though_that_window_is_not_kept() -> None:
    kept, states = windows_of("", "a", "b", "c", total="y"), states_of("", "a", "b", whole="x")
    without = [row for row in kept if row["place"] != 2]
    (old,) = resumed(without, states, "e").since.values()
    assert old
    assert old["place"] == 1
    for shared, place in ((kept[2], 2), ({**kept[2], "digest": "other"}, 1), ({**kept[2], "window": 7}, 1)):
        plan = resumed(without, states, "e", [shared])
        (row,) = plan.since.values()
        assert row
        assert row["place"] == place
        assert plan.given_up == {("t", 0, 0, 2)}  # of a window that is not kept no state is, either


def test_partitions_without_events_are_gone_from_the_tables() -> None:
    assert resumed(windows_of("", total="y", partition=1), states_of("", whole="x"), "e").gone == [("t", 0, 0)]


def test_a_change_replaces_windows_where_a_table_has_them_and_whole_partitions_elsewhere() -> None:
    some = Changes({("a'b", 0, 1): 60_000_000, ("c", 1, 2): 120_000_000})
    assert "window >= TIMESTAMP '1970-01-01 00:01:00.000000Z'" in some.condition(LEO_TIMELINE)
    assert "window" not in some.condition(CONFORMANCE)
    whole = Changes({("c", 1, 2): ALL_US, ("d", 0, 0): 5})
    assert "window >=" not in whole.condition(LEO_TIMELINE)  # rows without a window go as well


def test_boundaries_of_two_orders_are_compared_by_window_too() -> None:
    windows = Windows(MINUTE)
    windows.take(events(0.0, 1.0))
    at = windows.boundaries[1]
    assert windows.latest_shared([at._replace(window=at.window + 1)]) is None
    assert windows.latest_shared([Boundary(*at)]) == at
