"""Why segments ended: what a broker's line says before it begins one, in the words of each version."""

from __future__ import annotations

from typing import Any

import pytest
from facts_builder import History, of_kind
from histories_of_losses import replicated
from test_segment_sizes import LIMIT, counts, written
from test_segments import segments, told
from without_spark import same_however_batched

from pipelines.lookup.event_words import event_words
from replay.evidence.roll_reasons import stated_roll
from schemas.offsets import ROLL_REASONS

FAR = 2**31


def line(
    size: int = 200, limit: int = LIMIT, *, age: int = 0, offsets: int = 0, times: int = 0, form: str = "1.0"
) -> str:
    """What a broker states of the segment that ends; each of its limits but for the size's is 10."""
    if form == "0.8":
        return f"log_size = {size}/{limit}, index_size = {offsets}/10, age_ms = {age}/10"
    first = "index_size" if form == "0.10.1" else "offset_index_size"
    rest = f"time_index_size = {times}/10, inactive_time_ms = {age}/10"
    return f"log_size = {size}/{limit}}}, {first} = {offsets}/10, {rest}"


@pytest.mark.parametrize("form", ["0.8", "0.10.1", "1.0"])
@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ({}, "segment_bytes"),
        ({"age": 10}, "segment_bytes"),  # just as old as it may be
        ({"age": 11}, "segment_ms"),
        ({"offsets": 9}, "segment_bytes"),
        ({"offsets": 10}, "index_full"),
        ({"age": 11, "offsets": 10}, "segment_ms"),  # Kafka asks for the age first
        ({"size": 0, "age": 11, "offsets": 10}, "index_full"),  # an empty one is never too old
    ],
)
def test_what_a_line_states_tells_why_in_every_versions_words(stated: dict[str, int], reason: str, form: str) -> None:
    found = stated_roll(line(**stated, form=form), 20, 10)
    assert found == (stated.get("size", 200), LIMIT, reason)


@pytest.mark.parametrize(("entries", "reason"), [(8, "segment_bytes"), (9, "index_full")])
def test_the_index_of_times_keeps_its_last_entry_for_the_end(entries: int, reason: str) -> None:
    assert stated_roll(line(times=entries), 20, 10).reason == reason


@pytest.mark.parametrize(
    ("base", "before", "reason"),
    [
        (20, None, "segment_bytes"),  # the one that ended begins at 0 or later
        (FAR + 20, None, None),
        (FAR + 20, FAR, "segment_bytes"),
        (FAR + 20, 20, "offset_range"),
        (FAR + 19, 20, None),  # the first offset of the batch is near enough, its last may not be
        (None, None, None),
    ],
)
def test_of_a_segment_neither_old_nor_with_a_full_index_it_was_the_size_unless_offsets_may_be_too_far_apart(
    base: int | None, before: int | None, reason: str | None
) -> None:
    assert stated_roll(line(), base, before).reason == reason


def test_the_reason_stands_with_the_roll_on_leader_and_follower() -> None:
    history = replicated()
    told(history, 304, "segment_rolling", value=line(150, age=11))
    told(history, 305, "segment_rolled", base_offset=1)
    told(history, 306, "segment_rolling", 2, value=line(151, offsets=10))
    told(history, 307, "segment_rolled", 2, base_offset=1)
    told(history, 308, "segment_rolling", value="deletion")
    told(history, 309, "segment_rolled", base_offset=2)
    assert segments(history, "broker_id", "what", "base_offset", "reason", "logged_bytes", "logged_limit") == [
        (1, "rolled", 1, "segment_ms", 150, LIMIT),
        (2, "rolled", 1, "index_full", 151, LIMIT),
        (1, "rolled", 2, "retention", None, None),
    ]
    words = [event_words(row) for row in of_kind(history.events(), "segment_change")]  # type: ignore[arg-type]
    assert words[0] == "broker 1 begins a segment at 1 (segment ms)"


