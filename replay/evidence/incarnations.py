"""The incarnations of a partition whose topic was deleted and created again, where no source states topic ids.

ZooKeeper up to 2.7 has no topic ids: a topic that is created again has the same name, and its leader epochs start again
at 0. Servers' own lines show that it is another topic: a log that is created anew, or was deleted before, meets a
leader epoch that is no higher than its broker's last one; or a controller creates a partition that does not exist. A
replica that left the assignment and comes back is no new incarnation, since its epoch is higher. Nor is a broker that
started with an empty disk under the epoch that it had.

What the model leaves out: two incarnations that only one broker reports, if the other brokers' clocks are off by more
than the incarnations lasted.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from replay.evidence.request_times import phases
from replay.evidence.tenures import micros

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from replay.evidence.rows import Row
    from replay.evidence.tenures import Decision

Source = int | None  # the broker whose lines are walked; -1: the controllers', whichever broker was one
CONTROLLERS: Source = -1
NEW_PARTITION = ("NonExistentPartition", "NewPartition")
CONTROLLER_LINES = ("partition", "replica", "partition_failed", "replica_failed", "leader_and_isr_sent",
                    "stop_replica_sent", "replica_removed")  # fmt: skip
BROKER_STARTS = ("version", "clean_start", "unclean_start")
LEFT_OVER = re.compile(r"\.([0-9a-f]{32})-(?:delete|stray)(?:[/\\]|$)")


class Birth(NamedTuple):
    """A source begins to report the next incarnation at `since`, microseconds on its clock."""

    since: int
    source: Source


class Lives:
    """Which incarnation of a partition each of its facts belongs to, numbered from 0."""

    def __init__(self, rows: Sequence[Row], starts: Mapping[Source, Sequence[int]] | None = None) -> None:
        """`rows`: a partition's facts. `starts`: when each broker started, microseconds."""
        own: dict[Source, list[Row]] = defaultdict(list)
        for row in rows:
            if row["ts"] is not None:
                own[source_of(row)].append(row)
        told = {source: births_of(source, lines, (starts or {}).get(source, ())) for source, lines in own.items()}
        self.begins = aligned({source: births for source, births in told.items() if births})
        self.count = 1 + max(map(len, self.begins.values()), default=0)
        self.left_over = self.directories(rows) if self.count > 1 else {}

    def of(self, row: Row) -> int | None:
        """The incarnation of a fact, by its source's own clock; None: that of a deleted log which no line names.

        Files without times were read at the end, so they belong to the last incarnation, except logs that await
        deletion.
        """
        if self.count == 1:
            return 0
        directory = LEFT_OVER.search(row["source_file"] or "")
        if directory is not None:
            return self.left_over.get(directory[1])
        return self.count - 1 if row["ts"] is None else self.at(source_of(row), moment_of(row))

    def at(self, source: Source, us: int) -> int:
        """The incarnation in force for a source at a time of its clock."""
        return bisect_right(self.begins.get(source) or self.begins[None], us)

    def directories(self, rows: Iterable[Row]) -> dict[str, int]:
        """Unique part of the names of directories renamed for deletion -> incarnation that the log belonged to."""
        out = {}
        for row in rows:
            found = LEFT_OVER.search(row["value"] or "") if row["kind"] == "log_change" else None
            if found is not None and row["ts"] is not None:
                out[found[1]] = self.at(row["broker_id"], micros(row["ts"]) - 1)
        return out


def source_of(row: Row) -> Source:
    """Who reports a fact: a broker, or a controller for the whole partition."""
    told_by_controller = row["kind"] == "state_change" and row["name"] in CONTROLLER_LINES
    return CONTROLLERS if told_by_controller else row["broker_id"]


def moment_of(row: Row) -> int:
    """When a broker did what a row reports; for a request, when it was taken up."""
    return phases(row).taken if row["connection"] is not None else micros(row["ts"])


def starts_of_brokers(cluster: Iterable[Row]) -> dict[Source, list[int]]:
    """When brokers started, by the lines that each writes then."""
    out: dict[Source, list[int]] = defaultdict(list)
    for row in cluster:
        if row["kind"] == "broker_lifecycle" and row["name"] in BROKER_STARTS and row["ts"] is not None:
            out[row["broker_id"]].append(micros(row["ts"]))
    return out


def births_of(source: Source, rows: Sequence[Row], starts: Sequence[int]) -> list[Birth]:
    """Where one source's lines begin to report the next incarnation."""
    if source == CONTROLLERS:
        return [Birth(us, source) for us in made_by_controllers(rows)]
    walk = LifeWalk(starts)
    for row in sorted(rows, key=lambda r: (told_at(r), r["source_file"] or "", r["source_line"] or 0)):
        walk.take(row)
    return [Birth(us, source) for us in walk.births]


def made_by_controllers(rows: Sequence[Row]) -> list[int]:
    """When controllers created the partition anew; the first creation counts only if they reported on it before."""
    moves = sorted((micros(r["ts"]), (r["state_before"], r["state_after"])) for r in rows if r["name"] == "partition")
    made = [us for us, move in moves if move == NEW_PARTITION]
    return made if moves and made and moves[0][0] < made[0] else made[1:]


