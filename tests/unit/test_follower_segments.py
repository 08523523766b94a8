"""How many bytes the segments of a follower's log hold, and whether each ended where segment.bytes says it must."""

from __future__ import annotations

from typing import Any

import pytest
from facts_builder import History
from test_rolls import rolled
from test_segment_sizes import Told, counts, told_of
from without_spark import same_however_batched, tables_of

from pipelines.spark.saved_states import bytes_of, state_of
from replay.engine.events import EventBatch
from replay.tables.follower_segments import LogSegments
from replay.tables.rare_events import rare_events

LIMIT, PART, WHOLE = 250, 1_000, 3_000
BATCHES = 9
DUE = (2, 4, 6, 8)
SETTING: dict[str, Any] = {"name": "segment.bytes", "partition": None}
DEFAULT: dict[str, Any] = {"name": "log.segment.bytes", "topic": None, "partition": None}


def fetched(
    lines: tuple[int, ...] = DUE,
    *,
    limit: int | None = LIMIT,
    offsets: range = range(BATCHES),
    late: float = 1,
    lost: tuple[int, ...] = (),
    sizes: tuple[int, int] = (PART, 0),
) -> History:
    """2 follows 1 and fetches at these offsets, and batches of 100 bytes up to the next. `lines`: where 2 rolled.

    `late`: how long after the answer a line about a roll comes; `lost`: from where an answer is asked for again;
    `sizes`: how much a fetch takes, and bytes of other partitions in each answer.
    """
    start, step, (largest, others) = offsets.start, offsets.step, sizes
    history = History()
    if limit is not None:
        history.add("config_change", 0, value=str(limit), metadata_offset=100, **SETTING)
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=start, hw=start)
    history.role(11, 2, "follower", 0, offset=start, hw=start)
    for base in range(start, start + BATCHES):
        history.produce(1000 + 10 * base, 1, base, acks=1)
    limits = {"partition_max_bytes": largest, "max_bytes": WHOLE}
    ms = 2_000
    for base in offsets:
        size = 100 * min(step, start + BATCHES - base)
        for _ in range(1 + (base in lost)):
            history.fetch(ms, 1, 2, base, bytes=size, request_bytes=size + others, hw=base, **limits)
            ms += 100
        if base in lines:
            rolled(history, ms - 100 + late, base, broker=2)
    history.fetch(ms, 1, 2, start + BATCHES, hw=start + BATCHES, request_bytes=0, **limits)
    return history


def found(history: History) -> Told:
    """What is told of each roll by broker 2, and the check; the same however many events come at a time."""
    events = history.events()
    whole = same_however_batched(events)
    seen = [told_of(tables, 2, "follower_segment_roll") for tables in (whole, tables_of(events, 4))]
    assert seen[0] == seen[1]
    return seen[0]


BY_SIZE = (200, "segment_bytes")


@pytest.mark.parametrize("late", [-1, 1, 3_000])
def test_a_follower_s_segment_ends_before_the_answer_that_would_make_it_larger_than_it_may_be(late: float) -> None:
    told, check = found(fetched(late=late))
    assert told == dict.fromkeys(DUE, BY_SIZE)
    assert counts(check) == (4, 4)


def test_it_ends_between_answers_and_not_between_batches() -> None:
    told, check = found(fetched((2, 4, 6, 8), offsets=range(0, BATCHES, 2)))
    assert (told, counts(check)) == (dict.fromkeys(DUE, BY_SIZE), (4, 4))
    told, check = found(fetched((4, 8), offsets=range(0, BATCHES, 4), limit=550))  # the leader's end at 5
    assert (told, counts(check)) == ({4: (400, "segment_bytes"), 8: (400, None)}, (1, 1))


def test_a_follower_s_segment_that_had_to_end_where_no_line_says_so_differs() -> None:
    told, check = found(fetched((2, 5, 7)))
    assert told == {2: BY_SIZE, 5: (None, None), 7: BY_SIZE}
    assert check is not None
    assert counts(check) == (3, 2)
    assert check["note"] == (
        "the segment at 2 would hold 300 bytes with the batch at 4, and no line tells of a roll there"
    )


def test_one_that_may_have_ended_by_its_age_is_not_compared() -> None:
    told, check = found(fetched((1, 3)))
    assert (told, counts(check)) == ({1: (100, None), 3: BY_SIZE}, (1, 1))


def test_where_a_follower_begins_with_records_its_first_segment_is_not_known() -> None:
    told, check = found(fetched((22, 24), offsets=range(20, 20 + BATCHES)))
    assert (told, counts(check)) == ({22: (None, None), 24: BY_SIZE}, (1, 1))


