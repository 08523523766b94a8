"""Records that a later leader's answers show in its log were not lost, whatever lines are missing between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from histories_of_losses import COMMITTED, losses, replicated, slots, tail

if TYPE_CHECKING:
    from facts_builder import History

OLD = {"current_leader_epoch": 1, "last_fetched_epoch": 0}


def taken_over_untold() -> History:
    """Broker 2 leads epoch 1, by its line from offset 2; broker 1 had appended three records more in epoch 0."""
    history = tail(replicated())
    history.fence(1000, 1)
    history.decide(1000, 2, [2])
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED)
    history.produce(1020, 2, COMMITTED + 3, acks=1)
    return history


def test_without_an_answer_that_shows_them_records_beyond_the_start_are_lost() -> None:
    assert [slots(row) for row in losses(taken_over_untold())] == [[(0, 2, 4)]]


@pytest.mark.parametrize(
    ("offset", "answer", "left"),
    [
        (COMMITTED + 3, {"hw": COMMITTED}, []),
        (COMMITTED + 1, {"hw": COMMITTED}, [(0, 3, 4)]),
        (COMMITTED + 4, {"hw": -1, "diverging_epoch": 0, "diverging_end_offset": COMMITTED + 3}, [(0, 5, 5)]),
        (COMMITTED + 3, {"hw": -1, "error_code": 6}, [(0, 2, 4)]),
    ],
)
def test_records_that_a_later_leader_shows_to_have_are_not_lost(
    offset: int, answer: dict[str, Any], left: list[tuple[int, int, int]]
) -> None:
    history = taken_over_untold()
    history.fetch(1500, 2, 1, offset, **{**OLD, **answer})
    assert [one for row in losses(history) for one in slots(row)] == left
