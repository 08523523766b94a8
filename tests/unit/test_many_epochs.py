"""A partition with very many leader epochs takes as long for each of them as one with few."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pyarrow as pa
from facts_builder import History
from without_spark import tables_of

from replay.order import order

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


FEW, MANY = 150, 600


def led_in_turn(epochs: int) -> History:
    """Three brokers lead in turn: each is fenced, comes back, is cut; every tenth takes a record with it."""
    h = History()
    h.decide(0, 1, [1, 2, 3])
    offset = 0
    for epoch in range(epochs):
        ms, leader, before = epoch * 60_000, 1 + epoch % 3, 1 + (epoch - 1) % 3
        others = [b for b in (1, 2, 3) if b != leader]
        if epoch:
            h.decide(ms, leader, others)
            h.fence(ms, before)
        h.role(ms + 20, leader, "leader", epoch, offset=offset, hw=offset)
        for b in others:
            h.role(ms + 30, b, "follower", epoch, offset=offset, hw=offset)
        if epoch:
            h.fence(ms + 1000, before, fenced=False)
            h.decide(ms + 2000, None, [1, 2, 3])
            h.add("isr_update", ms + 2020, broker_id=leader, name="updated", isr=[1, 2, 3], partition_epoch=2 * epoch)
        h.produce(ms + 5000, leader, offset, acks=1)
        if epoch % 10 != 9:
            for at, b in ((at, b) for at in (6000, 7000) for b in others):
                h.fetch(ms + at, leader, b, offset + (at > 6000), current_leader_epoch=epoch)
            offset += 1
    return h


def calls_of(work: Callable[[], object]) -> int:
    """How many functions of Python's are called, with the passes of their generators: each look at a fact is one."""
    count = 0

    def called(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_ordering_takes_as_long_for_an_epoch_of_many_as_for_one_of_few() -> None:
    few, many = led_in_turn(FEW), led_in_turn(MANY)
    assert calls_of(lambda: ordered(many)) < 1.25 * MANY / FEW * calls_of(lambda: ordered(few))


def ordered(history: History) -> pa.Table:
    return pa.concat_tables(order.ordered(history.facts()))


def test_losses_take_as_long_to_tell_among_many_epochs_as_among_few() -> None:
    few, many = (ordered(led_in_turn(count)) for count in (FEW, MANY))
    assert losses_in(many) >= MANY // 20
    # A log remembers where its last 512 epochs began, and all that it remembers is looked at as a leader begins.
    assert calls_of(lambda: losses_in(many)) < 1.75 * MANY / FEW * calls_of(lambda: losses_in(few))


def losses_in(events: pa.Table) -> int:
    return len(tables_of(events)["data_loss_incidents"])
