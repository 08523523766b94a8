"""The note of a check that differs names brokers, times and waits, not the kernel's numbers for them."""

from __future__ import annotations

import pytest

from replay.engine.codes import (
    CHECK_COMMIT_BEFORE_ACK,
    CHECK_DELAYED_PRODUCE,
    CHECK_EXPANSION,
    CHECK_FETCH_COMPLETION,
    CHECK_PRODUCE_GUARD,
    CHECK_RESPONSE_HW,
)
from replay.engine.completions import AT_ONCE, IN_FULL
from replay.protocol.state import NONE
from replay.tables.check_notes import note_of

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("code", "values", "told"),
    [
        (CHECK_EXPANSION, (NONE, 0), "computed nothing, stated broker 101"),
        (CHECK_EXPANSION, (1, NONE), "computed broker 7, stated nothing"),
        (CHECK_FETCH_COMPLETION, (AT_ONCE, IN_FULL), "computed no wait, stated a wait until time was up"),
        (CHECK_COMMIT_BEFORE_ACK, (SECOND, 2 * SECOND), "computed 00:00:01.000, stated 00:00:02.000"),
        (CHECK_PRODUCE_GUARD, (0, 19), "computed no error, stated NOT_ENOUGH_REPLICAS"),
        (CHECK_DELAYED_PRODUCE, (7, 99), "computed REQUEST_TIMED_OUT, stated error 99"),
        (CHECK_RESPONSE_HW, (0, 12), "computed 0, stated 12"),
    ],
)
def test_a_note_says_what_differs_in_words(code: int, values: tuple[int, int], told: str) -> None:
    assert note_of(code, 1, values, [101, 7]) == f"broker 7: {told}"


def test_a_note_of_a_broker_that_no_line_names_says_so() -> None:
    assert note_of(CHECK_RESPONSE_HW, NONE, (1, 2), [1]) == "broker unknown: computed 1, stated 2"
