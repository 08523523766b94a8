"""When a broker stopped a partition's fetcher and started the next one as it took up a role, by its own lines.

`ReplicaFetcherManager` writes a line as it has taken partitions from their threads, and one as it has given them to
threads; the second names the leader epoch of the role and the offset from which the fetcher begins. A follower's
fetcher is stopped and started behind the line about its role, a leader's is stopped before it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from replay.engine.stamps import CLOCK_SLACK_US
from replay.evidence.roles import moment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.evidence.roles import RoleKey, Roles
    from replay.evidence.rows import Row

STARTED: Final = "added"
STOPPED: Final = "removed"


class Steps(NamedTuple):
    """The lines about a follower's fetchers as it takes up a role, or about the fetcher of who begins to lead."""

    stopped: Row | None  # the last one before it was started; of a leader the first one since
    started: Row  # in this role; of a leader: the fetcher that it had before


class Lines:
    """One broker's lines about a partition's fetchers, and when it loaded the partition's log."""

    def __init__(self) -> None:
        """Start without any."""
        self.started: list[Row] = []
        self.stopped: list[Row] = []
        self.loads: list[int] = []

    def sort(self) -> None:
        """Put them in the order in which they were written."""
        self.started.sort(key=written)
        self.stopped.sort(key=written)
        self.loads.sort()

    def of_followers(self, roles: list[Row]) -> dict[int, Steps]:
        """Of roles that it took up in one leader epoch, in their order, by place: its fetcher's steps."""
        times = [moment(row) for row in roles]
        found: dict[int, Steps] = {}
        for row in self.started:
            if row["leader_epoch"] == roles[0]["leader_epoch"]:
                place = max(bisect_right(times, moment(row) + CLOCK_SLACK_US) - 1, 0)
                found.setdefault(place, Steps(self.last_stop(row), row))
        return found

    def last_stop(self, started: Row) -> Row | None:
        """The line that it was stopped that stands before `started`."""
        place = bisect_left(self.stopped, written(started), key=written)
        return self.stopped[place - 1] if place else None

    def of_leader(self, role: Row) -> Steps | None:
        """When the fetcher was stopped that a broker had which begins to lead; None if it had none."""
        since = next((row for row in reversed(self.started) if moment(row) <= moment(role)), None)
        if since is None or any(moment(since) <= us <= moment(role) for us in self.loads):
            return None
        place = bisect_right(self.stopped, written(since), key=written)
        return Steps(self.stopped[place] if place < len(self.stopped) else None, since)


def written(row: Row) -> tuple[int, str, int]:
    """Sort key: in the order in which a broker's lines were written."""
    return moment(row), row["source_file"], row["source_line"]


def fetcher_steps(rows: Iterable[Row], roles: Roles) -> dict[RoleKey, dict[int, Steps]]:
    """By role and by how often its broker had come back to it (0: not yet): what its fetcher's lines tell.

    `rows`: facts `fetcher` and `log_load`.
    """
    lines: dict[int, Lines] = defaultdict(Lines)
    for row in rows:
        if row["ts"] is None or row["broker_id"] is None:
            continue
        if row["kind"] == "log_load":
            lines[row["broker_id"]].loads.append(moment(row))
        elif row["name"] == STOPPED:
            lines[row["broker_id"]].stopped.append(row)
        elif row["name"] == STARTED and row["leader_epoch"] is not None:
            lines[row["broker_id"]].started.append(row)
    for own in lines.values():
        own.sort()
    found: dict[RoleKey, dict[int, Steps]] = {}
    for key, line in roles.lines.items():
        own = lines[key[0]]
        if not own.started:
            continue
        if line["name"] == "follower":
            again = [role for _, role in roles.rejoins.get(key, ())]
            found[key] = own.of_followers([line, *again])
        elif (steps := own.of_leader(line)) is not None:
            found[key] = {0: steps}
    return found
