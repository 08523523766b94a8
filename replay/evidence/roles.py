"""Brokers' lines about their roles in a partition: roles taken up, logs loaded, truncated and lost, with their epochs.

A broker's lines are walked in order; a line about the log belongs to the role that the broker had at that time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from replay.engine.codes import LOG_CREATED
from replay.evidence.coverage import CLOCKS_US
from replay.evidence.request_columns import RequestColumns
from replay.evidence.request_times import phases
from replay.evidence.tenures import micros

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from replay.arrays.ints import Ints
    from replay.evidence.rows import Row

KINDS = ("role_change", "log_load", "truncation", "storage_failure", "log_start_change", "fetcher")
SIGN_KINDS = ("fetch", "produce", "isr_update")
CUT_CAUSES = {
    "high_watermark": "high_watermark",
    "leader_epoch": "leader_epoch",
    "reset": "out_of_range",
    "reset_full": "out_of_range",
}
NOTICES = ("propagated", "notified")  # facts `isr_update` about ZooKeeper's notifications: the second is a controller's
BATCH_START = "batch_start"  # an empty log begins with the start of a batch that straddles its end
FETCHER_LINES = (
    "request_failed", "not_started", "unexpected_error", "corrupt_records", "truncation_failed", "not_added",
    "truncation_forbidden", BATCH_START,
)  # fmt: skip
THREAD_END = "fetcher_ended"  # fact about a broker as a whole: one of its fetcher threads ended
RoleKey = tuple[int, int]  # broker, leader epoch


@dataclass(slots=True)
class Roles:
    """Lines by the role that they belong to."""

    lines: dict[RoleKey, Row] = field(default_factory=dict)  # the line about taking it up
    loads: dict[RoleKey, Row] = field(default_factory=dict)  # the load of the log just before
    rejoins: dict[RoleKey, list[tuple[Row, Row]]] = field(default_factory=lambda: defaultdict(list))  # load and line
    cuts: dict[RoleKey, list[Row]] = field(default_factory=lambda: defaultdict(list))
    storage_failures: dict[int, list[Row]] = field(default_factory=lambda: defaultdict(list))  # by leader epoch
    log_starts: dict[RoleKey, list[Row]] = field(default_factory=lambda: defaultdict(list))
    fetchers: dict[RoleKey, list[Row]] = field(default_factory=lambda: defaultdict(list))  # `FETCHER_LINES`


def moment(row: Row) -> int:
    """When a broker did what a row reports, microseconds on its clock."""
    return row["taken_us"] if row["taken_us"] is not None else micros(row["ts"])


def restarts_at(
    rejoins: Iterable[tuple[Row, Row]], rows: Sequence[Row], changed: Sequence[int]
) -> Iterator[tuple[Row, list[int]]]:
    """Yield each load of a replica's log with the places of the fetches behind which it may have been.

    `rejoins`: as of `Roles`. `rows`: the replica's fetches. `changed`: the places of those behind which its connection
    is another one. A fetch has the clock of its leader, and a load that of the replica. If by these a load lies behind
    none of them, it may lie behind each.
    """
    spans = [(k, phases(rows[k]).taken - CLOCKS_US, phases(rows[k + 1]).taken + CLOCKS_US) for k in changed]
    for load, _ in rejoins:
        us = moment(load)
        yield load, [k for k, since, until in spans if since <= us <= until] or [*changed]


def roles_of(rows: list[Row], signs_in: Mapping[str, Sequence[Row]]) -> Roles:
    """A partition's lines about roles (`KINDS`, and what the controller sent), by role.

    `signs_in`: by kind, rows that show brokers in roles (`SIGN_KINDS`).
    """
    lines = [r for r in rows if r["kind"] in KINDS and r["ts"] is not None and r["broker_id"] is not None]
    lines = [r for r in lines if r["kind"] != "fetcher" or r["name"] in FETCHER_LINES]
    lines += told_roles(rows, lines)
    lines.sort(key=lambda r: (r["broker_id"], moment(r), r["source_file"], r["source_line"]))
    found = Roles()
    signs = role_signs(signs_in, {row["broker_id"] for row in lines if row["kind"] == "log_load"})
    for broker, own in groupby(lines, key=lambda r: r["broker_id"]):
        walk = RoleWalk(found, broker, signs.get(broker, []))
        for row in own:
            walk.take(row)
        walk.settle(None)
    return found


def role_signs(rows: Mapping[str, Sequence[Row]], brokers: set[int]) -> dict[int, list[tuple[int, int]]]:
    """Signs that `brokers` were in a role, beside role lines: (time in microseconds, leader epoch or -1), rising.

    The signs are fetches that they sent or served without error, produces that they took, and lines that only leaders
    write.
    """
    parts: dict[int, list[tuple[Ints, Ints]]] = defaultdict(list)
    for kind, every in rows.items() if brokers else ():
        some = [row for row in every if row["name"] not in NOTICES] if kind == "isr_update" else every
        told = RequestColumns(some)
        broker, epoch = told.stated("broker_id"), told.stated("current_leader_epoch")
        of_leader = told.without_error if kind != "isr_update" else np.ones(len(some), np.bool_)
        us = told.at.taken if kind != "isr_update" else told.stated("ts")
        replica = told.stated("replica_id") if kind == "fetch" else np.full(len(some), -1, np.int64)
        for one in brokers:
            for which in ((replica == one) & (epoch >= 0), (broker == one) & of_leader):
                parts[one].append((us[which], epoch[which]))
    return {broker: signs for broker, some in parts.items() if (signs := in_time(some))}


def in_time(parts: Sequence[tuple[Ints, Ints]]) -> list[tuple[int, int]]:
    """Pairs of times and leader epochs, rising."""
    us, epoch = (np.concatenate(some) for some in zip(*parts, strict=True))
    order = np.lexsort((epoch, us))
    return list(zip(us[order].tolist(), epoch[order].tolist(), strict=True))


class RoleWalk:
    """One broker's lines, in order."""

    def __init__(self, found: Roles, broker: int, signs: list[tuple[int, int]]) -> None:
        """`signs`: signs of `broker`'s roles; results are added to `found`."""
        self.found, self.broker, self.signs = found, broker, signs
        self.epoch: int | None = None  # of its role
        self.end: Row | None = None  # the line with the end of its log, as last read
        self.ends: list[int] = []  # ends of all logs that were read since the last load
        self.loaded: Row | None = None  # the load that no role has followed yet
        self.was_empty = False  # whether that log was created, and no line states its end
        self.loaded_ends: list[int] = []  # ends of the logs that were read before that load
        self.cause: str | None = None  # cause of the truncation that the log's next line is about
        self.created = False  # whether the log was created, not read, since the last load

    @property
    def key(self) -> RoleKey:
        """The role that the broker has."""
        return self.broker, -1 if self.epoch is None else self.epoch

    def take(self, row: Row) -> None:
        """Apply the next line."""
        if row["kind"] == "truncation":
            self.cut(row)
        elif row["kind"] == "storage_failure":
            self.found.storage_failures[self.key[1]].append(row)
        elif row["kind"] == "log_start_change":
            self.found.log_starts[self.key].append(row)
        elif row["kind"] == "fetcher":
            self.found.fetchers[self.key].append(row)
        elif row["kind"] == "log_load":
            self.load(row)
        elif row["leader_epoch"] is not None:
            self.role(row)

    def cut(self, row: Row) -> None:
        """Apply a line about a truncation: the follower's line states the cause, the log's own next line the offset."""
        cause, self.cause = self.cause, CUT_CAUSES.get(row["name"])
        if row["name"] == "log" and self.epoch is not None:
            rejoined = len(self.found.rejoins.get(self.key, ()))
            self.found.cuts[self.key].append(row.but(cause=cause or "leader_epoch", rejoined=rejoined))

    def load(self, row: Row) -> None:
        """Apply a line about reading a log (at startup, or again after a truncation) or about loading the partition.

        Up to 2.5 no line names the directory that was read: it may belong to a deleted topic of that name that waits to
        be removed. A log does not end below its high watermark.
        """
        if row["name"] == "created":
            self.created = True
        elif row["hw"] is None:
            if row["name"] == "completed" or self.end is None or self.end["name"] != "completed":
                self.end = row
            if row["name"] == "completed" and row["offset"] is not None:
                self.ends.append(row["offset"])
        else:
            offset = row["offset"] if row["offset"] is not None or self.end is None else self.end["offset"]
            if offset is not None and offset < row["hw"]:
                offset = next((end for end in reversed(self.ends) if end >= row["hw"]), offset)
            had_role = self.epoch is not None or bool(self.signs and self.signs[0][0] < moment(row))
            made = LOG_CREATED if self.created and had_role else None
            self.settle(row)
            self.loaded, self.was_empty = row.but(offset=offset, cause=made), self.created and offset is None
            self.loaded_ends = self.ends
            self.end, self.ends, self.created = None, [], False

    def role(self, row: Row) -> None:
        """Apply a role that was taken up; again in the same epoch after a load means a restart within the epoch."""
        self.epoch = row["leader_epoch"]
        load, self.loaded = self.loaded, None
        if load is not None and row["offset"] in self.loaded_ends:
            load = load.but(offset=row["offset"])
        earlier = None if load is None else self.role_between(load, row)
        if load is not None and earlier is not None:
            if earlier >= 0 and (self.broker, earlier) not in self.found.lines:
                self.found.loads[self.broker, earlier] = load
            load = None
        if self.key in self.found.lines:
            if load is not None:
                self.found.rejoins[self.key].append((load, row))
            return
        self.found.lines[self.key] = row
        if load is not None:
            self.found.loads[self.key] = load
            if row["offset"] is None:
                self.found.lines[self.key] = row.but(offset=load["offset"])

    def settle(self, following: Row | None) -> None:
        """Assign a load that no role line follows to the role that the next fetches show, if any.

        If the broker had that role before, it took it up again: a restart within the epoch.
        """
        load, self.loaded = self.loaded, None
        if load is None:
            return
        first = bisect_right(self.signs, moment(load), key=lambda sign: sign[0])
        last = len(self.signs) if following is None else bisect_left(self.signs, moment(following), key=lambda s: s[0])
        epoch = next((epoch for _, epoch in self.signs[first:last] if epoch >= 0), None)
        if epoch is None:
            return
        key = (self.broker, epoch)
        if key in self.found.lines or any(before == epoch for _, before in self.signs[:first]):
            role = load.but(kind="role_change", name="follower", leader_epoch=epoch)
            self.found.rejoins[key].append((load, role))
        else:
            self.found.loads.setdefault(key, load)

    def role_between(self, load: Row, role: Row) -> int | None:
        """Epoch of a role that the broker had after `load` and before `role`, though no line states it.

        -1: a role whose epoch is unknown. None: nothing shows such a role, so the load belongs to `role`. A log that is
        longer than when it was loaded grew in a role; a log that was created had nothing.
        """
        first = bisect_right(self.signs, moment(load), key=lambda sign: sign[0])
        last = bisect_left(self.signs, moment(role), key=lambda sign: sign[0])
        earlier = [epoch for _, epoch in self.signs[first:last] if epoch < role["leader_epoch"]]
        end = 0 if self.was_empty else load["offset"]
        grew = role["offset"] is not None and end is not None and role["offset"] > end
        named = next((epoch for epoch in earlier if epoch >= 0), -1)
        return named if earlier or grew else None