def test_an_answer_that_was_not_used_is_not_counted() -> None:
    told, check = found(fetched(lost=(3, 5)))
    assert (told, counts(check)) == (dict.fromkeys(DUE, BY_SIZE), (4, 4))


@pytest.mark.parametrize("sizes", [(100, 0), (PART, WHOLE - 100)], ids=["partition", "request"])
def test_of_an_answer_that_a_limit_cut_it_is_not_known_how_much_was_appended(sizes: tuple[int, int]) -> None:
    told, check = found(fetched(sizes=sizes))
    assert (told, check) == (dict.fromkeys(DUE, (None, None)), None)


def test_a_cut_or_a_start_of_the_follower_leaves_its_segment_unknown() -> None:
    for kind, fields in (
        ("truncation", {"name": "leader_epoch", "offset": 3}),
        ("log_load", {"offset": 3, "hw": 3}),
    ):
        history = fetched((2, 5, 7))
        history.add(kind, 2_301, broker_id=2, source_file="server-2.log", **fields)
        told, _ = found(history)
        assert (told[5], told[7]) == ((None, None), BY_SIZE)


def test_a_line_that_comes_long_after_its_answer_tells_of_no_segment() -> None:
    history = fetched((2, 4))
    limits = {"partition_max_bytes": PART, "max_bytes": WHOLE}
    for base in (BATCHES, BATCHES + 1):
        history.produce(59_000 + base, 1, base, acks=1)
        history.fetch(59_100 + base, 1, 2, base, bytes=100, request_bytes=100, hw=base, **limits)
    history.fetch(59_200, 1, 2, BATCHES + 2, hw=BATCHES + 2, request_bytes=0, **limits)
    rolled(history, 59_300, 6, broker=2)  # 56 s behind that answer
    rolled(history, 59_301, BATCHES + 1, broker=2)
    told, check = found(history)
    assert told == {2: BY_SIZE, 4: BY_SIZE, 6: (None, None), BATCHES + 1: (None, None)}
    assert counts(check) == (2, 2)


def defaults(*values: tuple[int, str], own: str | None = None) -> History:
    """Brokers' defaults as they print them, each with its broker; the topic's own limit."""
    history = fetched(limit=None if own is None else int(own))
    for broker, value in values:
        where = {"broker_id": broker, "source_file": f"server-{broker}.log"}
        history.add("config_change", 1, value=value, resource_type=4, **where, **DEFAULT)
    return history


@pytest.mark.parametrize(
    ("history", "limit"),
    [
        (defaults((1, "250"), (2, "250")), 250),
        (defaults((1, "250"), (2, "250"), (2, "300")), None),
        (defaults((1, "250")), None),
        (defaults((1, "300"), (2, "300"), own="250"), 250),
        (defaults((1, "250"), (2, "250"), (3, "9")), 250),
    ],
    ids=["of both", "another one later", "of one alone", "the topic's own", "of a broker without a replica"],
)
def test_a_topic_that_is_made_without_a_limit_has_that_of_its_brokers(history: History, limit: int | None) -> None:
    (first, *_) = history.events().to_pylist()
    assert (first["kind"], first["segment_bytes"]) == ("config_change", limit)
    assert counts(found(history)[1]) == ((4, 4) if limit else (0, 0))


def test_a_default_that_the_metadata_log_sets_is_not_known_to_be_in_force() -> None:
    history = defaults((1, "250"), (2, "250"))
    history.add("config_change", 5, value="900", metadata_offset=120, **DEFAULT)
    assert history.events().to_pylist()[0]["segment_bytes"] is None


def test_what_is_known_of_a_follower_s_segment_goes_from_run_to_run() -> None:
    told, sizes = told_in_parts(fetched(), 5)
    told += sizes.finish()
    assert [(row["base_offset"], row["segment_bytes"]) for row in told] == [(base, 200) for base in DUE]
    (check,) = sizes.checks()
    assert counts(check) == (4, 4)


def told_in_parts(history: History, size: int = 20) -> tuple[list[dict[str, Any]], LogSegments]:
    """The rows about rolls that are told before the end, so many events at a time."""
    events = history.events().combine_chunks()
    sizes: LogSegments = LogSegments()
    told: list[dict[str, Any]] = []
    for first in range(0, len(events), size):
        part = EventBatch(events.slice(first, size)).events
        rare = rare_events(part)
        for row in rare["segment_change"]:
            names = ("seq", "ts", "broker_id", "base_offset")
            told += sizes.unless_held({"what": row["cause"], **{name: row[name] for name in names}})
        told += sizes.take(part, rare)
        sizes = state_of(bytes_of({"sizes": sizes}))["sizes"]
    return told, sizes


