"""KRaft controllers' lines about changes of a partition: every change at DEBUG, unclean elections at INFO.

Every controller writes them as it replays the metadata log (`PartitionRegistration.maybeLogPartitionChange`): the
fields that changed with their old and new values, and always the partition epoch. A line that lists leader, leader
epoch and ISR therefore states two complete states; any other line gives the next state if the one before is known.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from replay.evidence.tenures import Decision, from_line

if TYPE_CHECKING:
    from replay.evidence.rows import Row

T = TypeVar("T")
CHANGED = {("state_change", "metadata"), ("broker_lifecycle", "unclean_election")}
LISTED = re.compile(
    r"\b(leader|leaderEpoch|leaderRecoveryState|isr|replicas): (\[[^\]]*\]|[-\w]+) -> (\[[^\]]*\]|[-\w]+)"
)
NUMBER = re.compile(r"-?\d{1,9}")


class StatedChange(NamedTuple):
    """A parsed line: old and new value of each field that changed."""

    row: Row
    leader: tuple[int, int] | None = None
    epoch: tuple[int, int] | None = None
    isr: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    replicas: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    recovering: bool | None = None


def change_of(row: Row) -> StatedChange:
    """Parse the line's text."""
    listed = {name: (before, after) for name, before, after in LISTED.findall(row["text"] or "")}
    sets = {
        name: tuple(tuple(map(int, NUMBER.findall(one))) for one in listed.get(name, ()))
        for name in ("isr", "replicas")
    }
    single = {
        name: tuple(int(one) for one in listed.get(name, ()) if NUMBER.fullmatch(one))
        for name in ("leader", "leaderEpoch")
    }
    state = listed.get("leaderRecoveryState")
    return StatedChange(
        row,
        pair_of(single["leader"]),
        pair_of(single["leaderEpoch"]),
        pair_of(sets["isr"]),
        pair_of(sets["replicas"]),
        None if state is None else state[1] == "RECOVERING",
    )


def pair_of(values: tuple[T, ...]) -> tuple[T, T] | None:
    """The old and the new value, if both are stated."""
    return (values[0], values[1]) if len(values) == 2 else None


def with_controllers(states: list[Decision], rows: list[Row]) -> list[Decision]:
    """The states from brokers' lines, completed from controllers' lines; by leader epoch and partition epoch."""
    told: dict[int, Row] = {}
    for row in sorted((r for r in rows if (r["kind"], r["name"]) in CHANGED), key=lambda r: (r["ts"], r["fact_id"])):
        if row["partition_epoch"] is not None:
            told.setdefault(row["partition_epoch"], row)
    if not told:
        return states
    known = {state.partition_epoch: state for state in states if state.partition_epoch is not None}
    replicas = next((state.replicas for state in states if state.replicas), ())
    for version in sorted(told):
        change = change_of(told[version])
        before = known.get(version - 1) or whole_before(change, version, replicas)
        if before is None or (change.epoch is not None and change.epoch[0] != before.leader_epoch):
            continue
        known.setdefault(version - 1, before)
        known.setdefault(version, after(before, change, version))
    others = [state for state in states if state.partition_epoch is None]
    return sorted(
        [*others, *known.values()],
        key=lambda s: (s.leader_epoch, -1 if s.partition_epoch is None else s.partition_epoch),
    )


def whole_before(change: StatedChange, version: int, replicas: tuple[int, ...]) -> Decision | None:
    """The complete state before a line that lists all fields; when it was decided is unknown, so it is `bounded`."""
    if change.leader is None or change.epoch is None or change.isr is None:
        return None
    row = change.row.but(isr=list(change.isr[0]))
    out = from_line(row, change.leader[0], change.epoch[0], version - 1, replicas)
    return replace(out, evidence="bounded")


def after(before: Decision, change: StatedChange, version: int) -> Decision:
    """The state that a line leads to."""
    return replace(
        before,
        row=change.row,
        leader=before.leader if change.leader is None else change.leader[1],
        leader_epoch=before.leader_epoch if change.epoch is None else change.epoch[1],
        partition_epoch=version,
        isr=before.isr if change.isr is None else tuple(sorted(change.isr[1])),
        replicas=before.replicas if change.replicas is None else change.replicas[1],
        recovering=before.recovering if change.recovering is None else change.recovering,
        evidence="observed",
    )