def told_at(row: Row) -> int:
    """Place of a row among its broker's; a request counts when it is answered, after the lines that it caused."""
    return phases(row).stamp if row["connection"] is not None else micros(row["ts"])


class LifeWalk:
    """One broker's lines about a partition, in order."""

    def __init__(self, starts: Sequence[int]) -> None:
        """`starts`: when the broker started."""
        self.starts = starts
        self.births: list[int] = []
        self.told: tuple[int, int] | None = None  # highest leader epoch in this incarnation, and its partition epoch
        self.told_us = 0  # when that was reported
        self.deleted: int | None = None  # when its log was deleted since then
        self.loads: int | None = None  # when its log was first read or created since then
        self.created: int | None = None  # when it was created

    def take(self, row: Row) -> None:
        """Apply the next row."""
        us = micros(row["ts"])
        if row["kind"] == "log_load":
            self.loads = us if self.loads is None else self.loads
            self.created = us if row["name"] == "created" else self.created
        elif is_deletion(row):
            self.deleted, self.loads, self.created = us, None, None
        elif row["leader_epoch"] is not None and tells_a_role(row):
            self.role(row)

    def role(self, row: Row) -> None:
        """Apply a role; a new incarnation begins if both its epoch and its log start again."""
        version = row["partition_epoch"]
        state = (row["leader_epoch"], -1 if version is None else version)
        again = self.told is not None and state[0] <= self.told[0] and row["offset"] in (None, 0)
        if again and self.is_anew(state, told_at(row)):
            since = [us for us in (self.deleted, self.loads) if us is not None]
            self.births.append(min(since, default=moment_of(row)))
            self.told = state
        else:
            self.told = state if self.told is None else max(self.told, state)
        self.told_us = told_at(row)
        self.deleted = self.loads = self.created = None

    def is_anew(self, state: tuple[int, int], us: int) -> bool:
        """Whether the log was deleted or created since the last role, or the partition's state is its first version.

        A log created after a restart, under the epoch that its broker had, only means that the disk is empty now.
        """
        if self.deleted is not None:
            return True
        if self.created is not None:
            lower = self.told is not None and state[0] < self.told[0]
            return lower or not any(self.told_us < start < us for start in self.starts)
        return state == (0, 0) and self.told is not None and self.told > state


def is_deletion(row: Row) -> bool:
    """Whether a broker says that it deletes its log: it was renamed, or the controller asked for it."""
    if row["kind"] == "log_change":
        return bool(row["name"] == "renamed_for_deletion")
    return bool(row["kind"] == "state_change" and row["name"] == "stop_replica" and row["value"] == "true")


def deletion_told(by_kind: Mapping[str, Sequence[Row]], decisions: Sequence[Decision]) -> Row | None:
    """The line that reports the topic's deletion where no metadata does: its controller's, else its brokers'.

    A single broker that deletes its log may only have left the assignment, so each of the replicas has to say so.
    """
    moves = [row for row in by_kind.get("state_change", ()) if row["ts"] is not None]
    gone = [row for row in moves if row["name"] == "partition" and row["state_after"] == NEW_PARTITION[0]]
    if gone:
        return max(gone, key=told_at)
    since = decisions[-1].us if decisions else 0
    deletes = [*by_kind.get("log_change", ()), *moves]
    told = {row["broker_id"]: row for row in deletes if is_deletion(row) and row["ts"] and told_at(row) >= since}
    replicas = decisions[-1].replicas if decisions else ()
    return max(told.values(), key=told_at) if replicas and told.keys() >= set(replicas) else None


def tells_a_role(row: Row) -> bool:
    """Whether a row states the broker's leader epoch: its role line, or a request that it carried out."""
    if row["kind"] == "leader_and_isr":
        return row["connection"] is not None and not row["error_code"]
    return bool(row["kind"] == "role_change")


def aligned(told: Mapping[Source, list[Birth]]) -> dict[Source, list[int]]:
    """Births of all sources -> when each source begins to report each later incarnation; None: any other source.

    If all sources report equally many births, the first of each belong to the same incarnation, and so on. Otherwise
    time decides: a new incarnation begins with a birth from a source that already reported one of the incarnation
    before.
    """
    if not told:
        return {}
    most = max(map(len, told.values()))
    if all(len(births) == most for births in told.values()):
        groups = [{births[k].source: births[k].since for births in told.values()} for k in range(most)]
    else:
        groups = []
        for birth in sorted((one for births in told.values() for one in births), key=lambda one: (one.since, str(one))):
            if not groups or birth.source in groups[-1]:
                groups.append({})
            groups[-1][birth.source] = birth.since
    least = [min(group.values()) for group in groups]
    out: dict[Source, list[int]] = {None: least}
    for source in told:
        begins = [group.get(source, first) for group, first in zip(groups, least, strict=True)]
        out[source] = [max(begins[: k + 1]) for k in range(len(begins))]
    return out
