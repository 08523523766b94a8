"""Small histories whose loss is known, and the incidents that the replay makes of them."""

from __future__ import annotations

from typing import Any

from facts_builder import History
from without_spark import tables_of

COMMITTED = 2  # records that both replicas have


def losses(history: History, **settings: Any) -> list[dict[str, Any]]:
    return tables_of(history.events(**settings))["data_loss_incidents"].to_pylist()


def loss(history: History, **settings: Any) -> dict[str, Any]:
    (row,) = losses(history, **settings)
    return row


def slots(row: dict[str, Any]) -> list[tuple[int, int, int]]:
    return [(r["leader_epoch"], r["first_offset"], r["last_offset"]) for r in row["ranges"]]


def replicated(isr: list[int] | None = None) -> History:
    """Broker 1 leads epoch 0; two records that broker 2 has too, committed and acknowledged with acks=all."""
    history = History()
    history.decide(0, 1, isr or [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    for base in range(COMMITTED):
        ms = 100 + 10 * base
        history.produce(ms + 1, 1, base, total_us=2000, remote_us=2000)
        history.fetch(ms, 1, 2, base, bytes=100, hw=base, total_us=5000, remote_us=5000)
    history.fetch(300, 1, 2, COMMITTED, hw=COMMITTED, total_us=189_000, remote_us=189_000)
    return history


def tail(history: History, *, ms: float = 310, **fields: Any) -> History:
    """Three more records that only broker 1 got."""
    for k in range(3):
        history.produce(ms + k, 1, COMMITTED + k, **{"acks": 1, **fields})
    return history


def alone(history: History) -> None:
    """Broker 2 is fenced and out of the ISR: the HW no longer waits for it."""
    history.fence(304, 2)
    history.decide(305, None, [1])


def taken_over(history: History, *, ms: float = 1000, start: int = COMMITTED, **decision: Any) -> History:
    """Broker 2 leads epoch 1 from `start`; broker 1 comes back and cuts to it."""
    history.decide(ms, 2, [2], **decision)
    history.role(ms + 10, 2, "leader", 1, offset=start, hw=start)
    history.produce(ms + 20, 2, start, acks=1)
    asks = {"current_leader_epoch": 1, "last_fetched_epoch": 0}
    history.fetch(ms + 500, 2, 1, COMMITTED + 3, hw=-1, diverging_epoch=0, diverging_end_offset=start, **asks)
    history.fetch(ms + 510, 2, 1, start, bytes=100, hw=start, **asks)
    history.fetch(ms + 520, 2, 1, start + 1, hw=start + 1, **{**asks, "last_fetched_epoch": 1})
    return history


def acks_one_failure() -> History:
    history = tail(replicated())
    history.fence(1000, 1)
    return taken_over(history)


def taken_over_from(history: History, epoch: int, *, ms: float = 1000) -> History:
    """Broker 2, outside the ISR, leads from where it was."""
    history.decide(ms, 2, [2], leader_recovery_state=1)
    history.role(ms + 10, 2, "leader", epoch, offset=COMMITTED, hw=COMMITTED)
    history.produce(ms + 20, 2, COMMITTED, acks=1)
    return history
