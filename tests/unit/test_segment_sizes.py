"""How many bytes the segments of a leader's log hold, and whether each ended where segment.bytes says that it must."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from facts_builder import TOPIC, History
from test_rolls import rolled
from without_spark import tables_of

from pipelines.spark.saved_states import bytes_of, state_of
from replay.engine.events import EventBatch
from replay.tables.rare_events import rare_events
from replay.tables.segment_sizes import SegmentSizes

if TYPE_CHECKING:
    import pyarrow as pa

LIMIT = 250  # two batches of 100 bytes fit into a segment
BATCHES = 9
DUE = (2, 4, 6, 8)
ALL_BUT_FIRST = {4: (200, "segment_bytes"), 6: (200, "segment_bytes"), 8: (200, "segment_bytes")}


def written(
    lines: tuple[int, ...] = DUE,
    *,
    limits: tuple[tuple[float, str | None], ...] = ((0, str(LIMIT)),),
    stored: int = 100,
    start: int = 0,
    late: float = 1,
    lost: tuple[int, ...] = (),
) -> History:
    """1 leads with 2 from an offset on and gets batches of 100 bytes. `lines`: where it says that it rolled.

    `limits`: the values of segment.bytes and when they were set; `stored`: the bytes that a batch takes in the log;
    `late`: how long after its batch a line about a roll comes; `lost`: the batches whose produces have no line.
    """
    history = History()
    setting: dict[str, Any] = {"name": "segment.bytes", "partition": None}
    for ms, value in (one for one in limits if not one[0]):
        history.add("config_change", ms, value=value, metadata_offset=100, **setting)
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    for ms, value in (one for one in limits if one[0]):
        history.add("config_change", ms, value=value, metadata_offset=100 + len(history.rows), **setting)
    history.role(10, 1, "leader", 0, offset=start, hw=start)
    history.role(11, 2, "follower", 0, offset=start, hw=start)
    for base in range(start, start + BATCHES):
        ms = 1000 + 100 * base
        if base not in lost:
            history.produce(ms, 1, base, acks=1)
        if base in lines:
            rolled(history, ms + late, base)
        history.fetch(ms + 50, 1, 2, base, bytes=stored, hw=base)
    history.fetch(1060 + 100 * (start + BATCHES - 1), 1, 2, start + BATCHES, hw=start + BATCHES)
    return history


Told = tuple[dict[int, tuple[int | None, str | None]], dict[str, Any] | None]


def told_of(tables: dict[str, pa.Table], broker: int, check: str) -> Told:
    """What is told of each roll by a broker, and a check."""
    rows = [row for row in tables["segment_timeline"].to_pylist() if row["broker_id"] == broker]
    checks = {row["check"]: row for row in tables["conformance"].to_pylist()}
    told = {row["base_offset"]: (row["segment_bytes"], row["reason"]) for row in rows}
    assert len(told) == len(rows)
    return told, checks.get(check)


def found(history: History, **settings: Any) -> Told:
    """What is told of each roll by the leader, and the check; the same however many events come at a time."""
    events = history.events(**settings)
    seen = [told_of(tables_of(events, size), 1, "segment_roll") for size in (1, 4, 1000)]
    assert seen[0] == seen[1] == seen[2]
    return seen[0]


def counts(check: dict[str, Any] | None) -> tuple[int, int]:
    """How many of a check were compared, and how many agree."""
    return (0, 0) if check is None else (check["compared"], check["matched"])


@pytest.mark.parametrize("late", [-1, 1, 3000])
def test_a_segment_ends_before_the_batch_that_would_make_it_larger_than_it_may_be(late: float) -> None:
    told, check = found(written(late=late))
    assert told == {2: (200, "segment_bytes"), **ALL_BUT_FIRST}
    assert counts(check) == (4, 4)


@pytest.mark.parametrize(("limit", "agree"), [("199", 0), ("200", 4), ("299", 4), ("300", 0)])
def test_a_segment_may_be_just_as_large_as_the_limit(limit: str, agree: int) -> None:
    check = found(written(limits=((0, limit),)))[1]
    assert counts(check) == ((3, 0) if limit == "199" else (agree, agree))  # the first begins without a line


def test_a_segment_that_had_to_end_where_no_line_says_so_differs() -> None:
    told, check = found(written((2, 5, 7)))
    assert told == {2: (200, "segment_bytes"), 5: (None, None), 7: (200, "segment_bytes")}
    assert check is not None
    assert counts(check) == (3, 2)
    assert check["note"] == (
        "the segment at 2 would hold 300 bytes with the batch at 4, and no line tells of a roll there"
    )


def test_a_segment_that_may_have_ended_by_its_age_is_not_compared() -> None:
    told, check = found(written((1, 3)))
    assert told == {1: (100, None), 3: (200, "segment_bytes")}
    assert counts(check) == (1, 1)


def test_where_a_leader_begins_with_records_its_first_segment_is_not_known() -> None:
    told, check = found(written((22, 24, 26), start=20))
    assert told == {22: (None, None), 24: (200, "segment_bytes"), 26: (200, "segment_bytes")}
    assert counts(check) == (2, 2)


@pytest.mark.parametrize("limits", [(), ((5000, "250"),)])  # or long after the topic was made
def test_as_long_as_no_limit_is_known_only_the_bytes_are_told(limits: tuple[tuple[float, str | None], ...]) -> None:
    told, check = found(written((2, 5), limits=limits))
    assert told == {2: (200, None), 5: (300, None)}
    assert check is None


@pytest.mark.parametrize(("value", "reason"), [("350", "segment_bytes"), ("450", None), (None, None)])
def test_another_limit_holds_from_the_next_segment_on(value: str | None, reason: str | None) -> None:
    told, check = found(written((2, 5, 8), limits=((0, str(LIMIT)), (1290, value))))
    assert told == {2: (200, "segment_bytes"), 5: (None, None), 8: (300, reason)}
    assert counts(check) == ((2, 2) if reason else (1, 1))


def test_the_limit_of_another_topic_is_none_of_this_one() -> None:
    history = written((2, 5))
    history.rows[0]["topic"] = f"{TOPIC}-2"
    assert found(history)[1] is None


def test_batches_that_followers_fetch_in_fewer_bytes_are_stored_otherwise_than_they_came() -> None:
    told, check = found(written((5,), stored=50))  # five batches of 50 bytes fill a segment
    assert told == {5: (None, None)}
    assert check is None


def test_a_segment_without_a_line_counts_only_if_followers_fetched_what_was_produced() -> None:
    history = written((2, 5))
    history.rows = [row for row in history.rows if not (row["kind"] == "fetch" and row["fetch_offset"] > 1)]
    assert counts(found(history)[1]) == (1, 1)


def test_a_segment_with_a_batch_of_unknown_size_is_not_told() -> None:
    told, check = found(written(lost=(5,)))
    assert told == {**dict.fromkeys(DUE, (200, "segment_bytes")), 6: (None, None)}
    assert counts(check) == (3, 3)


def test_segments_of_the_followers_log_are_not_the_leaders() -> None:
    history = written()
    rolled(history, 1250, 1, broker=2)
    rows = tables_of(history.events())["segment_timeline"].to_pylist()
    assert [(row["segment_bytes"], row["reason"]) for row in rows if row["broker_id"] == 2] == [(None, None)]
    assert counts(found(history)[1]) == (4, 4)


def test_a_leader_that_takes_over_goes_on_in_a_segment_of_unknown_size() -> None:
    history = written((2, 4), limits=((0, str(LIMIT)),))
    history.decide(3000, 2, [1, 2], leader_epoch=1, partition_epoch=1)
    history.role(3010, 2, "leader", 1, offset=BATCHES, hw=BATCHES)
    for base in range(BATCHES, BATCHES + 4):
        history.produce(3100 + 100 * base, 2, base, acks=1)
    for base in (BATCHES + 1, BATCHES + 3):
        rolled(history, 3101 + 100 * base, base, broker=2)
    rows = tables_of(history.events())["segment_timeline"].to_pylist()
    assert [row["segment_bytes"] for row in rows if row["broker_id"] == 2] == [None, 200]


def test_a_log_that_another_directory_s_replaces_has_segments_of_its_own() -> None:
    history = written((2, 5))
    where = {"broker_id": 1, "log_dir": "/data2", "source_file": "server-1.log"}
    history.add("log_change", 1310, name="future_created", **where)
    history.add("log_change", 1350, name="future_replaced", **where)
    told, check = found(history)
    assert (told[5], counts(check)) == ((None, None), (1, 1))


def test_what_is_known_of_a_segment_goes_from_run_to_run() -> None:
    events = written().events().combine_chunks()
    sizes, told = SegmentSizes(), []
    for first in range(0, len(events), 5):
        part = EventBatch(events.slice(first, 5)).events
        rare = rare_events(part)
        for row in rare["segment_change"]:
            names = ("seq", "broker_id", "base_offset")
            sizes.unless_held({"what": row["cause"], **{name: row[name] for name in names}})
        told += sizes.take(part, rare)
        sizes = state_of(bytes_of({"sizes": sizes}))["sizes"]
    told += sizes.finish()
    assert [(row["base_offset"], row["segment_bytes"]) for row in told] == [(base, 200) for base in DUE]
    assert counts(sizes.checks()[0]) == (4, 4)


def test_events_of_a_table_from_before_state_no_limit() -> None:
    tables = tables_of(written().events().drop_columns(["segment_bytes"]))
    rows = tables["segment_timeline"].to_pylist()
    assert [(row["segment_bytes"], row["reason"]) for row in rows] == [(200, None)] * 4