def told_roles(rows: list[Row], lines: list[Row]) -> list[Row]:
    """Roles known only from the controller's LeaderAndIsr request: their lines were not copied, or never written.

    Followers up to 2.5 write none. A broker takes up the role while it handles the request, right after loading the log
    if it had to. The same epoch sent again is a restart if a log was loaded for it; otherwise it changes nothing.
    """
    stated = {(row["broker_id"], row["leader_epoch"]) for row in lines if row["kind"] == "role_change"}
    loads: dict[int, list[Row]] = defaultdict(list)
    for row in lines:
        if row["kind"] == "log_load" and row["hw"] is not None:
            loads[row["broker_id"]].append(row)
    first: dict[RoleKey, Row] = {}
    restarts: list[Row] = []
    for row in rows:
        key = (row["broker_id"], row["leader_epoch"])
        is_told = row["kind"] == "leader_and_isr" and not row["error_code"]
        # a line that only says that the request came does not say how long it was handled
        handled = row["connection"] is not None
        if not is_told or not handled or key in stated or row["ts"] is None:
            continue
        at = phases(row)
        name = "leader" if row["leader_id"] == row["broker_id"] else "follower"
        role = row.but(kind="role_change", name=name, offset=None, hw=None, taken_us=at.taken)
        load = next((r for r in loads[row["broker_id"]] if at.taken <= micros(r["ts"]) <= at.stamp), None)
        if load is not None:
            place = {name: load[name] for name in ("source_file", "source_line")}
            restarts.append(role.but(**place, taken_us=micros(load["ts"])))
        elif key not in first or moment(role) < moment(first[key]):
            first[key] = role
    return [*first.values(), *restarts]
