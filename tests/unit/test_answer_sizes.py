"""How much a fetch asks for, and how its limits cut the answer (KIP-74)."""

from __future__ import annotations

from typing import Any

import pytest
from facts_builder import History
from without_spark import tables_of

PART, WHOLE = 1_000, 3_000


def history(*fetches: dict[str, Any]) -> History:
    """Return a history: broker 1 leads and has 101 records; broker 2 fetches, each time from the offset given."""
    told = History()
    told.decide(0, 1, [1, 2], replicas=[1, 2])
    told.role(10, 1, "leader", 0, offset=0, hw=0)
    told.role(11, 2, "follower", 0, offset=0, hw=0)
    told.fetch(100, 1, 2, 0, hw=0)
    told.produce(200, 1, 0, bytes=9_000, acks=1)
    told.produce(300, 1, 100, bytes=10, acks=1)
    told.fetch(500, 1, 2, 0, hw=0, error_code=9)
    limits = {"partition_max_bytes": PART, "max_bytes": WHOLE}
    for number, fields in enumerate(fetches):
        told.fetch(1_000 + 1_000 * number, 1, fields.get("replica", 2), **{"hw": 0, **limits, **without(fields)})
    return told


def without(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields but for the replica."""
    return {name: value for name, value in fields.items() if name != "replica"}


def rounds(*fetches: dict[str, Any], others: int = 0) -> list[dict[str, Any]]:
    """Return the rounds of these fetches; `others`: bytes that other partitions of each request were answered with."""
    told = history(*fetches)
    rows = [{**row, "request_bytes": (row.get("bytes") or 0) + others} for row in told.rows]
    return list(tables_of(told.events(rows))["fetch_rounds"].to_pylist()[2:])


def limits(*fetches: dict[str, Any], others: int = 0) -> list[str | None]:
    return [row["limited_by"] for row in rounds(*fetches, others=others)]


def asked(offset: int, handed: int, **fields: Any) -> dict[str, Any]:
    return {"offset": offset, "bytes": handed, **fields}


def test_a_round_tells_how_much_was_asked_for() -> None:
    (first, _) = rounds(asked(0, 10), asked(101, 0))
    assert (first["partition_max_bytes"], first["max_bytes"]) == (PART, WHOLE)


def test_an_answer_of_just_the_partitions_limit_was_cut_by_it() -> None:
    assert limits(asked(0, PART), asked(40, 0))[0] == "partition_max_bytes"


def test_a_first_batch_may_be_larger_than_the_limits() -> None:
    assert limits(asked(0, PART + 1), asked(40, 0))[0] == "first_batch"


def test_an_answer_that_fills_the_request_leaves_the_rest_of_the_partitions_out() -> None:
    assert limits(asked(0, PART - 1), asked(40, 0), others=WHOLE - PART + 1)[0] == "max_bytes"


def test_records_that_may_not_have_fitted_any_more_are_left_out() -> None:
    (row, *_) = rounds(asked(0, 0), asked(0, 0), others=WHOLE - 10)
    assert (row["limited_by"], row["evidence"]) == ("max_bytes", "bounded")


def test_an_answer_that_ends_early_though_there_was_room_ends_with_a_segment() -> None:
    (row, *_) = rounds(asked(0, PART - 1), asked(40, 0))
    assert (row["limited_by"], row["evidence"]) == ("segment", "bounded")


@pytest.mark.parametrize(
    ("handed", "before", "told"),
    [
        (PART - 1, WHOLE - PART + 1, ("max_bytes", "derived")),
        (PART - 1, WHOLE - PART, ("segment", "bounded")),
        (PART - 1, 0, ("segment", "bounded")),
        (PART - 1, None, ("max_bytes", "bounded")),
        (0, WHOLE - PART + 1, ("max_bytes", "bounded")),
        (0, WHOLE - PART, (None, "derived")),
        (0, None, ("max_bytes", "bounded")),
    ],
    ids=[
        "used up",
        "not quite",
        "read first",
        "turn not known",
        "too little left",
        "enough left",
        "turn not known, none",
    ],
)
def test_what_was_read_later_leaves_a_partition_its_room(
    handed: int, before: int | None, told: tuple[str | None, str]
) -> None:
    (row, *_) = rounds(asked(0, handed, bytes_before=before), asked(40, 0), others=WHOLE - handed)
    assert (row["limited_by"], row["evidence"], row["bytes_before"]) == (*told, before)


@pytest.mark.parametrize(
    ("handed", "before", "matched"),
    [(PART + 1, 0, 1), (PART + 1, 10, 0), (PART, WHOLE - PART, 1), (PART, WHOLE - PART + 1, 0)],
    ids=["first batch", "a batch too large behind others", "fits", "more than was left"],
)
def test_an_answer_is_no_larger_than_those_before_it_leave_it(handed: int, before: int, matched: int) -> None:
    told = history(asked(0, handed, bytes_before=before), asked(101, 0))
    rows = [{**row, "request_bytes": WHOLE} if row.get("bytes") == handed else row for row in told.rows]
    checks = {row["check"]: row for row in tables_of(told.events(rows))["conformance"].to_pylist()}
    assert (checks["answer_size"]["compared"], checks["answer_size"]["matched"]) == (1, matched)


def turns(*fetches: dict[str, Any], others: int) -> dict[str, Any] | None:
    """The check of turns of these fetches, beside `others` bytes of other partitions."""
    told = history(*fetches)
    rows = [{**row, "request_bytes": (row.get("bytes") or 0) + others} for row in told.rows]
    found = tables_of(told.events(rows))["conformance"].to_pylist()
    return next((row for row in found if row["check"] == "fetch_turn"), None)


@pytest.mark.parametrize("replica", [2, -1], ids=["follower", "consumer"])
def test_the_turn_that_follows_from_the_session_is_compared_with_the_order_of_the_answer(replica: int) -> None:
    for listed, matched in ((10, 1), (0, 0)):
        fetch = asked(0, 5, bytes_before=10, bytes_listed_before=listed, replica=replica)
        row = turns(fetch, asked(101, 0), others=10)
        assert row is not None
        assert (row["compared"], row["matched"]) == (1, matched)
        assert row["note"] == (None if matched else "broker 1: computed 10, stated 0")


@pytest.mark.parametrize(
    ("derived", "listed", "others"), [(None, 10, 10), (10, None, 10), (0, 0, 0)], ids=["unknown", "unlisted", "alone"]
)
def test_a_turn_that_is_not_known_or_the_only_one_is_not_compared(
    derived: int | None, listed: int | None, others: int
) -> None:
    assert turns(asked(0, 5, bytes_before=derived, bytes_listed_before=listed), asked(101, 0), others=others) is None


@pytest.mark.parametrize("derived", [None, 0])
def test_the_order_of_the_answer_says_what_was_left_for_a_partition(derived: int | None) -> None:
    before = WHOLE - PART + 1
    fetch = asked(0, PART - 1, bytes_before=derived, bytes_listed_before=before)
    (row, *_) = rounds(fetch, asked(40, 0), others=before)
    assert (row["bytes_before"], row["limited_by"], row["evidence"]) == (before, "max_bytes", "derived")


def test_what_a_consumer_was_answered_is_not_held_against_its_turn() -> None:
    told = history()
    told.fetch(1_000, 1, -1, 0, bytes=PART + 1, bytes_before=10, partition_max_bytes=PART, max_bytes=WHOLE, hw=0)
    rows = [{**row, "request_bytes": WHOLE} if row.get("bytes") == PART + 1 else row for row in told.rows]
    checks = {row["check"]: row for row in tables_of(told.events(rows))["conformance"].to_pylist()}
    assert (checks["answer_size"]["compared"], checks["answer_size"]["matched"]) == (1, 1)


def test_an_answer_that_reaches_the_leaders_end_was_limited_by_nothing() -> None:
    assert limits(asked(0, PART - 1), asked(101, 0)) == [None, None]


def test_what_a_request_before_version_3_or_an_older_table_does_not_tell_limits_nothing() -> None:
    nothing = {"partition_max_bytes": None, "max_bytes": None}
    assert limits(asked(0, PART, **nothing), asked(40, 0, **nothing))[0] is None


@pytest.mark.parametrize(
    ("handed", "others", "matched"),
    [(PART, WHOLE - PART, 1), (WHOLE + 1, 0, 1), (WHOLE + 1, 1, 0), (PART, WHOLE - PART + 1, 0)],
    ids=["both fit", "one batch alone", "one batch and more", "more than the request allows"],
)
def test_an_answer_is_no_larger_than_the_request_allows_but_for_one_batch_alone(
    handed: int, others: int, matched: int
) -> None:
    told = history(asked(0, handed), asked(101, 0))
    rows = [{**row, "request_bytes": handed + others} if row.get("bytes") == handed else row for row in told.rows]
    checks = {row["check"]: row for row in tables_of(told.events(rows))["conformance"].to_pylist()}
    assert (checks["answer_size"]["compared"], checks["answer_size"]["matched"]) == (1, matched)
