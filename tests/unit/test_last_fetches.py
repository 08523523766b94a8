"""How far the last fetch of a follower brought it whose next one died with the leader's log."""

from __future__ import annotations

import pytest
from facts_builder import History, of_kind


def end_of_last_fetch(*isrs: tuple[int, list[int]]) -> int | None:
    """3 fetches record 1, which is acknowledged to all of the ISR; the leader dies before it logs 3's next fetch.

    `isrs`: decisions about the ISR, and when they were made.
    """
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2, 3])
    history.role(10, 1, "leader", 0, offset=1, hw=1)
    for broker in (2, 3):
        history.role(11, broker, "follower", 0, offset=1, hw=1)
    for ms, isr in isrs:
        history.decide(ms, None, isr)
    history.fetch(5020, 1, 3, 1, bytes=100, hw=1, remote_us=10_000, total_us=10_000)
    history.produce(5030, 1, 1, remote_us=15_000, total_us=15_000)
    history.decide(9000, 2, [2], leader_epoch=1)
    (apply,) = of_kind(history.events(), "fetch_apply")
    return apply["next_offset"]


def test_a_member_of_the_isr_has_what_was_acknowledged_though_it_joined_within_the_epoch() -> None:
    assert end_of_last_fetch((1000, [1, 2, 3])) == 2
    assert end_of_last_fetch((500, [1, 2, 3]), (600, [1, 2]), (1000, [1, 2, 3])) == 2


@pytest.mark.parametrize("isrs", [[], [(1000, [1, 2, 3]), (2000, [1, 2])], [(4000, [1, 2, 3])]])
def test_nothing_is_known_of_who_is_outside_or_has_just_joined(isrs: list[tuple[int, list[int]]]) -> None:
    """A leader may learn of a decision two seconds late, and what it received before waited for a smaller ISR."""
    assert end_of_last_fetch(*isrs) is None
