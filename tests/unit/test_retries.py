"""Answers of a leader that was cut off from its clients too: the next leader was sent the same batches again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from facts_builder import History, at
from histories_of_losses import COMMITTED, losses, replicated

Change = Callable[[History], Any]
SIZES = (100, 240, 170)
START_OF_BROKER = {"topic": None, "partition": None, "name": "unclean_start", "source_file": "server-1.log"}


def cut_off(sizes: tuple[int, ...] = SIZES, *, change: Change = lambda _: None, **sent: Any) -> dict[str, Any]:
    """Broker 1 answers three produces and is taken for dead; broker 2 leads and is sent batches of these `sizes`."""
    history = replicated()
    for k, size in enumerate(SIZES):
        history.produce(310 + k, 1, COMMITTED + k, acks=1, bytes=size)
    change(history)
    history.fence(1000, 1)
    history.decide(1000, 2, [2])
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED)
    for k, size in enumerate(sizes):
        history.produce(1020 + k, 2, COMMITTED + k, acks=1, bytes=size, **sent)
    (row,) = losses(history)
    return row


def test_batches_that_the_next_leader_was_sent_again_are_possibly_acknowledged() -> None:
    row = cut_off()
    assert (row["acked_one"], row["acked_one_possible"], row["acked_all_possible"], row["records"]) == (0, 3, 0, 3)
    assert row["evidence"] == "bounded"


@pytest.mark.parametrize("sizes", [(), SIZES[:2], SIZES[:1], SIZES[1:], (100, 170, 240), (240, 170, 100)])
def test_batches_of_other_sizes_or_in_another_order_are_not_the_same(sizes: tuple[int, ...]) -> None:
    assert cut_off(sizes)["acked_one"] == len(SIZES)


def test_batches_of_another_client_are_not_the_same() -> None:
    assert cut_off(client_id="another")["acked_one"] == len(SIZES)


def test_client_that_went_on_asking_on_its_connection_had_its_answers() -> None:
    refused = {"acks": 1, "error_code": 6, "bytes": 100}
    assert cut_off(change=lambda h: h.produce(900, 1, -1, **refused))["acked_one"] == len(SIZES)


def test_leader_that_died_had_sent_its_answers() -> None:
    def dies(history: History) -> None:
        history.add("broker_lifecycle", 5000, broker_id=1, **START_OF_BROKER)

    assert cut_off(change=dies)["acked_one"] == len(SIZES)


def test_leader_that_was_heard_of_before_it_started_anew_had_not_died() -> None:
    def starts_much_later(history: History) -> None:
        history.role(3000, 1, "follower", 1, offset=COMMITTED + 3, hw=COMMITTED)
        history.add("broker_lifecycle", 5000, broker_id=1, **START_OF_BROKER)

    assert cut_off(change=starts_much_later)["acked_one"] == 0


def test_leader_that_shut_down_in_order_was_not_cut_off() -> None:
    def leaves(history: History) -> None:
        history.fence(999, 1, fenced=None, in_controlled_shutdown=True)

    assert cut_off(change=leaves)["acked_one"] == len(SIZES)


def test_leader_that_lost_its_directory_was_not_cut_off() -> None:
    def fails(history: History) -> None:
        history.add("storage_failure", 900, name="directory_failed", broker_id=1, source_file="server-1.log")

    assert cut_off(change=fails)["acked_one"] == len(SIZES)


def test_long_after_clients_give_up_nothing_is_sent_again() -> None:
    history = replicated()
    for k in range(3):
        history.produce(310 + k, 1, COMMITTED + k, acks=1)
    history.fence(1000, 1)
    history.decide(200_000, 2, [2])
    history.role(200_010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED)
    for k in range(3):
        history.produce(200_020 + k, 2, COMMITTED + k, acks=1)
    (row,) = losses(history)
    assert (row["acked_one"], row["lost_ts"]) == (3, at(200_000))