def test_a_line_why_alone_tells_that_a_segment_began_somewhere() -> None:
    """Up to 0.11 no line says where; and a line is of another roll if a later one has the same."""
    history = replicated()
    told(history, 304, "segment_rolling", value=line(150, age=11, form="0.8"))
    told(history, 306, "segment_rolling", value=line(151, age=12, form="0.8"))
    told(history, 307, "segment_rolled", base_offset=2)
    assert segments(history, "base_offset", "reason", "logged_bytes") == [
        (None, "segment_ms", 150),
        (2, "segment_ms", 151),
    ]
    words = [event_words(row) for row in of_kind(history.events(), "segment_change")]  # type: ignore[arg-type]
    assert words[0] == "broker 1 begins a segment (segment ms)"


@pytest.mark.parametrize(
    ("debug", "gone", "reason"), [(True, 400, "retention"), (True, 9000, None), (False, 400, None)]
)
def test_a_broker_that_states_why_and_does_not_rolled_for_retention_if_the_segment_goes_at_once(
    debug: bool,  # noqa: FBT001 - a value of the table above
    gone: float,
    reason: str | None,
) -> None:
    history = replicated()
    if debug:
        told(history, 304, "segment_rolling", value=line())
    told(history, 305, "segment_rolled", base_offset=1)
    told(history, 399, "segment_rolled", base_offset=2)
    told(history, gone, "segment_deleted", base_offset=1, value="retention time 6000ms")
    rolls = segments(history, "what", "base_offset", "reason")
    assert ("rolled", 2, reason) in rolls


def sized(*, size: int = 200, limit: int = LIMIT, age: int = 0, stored: int = 100) -> History:
    """Segments of two batches of 100 bytes, and before each roll of the leader what it states."""
    history = written(stored=stored)
    for base in (2, 4, 6, 8):
        told(history, 1000 + 100 * base, "segment_rolling", value=line(size, limit, age=age))
    return history


def checked(history: History) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """Its checks, and its rows about segments."""
    tables = same_however_batched(history.events())
    rows = sorted(tables["segment_timeline"].to_pylist(), key=lambda row: int(row["seq"]))
    return {row["check"]: row for row in tables["conformance"].to_pylist()}, rows


@pytest.mark.parametrize(("size", "limit", "agree"), [(200, LIMIT, 4), (201, LIMIT, 0), (200, LIMIT + 1, 0)])
def test_bytes_and_limit_that_a_broker_states_are_held_against_those_that_are_counted(
    size: int, limit: int, agree: int
) -> None:
    checks, rows = checked(sized(size=size, limit=limit))
    assert counts(checks["segment_size"]) == (4, agree)
    assert {(row["segment_bytes"], row["logged_bytes"], row["logged_limit"]) for row in rows} == {(200, size, limit)}
    if size != 200:
        assert checks["segment_size"]["note"] == (
            "the segment before 2 has 201 of 250 bytes by its line, and 200 of 250 as counted"
        )


def test_bytes_of_a_segment_that_is_stored_otherwise_than_it_came_are_not_compared() -> None:
    assert "segment_size" not in checked(sized(size=100, stored=50))[0]


def test_a_segment_that_is_said_to_be_too_large_and_was_not_differs() -> None:
    """The line leaves only the size, and with the batch behind the segment would have 300 bytes of 400."""
    checks, rows = checked(sized(limit=400))
    assert {row["reason"] for row in rows} == {"segment_bytes"}
    assert counts(checks["segment_roll"]) == (4, 0)


def test_kafka_asks_for_the_size_first() -> None:
    checks, rows = checked(sized(age=11))
    assert {row["reason"] for row in rows} == {"segment_bytes"}
    assert counts(checks["segment_roll"]) == (4, 4)
    assert {row["reason"] for row in checked(sized(age=11, limit=400))[1]} == {"segment_ms"}


def test_every_reason_is_one_of_the_table() -> None:
    found = {stated_roll(line(**of), FAR + 20, 20).reason for of in ({}, {"age": 11}, {"offsets": 10})}
    found |= {stated_roll(line(), 20, 10).reason, stated_roll("deletion", 20, 10).reason}
    assert found == set(ROLL_REASONS)
