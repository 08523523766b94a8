"""Replication quotas of a partition over time (KIP-73): how fast each broker may send it, and how fast fetch it.

A broker's rate (leader.replication.throttled.rate, follower.replication.throttled.rate) holds for all partitions
together that the topics' lists name for that broker (….throttled.replicas). Both are known where the metadata log is:
its records also say when a setting is removed, which no broker's line does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replay.evidence.min_isr import number_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from replay.evidence.rows import Row

SIDES: Final = ("leader", "follower")
RATE_SETTINGS: Final = {f"{side}.replication.throttled.rate": side for side in SIDES}  # of a broker, or of all
LIST_SETTINGS: Final = {f"{side}.replication.throttled.replicas": side for side in SIDES}  # of a topic
NO_LIMIT: Final = -1


class QuotaChange(NamedTuple):
    """A record from which on another rate holds for a broker and side in this partition."""

    row: Row
    broker: int
    side: str
    rate: int  # bytes per second; NO_LIMIT: none


def quota_changes(rows: Iterable[Row], partition: int, brokers: Iterable[int]) -> list[QuotaChange]:
    """The changes in the order of the metadata log. `brokers`: who ever was a replica."""
    mine = [
        row
        for row in rows
        if row["kind"] == "config_change" and row["metadata_offset"] is not None and is_of_quotas(row)
    ]
    return list(changes_in(sorted(mine, key=lambda row: row["metadata_offset"]), partition, sorted(set(brokers))))


def is_of_quotas(row: Row) -> bool:
    """Whether a record of a setting is about a replication quota."""
    return row["name"] in (LIST_SETTINGS if row["topic"] is not None else RATE_SETTINGS)


def changes_in(rows: Iterable[Row], partition: int, brokers: list[int]) -> Iterator[QuotaChange]:
    """The changes that records make, one after the other; a broker's own rate goes before the cluster's default."""
    rates: dict[tuple[str, int | None], int | None] = {}
    lists = dict.fromkeys(SIDES, "")
    held = {(side, broker): NO_LIMIT for side in SIDES for broker in brokers}
    for row in rows:
        if row["topic"] is not None:
            lists[LIST_SETTINGS[row["name"]]] = row["value"] or ""
        else:
            rates[RATE_SETTINGS[row["name"]], row["subject_broker_id"]] = number_in(row)
        for (side, broker), until_now in held.items():
            own, default = rates.get((side, broker)), rates.get((side, None))
            rate = own if own is not None else default
            now = rate if rate is not None and is_listed(lists[side], partition, broker) else NO_LIMIT
            if now != until_now:
                held[side, broker] = now
                yield QuotaChange(row, broker, side, now)


def is_listed(text: str, partition: int, broker: int) -> bool:
    """Whether a list of throttled replicas (`0:1,0:2`, or `*`) names the partition on the broker."""
    return text == "*" or f"{partition}:{broker}" in text.split(",")
