"""Histories in which replicas leave the ISR and come back, and the rows of the ISR's timeline that they give."""

from __future__ import annotations

from typing import Any

from facts_builder import History
from without_spark import tables_of

from pipelines.parse.wordings.isr_words import leos_in


def begun() -> History:
    """Broker 1 leads three replicas from 10 ms on, in the ISR all."""
    history = History()
    history.decide(0, 1, [1, 2, 3])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    for broker in (2, 3):
        history.role(11, broker, "follower", 0, offset=0, hw=0)
    return history


def isr_line(history: History, ms: float, name: str, isr: list[int] | None, **fields: Any) -> None:
    """A line of broker 1 about its ISR."""
    fields = {"source_file": "server-1.log", "broker_id": 1, "leader_epoch": 0, **fields}
    history.add("isr_update", ms, name=name, isr=isr, **fields)


def shrink_line(history: History, ms: float, isr: list[int], ends: dict[int, int], leo: int) -> None:
    """`Shrinking ISR from .. to ..`, with each replica's LEO."""
    text = " ".join(f"(brokerId: {b}, endOffset: {o}, lastCaughtUpTimeMs: 1)" for b, o in ends.items())
    isr_line(history, ms, "shrink", isr, offset=leo, hw=0, value=leos_in(text), leader_epoch=None)


def replayed(history: History, **settings: Any) -> dict[str, list[dict[str, Any]]]:
    """Every table's rows."""
    events = history.events(lag_us=0, settings={"replica.lag.time.max.ms": 1000}, **settings)
    return {name: rows.to_pylist() for name, rows in tables_of(events).items()}


def isr_rows(history: History, state: str, **settings: Any) -> list[dict[str, Any]]:
    rows = replayed(history, **settings)["isr_timeline"]
    return [row for row in rows if row["state"] == state and row["movers"]]


def alive(history: History, until: int, replica: int = 2, **fields: Any) -> None:
    """A follower that fetches every 100 ms."""
    for ms in range(20 + replica, until, 100):
        history.fetch(ms, 1, replica, 0, **{"hw": 0, **fields})


def late_history(**fields: Any) -> History:
    """3 fetches until 100 ms and then as `fields` say; 1 appends at 150 and takes it out at 1700."""
    history = begun()
    alive(history, 100, 3)
    history.fetch(22, 1, 2, 0, hw=0)
    history.fetch(155, 1, 2, 0, bytes=200, hw=0)
    history.produce(150, 1, 0, acks=1)
    history.produce(151, 1, 1, acks=1)
    for ms in range(160, 1700, 100):
        history.fetch(ms, 1, 2, 2, hw=0)
        if fields:
            history.fetch(ms + 5, 1, 3, **{"offset": 0, "hw": 0, **fields})
    shrink_line(history, 1700, [1, 2], {3: fields.get("offset", 0)}, 2)
    history.decide(1705, None, [1, 2])
    isr_line(history, 1710, "updated", [1, 2], partition_epoch=1, leader_epoch=None)
    return history


def returning(*, asked_at: float | None = 1800, hw: int = 2) -> History:
    """3 left at 1710 and comes back with the HW at 1800."""
    history = late_history()
    history.fetch(1760, 1, 3, 0, bytes=200, hw=hw)
    history.fetch(1800, 1, 3, 2, hw=hw)
    if asked_at is not None:
        isr_line(history, asked_at, "pending_expand", [1, 2, 3], replica_id=3, partition_epoch=1)
    return history