def without_requests() -> History:
    """2 follows 1 and rolls a segment each second, and no line tells of requests."""
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    for k in range(1, 51):
        rolled(history, 1_000 * k, 10 * k, broker=2)
    return history


def test_where_no_line_tells_of_fetches_a_roll_is_told_a_few_seconds_later() -> None:
    """Else each row would stand in the last window, and the state that is saved would grow with every roll."""
    told, sizes = told_in_parts(without_requests())
    assert [row["base_offset"] for row in told] == [10 * k for k in range(1, 46)]  # until 5 s before the last event
    assert len(sizes.followers[2].held) == len(sizes.followers[2].awaited) == 5
    assert found(without_requests())[0] == dict.fromkeys(range(10, 501, 10), (None, None))


def ending(*, after: tuple[float, ...], again: tuple[float, ...] = ()) -> History:
    """Fetches up to a roll at 9, whose own fetch has no line; the leader gets more batches, and 2 fetches again."""
    history = fetched((2, 4, 6, 8))
    limits = {"partition_max_bytes": PART, "max_bytes": WHOLE}
    rolled(history, 3_000, BATCHES, broker=2)
    for k, ms in enumerate(after):
        history.produce(ms, 1, BATCHES + k, acks=1)
    for k, ms in enumerate(again):
        history.fetch(ms, 1, 2, BATCHES + k, bytes=100, request_bytes=100, hw=BATCHES + k, **limits)
        if k in (2, 4):
            rolled(history, ms + 1, BATCHES + k, broker=2)
    return history


def test_what_came_before_a_roll_is_counted_though_no_line_tells_of_the_fetch_behind() -> None:
    lonely = ending(after=(8_001, 8_002))
    told, sizes = told_in_parts(lonely)
    assert [row["base_offset"] for row in told] == [*DUE, BATCHES]
    assert sizes.followers[2].held == []
    assert found(lonely)[0] == {**dict.fromkeys(DUE, BY_SIZE), BATCHES: (100, None)}


def test_fetches_that_come_late_go_on_from_the_roll() -> None:
    again = ending(after=tuple(8_001 + k for k in range(6)), again=tuple(8_100 + 10 * k for k in range(6)))
    told, check = found(again)
    assert told == {**dict.fromkeys(DUE, BY_SIZE), BATCHES: (100, None), 11: BY_SIZE, 13: BY_SIZE}
    assert counts(check) == (6, 6)


def test_a_roll_of_which_it_is_too_early_to_tell_is_not_told_with_one_before() -> None:
    history = fetched((2, 4, 6))
    limits = {"partition_max_bytes": PART, "max_bytes": WHOLE}
    rolled(history, 3_000, BATCHES, broker=2)
    for k in range(6):
        history.produce(7_900 + k, 1, BATCHES + k, acks=1)
    rolled(history, 7_950, BATCHES + 2, broker=2)  # its own fetch comes 200 ms later
    history.produce(8_010, 1, BATCHES + 6, acks=1)
    for k in range(7):
        base = BATCHES + k
        history.fetch(8_100 + 25 * k, 1, 2, base, bytes=100, request_bytes=100, hw=base, **limits)
    told, _ = found(history)
    assert (told[BATCHES + 2], told[6]) == (BY_SIZE, BY_SIZE)


def test_a_roll_that_is_told_already_does_not_hurry_what_waits() -> None:
    """2 cuts its log below the roll at 20 and fetches again; the line about the roll at 6 comes 3 s late."""
    history = fetched((2, 4))
    limits = {"partition_max_bytes": PART, "max_bytes": WHOLE}
    rolled(history, 3_000, 20, broker=2)
    history.add("truncation", 3_100, name="leader_epoch", offset=2, broker_id=2, source_file="server-2.log")
    for k in range(2, BATCHES):
        history.fetch(7_800 + k, 1, 2, k, bytes=100, request_bytes=100, hw=k, **limits)
    history.produce(8_010, 1, BATCHES, acks=1)
    rolled(history, 8_100, 4, broker=2)
    rolled(history, 8_101, 6, broker=2)
    rows = tables_of(history.events())["segment_timeline"].to_pylist()
    told = sorted((row["seq"], row["base_offset"], row["segment_bytes"]) for row in rows if row["broker_id"] == 2)
    assert [one[1:] for one in told[2:]] == [(20, None), (4, None), (6, 200)]
